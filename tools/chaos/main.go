// Command chaos cuts the network of a cluster of real nodes, or moves slots while nodes fail, and looks whether they keep
// their promises.
//
//	go run ./tools/chaos partitions --program "bin/cairn server"
//	go run ./tools/chaos reshard kill --rounds 25
//
// Shape. Six nodes, three primaries with a replica each, know each other through something that can be cut (fabric.go):
// ports of a network in this process (network.go), which can hold what one node says to another, or, with --netns, network
// namespaces with cables between them (spaces_linux.go), where packets are lost. A client beside a node writes to it, a watcher
// asks all for their epochs (watch.go). partitions.go is the ways to cut.
// reshard.go moves slots with redis-cli: reshard_writers.go and reshard_back.go are the clients meanwhile, reshard_kill.go and
// reshard_news.go what goes wrong, reshard_check.go what must hold then.
//
// What must hold. A primary that hears from no majority acknowledges nothing later than the node timeout and 0.3 s after
// the cut, and nothing at all from its first refusal to the healing. While each primary is seen by a majority nobody is
// replaced, also when packets are late and some are lost. After the healing all nodes show the same table and the same
// epoch. No node's current epoch ever falls.
//
// Units. Durations are those of Go, ports are of this machine.
//
// Errors. The first broken promise ends the run with status 1; the folder with the nodes' output is kept.
//
// Not here: a crash (tools/crash), the times of a failover (tools/bars).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const usageText = `usage: go run ./tools/chaos partitions [flags]

  go build -o bin/ ./cmd/...
  go run ./tools/chaos partitions --rounds 5
  go run ./tools/chaos partitions --only bridge      isolated, deaf, mute, unplugged, bridge, flapping or slow
  go run ./tools/chaos partitions --netns            as root: each node in a network namespace of its own
  go run ./tools/chaos partitions --program redis-server --redis

flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process
	os.Exit(run(ctx, os.Args[1:], os.Stdout))
}

// options are the flags of partitions.
type options struct {
	program string
	redis   bool
	netns   bool
	rounds  int
	only    string
	timeout time.Duration
	untimed bool
	dir     string

	command    []string // program, split
	directives []string
	ownDir     bool
}

func newOptions() (*options, *flag.FlagSet) {
	o := &options{}
	f := flag.NewFlagSet("partitions", flag.ContinueOnError)
	f.StringVar(&o.program, "program", "bin/cairn server", "`program` with its leading arguments")
	f.BoolVar(&o.redis, "redis", false, "the program is a redis-server: no directives of cairn's own")
	f.BoolVar(&o.netns, "netns", false, "nodes in network namespaces, which need root and the tool ip; without either the run is skipped, with status 0")
	f.IntVar(&o.rounds, "rounds", 1, "how `often` all partitions are gone through")
	f.StringVar(&o.only, "only", "", "one `partition` alone")
	f.DurationVar(&o.timeout, "node-timeout", 2*time.Second, "cluster-node-timeout")
	f.BoolVar(&o.untimed, "untimed", false, "measure, but do not fail for times: for a machine that does other things")
	f.StringVar(&o.dir, "dir", "", "`folder` of the nodes; default a fresh temporary one, removed unless a promise is broken")
	f.Usage = func() {
		fmt.Fprint(f.Output(), usageText)
		f.PrintDefaults()
	}
	return o, f
}

// complete checks the flags and fills in what they leave open.
func (o *options) complete(rest []string) (err error) {
	o.command = strings.Fields(o.program)
	switch {
	case len(rest) > 0:
		return fmt.Errorf("%q: no arguments beside flags", rest)
	case o.rounds < 1 || o.timeout < 100*time.Millisecond:
		return fmt.Errorf("rounds %d, node-timeout %v: want at least 1, and 100ms", o.rounds, o.timeout)
	case len(o.command) == 0:
		return errors.New("program: empty")
	}
	known := o.only == ""
	for _, p := range partitions() {
		known = known || p.name == o.only
	}
	if !known {
		return fmt.Errorf("only %q: no such partition", o.only)
	}
	o.directives = []string{"--memory-budget", "64mb"}
	if o.netns {
		o.directives = append(o.directives, "--cluster-bus-port-protected-mode", "no") // nobody else is in that network
	}
	if o.redis {
		o.directives = []string{"--save", ""}
	}
	if o.dir != "" {
		return os.MkdirAll(o.dir, 0o755)
	}
	o.ownDir = true
	o.dir, err = os.MkdirTemp("", "cairn-chaos-")
	return err
}

func run(ctx context.Context, args []string, out io.Writer) int {
	if len(args) > 0 && args[0] == "reshard" {
		return runReshard(ctx, args[1:], out)
	}
	o, flags := newOptions()
	if len(args) == 0 || args[0] != "partitions" {
		flags.Usage()
		return 2
	}
	if err := flags.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if err := o.complete(flags.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
		return 2
	}
	l, err := newLab(ctx, *o, out)
	if err == nil {
		err = l.all()
		l.close()
	}
	skipped := errors.Is(err, errCannot)
	if err != nil && !skipped {
		fmt.Fprintf(out, "\nFAIL: %v\n\nthe folder is kept: %s\n", err, o.dir)
		return 1
	}
	if o.ownDir {
		if err := os.RemoveAll(o.dir); err != nil {
			fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
		}
	}
	if skipped {
		fmt.Fprintf(out, "SKIPPED: %v\n", err)
		return 0
	}
	fmt.Fprintln(out, "PASS")
	return 0
}
