package server

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A command whose read fails in the middle leaves nothing: alone it changes nothing, and in EXEC nothing of the
// whole transaction is done. Once the disk reads again all is as it was.
func TestFailedReadLeavesNothing(t *testing.T) {
	mem, broken := vfs.NewMem(), &atomic.Bool{}
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".blob") {
			return errors.New("this sector cannot be read")
		}
		return nil
	}))
	s, err := openOn(t, fs, "everysec", "boot")
	if err != nil {
		t.Fatal(err)
	}
	// The first chunk is short and lies beside its row, the next ones lie in a file that will not be read.
	part := strings.Repeat("part", 8<<10)
	long := "head" + strings.Repeat("\x00", 16<<10-4) + strings.Repeat(part, 4) + part[:5000]
	x := newSession(s)
	x.do("SET", "{k}long", long)
	x.do("SET", "{k}other", long)
	x.do("SET", "{k}large", strings.Repeat(part, 40)) // is staged
	x.do("SET", "{k}small", "here")
	valuesLeaveTables(t, s, x, fs, "k")
	if err := errors.Join(s.store.Close(), s.wal.Close()); err != nil {
		t.Fatal(err)
	}
	if s, err = openOn(t, fs, "everysec", "boot"); err != nil {
		t.Fatal(err)
	}
	defer s.store.Abandon() //nolint:errcheck // what it flushes is of no interest
	defer s.wal.Close()     //nolint:errcheck // as above
	x = newSession(s)
	end := s.wal.End()

	broken.Store(true)
	commands := [][]string{
		{"COPY", "{k}long", "{k}copy"},
		{"COPY", "{k}large", "{k}copy"},
		{"APPEND", "{k}large", strings.Repeat(part, 200)},
		{"RENAME", "{k}long", "elsewhere"},
		{"BITOP", "OR", "{k}result", "{k}long", "{k}other"},
		{"BITOP", "NOT", "{k}long", "{k}other"},
		{"SETRANGE", "{k}long", "10", part + part},
		{"APPEND", "{k}long", part},
		{"SETBIT", "{k}long", "200000", "1"},
	}
	for _, cmd := range commands {
		if got := x.do(cmd...); !strings.HasPrefix(got, "-IOERR ") {
			t.Errorf("%s: %.80q, want an IOERR", cmd[0], got)
		}
		x.do("MULTI")
		x.do("SET", "{k}small", "changed")
		x.do("INCR", "{k}counter")
		x.do(cmd...)
		x.do("SET", "{k}small", "changed again")
		want := "-EXECABORT Transaction discarded because of: IOERR " + cmd[0] + ": "
		if got := x.do("EXEC"); !strings.HasPrefix(got, want) {
			t.Errorf("EXEC with %s: %.120q, want %q", cmd[0], got, want)
		}
		if got := x.do("GET", "{k}small"); got != "$4\r\nhere\r\n" {
			t.Errorf("EXEC with %s: a SET before it was done: %.80q", cmd[0], got)
		}
	}
	// One that only reads has no rows to leave: the others go on.
	x.do("MULTI")
	x.do("GETRANGE", "{k}long", "20000", "20010")
	x.do("SET", "{k}after", "v")
	if got := x.do("EXEC"); !strings.HasPrefix(got, "*2\r\n-IOERR ") || !strings.HasSuffix(got, "\r\n+OK\r\n") {
		t.Errorf("EXEC with a failed read: %.120q", got)
	}
	broken.Store(false)
	nothingChanged(t, s, x, long, end)
}

// nothingChanged looks at what the commands that failed might have left.
func nothingChanged(t *testing.T, s *Server, x *session, long string, end int64) {
	t.Helper()
	for _, key := range []string{"{k}long", "{k}other"} {
		if got := x.do("GETRANGE", key, "0", "-1"); bulk(got) != long {
			t.Errorf("%s has changed: %d bytes of reply", key, len(got))
		}
	}
	for _, key := range []string{"{k}copy", "{k}result", "{k}counter", "elsewhere"} {
		if got := x.do("EXISTS", key); got != ":0\r\n" {
			t.Errorf("EXISTS %s: %q, want none", key, got)
		}
	}
	if n := s.store.Keys(); n != 5 {
		t.Errorf("%d keys, want 5", n)
	}
	if got := s.wal.End() - end; got > 100 {
		t.Errorf("%d bytes were logged, want those of one SET", got)
	}
}
