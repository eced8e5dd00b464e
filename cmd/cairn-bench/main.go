// Command cairn-bench compares cairn with another server on this machine: rates, processor time, latencies, memory, disk.
//
//	cairn-bench                      the group hot
//	cairn-bench --quick              a dozen rows in three minutes
//	cairn-bench --rows all           the whole grid, a night
//	cairn-bench --scenarios restart  questions that no row asks
//	cairn-bench --list               what there is
//
// Exit status: 0 when every row has its figure, 1 when one has none or nothing could be started, 130 after Ctrl-C.
//
// Not here: anything but flags and signals; package bench measures.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"cairn/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	cmd := command(ctx)
	cmd.SetArgs(args)
	switch err := cmd.Execute(); {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "cairn-bench: interrupted")
		return 130
	default:
		fmt.Fprintf(os.Stderr, "cairn-bench: %v\n", err)
		return 1
	}
}

func command(ctx context.Context) *cobra.Command {
	var o bench.Options
	var program, peer, args, peerArgs string
	var list bool
	cmd := &cobra.Command{
		Use:   "cairn-bench [flags]",
		Short: "Compare cairn with another server on this machine",
		Long: "Compare cairn with another server on this machine, in turns, with the same client, and report ratios.\n\n" +
			"Rows are chosen by name, group or glob, a minus leaves out: --rows hot,ycsb,'set-*',-set-p64. At the end there is a\n" +
			"table, and a folder with report.md, results.json and pictures. Ctrl-C ends all servers, removes their data and\n" +
			"reports what is done. The figures mean something only while the machine does nothing else.",
		Example: "  cairn-bench --quick\n" +
			"  cairn-bench --rows 'get-*,set-*' --pairs 7\n" +
			"  cairn-bench --peer valkey-server --rows hot\n" +
			"  cairn-bench --peer 'old/cairn server' --peer-args '--memory-budget 1gb' --rows hot",
		Args:         cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list {
				bench.List(cmd.OutOrStdout())
				return nil
			}
			o.Program, o.Args = strings.Fields(program), strings.Fields(args)
			o.Peer, o.PeerArgs = strings.Fields(peer), strings.Fields(peerArgs)
			if o.PeerAddr != "" && (cmd.Flags().Changed("peer") || cmd.Flags().Changed("peer-args")) {
				return errors.New("peer-addr is a server that runs already: peer and peer-args do not go with it")
			}
			o.Stdout, o.Stderr, o.Terminal = cmd.OutOrStdout(), cmd.ErrOrStderr(), isTerminal(os.Stderr)
			return bench.Compare(ctx, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&list, "list", false, "show rows and scenarios, and do nothing")
	f.StringSliceVar(&o.Rows, "rows", nil, "rows, groups, globs, or all (default hot)")
	f.StringSliceVar(&o.Scenarios, "scenarios", nil, "scenarios by name or glob, or all (default none)")
	f.BoolVar(&o.Quick, "quick", false, "a chosen dozen rows, one pair of 2 seconds each")
	f.IntVar(&o.Pairs, "pairs", 0, "runs of each side for a row (default 5)")
	f.DurationVar(&o.Measure, "time", 0, "how long a side is measured at least (default 8s)")
	f.Int64Var(&o.Sustained, "sustained", 0, "operations that a write run has at least (default 2000000)")
	f.IntVar(&o.Conns, "conns", 0, "connections (default 50)")
	f.IntVar(&o.Threads, "threads", 0, "threads of the client (default 1)")
	f.Float64Var(&o.Scale, "scale", 0, "multiplies the number of keys of all data sets (default 1)")
	f.Float64Var(&o.GB, "gb", 0, "GB of data in scenarios (default 1)")
	f.StringVar(&program, "program", "bin/cairn server", "cairn with its leading arguments")
	f.StringVar(&args, "args", "", "more directives for cairn")
	f.StringVar(&o.Budget, "budget", "", "memory-budget of cairn (default 1gb)")
	f.StringVar(&peer, "peer", "redis-server", "the other server with its leading arguments")
	f.StringVar(&peerArgs, "peer-args", "", "more directives for it")
	f.StringVar(&o.PeerAddr, "peer-addr", "", "host:port of a server that runs already, instead; it must be empty")
	f.StringVar(&o.Dir, "dir", "", "folder for data (default the system's for temporary files)")
	f.StringVar(&o.Out, "out", "", "folder for the report (default bench-results and the time)")
	return cmd
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
