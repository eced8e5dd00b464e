#!/usr/bin/env bash
# Runs Redis's own cluster suites, which start and end the nodes themselves, and prints a line for each unit.
#
#   tools/suites/cluster.sh TREE "PROGRAM ARGS" [options] [UNIT ...]
#
#   TREE      a folder with the source of Redis 7.2 (for the tests: folder tests);
#             nothing is built or written there
#   PROGRAM   the server with its leading arguments: "bin/cairn server". It takes a
#             configuration file, as redis-server does
#   UNIT      a file of tests/cluster/tests without .tcl: 05-slave-selection; or one of
#             tests/unit: unit/cluster/links. Default: those of cluster membership and failover.
#
#   --limit 600          seconds for one unit
#   --skip FILE          as in run.sh; units without a slash have no such list
#   --logs FOLDER        keeps what the suites print, a file each (default: a temporary folder)
#   --show               names each failing test
#
# The last line is "N passed, M failed, K units"; the exit status is 0 if M is 0. A unit that dies
# or runs out of time counts as one more failure.
#
# Needs tclsh 8.5 or newer and redis-cli.
set -u

usage() { sed -n '2,/^set -u/s/^# \{0,1\}//p' "$0" | sed '/^set -u/d'; }

die() { echo "suites: $*" >&2; exit 2; }

default_units="00-base 03-failover-loop 05-slave-selection 07-replica-migration 08-update-msg 12-replica-migration-2
15-cluster-slots 18-info unit/cluster/announced-endpoints unit/cluster/failure-marking unit/cluster/hostnames
unit/cluster/human-announced-nodename unit/cluster/links unit/cluster/misc unit/cluster/multi-slot-operations
unit/cluster/slot-ownership"

[ "${1:-}" != --help ] && [ "${1:-}" != -h ] || { usage; exit 0; }
[ $# -ge 2 ] || { usage >&2; exit 2; }
tree=$(cd "$1" 2>/dev/null && pwd) || die "no such folder: $1"
[ -f "$tree/tests/cluster/run.tcl" ] || die "$1 holds no tests/cluster/run.tcl: name the source tree of a Redis 7.2"
read -r -a program <<<"$2"
shift 2
limit=600 logs='' show=0 units=() skips=()
while [ $# -gt 0 ]; do
  case $1 in
    --limit) limit=${2:-}; shift ;;
    --skip) skips+=("${2:-}"); shift ;;
    --logs) logs=${2:-}; shift ;;
    --show) show=1 ;;
    -*) die "unknown option $1; --help explains" ;;
    *) units+=("$1") ;;
  esac
  shift
done
[ ${#units[@]} -gt 0 ] || read -r -d '' -a units <<<"$default_units"
command -v "${program[0]}" >/dev/null || die "no such program: ${program[0]}"
program[0]=$(realpath "$(command -v "${program[0]}")")
tclsh=$(command -v tclsh8.6 || command -v tclsh8.5 || command -v tclsh) || die "tclsh is not installed"

scratch=$(mktemp -d) || exit 2
# What a unit that was cut short left behind: of the processes that the wrapper below started, those that are still
# where they were started.
end_nodes() {
  [ -f "$scratch/pids" ] || return 0
  while read -r pid; do
    case $(readlink "/proc/$pid/cwd" 2>/dev/null) in "$scratch"/*) kill -9 "$pid" 2>/dev/null ;; esac
  done <"$scratch/pids"
  rm -f "$scratch/pids"
}
trap 'end_nodes; rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
[ -n "$logs" ] || logs=$(mktemp -d)
mkdir -p "$logs"
logs=$(cd "$logs" && pwd)

# Both suites start src/redis-server and know it by its process id, so the wrapper becomes the program.
mkdir -p "$scratch/src"
cp -a "$tree/tests" "$scratch/tests"
mkdir -p "$scratch/tests/tmp" "$scratch/tests/cluster/tmp"
sed '/^#/d' /dev/null "${skips[@]}" >"$scratch/skip" || die "cannot read a list of tests to skip"
for name in redis-cli redis-benchmark; do
  for candidate in "$tree/src/$name" "$(command -v $name)"; do
    if [ -x "$candidate" ]; then ln -sf "$candidate" "$scratch/src/$name"; break; fi
  done
done
[ -x "$scratch/src/redis-cli" ] || die "redis-cli is not installed"
{
  echo '#!/bin/sh'
  echo "echo \$\$ >>'$scratch/pids'"
  printf 'exec'
  printf ' %q' "${program[@]}"
  echo ' "$@"'
} >"$scratch/src/redis-server"
chmod +x "$scratch/src/redis-server"

# Neither ports nor bus ports lie where the system takes those of outgoing connections.
port=$((12000 + RANDOM % 8 * 1000))
sed -i "s/^set ::redis_base_port .*/set ::redis_base_port $port/" "$scratch/tests/instances.tcl"
cd "$scratch" || exit 2
export TERM=dumb LC_ALL=C.UTF-8 # no colours in what is counted below

passed=0 failed=0 ran=0 began=$SECONDS
printf '%-40s %6s %6s %6s  %s\n' unit passed failed secs note
for unit in "${units[@]}"; do
  log=$logs/${unit//\//_}.log note='' start=$SECONDS
  case $unit in
    */*)
      timeout -k 15 "$limit" "$tclsh" tests/test_helper.tcl --durable --clients 1 --baseport "$port" --portcount 900 \
        --timeout "$limit" --skipfile "$scratch/skip" --single "$unit" >"$log" 2>&1 </dev/null
      status=$?
      ok=$(grep -ac '^\[ok\]: ' "$log") bad=$(grep -ac '^\[err\]: ' "$log")
      if grep -aq '^\[exception\]' "$log"; then
        note="stopped: $(grep -am1 '^\[exception\]' "$log" | cut -c1-80)" bad=$((bad + 1))
      fi
      failures='s/^\[err\]: \(.*\) in tests\/.*/    \1/p'
      ;;
    *)
      timeout -k 15 "$limit" "$tclsh" tests/cluster/run.tcl --single "$unit" >"$log" 2>&1 </dev/null
      status=$?
      # "12:34:56> name: OK", or "FAILED: why" at the end, sometimes in a line of its own.
      bad=$(grep -ac 'FAILED: ' "$log")
      ok=$(($(grep -acE '^[0-9:]{8}> ' "$log") - bad))
      failures='s/^[0-9:]\{8\}> \(.*FAILED: .*\)/    \1/p'
      ;;
  esac
  if [ $status -eq 124 ] || [ $status -eq 137 ]; then
    note="over $limit s"
    [ "$bad" -gt 0 ] || bad=1
  elif [ $status -ne 0 ] && [ "$bad" -eq 0 ]; then
    note="exit status $status: $(grep -a WARNING "$log" | tail -n 1 | cut -c1-60)" bad=1
  fi
  end_nodes
  passed=$((passed + ok)) failed=$((failed + bad))
  [ $((ok + bad)) -eq 0 ] || ran=$((ran + 1))
  printf '%-40s %6d %6d %6d  %s\n' "$unit" "$ok" "$bad" $((SECONDS - start)) "$note"
  [ $show = 0 ] || sed -n "$failures" "$log"
done
echo "$((SECONDS - began)) s, logs in $logs"
echo "$passed passed, $failed failed, $ran units"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
