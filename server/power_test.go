package server

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine"
	"cairn/internal/resp"
	"cairn/server/config"
	"cairn/wal"
)

// Power loss, on Pebble's crashable file system under store and log together: one client writes, at random
// moments the file system is cloned as a power cut would leave it, and a node opened on the clone must hold
// exactly what some prefix of the client's commands left: in always mode one that has all that was
// acknowledged, in everysec one that has all that was synced.

// session is a client without a socket: commands run by the same loop, replies are kept.
type session struct {
	*client
	out bytes.Buffer
}

type sink struct {
	net.Conn
	w io.Writer
}

func (s sink) Write(b []byte) (int, error) { return s.w.Write(b) }
func (s sink) Close() error                { return nil }

func (s sink) SetWriteDeadline(time.Time) error { return nil }

func newSession(s *Server) *session {
	x := &session{client: &client{s: s, created: time.Now(), stamp: time.Now(), txn: s.store.NewTxn()}}
	x.conn = sink{w: &x.out}
	x.w.Proto = 2
	x.authed.Store(true)
	x.queued.Store(-1)
	x.framer = resp.NewFramer(resp.Limits{})
	x.push.init(&s.memory)
	return x
}

// do runs one command and gives its raw reply, "" when the log failed.
func (x *session) do(args ...string) string {
	raw := make([][]byte, len(args))
	for i, a := range args {
		raw[i] = []byte(a)
	}
	x.out.Reset()
	x.s.dispatch(x.client, raw)
	if !x.flush() {
		return ""
	}
	return x.out.String()
}

// cuttableDisk adds a free space that tests set.
type cuttableDisk struct {
	vfs.FS
	free *atomic.Uint64
}

func (d cuttableDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free.Load(), TotalBytes: 1 << 40}, nil
}

// openOn opens a node without sockets on fs, with everything small so that flush, trim and drop happen often.
func openOn(t testing.TB, fs vfs.FS, policy, boot string) (*Server, error) {
	t.Helper()
	cfg, _, err := config.Load([]string{"--port", "0", "--dir", t.TempDir(), "--appendfsync", policy, "--repl-backlog-size", "16384"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := New(cfg, NewLogger("", io.Discard, config.LogWarning))
	s.fs = fs
	s.tune = func(e *engine.Options, w *wal.Options) {
		e.Dir, w.Dir = "cairn/store", "cairn/log"
		e.MemoryBudget, e.CutBytes, e.CutInterval = 16<<20, 16<<10, 5*time.Millisecond
		e.RecoveryLogBytes, e.DropRowsMax, e.BootID = 128<<10, 8, boot
		w.SegmentBytes = 64 << 10
	}
	s.followConfig()
	if err := s.open(); err != nil {
		return nil, err
	}
	return s, nil
}

// powerModel is what one client's acknowledged commands have left.
type powerModel map[string]string

// op is one command with what it does to the model.
type op struct {
	args  []string
	apply func(powerModel)
}

func randomOp(r *rand.Rand, i int) op {
	key := fmt.Sprintf("{t}k%d", r.IntN(40))
	val := fmt.Sprintf("v%d-%s", i, strings.Repeat("x", r.IntN(40)))
	set := func(v string) func(powerModel) { return func(m powerModel) { m[key] = v } }
	switch r.IntN(14) {
	case 0:
		return op{[]string{"DEL", key}, func(m powerModel) { delete(m, key) }}
	case 1: // a value row
		val = strings.Repeat(val, 40)
		return op{[]string{"SET", key, val}, set(val)}
	case 2: // chunks
		val = strings.Repeat(val, 2000)
		return op{[]string{"SET", key, val}, set(val)}
	case 3: // gone at once
		return op{[]string{"SET", key, val, "PXAT", "1"}, func(m powerModel) { delete(m, key) }}
	case 4: // lives on
		return op{[]string{"SET", key, val, "EX", "100000"}, set(val)}
	case 5, 6: // hashes, small and in rows
		hash := fmt.Sprintf("{t}h%d", r.IntN(6))
		args := []string{"HSET", hash}
		field := fmt.Sprint("f", r.IntN(300))
		args = append(args, field, val)
		return op{args, func(m powerModel) { m[hash+"/"+field] = val }}
	case 7:
		hash := fmt.Sprintf("{t}h%d", r.IntN(6))
		return op{[]string{"DEL", hash}, func(m powerModel) {
			for k := range m {
				if strings.HasPrefix(k, hash+"/") {
					delete(m, k)
				}
			}
		}}
	case 8:
		if r.IntN(20) == 0 {
			return op{[]string{"FLUSHALL"}, func(m powerModel) { clear(m) }}
		}
	case 9: // staged
		if r.IntN(30) == 0 {
			val = strings.Repeat(val, 1+engine.StageFrom/len(val))
			return op{[]string{"SET", key, val}, set(val)}
		}
	}
	return op{[]string{"SET", key, val}, set(val)}
}

// powerRun writes until told to stop.
type powerRun struct {
	ops     []op
	acked   atomic.Int64  // how many of ops are acknowledged
	refused atomic.Int64  // by the space gate
	went    chan struct{} // holds one when acked has risen
}

// write runs one command after the other from op n on, each in MULTI with its number, so that a recovered state
// says which prefix it is, and must be it whole. What the space gate refuses is tried again.
func (p *powerRun) write(t *testing.T, s *Server, n int64, stop <-chan struct{}) {
	x := newSession(s)
	for i := n; i < int64(len(p.ops)); i++ {
		o := p.ops[i]
		for done := false; !done; {
			if isClosed(stop) {
				return
			}
			x.do("MULTI")
			x.do(o.args...)
			x.do("SET", "{t}seq", fmt.Sprint(i+1))
			reply := x.do("EXEC")
			if strings.HasPrefix(reply, "-EXECABORT") {
				p.refused.Add(1)
				continue
			}
			if !strings.HasPrefix(reply, "*2\r\n") || strings.Contains(reply, "\r\n-") {
				t.Errorf("op %d %.80q: %.200q", i, o.args, reply)
				return
			}
			done = true
		}
		p.acked.Store(i + 1)
		select {
		case p.went <- struct{}{}:
		default: // nobody has looked since
		}
	}
}

// powerCrashes is how many power cuts TestPowerLoss makes for each policy; more by hand:
//
//	go test ./server -run TestPowerLoss -power.crashes=5000 -power.seed=7
var (
	powerCrashes = flag.Int("power.crashes", 500, "power cuts for each policy")
	powerSeed    = flag.Uint64("power.seed", 1, "first seed")
)

func TestPowerLoss(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"always", "everysec"} {
		t.Run(policy, func(t *testing.T) {
			crashes := *powerCrashes
			for seed := *powerSeed; crashes > 0; seed++ {
				crashes -= powerLives(t, policy, min(crashes, 50), seed)
				if t.Failed() {
					t.Fatalf("replay: go test ./server -run TestPowerLoss/%s -power.seed=%d", policy, seed)
				}
			}
		})
	}
}

// powerLives lets one node live again and again, each life on what a power cut left of the one before.
func powerLives(t *testing.T, policy string, crashes int, seed uint64) int {
	r := rand.New(rand.NewPCG(seed, 7))
	p := &powerRun{went: make(chan struct{}, 1)}
	for i := range 6000 {
		p.ops = append(p.ops, randomOp(r, i))
	}
	var free atomic.Uint64
	free.Store(1 << 39)
	mem, n, done := vfs.NewCrashableMem(), int64(0), 0
	for life := 0; done < crashes && !t.Failed(); life++ {
		s, err := openOn(t, cuttableDisk{mem, &free}, policy, fmt.Sprint("boot-", life))
		if err != nil {
			t.Fatal(err)
		}
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			p.write(t, s, n, stop)
		}()
		var next cutState
		for range 1 + r.IntN(5) {
			next = p.cut(t, r, s, mem, ended, &free, policy, fmt.Sprint("boot-", life+1))
			done++
		}
		close(stop)
		<-ended
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		mem, n = next.fs, next.ops
		p.acked.Store(n)
	}
	return done
}

// cutState is what a power cut left: files, and how many ops they hold.
type cutState struct {
	fs  *vfs.MemFS
	ops int64
}

// cut takes the power away at a random moment and checks what is left. It gives a second clone of the same
// moment for the next life.
func (p *powerRun) cut(t *testing.T, r *rand.Rand, s *Server, mem *vfs.MemFS, ended <-chan struct{},
	free *atomic.Uint64, policy, boot string,
) cutState {
	target := p.acked.Load() + int64(r.IntN(80))
	for p.acked.Load() < target && !isClosed(ended) {
		select { // the clone falls at a random moment of what is written next; nothing depends on which
		case <-p.went:
		case <-ended:
		}
	}
	if r.IntN(10) == 0 { // the disk is full for a moment
		free.Store(1 << 10)
		s.store.LookAtDisk()
		defer s.store.LookAtDisk()
		defer free.Store(1 << 39)
	}
	least, before := p.acked.Load(), s.wal.History()
	if policy != "always" {
		least = 0
		if r.IntN(2) == 0 { // what was synced must be there
			least = p.acked.Load()
			if err := s.wal.SyncAll(); err != nil {
				t.Error(err)
			}
		}
	}
	cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: r.IntN(5) * 25, RNG: rand.New(rand.NewPCG(r.Uint64(), 1))}
	clone := mem.CrashClone(cfg)
	// A clone without unsynced data of the clone is the clone itself, for the next life to begin on.
	again := clone.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: cfg.RNG})
	n := checkClone(t, p, clone, policy, boot, least, before)
	return cutState{again, n}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// checkClone opens a node on what the power cut left, holds it against the model and says which prefix it is.
func checkClone(t *testing.T, p *powerRun, fs *vfs.MemFS, policy, boot string, least int64, before wal.History) (n int64) {
	t.Helper()
	s, err := openOn(t, fs, policy, boot)
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
	fmt.Sscanf(bulk(x.do("GET", "{t}seq")), "%d", &n)
	if n < least || n > int64(len(p.ops)) {
		t.Errorf("recovered up to op %d, %d were promised", n, least)
		return n
	}
	if h := s.wal.History(); policy != "always" && (h.ID == before.ID || h.ID2 != before.ID) {
		t.Errorf("the machine stopped with unsynced writes, and history %s follows %s", h.ID, before.ID)
	}
	want := powerModel{}
	for _, o := range p.ops[:n] {
		o.apply(want)
	}
	compareModel(t, x, want, n)
	return n
}

func compareModel(t *testing.T, x *session, want powerModel, n int64) {
	t.Helper()
	keys := map[string]bool{}
	if n > 0 {
		keys["{t}seq"] = true
	}
	for k, v := range want {
		hash, field, ok := strings.Cut(k, "/")
		got := ""
		if ok {
			keys[hash] = true
			got = bulk(x.do("HGET", hash, field))
		} else {
			keys[k] = true
			got = bulk(x.do("GET", k))
		}
		if got != v {
			t.Errorf("after op %d: %s is %.60q, want %.60q", n, k, got, v)
			return
		}
	}
	for i := range 40 {
		if k := fmt.Sprintf("{t}k%d", i); !keys[k] && x.do("EXISTS", k) != ":0\r\n" {
			t.Errorf("after op %d: %s exists, and should not", n, k)
		}
	}
	for i := range 6 {
		hash := fmt.Sprintf("{t}h%d", i)
		fields := 0
		for k := range want {
			if strings.HasPrefix(k, hash+"/") {
				fields++
			}
		}
		if got := x.do("HLEN", hash); got != fmt.Sprintf(":%d\r\n", fields) {
			t.Errorf("after op %d: HLEN %s is %q, want %d", n, hash, got, fields)
		}
	}
}

// bulk is the content of a bulk reply.
func bulk(reply string) string {
	_, rest, ok := strings.Cut(reply, "\r\n")
	if !ok || reply[0] != '$' {
		return ""
	}
	return strings.TrimSuffix(rest, "\r\n")
}
