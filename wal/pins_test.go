package wal

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// told gathers the ends of pins that the log tells of.
func told(o *Options) *[]string {
	var lines []string
	o.Logf = func(event string, kv ...any) {
		if event == "log pin ended" {
			lines = append(lines, kv[1].(string)+": "+kv[7].(string))
		}
	}
	return &lines
}

func isLost(p *Pin) bool {
	select {
	case <-p.Lost():
		return true
	default:
		return false
	}
}

// A full disk ends pins one by one, oldest first, and only those whose end frees segments.
func TestEndOldestPin(t *testing.T) {
	o := testOptions(newFS(t, vfs.NewMem()))
	o.SegmentBytes, o.KeepBytes = minSegmentBytes, 1
	lines := told(&o)
	l, _ := mustOpen(t, o, fresh('a'))
	var pins []*Pin
	for _, name := range []string{"first", "second", "third"} {
		p, err := l.Pin(l.End())
		must(t, err)
		p.Name(name)
		pins = append(pins, p)
		for range 30 {
			l.Append(make([]byte, 1000))
			must(t, l.SyncAll())
		}
	}
	near, err := l.Pin(l.End())
	must(t, err)
	must(t, l.Trim(l.End()))
	if l.First() != 0 {
		t.Fatalf("first %d under a pin of 0", l.First())
	}
	for i, p := range pins {
		before := l.First()
		ended, err := l.EndOldestPin("no room")
		must(t, err)
		if !ended || !isLost(p) || l.First() <= before || i < 2 && isLost(pins[i+1]) {
			t.Fatalf("pin %d: ended %v, lost %v, first %d after %d", i, ended, isLost(p), l.First(), before)
		}
	}
	if ended, err := l.EndOldestPin("no room"); ended || err != nil || isLost(near) {
		t.Errorf("a pin of nothing: ended %v, %v", ended, err)
	}
	if got := strings.Join(*lines, "; "); got != "first: no room; second: no room; third: no room" {
		t.Errorf("told: %s", got)
	}
	must(t, l.Close())
}

// The limit is looked at every second, also when nobody trims, and follows SetPinLimit.
func TestPinLimitIsWatched(t *testing.T) {
	o := testOptions(newFS(t, vfs.NewMem()))
	o.SegmentBytes, o.KeepBytes, o.PinLimit = minSegmentBytes, 1, 1<<30
	lines := told(&o)
	l, _ := mustOpen(t, o, fresh('a'))
	low, err := l.Pin(0)
	must(t, err)
	for range 60 {
		l.Append(make([]byte, 1000))
		must(t, l.SyncAll())
	}
	high, err := l.Pin(40_000)
	must(t, err)
	must(t, l.Trim(l.End()))
	l.Tick()
	if isLost(low) || l.First() != 0 {
		t.Fatalf("lost %v, first %d below the limit", isLost(low), l.First())
	}
	l.SetPinLimit(30_000)
	l.Tick()
	if f := l.First(); !isLost(low) || isLost(high) || f == 0 || f > 40_000 {
		t.Errorf("lost %v and %v, first %d", isLost(low), isLost(high), f)
	}
	if len(*lines) != 1 || !strings.Contains((*lines)[0], "repl-pin-limit, 30000 bytes") {
		t.Errorf("told: %q", *lines)
	}
	must(t, l.Close())
}
