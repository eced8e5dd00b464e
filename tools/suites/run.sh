#!/usr/bin/env bash
# Runs Redis's own test suite against a node, and prints a line for each of its files.
#
#   tools/suites/run.sh TREE "PROGRAM ARGS" [options] [UNIT ...]
#
#   TREE      a folder with the source of Redis 7.2 (for the tests: folder tests);
#             nothing is built or written there
#   PROGRAM   the server with its leading arguments: "bin/cairn server"
#   UNIT      a file of the suite without .tcl: unit/type/hash. Default: those whose
#             commands exist; "all" stands for every one the tree lists.
#
#   --mode cluster       one node with cluster-enabled yes that owns all slots (default)
#   --mode standalone    one node without cluster, tests of database 0 only
#   --tags "-slow"       tags to take or, with a minus, to leave out (default "-slow")
#   --limit 300          seconds for one file
#   --skip FILE          names of tests to leave out, or /regular expressions, one a line;
#                        a line that begins with # is a comment; may be given again
#   --logs FOLDER        keeps what the suite prints, a file each (default: a temporary folder)
#   --show               names each failing test
#
# Every file gets a fresh server, so that one which dies leaves no settings behind
# for the next. A file that dies or runs out of time counts as one more failure.
# The column absent counts those failures whose error is an unknown command.
# The last line is "N passed, M failed, K files"; the exit status is 0 if M is 0.
#
# Needs tclsh 8.5 or newer and redis-cli.
set -u

usage() { sed -n '2,/^set -u/s/^# \{0,1\}//p' "$0" | sed '/^set -u/d'; }

die() { echo "suites: $*" >&2; exit 2; }

default_units="unit/type/string unit/type/incr unit/type/hash unit/keyspace unit/expire unit/scan unit/dump unit/multi
unit/protocol unit/quit unit/other unit/introspection unit/pubsub"

[ "${1:-}" != --help ] && [ "${1:-}" != -h ] || { usage; exit 0; }
[ $# -ge 2 ] || { usage >&2; exit 2; }
tree=$(cd "$1" 2>/dev/null && pwd) || die "no such folder: $1"
[ -f "$tree/tests/test_helper.tcl" ] || die "$1 holds no tests/test_helper.tcl: name the source tree of a Redis"
read -r -a program <<<"$2"
shift 2
mode=cluster tags=-slow limit=300 logs='' show=0 units=() skips=()
while [ $# -gt 0 ]; do
  case $1 in
    --mode) mode=${2:-}; shift ;;
    --tags) tags=${2:-}; shift ;;
    --limit) limit=${2:-}; shift ;;
    --logs) logs=${2:-}; shift ;;
    --skip) skips+=("${2:-}"); shift ;;
    --show) show=1 ;;
    -*) die "unknown option $1; --help explains" ;;
    *) units+=("$1") ;;
  esac
  shift
done
case $mode in
  cluster) suite_mode=--cluster-mode cluster=yes ;;
  standalone) suite_mode=--singledb cluster=no ;;
  *) die "mode $mode: want cluster or standalone" ;;
esac
command -v "${program[0]}" >/dev/null || die "no such program: ${program[0]}"
program[0]=$(realpath "$(command -v "${program[0]}")")
tclsh=$(command -v tclsh8.6 || command -v tclsh8.5 || command -v tclsh) || die "tclsh is not installed"
cli=$(command -v redis-cli) || cli=$tree/src/redis-cli
[ -x "$cli" ] || die "redis-cli is not installed"

scratch=$(mktemp -d) || exit 2
server=0
stop_server() {
  [ "$server" -ne 0 ] || return 0
  kill "$server" 2>/dev/null
  for _ in {1..100}; do
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  kill -9 "$server" 2>/dev/null
  wait "$server" 2>/dev/null
  server=0
}
trap 'stop_server; rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
[ -n "$logs" ] || logs=$(mktemp -d)
mkdir -p "$logs"
logs=$(cd "$logs" && pwd)

# The suite writes beside itself and calls a few programs by path.
mkdir -p "$scratch/src"
cp -a "$tree/tests" "$scratch/tests"
mkdir -p "$scratch/tests/tmp"
sed '/^#/d' /dev/null "${skips[@]}" >"$scratch/skip" || die "cannot read a list of tests to skip"
for name in redis-cli redis-benchmark redis-server; do
  for candidate in "$tree/src/$name" "$(command -v $name)"; do
    if [ -x "$candidate" ]; then ln -sf "$candidate" "$scratch/src/$name"; break; fi
  done
done
cd "$scratch" || exit 2
export TERM=dumb LC_ALL=C.UTF-8 # no colours in what is counted below

free_port() { # nobody on it, nor on the bus port above it, which are not among those of outgoing connections
  local p
  while :; do
    p=$((12000 + RANDOM % 10000))
    (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null && continue
    (exec 3<>"/dev/tcp/127.0.0.1/$((p + 10000))") 2>/dev/null && continue
    echo "$p"
    return
  done
}

ask() { timeout 10 "$cli" -p "$port" "$@" 2>/dev/null </dev/null; }

start_server() { # log of the server: $1
  rm -rf "$scratch/data"
  mkdir "$scratch/data"
  port=$(free_port)
  "${program[@]}" --port "$port" --dir "$scratch/data" --save "" --cluster-enabled $cluster \
    --enable-protected-configs yes --enable-debug-command yes --enable-module-command yes >"$1" 2>&1 </dev/null &
  server=$!
  for _ in {1..300}; do
    if [ "$(ask PING)" = PONG ]; then
      [ $cluster = no ] || ask CLUSTER ADDSLOTSRANGE 0 16383 >/dev/null
      for _ in {1..100}; do
        [ $cluster = yes ] && ! ask CLUSTER INFO | grep -q 'cluster_state:ok' || return 0
        sleep 0.1
      done
    fi
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  tail -n 20 "$1" >&2
  die "the server does not come up: ${program[*]}"
}

[ ${#units[@]} -gt 0 ] || read -r -d '' -a units <<<"$default_units"
[ "${units[*]}" != all ] || mapfile -t units < <("$tclsh" tests/test_helper.tcl --list-tests)

# failures LOG: a line for each failing test, with the command it lacked, if that was it.
failures() {
  awk '
    function flush() { if (name != "") print name (lacks != "" ? "  (no command " lacks ")" : ""); name = lacks = "" }
    /^\[[a-z]+\]: / { flush() }
    /^\[err\]: / { name = substr($0, 8); sub(/ in tests\/.*/, "", name) }
    name != "" && lacks == "" && match($0, /unknown command .[a-zA-Z|]+/) { lacks = substr($0, RSTART + 17, RLENGTH - 17) }
    END { flush() }' "$1"
}

passed=0 failed=0 gone=0 files=0 began=$SECONDS
printf '%-34s %6s %6s %6s %8s %6s  %s\n' file passed failed absent skipped secs note
for unit in "${units[@]}"; do
  name=${unit//\//_} note='' start=$SECONDS
  log=$logs/$name.log
  start_server "$logs/$name.server.log"
  timeout -k 10 "$limit" "$tclsh" tests/test_helper.tcl --host 127.0.0.1 --port "$port" $suite_mode --durable \
    --clients 1 --timeout "$limit" --baseport "$(free_port)" --skipfile "$scratch/skip" --tags "$tags" --single "$unit" >"$log" 2>&1 </dev/null
  status=$?
  ok=$(grep -ac '^\[ok\]: ' "$log") bad=$(grep -ac '^\[err\]: ' "$log") skipped=$(grep -acE '^\[(ignore|skip)\]: ' "$log")
  if ! kill -0 "$server" 2>/dev/null; then
    note='the server died' bad=$((bad + 1))
  elif [ $status -ge 124 ] || grep -aq '^\[TIMEOUT\]' "$log"; then
    note="over $limit s" bad=$((bad + 1))
  elif grep -aq '^\[exception\]' "$log"; then
    note="stopped: $(grep -am1 '^\[exception\]' "$log" | cut -c1-80)" bad=$((bad + 1))
  elif [ $status -ne 0 ] && [ "$bad" -eq 0 ]; then
    note="exit status $status" bad=1
  fi
  stop_server
  lacking=$(failures "$log" | grep -c '(no command [a-zA-Z|]*)$')
  passed=$((passed + ok)) failed=$((failed + bad)) gone=$((gone + lacking))
  [ $((ok + bad)) -eq 0 ] || files=$((files + 1))
  printf '%-34s %6d %6d %6d %8d %6d  %s\n' "$unit" "$ok" "$bad" "$lacking" "$skipped" $((SECONDS - start)) "$note"
  [ $show = 0 ] || failures "$log" | sed 's/^/    /'
done
echo "mode $mode, tags \"$tags\", $gone failures are commands that do not exist, $((SECONDS - began)) s, logs in $logs"
echo "$passed passed, $failed failed, $files files"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
