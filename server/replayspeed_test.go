package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func TestJoinSpeed(t *testing.T) {
	for _, test := range []struct {
		known, bytes int64
		took         time.Duration
		want         int64
	}{
		{0, 3 << 20, time.Second, 0}, // too short to tell
		{7, 3 << 20, time.Second, 7},
		{0, 8 << 20, 2 * time.Second, 4 << 20},
		{10 << 20, 20 << 20, time.Second, 15 << 20},
		{10 << 20, 20 << 20, 0, 10 << 20},
		{0, 4 << 20, 1000 * time.Hour, 1},
	} {
		if got := joinSpeed(test.known, test.bytes, test.took); got != test.want {
			t.Errorf("%d known, %d bytes in %v: %d, want %d", test.known, test.bytes, test.took, got, test.want)
		}
	}
	for speed, want := range map[int64]int64{0: 96 << 20, 1: 24 << 20, 50 << 20: 50 << 20, 1 << 40: 128 << 20} {
		if got := recoveryBytes(speed); got != want {
			t.Errorf("a speed of %d: %d, want %d", speed, got, want)
		}
	}
}

// The file is believed only when it says a number.
func TestReplaySpeedFile(t *testing.T) {
	fs := vfs.NewMem()
	if got := readSpeed(fs, ""); got != 0 {
		t.Errorf("no file: %d", got)
	}
	if err := writeSpeed(fs, "", 12345); err != nil {
		t.Fatal(err)
	}
	if got := readSpeed(fs, ""); got != 12345 {
		t.Errorf("read back %d", got)
	}
	for text, want := range map[string]int64{"": 0, "x": 0, "-5\n": 0, "99999999999999999999": 0, " 77 \n": 77} {
		f, err := fs.Create(speedFile, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(f, text)
		f.Close()
		if got := readSpeed(fs, ""); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// A node that executes much log again knows afterwards how fast it is, and the next start goes by it, unless the
// directive is set.
func TestReplayIsMeasured(t *testing.T) {
	fs, dir := vfs.NewCrashableMem(), "dir "+t.TempDir() // the same one for all
	n := newServer(t, dir)
	n.fs = fs
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	c := n.dial(t)
	value := string(make([]byte, 20_000))
	for i := range 300 {
		if got := c.Do("SET", fmt.Sprint("k", i%3), value).Raw; got != "+OK\r\n" {
			t.Fatalf("SET: %q", got)
		}
	}
	if err := n.wal.SyncAll(); err != nil {
		t.Fatal(err)
	}
	crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0})
	m := newServer(t, dir)
	m.fs = crashed
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	replayed := m.wal.End() - m.store.Durable()
	speed := m.admin.replaySpeed.Load()
	if replayed >= speedFrom && speed == 0 {
		t.Fatalf("%d bytes were executed again and no speed is known", replayed)
	}
	if got := m.cfg.V.RecoveryLogSize.Load(); got != recoveryGuess {
		t.Errorf("before anything was measured: %d", got)
	}
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		directives []string
		want       int64
	}{{[]string{dir}, recoveryBytes(speed)}, {[]string{dir, "recovery-log-size 20mb"}, 20 << 20}} {
		o := newServer(t, test.directives...)
		o.fs = crashed
		if err := o.Start(); err != nil {
			t.Fatal(err)
		}
		if got := o.cfg.V.RecoveryLogSize.Load(); got != test.want {
			t.Errorf("%q: %d, want %d", test.directives, got, test.want)
		}
		if err := o.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if speed == 0 {
		t.Skip("too little log was left to execute again") // a flush came in between, on a slow machine
	}
}
