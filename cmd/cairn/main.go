// Command cairn runs a node and the tools around it.
//
//	cairn server [FILE] [--directive value ...]   one node; FILE is redis.conf syntax, or .toml, .yaml, .json
//	cairn up, cairn down                          a whole cluster on this machine, for trying things out
//	cairn version, cairn --version                what this is
//
// Called by the name redis-server, the program is "cairn server": scripts and test suites that start Redis
// start cairn instead.
//
// Exit status: 0 when ended in order, 1 when it could not start or a second signal ended it, 74 when the disk gave up.
//
// Not here: anything but flags, signals and the wish of systemd to be told; package server is the node.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"cairn/server/config"
)

func main() {
	os.Exit(run(os.Args))
}

func run(args []string) int {
	if strings.HasPrefix(filepath.Base(args[0]), "redis-server") {
		args = append([]string{args[0], "server"}, args[1:]...)
	}
	status := 0
	root := &cobra.Command{
		Use:   "cairn",
		Short: "A persistent, disk-backed Redis Cluster node",
		Long: "cairn keeps its keys on disk and speaks to every Redis client.\n\n" +
			"  cairn server                            a node on port 6379, data in the present folder\n" +
			"  cairn server my-copy-of-redis.conf      one that takes the settings you have\n" +
			"  cairn server --port 7000 --dir /data    directives by name, as redis-server takes them\n" +
			"  cairn up                                a cluster of six nodes on this machine; cairn down stops it",
		Version:           versionText(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(serverCommand(&status), upCommand(args[0]), downCommand(args[0]), versionCommand())
	root.SetArgs(args[1:])
	if err := root.Execute(); err != nil {
		fmt.Fprintf(os.Stderr, "cairn: %v\n", err)
		if !isCommand(root, args[1:]) && meantServer(args[1:]) {
			more := ""
			if len(args) > 2 {
				more = " ..." // which may hold a password
			}
			fmt.Fprintf(os.Stderr, "did you mean: cairn server %s%s\n", args[1], more)
		}
		return 1
	}
	return status
}

// isCommand says that the first argument is a command of ours, whatever else was wrong.
func isCommand(root *cobra.Command, args []string) bool {
	return len(args) > 0 && slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == args[0] })
}

// meantServer says that the arguments are those of redis-server: a file, or a directive.
func meantServer(args []string) bool {
	if len(args) == 0 {
		return false
	}
	if name, isOption := strings.CutPrefix(args[0], "--"); isOption {
		return config.Known(strings.SplitN(name, "=", 2)[0])
	}
	info, err := os.Stat(args[0])
	return strings.ContainsAny(args[0], "./") || err == nil && !info.IsDir()
}

func serverCommand(status *int) *cobra.Command {
	return &cobra.Command{
		Use:   "server [FILE] [--directive value ...]",
		Short: "Run one node",
		Long: "Run one node.\n\n" +
			"FILE has redis.conf syntax, or ends in .toml, .yaml or .json. Every directive may also be given as\n" +
			"--name value or --name=value, or as an environment variable CAIRN_NAME. Flags win over the environment,\n" +
			"which wins over the file; of two that say the same, the last one wins. A lone - as the first or the last\n" +
			"argument reads more lines from standard input, after the file.\n" +
			"cairn.conf, which comes with the program, explains the directives.",
		Example: "  cairn server                                        port 6379, data in the present folder\n" +
			"  cairn server /etc/cairn/cairn.conf --port 7000      a file, and one directive that wins over it\n" +
			"  cairn server --dir /data --bind 127.0.0.1 -::1 --appendfsync always\n" +
			"  CAIRN_PORT=7000 cairn server --dir /data\n" +
			"  echo \"requirepass $SECRET\" | cairn server --dir /data -\n" +
			"  cairn server --version",
		DisableFlagsInUseLine: true,
		DisableFlagParsing:    true, // --save 60 1 and a lone - are redis-server's own way with arguments
		RunE: func(cmd *cobra.Command, args []string) error {
			if wantsHelp(args) {
				return cmd.Help()
			}
			*status = runServer(args)
			return nil
		},
	}
}

// wantsHelp looks for --help among all arguments, since a line that lacks something is where people ask for it.
func wantsHelp(args []string) bool {
	return slices.Contains(args, "--help") || len(args) == 1 && (args[0] == "help" || args[0] == "-h")
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say what this is",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintln(cmd.OutOrStdout(), versionText())
		},
	}
}
