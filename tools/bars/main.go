// Command bars measures what a node promises in figures, and holds each figure
// against its bar.
//
//	go run ./tools/bars restart --gb 1
//	go run ./tools/bars latency
//
// Shape. One file per subcommand; lab.go starts and ends servers, load.go fills
// them. A subcommand prints a line per figure: what, measured, bar, PASS or FAIL.
//
// Units. Sizes are bytes, shown as MB of 2^20; times are wall clock.
//
// Errors. Exit status 1 for a figure beyond its bar or a wrong reply, 2 for wrong
// flags or a machine that lacks something (disk space, root).
//
// Not here: tests of what is right; these take figures, which depend on the machine, and so are
// run by hand.
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

// subcommand is one bar.
type subcommand struct {
	name, short, long string
	// prepare declares flags and returns what runs once they are read.
	prepare func(f *flag.FlagSet) func(l *lab) error
}

func subcommands() []subcommand {
	return []subcommand{
		{"restart", "time from start to the first right reply after kill -9", restartHelp, prepareRestart},
		{"latency", "longest reply to others while something huge happens", latencyHelp, prepareLatency},
		{"diskfull", "reads, errors and recovery on a full disk (needs root)", diskFullHelp, prepareDiskFull},
		{"ttl", "disk space comes back when keys expire", ttlHelp, prepareTTL},
		{"idle", "memory and latency beside thousands of idle connections", idleHelp, prepareIdle},
		{"failover", "time to the next write when a primary is killed, and what is lost", failoverHelp, prepareFailover},
		{"return", "what a killed primary fetches when it comes back", returnHelp, prepareReturn},
		{"manual", "write gap of CLUSTER FAILOVER and of SIGTERM", manualHelp, prepareManual},
		{"lag", "how replicas and primaries that were away continue", lagHelp, prepareLag},
		{"fullsync", "a full sync to a slow replica, and one that is killed", fullsyncHelp, prepareFullsync},
		{"move", "what others notice, and what memory it takes, when something huge moves to another node", moveHelp, prepareMove},
		{"reshard", "how fast slots move, beside redis-server", moveSpeedHelp, prepareMoveSpeed},
		{"larger", "a cluster larger than its memory: moves, failover, full sync", largerHelp, prepareLarger},
		{"alive", "whether a cluster takes a busy node for a dead one", aliveHelp, prepareAlive},
	}
}

// heedLimit is how long a measurement has to end by itself after a signal.
const heedLimit = 3 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func usage() {
	fmt.Fprint(os.Stderr, "usage: go run ./tools/bars SUBCOMMAND [flags]\n\nMeasures a node and holds the figures against their bars. Everything it starts and writes is removed at\nthe end, also after Ctrl-C.\n\n")
	for _, c := range subcommands() {
		fmt.Fprintf(os.Stderr, "  %-9s %s\n", c.name, c.short)
	}
	fmt.Fprint(os.Stderr, "\nSUBCOMMAND --help says what is measured, and how. Build first: go build -o bin/ ./cmd/...\n")
}

func run(ctx context.Context, args []string) int {
	if len(args) == 0 {
		usage()
		return 2
	}
	if args[0] == "-h" || args[0] == "--help" || args[0] == "help" {
		usage()
		return 0
	}
	for _, c := range subcommands() {
		if c.name == args[0] {
			return c.run(ctx, args[1:])
		}
	}
	fmt.Fprintf(os.Stderr, "bars: no subcommand %q\n\n", args[0])
	usage()
	return 2
}

func (c subcommand) run(ctx context.Context, args []string) int {
	f := flag.NewFlagSet(c.name, flag.ContinueOnError)
	program := f.String("program", "bin/cairn server", "`program` with its leading arguments")
	dir := f.String("dir", "", "`folder` to work in; default the system's for temporary files")
	times := f.Bool("times", true, "hold times and memory against their bars; without, only what is right and wrong")
	f.Usage = func() {
		fmt.Fprintf(f.Output(), "usage: go run ./tools/bars %s [flags]\n\n%s\n\nflags:\n", c.name, strings.TrimSpace(c.long))
		f.PrintDefaults()
	}
	measure := c.prepare(f)
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if f.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "bars: %q: no arguments beside flags\n", f.Args())
		return 2
	}
	l, err := newLab(ctx, strings.Fields(*program), *dir)
	if err != nil {
		fmt.Fprintf(os.Stderr, "bars: %v\n", err)
		return 2
	}
	defer l.close()
	l.untimed = !*times
	result := make(chan error, 1)
	go func() { result <- measure(l) }() // ends with the measurement, or with the process
	select {
	case err = <-result:
	case <-ctx.Done():
		select {
		case err = <-result:
		case <-time.After(heedLimit): // l.close ends what it waits for, and the end of the process the rest
			fmt.Fprintln(os.Stderr, "interrupted")
			return 130
		}
	}
	l.endProgress()
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "interrupted")
		return 130
	case errors.Is(err, errMachine):
		fmt.Fprintf(os.Stderr, "bars: %v\n", err)
		return 2
	case err != nil:
		fmt.Printf("FAIL: %v\n", err)
		return 1
	case l.failed > 0:
		fmt.Printf("FAIL: %d figures beyond their bars\n", l.failed)
		return 1
	}
	fmt.Println("PASS")
	return 0
}
