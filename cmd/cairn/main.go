// Command cairn runs a node and the tools around it.
//
//	cairn server [FILE] [--directive value ...]   one node; FILE is redis.conf syntax, or .toml, .yaml, .json
//	cairn version                                 what this is
//
// Called by the name redis-server, the program is "cairn server": scripts and test suites that start Redis
// start cairn instead.
//
// Exit status: 0 when ended in order, 1 when it could not start, 74 when the disk gave up.
//
// Not here: anything but flags, signals and the wish of systemd to be told; package server is the node.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(os.Args))
}

func run(args []string) int {
	if strings.HasPrefix(filepath.Base(args[0]), "redis-server") {
		return runServer(args[1:])
	}
	status := 0
	root := &cobra.Command{
		Use:   "cairn",
		Short: "A persistent, disk-backed Redis Cluster node",
		Long: "cairn keeps its keys on disk and speaks to every Redis client.\n\n" +
			"  cairn server                            a node on port 6379, data in the present folder\n" +
			"  cairn server /etc/redis/redis.conf      one that takes the settings you have\n" +
			"  cairn server --port 7000 --dir /data    directives by name, as redis-server takes them",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(serverCommand(&status), versionCommand())
	root.SetArgs(args[1:])
	if err := root.Execute(); err != nil {
		fmt.Fprintf(os.Stderr, "cairn: %v\n", err)
		return 1
	}
	return status
}

func serverCommand(status *int) *cobra.Command {
	return &cobra.Command{
		Use:   "server [FILE] [--directive value ...]",
		Short: "Run one node",
		Long: "Run one node.\n\nFILE has redis.conf syntax, or ends in .toml, .yaml or .json. Every directive may also be given as\n" +
			"--name value, or as an environment variable CAIRN_NAME; flags win over the environment, which wins over the file.\n" +
			"cairn.conf, which comes with the program, explains each directive.",
		DisableFlagParsing: true, // --save 60 1 and a lone - are redis-server's own way with arguments
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
				return cmd.Help()
			}
			*status = runServer(args)
			return nil
		},
	}
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
