package server

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"cairn/internal/testkit"
	"cairn/server/command"
)

// wild are commands that end the connection or the node, wait, or change what the reply stream is.
func wild(cmd *command.Command) bool {
	return slices.Contains([]string{
		"shutdown", "debug", "quit", "reset", "monitor", "wait", "waitaof", "client|reply", "client|pause", "client|kill",
		"client|no-evict", "hello", "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe",
		"multi", "exec", "discard", "auth", "replconf", "psync", "sync", "client|tracking",
	}, cmd.FullName())
}

// runnable lists the commands that may be tried with any words.
func runnable(n *testNode) (all []*command.Command) {
	n.eachCommand(func(cmd *command.Command) {
		if cmd.Run != nil && !wild(cmd) {
			all = append(all, cmd)
		}
	})
	return all
}

func words(cmd *command.Command) []string { return strings.Split(cmd.FullName(), "|") }

// While the data is being loaded, whatever is allowed then works without it.
func TestCommandsWhileLoading(t *testing.T) {
	n := newServer(t, "cluster-enabled yes")
	n.loading.Store(true)
	if err := errors.Join(n.loadCluster(), n.listen()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.bus.Close() })
	c := n.dial(t)
	for _, cmd := range runnable(n) {
		args := words(cmd)
		for len(args) < max(cmd.Arity, -cmd.Arity) {
			args = append(args, "1")
		}
		got := c.Do(args...).Raw
		if loading := strings.HasPrefix(got, "-LOADING"); loading && cmd.Is(command.Loading) && !opensTransaction(cmd) || !loading && !cmd.Is(command.Loading) {
			t.Errorf("%s: got %.100q", args, got)
		}
	}
	if got := c.Do("INFO", "everything").Raw; !strings.Contains(got, "loading:1\r\n") {
		t.Errorf("got %q", got)
	}
}

// No words make a command bring the node down, or answer anything but one reply.
func TestCommandsWithAnyWords(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"no", "yes"} {
		n := startServer(t, "cluster-enabled "+mode, "enable-debug-command yes")
		c := n.dial(t)
		c.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
		rnd := rand.New(rand.NewPCG(1, 2))
		pool := []string{
			"", "x", "0", "1", "-1", "16383", "9223372036854775807", "-9223372036854775808", "1.5", "*", "[", "\r\n\x00", "get",
			"node", "stable", "samples", "filterby", "pattern", "aclcat", "maxclients", strings.Repeat("z", 300), "hash", "string",
		}
		c.Do("SET", "string", "v")
		c.Do("HSET", "hash", "f", "v")
		for range 8 {
			for _, cmd := range runnable(n) {
				args := words(cmd)
				most := max(cmd.Arity, -cmd.Arity) + 2
				for len(args) < most-rnd.IntN(4) {
					args = append(args, pool[rnd.IntN(len(pool))])
				}
				c.Do(args...)
			}
		}
		marker := fmt.Sprint(rnd.Uint64())
		if got := c.Do("ECHO", marker).Value; got != marker {
			t.Errorf("got %v: the replies are out of step", got)
		}
		testDebugWords(t, n.dial(t), rnd, pool)
	}
}

func testDebugWords(t *testing.T, c *testkit.Conn, rnd *rand.Rand, pool []string) {
	t.Helper()
	for range 5 {
		for _, d := range debugCommands() {
			if slices.Contains([]string{"segfault", "panic", "sleep", "populate", "protocol"}, d.name) {
				continue
			}
			args := []string{"DEBUG", d.name}
			for range rnd.IntN(5) {
				args = append(args, pool[rnd.IntN(len(pool))])
			}
			c.Do(args...)
		}
	}
}
