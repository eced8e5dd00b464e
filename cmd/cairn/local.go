package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"cairn/server/config"
	"cairn/tools/local"
)

// The commands that run a whole cluster on this machine.

func upCommand(self string) *cobra.Command {
	o := local.UpOptions{Self: self, Out: os.Stdout, Colour: wantsColour(os.Stdout)}
	cmd := &cobra.Command{
		Use:   "up [flags] [-- --directive value ...]",
		Short: "Run a cluster on this machine",
		Long: "Run a cluster on this machine, for trying things out and for tests: starts the nodes in the background, makes\n" +
			"a cluster of them, and waits until it works. Called again, it starts the nodes that do not run.\n\n" +
			"DIR belongs to the cluster: DIR/7000/node.log is the log of the node on port 7000, and its data are beside it.\n" +
			"Each node also listens on its port + 10000, for the other nodes. All listen for this machine only.\n" +
			"What follows -- goes to each node, as to cairn server. It is kept, with the flags, for the next time; whoever says\n" +
			"something behind -- again says all of it, since it takes the place of what was kept.",
		Example: "  cairn up                                     3 primaries, 3 replicas, ports 7000 to 7005\n" +
			"  cairn up --replicas 0 --port 30000           3 primaries alone, ports 30000 to 30002\n" +
			"  cairn up --dir /tmp/c2 --port 7100 --memory-budget 512mb\n" +
			"  cairn up -- --appendfsync always             settings of all nodes\n" +
			"  redis-cli -c -p 7000                         talk to it\n" +
			"  cairn down                                   stop it",
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash < 0 && len(args) > 0 || dash > 0 {
				return fmt.Errorf("up: unknown argument %q; settings of the nodes go behind --, as in: %s up -- --appendfsync always", args[0], self)
			}
			if dash == 0 {
				o.Directives = args
			}
			if cmd.Flags().Changed("replicas") && o.Replicas < 0 {
				return fmt.Errorf("up: --replicas %d: want 0 or more", o.Replicas)
			}
			for name, value := range map[string]int{"primaries": o.Primaries, "port": o.Port} {
				if cmd.Flags().Changed(name) && value < 1 {
					return fmt.Errorf("up: --%s %d: want 1 or more", name, value)
				}
			}
			program, err := os.Executable()
			if err != nil {
				return err
			}
			o.Program = []string{program, "server"}
			o.Check = func(args []string) error {
				_, _, err := config.Load(args, nil, nil)
				return err
			}
			ctx, stop := interruptible("the nodes that were started may run on: " + self + " down stops them")
			defer stop()
			return named("up", local.Up(ctx, o))
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&o.Primaries, "primaries", 0, "`number` of nodes that share the slots (3 in a new cluster); with fewer than 3 none replaces another")
	f.IntVar(&o.Replicas, "replicas", -1, "`number` of copies of each primary (1 in a new cluster)")
	f.IntVar(&o.Port, "port", 0, "`port` of the first node, the others follow (7000 in a new cluster)")
	f.StringVar(&o.Dir, "dir", local.DefaultDir, "`folder` of the cluster")
	f.StringVar(&o.MemoryBudget, "memory-budget", "", "`memory` of each node (128mb in a new cluster)")
	f.DurationVar(&o.Timeout, "timeout", time.Minute, "how long all of it may take")
	plainDefaults(cmd)
	return cmd
}

func downCommand(self string) *cobra.Command {
	o := local.DownOptions{Self: self, Out: os.Stdout, Colour: wantsColour(os.Stdout)}
	cmd := &cobra.Command{
		Use:   "down [flags]",
		Short: "Stop the cluster that up started",
		Long: "Stop all nodes of the cluster that cairn up started, in order. The data stays, cairn up starts it again.\n" +
			"Nodes that do not stop in time are named, with their process ids.",
		Example: "  cairn down                        the cluster in ./" + local.DefaultDir + "\n" +
			"  cairn down --dir /tmp/c2          another one\n" +
			"  cairn down --wipe                 remove its data, too",
		Args:                  cobra.NoArgs,
		DisableFlagsInUseLine: true,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := interruptible("the nodes may run on")
			defer stop()
			return named("down", local.Down(ctx, o))
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.Dir, "dir", local.DefaultDir, "`folder` of the cluster")
	f.BoolVar(&o.Wipe, "wipe", false, "remove the data once all nodes have stopped")
	f.DurationVar(&o.Timeout, "timeout", 30*time.Second, "how long the nodes may take to stop")
	return cmd
}

// plainDefaults keeps help from telling the values that stand for "not said".
func plainDefaults(cmd *cobra.Command) {
	for _, name := range []string{"primaries", "replicas", "port"} {
		cmd.Flags().Lookup(name).DefValue = "0"
	}
}

// interruptible is cancelled by the first Ctrl-C or SIGTERM. A second one ends the process, with a word of what it leaves; one
// within a moment of the first says nothing new.
func interruptible(left string) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() { // ends with stop; once interrupted, with the process
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
		asked := time.Now()
		cancel()
		for range signals {
			if time.Since(asked) >= sameSignal {
				fmt.Fprintln(os.Stderr, "cairn: ended by a second signal; "+left)
				os.Exit(1)
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel()
	}
}

func named(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// wantsColour says that f is a terminal that shows colours, and nobody has asked to do without.
func wantsColour(f *os.File) bool {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}
