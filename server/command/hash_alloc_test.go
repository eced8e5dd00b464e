package command

import (
	"fmt"
	"testing"

	"cairn/internal/resp"
)

// hashNode is a node with a packed hash "packed" of 20 fields and one with rows, "rows", of 10000. run prepares
// a command to be run again and again.
func hashNode(t *testing.T) (run func(args ...string) func()) {
	t.Helper()
	n := newNode(t)
	for i := range 10000 {
		field, value := fmt.Sprint("f", i), fmt.Sprint("v", i)
		n.do("HSET", "rows", field, value)
		if i < 20 {
			n.do("HSET", "packed", field, value)
		}
	}
	if err := n.store.Apply(); err != nil {
		t.Fatal(err)
	}
	w := &resp.Writer{Proto: 2}
	c := &Ctx{Txn: n.txn, Host: n, NowMs: n.now, W: w}
	run = func(words ...string) func() {
		args := make([][]byte, len(words))
		for i := range words {
			args[i] = []byte(words[i])
		}
		cmd, _ := n.table.Lookup(args)
		slots, _ := cmd.AppendSlots(nil, args)
		return func() {
			w.Buf = w.Buf[:0]
			c.Reset(cmd, args)
			n.txn.Begin(slots, cmd.Is(Write), n.now)
			if err := c.Execute(); err != nil {
				t.Fatal(err)
			}
			if _, err := n.txn.Commit(); err != nil {
				t.Fatal(err)
			}
			n.log.Reset()
			n.events = n.events[:0]
		}
	}
	return run
}

// Reading a field of a packed hash allocates nothing.
func TestHashGetDoesNotAllocate(t *testing.T) {
	run := hashNode(t)
	do := run("HGET", "packed", "f10")
	if n := testing.AllocsPerRun(1000, do); n > 0 {
		t.Errorf("HGET allocates %.2f times", n)
	}
}
