package server

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/internal/testkit"
)

// laidLeft lists files of what was laid ahead and not used.
func (n *testNode) laidLeft(t *testing.T) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(n.cfg.V.Dir.Load(), "cairn", "log", "laid-*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// Long arguments of all kinds of writes are in the log's files before the command takes its locks, as many bytes as
// they have; the values are right, now and for who executes the log.
func TestLongArgumentIsLaidAhead(t *testing.T) {
	value, payload := longPayload(t, 1<<20+4096)
	n := newServer(t, "repl-backlog-size 1gb", "appendfsync always")
	n.layFrom = 1 << 20
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	c := n.dial(t)
	for _, x := range []struct {
		args []string
		laid int // bytes
		want string
	}{
		{[]string{"RESTORE", "plain", "0", payload}, len(payload), ok},
		{[]string{"RESTORE", "plain", "0", payload}, 0, "-BUSYKEY Target key name already exists.\r\n"},
		{[]string{"RESTORE-ASKING", "asking", "0", payload, "IDLETIME", "5"}, len(payload), ok},
		{[]string{"RESTORE", "relative", "100000", payload}, len(payload), ok},
		{[]string{"RESTORE", "bad", "0", payload[:len(payload)-1] + "!"}, 0, "-ERR DUMP payload version or checksum are wrong\r\n"},
		{[]string{"SET", "set", value}, len(value), ok},
		{[]string{"SET", "set", value, "NX"}, 0, "$-1\r\n"},
		{[]string{"SET", "timed", value, "EX", "100"}, len(value), ok},
		{[]string{"MSET", "m1", value, "small", "x", "m2", value}, 2 * len(value), ok},
		{[]string{"APPEND", "set", value}, len(value), fmt.Sprintf(":%d\r\n", 2*len(value))},
		{[]string{"HSET", "hash", value, value}, len(value) * 2, ":1\r\n"},
		{[]string{"HDEL", "hash", "none", value}, len(value), ":1\r\n"},
		{[]string{"GETSET", "small", value}, len(value), "$1\r\nx\r\n"},
		{[]string{"SET", "short", value[:1<<20-1]}, 0, ok},
		{[]string{"GET", value}, 0, "$-1\r\n"},
	} {
		before := n.wal.Stats().Laid
		if got := c.Do(x.args...).Raw; got != x.want {
			t.Errorf("%.40q: %.100q, want %.100q", x.args, got, x.want)
		}
		if got := n.wal.Stats().Laid - before; got != int64(x.laid) {
			t.Errorf("%.40q: %d bytes were laid ahead, want %d", x.args, got, x.laid)
		}
		if left := n.laidLeft(t); len(left) > 0 {
			t.Errorf("%.40q: left are %v", x.args, left)
		}
	}
	before := n.wal.Stats().Laid
	n.oneOfMulti(t, c, payload)
	if n.wal.Stats().Laid != before {
		t.Error("a queued command was laid ahead")
	}
	runtime.GC()
	stream := streamOf(t, n.Server)
	var now atomic.Int64
	now.Store(time.Now().UnixMilli())
	s := openReplay(t, vfs.NewMem(), &now, false)
	feed(t, s, stream)
	again := newSession(s)
	for key, want := range map[string]string{
		"plain": value, "asking": value, "relative": value, "set": value + value, "timed": value, "m1": value, "m2": value,
		"small": value, "short": value[:1<<20-1], "multi": value,
	} {
		if got := c.Do("GET", key).Value; got != want {
			t.Errorf("%s has another value, %d bytes", key, len(fmt.Sprint(got)))
		}
		if got := bulk(again.do("GET", key)); got != want {
			t.Errorf("%s has another value when the log is executed, %d bytes", key, len(got))
		}
	}
}

// The disk becomes nearly full while an argument is laid: the command is refused, nothing is left, and what frees
// room goes on.
func TestLayingMeetsAFullDisk(t *testing.T) {
	var full atomic.Bool
	n := newServer(t)
	n.fs, n.layFrom = roomFS{vfs.Default, full.Load}, 1<<20
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	c := n.dial(t)
	value := strings.Repeat("x", longTest)
	if got := c.Do("HSET", "hash", value, value).Raw; got != ":1\r\n" {
		t.Fatal(got)
	}
	full.Store(true)
	testkit.Eventually(t, replyWait, func() bool { return n.store.Gate() != nil }, "the gate closes")
	cmd, _ := n.table.Lookup([][]byte{[]byte("set")})
	x := newSession(n.Server)
	err := n.layAhead(x.client, cmd, [][]byte{[]byte("set"), []byte("k"), []byte(value)})
	if err == nil || !strings.HasPrefix(err.Error(), "MISCONF disk is nearly full") || len(x.laid) > 0 {
		t.Errorf("%v, %d laid", err, len(x.laid))
	}
	if left := n.laidLeft(t); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	if got := c.Do("HDEL", "hash", value).Raw; got != ":1\r\n" {
		t.Error(got)
	}
}

// Power cuts while long values are written: what is left is a prefix, with all that was acknowledged, also the half of each
// that a cut falls into is gone.
func TestPowerLossWithLaidArguments(t *testing.T) {
	t.Parallel()
	const life = 40
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 9))
		mem := vfs.NewCrashableMem()
		s, err := openOn(t, mem, "always", "boot-0")
		if err != nil {
			t.Fatal(err)
		}
		s.layFrom = 50_000
		values := make([]string, life)
		for i := range values {
			values[i] = strings.Repeat(fmt.Sprintf("%d-%x ", i, r.Uint64()), 1+r.IntN(10_000))
		}
		var acked atomic.Int64
		ended, went := make(chan struct{}), make(chan struct{}, life) // one for each that is acknowledged
		go func() {
			defer close(ended)
			x := newSession(s)
			for i, v := range values {
				if got := x.do("SET", fmt.Sprint("k", i), v); got != ok {
					t.Errorf("SET %d: %.100q", i, got)
				}
				acked.Store(int64(i + 1))
				went <- struct{}{}
			}
		}()
		var clones []*vfs.MemFS
		var least []int64
		for target := int64(0); target < life && !isClosed(ended); target += int64(r.IntN(6)) {
			for acked.Load() < target && !isClosed(ended) {
				select {
				case <-went:
				case <-ended:
				}
			}
			least = append(least, acked.Load())
			clones = append(clones, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: r.IntN(5) * 25, RNG: rand.New(rand.NewPCG(r.Uint64(), 1))}))
		}
		<-ended
		if s.wal.Stats().Laid == 0 {
			t.Error("nothing was laid ahead")
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
		for i, clone := range clones {
			n := lookAtLaid(t, clone, values)
			if n < int(least[i]) {
				t.Errorf("seed %d, cut %d: %d values, %d were promised", seed, i, n, least[i])
			}
		}
	}
}

// lookAtLaid opens what a power cut left and counts the values.
func lookAtLaid(t *testing.T, fs *vfs.MemFS, values []string) (n int) {
	t.Helper()
	s, err := openOn(t, fs, "always", "boot-1")
	if err != nil {
		t.Errorf("open after the power cut: %v", err)
		return 0
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	x := newSession(s)
	for i, v := range values {
		got := x.do("GET", fmt.Sprint("k", i))
		switch {
		case got == "$-1\r\n":
		case bulk(got) != v:
			t.Errorf("value %d is another one, %d bytes", i, len(got))
		case i != n:
			t.Errorf("value %d is there, %d is not", i, n)
		default:
			n++
		}
	}
	return n
}
