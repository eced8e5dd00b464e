// Command crash kills a node again and again, and holds what comes back against
// what was acknowledged.
//
//	go run ./tools/crash kill --program "bin/cairn server" --rounds 200
//
// Shape. A round: writers send pipelines on connections and keys of their own
// (writer.go, ops.go) and keep a model of what each acknowledged command left behind
// (model.go); at a random moment the process gets SIGKILL; it is started again on
// the same folder; every key is read back (check.go). rounds.go is the loop.
//
// What must hold. Every acknowledged command is there with its exact effect. Of the
// pipeline that a connection had in flight, a prefix is there, MULTI/EXEC as a whole.
// Nothing else is there. DBSIZE, the keys that SCAN finds, and the sum of the
// slots' counts or the line of INFO keyspace are the same number. The log on disk stays
// within its bound.
//
// Units. Deadlines are Unix milliseconds, sizes are bytes.
//
// Errors. The first broken promise ends the run with status 1, and is printed with the seed, the
// command that repeats the run, and the folder, which is kept.
//
// Not here: power loss, which needs a file system that forgets; that is a test of
// package server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const usageText = `usage: go run ./tools/crash kill [flags]

Starts a node, writes to it from several connections, kills it with SIGKILL at a
random moment, starts it again on the same folder, and reads back every key. What
was acknowledged must be there with its exact value; of the pipelines in flight, a
prefix. The first loss ends the run with status 1 and keeps the folder.

  go build -o bin/ ./cmd/...
  go run ./tools/crash kill --rounds 200                        the three appendfsync modes in turn
  go run ./tools/crash kill --rounds 20 --policy always --seed 7
  go run ./tools/crash kill --program redis-server --redis      the check itself, on a server that is known

flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	o, flags := newOptions()
	if len(args) == 0 || args[0] != "kill" {
		fmt.Fprint(os.Stderr, usageText)
		flags.PrintDefaults()
		if len(args) > 0 && (args[0] == "-h" || args[0] == "--help") {
			return 0
		}
		return 2
	}
	if err := flags.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if err := o.complete(flags.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "crash: %v\n", err)
		return 2
	}
	r, err := newRun(o)
	if err != nil {
		fmt.Fprintf(os.Stderr, "crash: %v\n", err)
		return 1
	}
	err = r.all(ctx)
	r.report(os.Stdout)
	if ctx.Err() != nil {
		r.cleanUp()
		fmt.Println("interrupted")
		return 130
	}
	if err != nil && r.stats.kills() == 0 {
		r.cleanUp() // it never came up: there is nothing to look at
		fmt.Printf("\nFAIL: %v\n", err)
		return 1
	}
	if err != nil {
		fmt.Printf("\nFAIL: %v\n\nthe folder is kept: %s\nreplay (moments differ, commands do not): %s\n", err, o.dir, o.replay())
		return 1
	}
	r.cleanUp()
	fmt.Println("PASS")
	return 0
}

// options are the flags of kill.
type options struct {
	program  string
	redis    bool
	rounds   int
	policy   string
	mode     string
	seed     uint64
	writers  int
	budget   string
	backlog  string
	recovery string
	dir      string
	extra    string
	quiet    bool
	wantLog  int64
	maxWait  time.Duration
	restart  time.Duration

	command  []string // program, split
	policies []string
	ownDir   bool
}

func newOptions() (*options, *flag.FlagSet) {
	o := &options{}
	f := flag.NewFlagSet("kill", flag.ContinueOnError)
	f.StringVar(&o.program, "program", "bin/cairn server", "`program` with its leading arguments")
	f.BoolVar(&o.redis, "redis", false, "the program is a redis-server: no directives of cairn's own, appendonly yes, policy always")
	f.IntVar(&o.rounds, "rounds", 200, "how many `kills`")
	f.StringVar(&o.policy, "policy", "all", "appendfsync: always, everysec, no, or all: one after the other")
	f.StringVar(&o.mode, "mode", "alternate", "standalone, cluster, or alternate: cluster-enabled every other round")
	f.Uint64Var(&o.seed, "seed", 0, "of the commands; 0 takes one from the clock")
	f.IntVar(&o.writers, "writers", 6, "`connections` that write")
	f.StringVar(&o.budget, "memory-budget", "64mb", "memory-budget of the node; small, so that it flushes")
	f.StringVar(&o.backlog, "backlog", "32mb", "repl-backlog-size of the node; small, so that it trims its log")
	f.StringVar(&o.recovery, "recovery-log", "16mb", "recovery-log-size of the node")
	f.StringVar(&o.dir, "dir", "", "data `folder`; default a fresh temporary one, removed unless a promise is broken")
	f.StringVar(&o.extra, "extra", "", "more `directives` for the server, after ours: \"--apply-interval 50\"")
	f.BoolVar(&o.quiet, "quiet", false, "no progress")
	f.Int64Var(&o.wantLog, "want-log-mb", 0, "fail when the log grew by less than this many `MB`: the run proved too little")
	f.DurationVar(&o.maxWait, "longest", 1500*time.Millisecond, "longest `time` between start of the writers and the kill")
	f.DurationVar(&o.restart, "restart-limit", 30*time.Second, "longest `time` from start to the first right reply")
	f.Usage = func() {
		fmt.Fprint(f.Output(), usageText)
		f.PrintDefaults()
	}
	return o, f
}

// complete checks the flags and fills in what they leave open.
func (o *options) complete(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("%q: no arguments beside flags", rest)
	}
	if o.rounds < 1 || o.writers < 1 || o.writers > 64 {
		return fmt.Errorf("rounds %d and writers %d: want at least 1, and at most 64 writers", o.rounds, o.writers)
	}
	o.command = strings.Fields(o.program)
	if len(o.command) == 0 {
		return errors.New("program: empty")
	}
	switch o.policy {
	case "all":
		o.policies = []string{"always", "everysec", "no"}
	case "always", "everysec", "no":
		o.policies = []string{o.policy}
	default:
		return fmt.Errorf("policy %q: want always, everysec, no or all", o.policy)
	}
	if o.redis {
		// A redis-server writes later than it answers while an everysec sync runs.
		o.policies = []string{"always"}
	}
	if o.mode != "alternate" && o.mode != "standalone" && o.mode != "cluster" {
		return fmt.Errorf("mode %q: want standalone, cluster or alternate", o.mode)
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1_000_000_007
	}
	if o.dir != "" {
		return os.MkdirAll(o.dir, 0o755)
	}
	o.ownDir = true
	var err error
	o.dir, err = os.MkdirTemp("", "cairn-crash-")
	return err
}

func (o *options) replay() string {
	text := fmt.Sprintf("go run ./tools/crash kill --program %q --rounds %d --policy %s --mode %s --seed %d --writers %d --memory-budget %s --backlog %s --recovery-log %s --longest %v",
		o.program, o.rounds, o.policy, o.mode, o.seed, o.writers, o.budget, o.backlog, o.recovery, o.maxWait)
	if o.redis {
		text += " --redis"
	}
	if o.extra != "" {
		text += fmt.Sprintf(" --extra %q", o.extra)
	}
	return text
}
