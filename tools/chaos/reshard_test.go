package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn/internal/resp"
	"cairn/internal/slot"
	"cairn/internal/testkit"
	"cairn/tools/node"
)

// TestReshardKnownServer: what must hold after the tool was killed holds with a server that is known to keep it.
func TestReshardKnownServer(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	code := run(t.Context(), []string{
		"reshard", "kill", "--victim", "tool", "--program", testkit.RedisPath(t), "--redis", "--slots", "20", "--keys", "60", "--dir", t.TempDir(),
	}, &out)
	if code != 0 || !strings.Contains(out.String(), "1 accidents") {
		t.Fatalf("status %d:\n%s", code, out.String())
	}
}

func TestReshardFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{}, {"nothing"}, {"kill", "more"}, {"kill", "--slots", "0"}, {"kill", "--slots", "9", "--keys", "8"}, {"kill", "--rounds", "0"}, {"back", "--program", ""},
	} {
		if code := runReshard(t.Context(), append(args, "--dir", t.TempDir()), &bytes.Buffer{}); len(args) > 0 && code != 2 {
			t.Errorf("%q: status %d, want 2", args, code)
		}
	}
}

// TestJudge: what was acknowledged must be there, what was sent may.
func TestJudge(t *testing.T) {
	t.Parallel()
	text := func(s string) resp.Reply { return resp.Reply{Kind: resp.KindBulk, Str: []byte(s)} }
	for _, c := range []struct {
		name  string
		wait  bool
		reply resp.Reply
		fault string
	}{
		{"the newest", false, text("5:xx"), ""},
		{"sent, reply lost", false, text("6:xx"), ""},
		{"older than acknowledged", false, text("4:xx"), "version 4"},
		{"older, no replica had it", true, text("4:xx"), ""},
		{"older than what a replica had", true, text("2:xx"), "version 2"},
		{"newer than sent", true, text("7:xx"), "version 7"},
		{"cut short", false, text("5:x"), "never written"},
		{"no value", false, text(""), "never written"},
		{"gone", true, resp.Reply{Kind: resp.KindNull}, "lost"},
	} {
		it := &item{key: "k", size: 2, safe: 3, acked: 5, tried: 6}
		_, err := (&writer{wait: c.wait}).judge(it, c.reply)
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v, want %q", c.name, err, c.fault)
		}
	}
}

// TestItems: every slot has keys, in the slots that move.
func TestItems(t *testing.T) {
	t.Parallel()
	has := map[uint16]bool{}
	for _, it := range newItems(node.Tags(50), 200) {
		has[slot.Of([]byte(it.key))] = true
		if it.rest > 0 && !it.hash {
			t.Errorf("%s has fields and is a string", it.key)
		}
	}
	for s := range uint16(50) {
		if !has[s] {
			t.Errorf("slot %d has no key", s)
		}
	}
	if len(has) != 50 {
		t.Errorf("%d slots have keys, want 50", len(has))
	}
}

// TestOutsider: the other side of the programs in tools/clients.
func TestOutsider(t *testing.T) {
	t.Parallel()
	l := &moveLab{ctx: t.Context()}
	shell := func(script string) (*outsider, error) {
		path := filepath.Join(t.TempDir(), "client")
		if err := os.WriteFile(path, []byte(script), 0o644); err != nil {
			t.Fatal(err)
		}
		return l.startOutsider([]string{"sh", path}, phaseMoves, []string{"127.0.0.1:1"})
	}
	o, err := shell(`echo ready; read never; echo '{"ops":3,"errors":{"'$1' '$2'":2},"wrong":["w"]}'`)
	if err != nil {
		t.Fatal(err)
	}
	r, err := o.stop()
	if err != nil || r.Ops != 3 || r.Errors["moves 127.0.0.1:1"] != 2 || len(r.Wrong) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := shell("echo no such module >&2; exit 1"); err == nil || !strings.Contains(err.Error(), "no such module") {
		t.Errorf("a client that does not start: %v", err)
	}
	for _, script := range []string{"echo ready; read never; exit 3", "echo ready; read never; echo 7:"} {
		if o, err = shell(script); err != nil {
			t.Fatal(err)
		}
		if _, err := o.stop(); err == nil {
			t.Errorf("%s: no error", script)
		}
	}
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	a := kindOf("read: MOVED 77 127.0.0.1:7001 for {go-moves-1-17}s")
	if b := kindOf("read: MOVED 5461 127.0.0.1:30002 for {go-moves-3-2}s"); a != b {
		t.Errorf("%q and %q differ", a, b)
	}
	if b := kindOf("read: ASK 77 127.0.0.1:7001 for {go-moves-1-17}s"); a == b {
		t.Errorf("%q stands for two kinds", a)
	}
}

// TestOwnerWatch: a check that never fails would pass as well.
func TestOwnerWatch(t *testing.T) {
	t.Parallel()
	w := &ownerWatch{claims: make([]bool, 2)}
	w.note(0, true)
	if d := w.longest(); d != 0 {
		t.Errorf("one owner counts as wrong for %v", d)
	}
	w.note(1, true)
	w.wrong = w.wrong.Add(-time.Second)
	if d := w.longest(); d < time.Second {
		t.Errorf("two owners for a second count as %v", d)
	}
	w.note(0, false)
	w.note(1, false)
	w.wrong = w.wrong.Add(-time.Minute)
	w.note(1, true)
	if d := w.longest(); d < time.Minute || d > 2*time.Minute {
		t.Errorf("no owner for a minute counts as %v", d)
	}
}
