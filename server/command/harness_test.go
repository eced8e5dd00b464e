package command

import (
	"bytes"
	"flag"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine"
	"cairn/internal/resp"
	"cairn/internal/testkit"
)

// oracle runs the command scripts against a real server instead; goldens are rewritten from it only:
//
//	go test ./server/command -run TestCommands -oracle=redis-server -rewrite
var oracle = flag.String("oracle", "", "program that command scripts run against instead of cairn")

// memLog is a log that keeps its entries in memory.
type memLog = testkit.MemLog

// node is a store in memory with the table around it: what a client sees of data commands, without sockets.
type node struct {
	Host // methods that data commands do not call

	t        *testing.T
	store    *engine.Store
	log      *memLog
	table    *Table
	settings Settings
	now      int64
	txn      *engine.Txn
	proto    int
	events   []string

	beforeLocks func() // called between staging and the locks
}

func newNode(t *testing.T) *node {
	t.Helper()
	store, _, err := engine.Open(engine.Options{FS: vfs.NewMem(), Dir: "store", MemoryBudget: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, store: store, log: &memLog{}, table: NewTable(), now: 1_700_000_000_000, proto: 2}
	n.settings.DefaultSettings()
	if err := store.Attach(n.log); err != nil {
		t.Fatal(err)
	}
	store.SetEffects(n)
	n.txn = store.NewTxn()
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *node) Settings() *Settings  { return &n.settings }
func (n *node) Store() *engine.Store { return n.store }
func (n *node) Table() *Table        { return n.table }

// Committed gathers keyspace events.
func (n *node) Committed(t *engine.Txn) {
	for _, e := range t.Events() {
		n.events = append(n.events, fmt.Sprintf("%s %s", e.Name, e.Key))
	}
}

// do runs one command and gives the raw reply.
func (n *node) do(args ...string) string {
	n.t.Helper()
	raw := make([][]byte, len(args))
	for i, a := range args {
		raw[i] = []byte(a)
	}
	w := &resp.Writer{Proto: n.proto}
	n.run(w, raw)
	return string(w.Buf)
}

func (n *node) run(w *resp.Writer, args [][]byte) {
	cmd, ok := n.table.Lookup(args)
	if cmd == nil || !ok {
		w.Error("ERR unknown command")
		return
	}
	if !cmd.ArityOK(len(args)) {
		w.Error(fmt.Sprintf("ERR wrong number of arguments for '%s' command", cmd.FullName()))
		return
	}
	c := &Ctx{Txn: n.txn, Host: n, NowMs: n.now, W: w}
	c.Reset(cmd, args)
	slots, _ := cmd.AppendSlots(nil, args)
	defer n.closeStaged(c)
	n.staged(c, [][][]byte{args}, func() {
		if cmd.Is(AllSlots) {
			n.txn.BeginAll(cmd.Is(Write), n.now)
		} else if !cmd.Is(NoKeysTxn) {
			n.txn.Begin(SortSlots(slots), cmd.Is(Write), n.now)
		}
	})
	if err := c.Execute(); err != nil {
		n.txn.End()
		c.ReplyError(err)
		return
	}
	if n.txn.Open() {
		if _, err := n.txn.Commit(); err != nil {
			n.t.Fatalf("commit %q: %v", args, err)
		}
	}
	n.finish(w, c)
}

// staged stages what commands bring and begins their transaction.
func (n *node) staged(c *Ctx, commands [][][]byte, begin func()) {
	n.t.Helper()
	for {
		for _, args := range commands {
			cmd, _ := n.table.Lookup(args)
			c.Reset(cmd, args)
			if err := c.Stage(); err != nil {
				n.t.Fatalf("stage %.60q: %v", args, err)
			}
		}
		if n.beforeLocks != nil {
			n.beforeLocks()
		}
		begin()
		ok, err := c.StagedHolds()
		if err != nil {
			n.t.Fatal(err)
		}
		if ok {
			return
		}
		n.txn.End()
	}
}

func (n *node) closeStaged(c *Ctx) {
	if err := c.CloseStaged(); err != nil {
		n.t.Fatal(err)
	}
}

// finish puts the streamed parts of the reply in their places.
func (n *node) finish(w *resp.Writer, c *Ctx) {
	streams := c.TakeStreams()
	if len(streams) == 0 {
		return
	}
	whole, at := &resp.Writer{Proto: w.Proto}, 0
	for _, s := range streams {
		whole.Buf = append(whole.Buf, w.Buf[at:s.At]...)
		at = s.At
		if err := s.Run(whole, func() error { return nil }); err != nil {
			n.t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			n.t.Fatal(err)
		}
	}
	whole.Buf = append(whole.Buf, w.Buf[at:]...)
	w.Buf = whole.Buf
}

// TestCommands runs testdata/<family>/*: "run" gives commands, a line each, and expects their replies;
// "propagated" expects what was logged since the last one; "clock advance=ms" moves the time;
// "events" expects the keyspace events since the last one.
func TestCommands(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Run(strings.TrimPrefix(f, "testdata/"), func(t *testing.T) { runScript(t, f) })
	}
}

func runScript(t *testing.T, file string) {
	if *oracle != "" {
		t.Setenv("CAIRN_TEST_REDIS", *oracle)
		server := testkit.StartRedis(t)
		client := testkit.Dial(t, server.Addr)
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "run" {
				return d.Expected
			}
			return eachLine(t, d.Input, func(args []string) string { return client.Do(args...).Raw })
		})
		return
	}
	if f := flag.Lookup("rewrite"); f != nil && f.Value.String() == "true" {
		t.Fatal("goldens are rewritten from a real server only: add -oracle=redis-server")
	}
	n, logged := newNode(t), 0
	datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "run":
			return eachLine(t, d.Input, func(args []string) string { return n.do(args...) })
		case "propagated":
			out := describeLog(t, n.log.Bytes()[logged:])
			logged = n.log.Len()
			return out
		case "events":
			out := strings.Join(n.events, "\n") + "\n"
			n.events = nil
			return out
		case "clock":
			var ms int64
			d.ScanArgs(t, "advance", &ms)
			n.now += ms
			return ""
		}
		t.Fatalf("%s: directive %q is not one of run, propagated, events, clock", d.Pos, d.Cmd)
		return ""
	})
}

func eachLine(t *testing.T, input string, do func(args []string) string) string {
	var out strings.Builder
	for line := range strings.Lines(input) {
		words, ok := resp.SplitArgs(nil, []byte(strings.TrimRight(line, "\n")))
		if !ok {
			t.Fatalf("line %q has unbalanced quotes", line)
		}
		args := make([]string, len(words))
		for i, w := range words {
			args[i] = string(w)
		}
		out.WriteString(strings.ReplaceAll(do(args), "\r\n", "\n"))
	}
	return out.String()
}

func describeLog(t *testing.T, log []byte) string {
	var out strings.Builder
	for len(log) > 0 {
		args, n, err := resp.NextCommand(log, nil)
		if err != nil || n == 0 {
			t.Fatalf("log does not read back at %.60q: %v", log, err)
		}
		for i, a := range args {
			if i > 0 {
				out.WriteByte(' ')
			}
			if s := strconv.Quote(string(a)); len(a) == 0 || s != `"`+string(a)+`"` || bytes.ContainsRune(a, ' ') {
				out.WriteString(s)
			} else {
				out.Write(a)
			}
		}
		out.WriteByte('\n')
		log = log[n:]
	}
	return out.String()
}
