package server

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine"
	"cairn/server/config"
	"cairn/wal"
	"cairn/wal/record"
)

// Damage: files that were torn or whose bits have changed. A node opened on them may refuse and say which file
// it is about, may answer an error for some keys, or has everything right. It never answers a wrong value, never
// misses in silence what was acknowledged and is proven to have been synced, and never dies.

// More by hand:
//
//	go test ./server -run TestDamage -damage.flips=3000 -damage.torn=2000 -damage.seed=7
var (
	damageTorn  = flag.Int("damage.torn", 200, "torn logs")
	damageFlips = flag.Int("damage.flips", 600, "flipped bits")
	damageSeed  = flag.Uint64("damage.seed", 1, "seed")
)

// files is the content of a node's folder by path.
type files map[string][]byte

// readFiles takes all files below dir.
func readFiles(t *testing.T, fs *vfs.MemFS, dir string, into files) files {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		p := fs.PathJoin(dir, name)
		info, err := fs.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			readFiles(t, fs, p, into)
			continue
		}
		b, err := fs.UnsafeGetFileDataBuffer(p)
		if err != nil {
			t.Fatal(err)
		}
		into[p] = bytes.Clone(b)
	}
	return into
}

// disk makes a file system of the files.
func (f files) disk(t *testing.T) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	for p, b := range f {
		if err := fs.MkdirAll(path.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		file, err := fs.Create(p, vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = file.Write(bytes.Clone(b)) // a vfs.File may scribble on what it was given
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return fs
}

// with gives the same files but for one.
func (f files) with(name string, content []byte) files {
	g := maps.Clone(f)
	g[name] = content
	return g
}

// damaged is a node that was opened on damaged files.
type damaged struct {
	*Server
	log bytes.Buffer
}

// openDamaged opens a node without sockets on the files.
func openDamaged(t *testing.T, f files) (*damaged, error) {
	t.Helper()
	cfg, _, err := config.Load([]string{"--port", "0", "--dir", damageDir, "--appendfsync", "everysec", "--repl-backlog-size", "16384"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &damaged{}
	d.Server = New(cfg, NewLogger("", &d.log, config.LogWarning))
	d.fs = f.disk(t)
	d.tune = tuneDamage
	d.followConfig()
	if err := d.open(); err != nil {
		return d, err
	}
	return d, nil
}

const damageDir = "/tmp"

func tuneDamage(e *engine.Options, w *wal.Options) {
	e.Dir, w.Dir = "cairn/store", "cairn/log"
	e.MemoryBudget, e.CutBytes, e.CutInterval = 16<<20, 16<<10, time.Hour
	e.RecoveryLogBytes, e.DropRowsMax, e.BootID = 1<<30, 8, "boot"
	w.SegmentBytes = 256 << 10
}

// end lets the damaged node go; whether its last flush works does not matter.
func (d *damaged) end() {
	if d.store != nil {
		_ = d.store.Abandon()
		_ = d.wal.Close()
	}
}

// dead says why the node would have ended itself, nil when it would not.
func (d *damaged) dead() error {
	select {
	case err := <-d.Fatal():
		return err
	default:
		return nil
	}
}

// tornRun is a node's files after a stop, with the offset at which each acknowledged op ended.
type tornRun struct {
	powerRun
	files   files
	ends    []int64
	durable int64 // what the floor file proves
	segment string
	written int // bytes of the newest segment that blocks fill
}

func newTornRun(t *testing.T, r *rand.Rand) *tornRun {
	t.Helper()
	p := &tornRun{}
	mem := vfs.NewCrashableMem()
	d := &damaged{}
	cfg, _, err := config.Load([]string{"--port", "0", "--dir", damageDir, "--appendfsync", "everysec", "--repl-backlog-size", "16384"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.Server = New(cfg, NewLogger("", io.Discard, config.LogWarning))
	d.fs, d.tune = mem, tuneDamage
	d.followConfig()
	if err := d.open(); err != nil {
		t.Fatal(err)
	}
	defer d.end()
	x := newSession(d.Server)
	total := 400 + r.IntN(300)
	for i := range total {
		o := randomOp(r, i)
		x.do("MULTI")
		x.do(o.args...)
		x.do("SET", "{t}seq", fmt.Sprint(i+1))
		if reply := x.do("EXEC"); !strings.HasPrefix(reply, "*2\r\n") {
			t.Fatalf("op %d: %q", i, reply)
		}
		p.ops = append(p.ops, o)
		p.ends = append(p.ends, d.wal.End())
		if i == total/3 {
			if err := d.store.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if i > total/3 && r.IntN(40) == 0 {
			if err := d.wal.SyncAll(); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.durable = d.store.Durable()
	p.files = readFiles(t, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: r}), "cairn", files{})
	for name, b := range p.files {
		if strings.HasPrefix(name, "cairn/log/") && strings.HasSuffix(name, ".seg") && name > p.segment {
			if used := len(bytes.TrimRight(b, "\x00")); used > record.DataAt {
				p.segment, p.written = name, used
			}
		}
	}
	if p.written < 2*record.DataAt {
		return newTornRun(t, r) // a segment had just been begun
	}
	return p
}

// A log torn in its last 64 KiB loses at most what was never proven to be synced, and says so.
func TestDamageTornLog(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(*damageSeed, 21))
	var refused, whole, cut int
	for n := 0; n < *damageTorn; n += 50 {
		p := newTornRun(t, r)
		for range min(50, *damageTorn-n) {
			switch p.tear(t, r) {
			case "refused":
				refused++
			case "cut":
				cut++
			default:
				whole++
			}
			if t.Failed() {
				t.Fatalf("replay: go test ./server -run TestDamageTornLog -damage.seed=%d", *damageSeed)
			}
		}
	}
	t.Logf("refused %d, cut %d, whole %d", refused, cut, whole)
	if cut == 0 || refused == 0 {
		t.Error("the test no longer tests both")
	}
}

// tear opens the node with the newest segment torn at some byte and says what came of it.
func (p *tornRun) tear(t *testing.T, r *rand.Rand) string {
	t.Helper()
	whole := p.files[p.segment]
	at := p.written - r.IntN(min(p.written-record.DataAt, 64<<10))
	torn, how := bytes.Clone(whole[:at]), "cut at"
	switch r.IntN(3) {
	case 0:
		torn, how = append(torn, make([]byte, len(whole)-at)...), "zeroed from"
	case 1: // what is behind the hole may prove that there was something in it
		hole := min(1+r.IntN(4096), p.written-at)
		torn, how = append(append(torn, make([]byte, hole)...), whole[at+hole:]...), fmt.Sprint(hole, " bytes zeroed from")
	}
	where := fmt.Sprintf("%s %s %d of %d", p.segment, how, at, p.written)
	d, err := openDamaged(t, p.files.with(p.segment, torn))
	defer d.end()
	if err != nil {
		var damage *wal.DamageError
		var start *wal.StartError
		if !errors.As(err, &damage) && !errors.As(err, &start) {
			t.Errorf("%s: refused, but not as damage of the log: %v", where, err)
		}
		return "refused"
	}
	var n int64
	x := newSession(d.Server)
	fmt.Sscanf(bulk(x.do("GET", "{t}seq")), "%d", &n)
	if n == 0 || p.ends[n-1] < p.durable || d.wal.End() < p.ends[n-1] {
		t.Errorf("%s: op %d is the last, the log ends at %d, %d was durable", where, n, d.wal.End(), p.durable)
		return ""
	}
	want := powerModel{}
	for _, o := range p.ops[:n] {
		o.apply(want)
	}
	compareModel(t, x, want, n)
	if n == int64(len(p.ops)) {
		return "whole"
	}
	if !blockEnds(whole, at) && !strings.Contains(d.log.String(), "tail of the log lost") {
		t.Errorf("%s: %d of %d ops are gone, and nothing was said: %s", where, int64(len(p.ops))-n, len(p.ops), &d.log)
	}
	return "cut"
}

// blockEnds says whether a segment's block ends at a byte: then nothing is left to tell that there was more.
func blockEnds(segment []byte, at int) bool {
	const length = 24 // where a block's head has the length of its payload
	pos := record.DataAt
	for pos < at {
		pos += record.BlockLen + int(binary.LittleEndian.Uint32(segment[pos+length:]))
	}
	return pos == at
}

// flipRun is a flushed store with a log that goes on behind it, and what is in them.
type flipRun struct {
	files files
	kinds map[string][]string // paths by kind of file
	want  map[string]string   // replies by command
}

func newFlipRun(t *testing.T) *flipRun {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 5))
	mem := vfs.NewCrashableMem()
	d := &damaged{}
	cfg, _, err := config.Load([]string{"--port", "0", "--dir", damageDir, "--repl-backlog-size", "16384"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.Server = New(cfg, NewLogger("", io.Discard, config.LogWarning))
	d.fs, d.tune = mem, tuneDamage
	d.followConfig()
	if err := d.open(); err != nil {
		t.Fatal(err)
	}
	defer d.end()
	x, f := newSession(d.Server), &flipRun{want: map[string]string{}, kinds: map[string][]string{}}
	text := func(n int) string { return strings.Repeat(fmt.Sprintf("%08x", r.Uint32()), n/8+1)[:n] }
	f.fill(t, x, "first", 30, text)
	if err := d.store.Flush(); err != nil {
		t.Fatal(err)
	}
	f.fill(t, x, "second", 15, text)
	if err := d.store.Flush(); err != nil {
		t.Fatal(err)
	}
	valuesLeaveTables(t, d.Server, x, mem, "0", "1", "2", "3", "4", "5", "6")
	f.fill(t, x, "third", 8, text)
	if err := d.wal.SyncAll(); err != nil {
		t.Fatal(err)
	}
	// The next block proves that all before it was synced; it may be lost itself.
	f.run(t, x, "SET", "{z}last", "1")
	if err := d.wal.SyncAll(); err != nil {
		t.Fatal(err)
	}
	f.files = readFiles(t, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0}), "cairn", files{})
	for p, b := range f.files {
		if kind := kindOf(p); len(b) > 0 && kind != "" {
			f.kinds[kind] = append(f.kinds[kind], p)
		}
	}
	for _, paths := range f.kinds {
		slices.Sort(paths)
	}
	return f
}

func (f *flipRun) run(t *testing.T, x *session, args ...string) {
	t.Helper()
	if reply := x.do(args...); reply == "" || reply[0] == '-' {
		t.Fatalf("%.100q: %.200q", args, reply)
	}
}

// fill writes values of every form and notes how they read.
func (f *flipRun) fill(t *testing.T, x *session, name string, n int, text func(int) string) {
	t.Helper()
	var reads [][]string
	for i := range n {
		key := fmt.Sprintf("{%d}%s", i%7, name)
		f.run(t, x, "SET", key+fmt.Sprint("s", i), text(20))
		f.run(t, x, "SET", key+fmt.Sprint("v", i), text(700+i*20), "PXAT", "9999999999999")
		reads = append(reads, []string{"GET", key + fmt.Sprint("s", i)}, []string{"GET", key + fmt.Sprint("v", i)},
			[]string{"PEXPIRETIME", key + fmt.Sprint("v", i)})
	}
	for i := range 2 {
		chunked, packed, rows := fmt.Sprintf("{%d}c%s", i, name), fmt.Sprintf("{%d}p%s", i, name), fmt.Sprintf("{%d}r%s", i, name)
		f.run(t, x, "SET", chunked, text(70_000))
		f.run(t, x, "HSET", packed, "a", text(10), "b", text(10))
		args := []string{"HSET", rows}
		for j := range 150 {
			args = append(args, fmt.Sprint("f", j), text(30))
		}
		f.run(t, x, args...)
		reads = append(reads, []string{"GET", chunked}, []string{"HGET", packed, "b"}, []string{"HGETALL", rows},
			[]string{"HGET", rows, "f77"}, []string{"EXISTS", rows})
	}
	f.run(t, x, "SET", "{0}gone"+name, text(100))
	f.run(t, x, "DEL", "{0}gone"+name)
	for _, args := range append(reads, []string{"EXISTS", "{0}gone" + name}) {
		f.want[strings.Join(args, " ")] = x.do(args...)
	}
}

// kindOf names the kind of file, "" for one that nothing depends on.
func kindOf(p string) string {
	base := path.Base(p)
	switch {
	case path.Base(path.Dir(p)) == "log":
		return "log"
	case strings.HasPrefix(base, "MANIFEST"):
		return "manifest"
	case strings.HasPrefix(base, "OPTIONS"):
		return "options"
	case strings.HasPrefix(base, "FLOOR"):
		return "floor"
	case strings.HasPrefix(base, "marker"):
		return "marker"
	case strings.HasSuffix(base, ".sst"):
		return "table"
	case strings.HasSuffix(base, ".blob"):
		return "blob"
	}
	return ""
}

// flip is one changed bit.
type flip struct {
	kind, path string
	at, bit    int
}

func (f flip) String() string { return fmt.Sprintf("%s byte %d bit %d", f.path, f.at, f.bit) }

// pick chooses a bit, each kind of file as often as the others, and no byte that was never written.
func (f *flipRun) pick(r *rand.Rand) (flip, files) {
	kinds := slices.Sorted(maps.Keys(f.kinds))
	p := flip{kind: kinds[r.IntN(len(kinds))], bit: r.IntN(8)}
	p.path = f.kinds[p.kind][r.IntN(len(f.kinds[p.kind]))]
	whole := f.files[p.path]
	p.at = r.IntN(max(len(bytes.TrimRight(whole, "\x00")), 1))
	changed := bytes.Clone(whole)
	changed[p.at] ^= 1 << p.bit
	return p, f.files.with(p.path, changed)
}

// One flipped bit anywhere is refused, costs keys that then answer an error, or has no effect.
func TestDamageFlippedBits(t *testing.T) {
	t.Parallel()
	f := newFlipRun(t)
	for _, kind := range []string{"log", "manifest", "table", "blob", "options", "floor"} {
		if len(f.kinds[kind]) == 0 {
			t.Fatalf("no file of kind %s among %v", kind, slices.Sorted(maps.Keys(f.files)))
		}
	}
	r := rand.New(rand.NewPCG(*damageSeed, 22))
	outcomes := map[string]int{}
	for range *damageFlips {
		p, damaged := f.pick(r)
		outcomes[p.kind+" "+f.check(t, p, damaged)]++
		if t.Failed() {
			t.Fatalf("replay: go test ./server -run TestDamageFlippedBits -damage.seed=%d", *damageSeed)
		}
	}
	for _, o := range slices.Sorted(maps.Keys(outcomes)) {
		t.Logf("%-24s %d", o, outcomes[o])
	}
	for _, o := range []string{"log refused", "manifest refused", "table costs keys", "blob costs keys"} {
		if *damageFlips >= 500 && outcomes[o] == 0 {
			t.Errorf("%s did not come up: the test no longer tests it", o)
		}
	}
}

// check opens a node on damaged files, reads everything, writes, and says what came of it.
func (f *flipRun) check(t *testing.T, p flip, damaged files) string {
	t.Helper()
	d, err := openDamaged(t, damaged)
	defer d.end()
	if err != nil {
		if !namesDamage(err) {
			t.Errorf("%v: refused without saying what is damaged: %v", p, err)
		}
		return "refused"
	}
	x := newSession(d.Server)
	failed, lastFail := 0, ""
	for cmd, want := range f.want {
		switch got := x.do(strings.Fields(cmd)...); {
		case got == want:
		case strings.HasPrefix(got, "-IOERR"), got == "" && strings.HasPrefix(cmd, "HGETALL"), got == "" && strings.HasPrefix(cmd, "GET"):
			failed++
			lastFail = cmd + " answers " + got
			x = newSession(d.Server)
		default:
			t.Errorf("%v: %s is %.100q, want %.100q\n%s", p, cmd, got, want, &d.log)
			return ""
		}
	}
	f.goOn(t, p, d, x)
	if failed == 0 {
		return "without effect"
	}
	if p.kind != "table" && p.kind != "blob" {
		t.Errorf("%v: %d reads fail: %s", p, failed, lastFail)
	}
	if d.store.Corruptions() == 0 {
		t.Errorf("%v: %d reads fail, and no damage was counted: %s", p, failed, lastFail)
	}
	if failed == len(f.want) {
		return "costs everything"
	}
	return "costs keys"
}

// goOn proves that the node still works: keys can be written and removed, and applied.
func (f *flipRun) goOn(t *testing.T, p flip, d *damaged, x *session) {
	t.Helper()
	if reply := x.do("SET", "{new}key", "1"); reply != "+OK\r\n" {
		t.Errorf("%v: SET answers %q", p, reply)
	}
	// So little that Pebble begins no rewrite of values for it.
	gone := []string{"{0}rfirst", "{1}rfirst", "{0}rsecond", "{1}rsecond", "{0}rthird", "{0}cfirst"}
	for _, key := range gone {
		if reply := x.do("DEL", key); reply != ":1\r\n" && !strings.HasPrefix(reply, "-IOERR") {
			t.Errorf("%v: DEL answers %q", p, reply)
		}
	}
	for range 2 { // the second one has the values to drop that the first one applied
		if err := d.store.Flush(); err != nil {
			t.Errorf("%v: flush: %v", p, err)
		}
	}
	if err := d.dead(); err != nil {
		t.Errorf("%v: the node ends itself: %v", p, err)
	}
	if reply := x.do("GET", "{new}key"); reply != "$1\r\n1\r\n" {
		t.Errorf("%v: GET answers %q", p, reply)
	}
}

// namesDamage says whether an error tells a person which file or row to look at.
func namesDamage(err error) bool {
	for _, word := range []string{"cairn/log/", "log segment", "cairn/store", "MANIFEST", "pebble: file 0", "OPTIONS", "marker", "floor file"} {
		if strings.Contains(err.Error(), word) {
			return true
		}
	}
	return false
}
