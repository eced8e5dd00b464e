package server

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/slot"
	"cairn/internal/testkit"
	"cairn/server/command"
	"cairn/server/config"
	"cairn/wal"
)

// Replay equals execution. A session runs generated commands of every kind on one node, with a clock that jumps.
// Then a second node recovers from a crash clone of the first one's files, and a third one is fed the first
// one's log as a primary's stream. All three must hold the same rows, byte for byte. Only generations may
// differ: they are each node's own, and a row's generation is replaced by the key that owns it.

// replaySeeds is how many sequences TestReplayEqualsExecution makes; more by hand:
//
//	go test ./server -run TestReplayEqualsExecution -replay.seeds=200 -replay.seed=7
var (
	replaySeeds = flag.Int("replay.seeds", 12, "generated command sequences")
	replaySeed  = flag.Uint64("replay.seed", 1, "first seed")
)

func TestReplayEqualsExecution(t *testing.T) {
	t.Parallel()
	used := map[string]int{} // how often each command changed something
	for seed := *replaySeed; seed < *replaySeed+uint64(*replaySeeds); seed++ {
		replayOnce(t, seed, used)
		if t.Failed() {
			t.Fatalf("replay: go test ./server -run TestReplayEqualsExecution -replay.seeds=1 -replay.seed=%d", seed)
		}
	}
	if *replaySeeds < 8 {
		return // too little for all kinds
	}
	for name := range writers() {
		if used[name] == 0 && !slices.Contains(changeless(), name) {
			t.Errorf("%s never changed anything", name)
		}
	}
}

// Each write command of the table has a place in the generated sequences.
func TestReplayCoversTheTable(t *testing.T) {
	cfg, _, err := config.Load([]string{"--port", "0", "--dir", t.TempDir()}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := writers()
	for name := range writeCommands(New(cfg, NewLogger("", io.Discard, config.LogWarning))) {
		if all[name] == nil && !slices.Contains(changeless(), name) {
			t.Errorf("write command %s is not generated: add it to writers", name)
		}
	}
}

// writeCommands gives the full names of all commands that may change rows.
func writeCommands(s *Server) map[string]bool {
	names := map[string]bool{}
	for _, c := range s.table.All() {
		if c.Run != nil && c.Is(command.Write) {
			names[c.FullName()] = true
		}
		for i := range c.Sub {
			if c.Sub[i].Is(command.Write) {
				names[c.Sub[i].FullName()] = true
			}
		}
	}
	return names
}

// changeless are write commands that change no row on a node with one database, no functions, and nobody to move keys to.
func changeless() []string {
	return []string{"swapdb", "move", "migrate", "function|delete", "function|flush", "function|restore"}
}

func replayOnce(t *testing.T, seed uint64, used map[string]int) {
	t.Helper()
	g := &replayGen{r: rand.New(rand.NewPCG(seed, 11)), used: used}
	g.now.Store(1_700_000_000_000)
	fs := vfs.NewCrashableMem()
	// Every other node applies nothing by itself, so that recovery has everything to execute.
	lazy := seed%2 == 0
	a := openReplay(t, fs, &g.now, lazy)
	g.x, g.expirer = newSession(a), a.store.NewTxn()
	for range 300 + g.r.IntN(900) {
		g.step(t, a)
	}
	if err := a.wal.SyncAll(); err != nil {
		t.Fatal(err)
	}
	stream := streamOf(t, a)
	clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: g.r.IntN(3) * 50, RNG: g.r})
	// Neither recovery nor a stream may depend on the time.
	var later atomic.Int64
	later.Store(g.now.Load() + 1<<41)
	b := openReplay(t, clone, &later, lazy)
	c := openReplay(t, vfs.NewMem(), &later, !lazy)
	feed(t, c, stream)
	want := rowsOf(t, a)
	sameRows(t, "recovered", want, rowsOf(t, b))
	sameRows(t, "fed as a stream", want, rowsOf(t, c))
	if a.wal.End() != b.wal.End() || a.wal.End() != c.wal.End() {
		t.Errorf("the log ends at %d, recovered at %d, fed at %d", a.wal.End(), b.wal.End(), c.wal.End())
	}
	if !bytes.Equal(stream, streamOf(t, c)) {
		t.Error("the log of the node that was fed has other bytes")
	}
	for sl := range uint16(slot.Count) {
		x, y, z := a.store.SlotCounters(sl), b.store.SlotCounters(sl), c.store.SlotCounters(sl)
		if x != y || x != z {
			t.Errorf("counters of slot %d are %+v, recovered %+v, fed %+v", sl, x, y, z)
		}
	}
}

// openReplay opens a node without sockets on fs that keeps its whole log. lazy: it applies nothing by itself.
func openReplay(t *testing.T, fs vfs.FS, clock *atomic.Int64, lazy bool, directives ...string) *Server {
	t.Helper()
	args := append([]string{"--port", "0", "--dir", t.TempDir(), "--repl-backlog-size", "1gb"}, directives...)
	cfg, _, err := config.Load(args, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := New(cfg, NewLogger("", io.Discard, config.LogWarning))
	s.fs, s.clock = fs, clock.Load
	s.tune = func(e *engine.Options, w *wal.Options) {
		e.Dir, w.Dir = "cairn/store", "cairn/log"
		e.MemoryBudget, e.DropRowsMax, e.RecoveryLogBytes, e.BootID = 64<<20, 8, 512<<10, "boot"
		e.CutBytes, e.CutInterval = 64<<10, 3*time.Millisecond
		if lazy {
			e.CutBytes, e.CutInterval, e.RecoveryLogBytes = 1<<30, time.Hour, 1<<40
		}
		w.SegmentBytes = 1 << 20
	}
	s.followConfig()
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// streamOf reads a node's whole log.
func streamOf(t *testing.T, s *Server) []byte {
	t.Helper()
	r, err := s.wal.NewReader(0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	raw, err := io.ReadAll(io.LimitReader(r, s.wal.End()))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// feed executes a stream as a replica does.
func feed(t *testing.T, s *Server, stream []byte) {
	t.Helper()
	x := newExecutor(s, s.store)
	in := &entryReader{r: bytes.NewReader(stream)}
	for {
		from := in.offset
		e, err := in.next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := x.execute(e.commands, stream[from:in.offset]); err != nil {
			t.Fatalf("entry at offset %d: %v", from, err)
		}
	}
}

// rowsOf applies and flushes everything, waits until nothing is left to drop, and lists all rows.
func rowsOf(t *testing.T, s *Server) []string {
	t.Helper()
	var rows []string
	testkit.Eventually(t, 20*time.Second, func() bool {
		if err := s.store.Flush(); err != nil {
			t.Fatal(err)
		}
		rows = rows[:0]
		dropping := false
		owner := map[string]string{} // generations with their slot
		err := s.store.DumpRows(func(row, val []byte) error {
			dropping = dropping || row[0] == layout.SpaceSlot && row[3] == layout.KindDrop
			text, err := rowText(row, val, owner)
			rows = append(rows, text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return !dropping
	}, "dropped values to be gone")
	slices.Sort(rows)
	return rows
}

// rowText writes a row with the owner of its generation instead of the generation. Records come before the rows
// of their values.
func rowText(row, val []byte, owner map[string]string) (string, error) {
	sl, err := layout.SlotOf(row)
	if err != nil {
		return "", err
	}
	if row[0] == layout.SpaceSlot && row[3] == layout.KindRecord {
		var rec layout.Record
		if err := rec.Decode(val); err != nil {
			return "", err
		}
		if rec.Form == layout.Rows {
			owner[fmt.Sprint(sl, rec.Gen)] = string(row)
			rec.Gen = 0
		}
		return fmt.Sprintf("%x = %x", row, rec.Append(nil)), nil
	}
	if row[3] != layout.KindElement && row[3] != layout.KindChunk || len(row) < layout.PrefixLen+8 {
		return fmt.Sprintf("%x = %x", row, val), nil
	}
	gen := uint64(0)
	for _, c := range row[layout.PrefixLen : layout.PrefixLen+8] {
		gen = gen<<8 | uint64(c)
	}
	key, ok := owner[fmt.Sprint(sl, gen)]
	if !ok {
		key = "nobody"
	}
	// Pieces come behind the rows of their fields, which have a number instead of them.
	if _, number, ok := layout.PieceKeyParts(row); ok && row[0] == layout.SpaceBulk {
		field, ok := owner[fmt.Sprint(sl, gen, number)]
		if !ok {
			field = "nobody"
		}
		return fmt.Sprintf("%x of %x field %x %x = %x", row[:layout.PrefixLen], key, field, row[len(row)-4:], val), nil
	}
	if v, err := layout.DecodeHashValue(val); row[0] == layout.SpaceSlot && err == nil && v.InPieces {
		owner[fmt.Sprint(sl, gen, v.Number)] = string(row[layout.PrefixLen+8:])
		val = layout.AppendHashPieces(nil, 0, v.Length, v.Deadline)
	}
	return fmt.Sprintf("%x of %x %x = %x", row[:layout.PrefixLen], key, row[layout.PrefixLen+8:], val), nil
}

func sameRows(t *testing.T, how string, want, got []string) {
	t.Helper()
	for i := 0; i < len(want) || i < len(got); i++ {
		var w, g string
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w != g {
			t.Errorf("row %d of %d, %s %d, differs:\nwant %.300s\ngot  %.300s", i, len(want), how, len(got), w, g)
			return
		}
	}
}

// replayGen generates commands and runs them on the first node.
type replayGen struct {
	r       *rand.Rand
	x       *session
	expirer *engine.Txn
	now     atomic.Int64
	used    map[string]int
}

// step runs one command or one transaction, after the clock has moved.
func (g *replayGen) step(t *testing.T, s *Server) {
	switch g.r.IntN(60) {
	case 0:
		g.now.Add(20_000)
	case 1:
		g.now.Add(-int64(g.r.IntN(60_000)))
	case 2:
		s.expireRound(g.expirer)
	case 3:
		g.run(t, "MULTI")
		for range 1 + g.r.IntN(6) {
			g.run(t, g.command()...)
		}
		g.run(t, "EXEC")
		return
	case 4:
		g.run(t, g.reading()...)
	default:
		g.now.Add(int64(g.r.IntN(50)))
	}
	g.run(t, g.command()...)
}

func (g *replayGen) run(t *testing.T, args ...string) {
	t.Helper()
	before := g.x.s.wal.End()
	if reply := g.x.do(args...); reply == "" || strings.Contains(reply, "IOERR") {
		t.Fatalf("%.200q: %.200q", args, reply)
	}
	if g.x.s.wal.End() > before {
		g.used[strings.ToLower(args[0])]++
	}
}

// command makes one write; FLUSHALL and its like come seldom.
func (g *replayGen) command() []string {
	all := writers()
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names) // the order of a map is not the seed's
	for {
		name := names[g.r.IntN(len(names))]
		if strings.HasPrefix(name, "flush") && g.r.IntN(40) > 0 {
			continue
		}
		return append(strings.Split(strings.ToUpper(name), "|"), all[name](g)...)
	}
}

func (g *replayGen) reading() []string {
	k := g.key()
	all := [][]string{
		{"GET", k},
		{"HGETALL", k},
		{"TTL", k},
		{"EXISTS", k, g.key()},
		{"SCAN", "0", "COUNT", "1000"},
		{"HLEN", k},
		{"TOUCH", k},
		{"DBSIZE"},
	}
	return all[g.r.IntN(len(all))]
}

func (g *replayGen) pick(words ...string) string { return words[g.r.IntN(len(words))] }

// key is one of a few, so that types meet; most live in one slot.
func (g *replayGen) key() string {
	return fmt.Sprintf("{%s}%d", g.pick("a", "a", "a", "b", "c"), g.r.IntN(25))
}

// counter is mostly one of a few keys that hold numbers, since arithmetic on most others fails.
func (g *replayGen) counter() string {
	if g.r.IntN(4) == 0 {
		return g.key()
	}
	return fmt.Sprintf("{a}n%d", g.r.IntN(5))
}

// anyKey is for commands that do not care.
func (g *replayGen) anyKey() string {
	if g.r.IntN(4) == 0 {
		return g.counter()
	}
	return g.key()
}

// near is another key of the same slot.
func (g *replayGen) near(key string) string { return fmt.Sprintf("%s%d", key[:3], g.r.IntN(25)) }

func (g *replayGen) field() string { return fmt.Sprint("f", g.r.IntN(700)) }

func (g *replayGen) number() string { return fmt.Sprint(g.r.IntN(2000) - 1000) }

func (g *replayGen) fraction() string { return fmt.Sprintf("%d.%d", g.r.IntN(100)-50, g.r.IntN(1000)) }

// value has every size class: in the record, in a row of its own, in chunks, and written in pieces.
func (g *replayGen) value() string {
	n := g.r.IntN(60)
	switch g.r.IntN(60) {
	case 0, 1, 2, 3, 4, 5:
		return g.number()
	case 6, 7, 8, 9, 10, 11:
		n = 500 + g.r.IntN(3000)
	case 12, 13, 14:
		n = 65500 + g.r.IntN(100)
	case 15, 16:
		n = 100_000 + g.r.IntN(100_000)
	case 17:
		n = 1_200_000
	}
	return strings.Repeat(fmt.Sprintf("%08x", g.r.Uint32()), n/8+1)[:n]
}

// at is a moment, some of them soon: what has expired at the end shows less.
func (g *replayGen) at() int64 {
	d := int64(g.r.IntN(3000))
	if g.r.IntN(3) > 0 {
		d = int64(g.r.IntN(1_000_000)) - 50_000
	}
	return g.now.Load() + d
}

func (g *replayGen) expiry() []string {
	switch g.r.IntN(6) {
	case 0:
		return []string{"EX", fmt.Sprint(1 + g.r.IntN(100))}
	case 1:
		return []string{"PX", fmt.Sprint(1 + g.r.IntN(3000))}
	case 2:
		return []string{"EXAT", fmt.Sprint(g.at() / 1000)}
	case 3:
		return []string{"PXAT", fmt.Sprint(g.at())}
	}
	return nil
}

func (g *replayGen) fields(n int) (args []string) {
	for range n {
		v := g.value()
		if g.r.IntN(10) > 0 { // else it may be in pieces
			v = v[:min(len(v), 4000)]
		}
		args = append(args, g.field(), v)
	}
	return args
}

func (g *replayGen) keyValues(n int) (args []string) {
	for range n {
		args = append(args, g.key(), g.value())
	}
	return args
}

// offset is a place in a string; some are far behind its end.
func (g *replayGen) offset(limit int) string {
	if g.r.IntN(20) == 0 {
		limit *= 20
	}
	return fmt.Sprint(g.r.IntN(limit))
}

func (g *replayGen) expireArgs(when int64) []string {
	args := []string{g.anyKey(), fmt.Sprint(when)}
	if g.r.IntN(3) == 0 {
		args = append(args, g.pick("NX", "XX", "GT", "LT"))
	}
	return args
}

// restore brings a payload that the node itself made of some key, or one that is broken.
func (g *replayGen) restore() []string {
	payload := "broken"
	if g.x.multi.active {
		payload = "\x00\xc0\x05\x0a\x00 broken"
	} else if p := bulk(g.x.do("DUMP", g.key())); p != "" {
		payload = p
	}
	ttl := "0"
	var more []string
	switch g.r.IntN(3) {
	case 0:
		ttl = fmt.Sprint(g.r.IntN(5000))
	case 1:
		ttl, more = fmt.Sprint(g.at()), []string{"ABSTTL"}
	}
	if g.r.IntN(4) > 0 {
		more = append(more, "REPLACE")
	}
	if g.r.IntN(4) == 0 {
		more = append(more, g.pick("IDLETIME", "FREQ"), fmt.Sprint(g.r.IntN(200)))
	}
	return append([]string{g.key(), ttl, payload}, more...)
}

func (g *replayGen) pair() []string { k := g.key(); return []string{k, g.near(k)} }

func (g *replayGen) set() []string {
	args := []string{g.key(), g.value()}
	if e := g.expiry(); e != nil {
		args = append(args, e...)
	} else if g.r.IntN(5) == 0 {
		args = append(args, "KEEPTTL")
	}
	if g.r.IntN(5) == 0 {
		args = append(args, g.pick("NX", "XX", "GET"))
	}
	return args
}

// hset fills a hash with many fields now and then, so that it goes from packed to rows.
func (g *replayGen) hset() []string {
	n := 1 + g.r.IntN(5)
	if g.r.IntN(12) == 0 {
		n = 200
	}
	return append([]string{g.key()}, g.fields(n)...)
}

func (g *replayGen) hdel() []string {
	args := []string{g.key()}
	for range 1 + g.r.IntN(200) {
		args = append(args, g.field())
	}
	return args
}

func (g *replayGen) bitfield() []string {
	args := []string{g.key()}
	for range 1 + g.r.IntN(3) {
		switch g.r.IntN(4) {
		case 0:
			args = append(args, "SET", g.pick("u8", "i16", "u63", "i5"), g.offset(2_000_000), g.number())
		case 1:
			args = append(args, "INCRBY", g.pick("u4", "i64", "i7"), "#"+g.offset(200), g.number())
		case 2:
			args = append(args, "OVERFLOW", g.pick("WRAP", "SAT", "FAIL"))
		default:
			args = append(args, "GET", "u8", g.offset(3000))
		}
	}
	return args
}

func (g *replayGen) bitop() []string {
	k := g.key()
	if g.r.IntN(3) == 0 {
		return []string{"NOT", k, g.near(k)}
	}
	return []string{g.pick("AND", "OR", "XOR"), k, g.near(k), g.near(k), g.near(k)}
}

func (g *replayGen) copyKey() []string {
	args := g.pair()
	if g.r.IntN(3) > 0 {
		args = append(args, "REPLACE")
	}
	return args
}

func (g *replayGen) ttl(unit int) []string {
	return []string{g.key(), fmt.Sprint(1 + g.r.IntN(3000)/unit), g.value()}
}

// writers makes the arguments of every write command that can change a row.
func writers() map[string]func(*replayGen) []string {
	type gen = *replayGen
	one := func(g gen) []string { return []string{g.key()} }
	two := func(g gen) []string { return []string{g.key(), g.key()} }
	value := func(g gen) []string { return []string{g.key(), g.value()} }
	number := func(g gen) []string { return []string{g.counter(), g.number()} }
	counter := func(g gen) []string { return []string{g.counter()} }
	flush := func(g gen) []string { return [][]string{nil, {"SYNC"}, {"ASYNC"}}[g.r.IntN(3)] }
	hset := gen.hset
	return map[string]func(gen) []string{
		"set": gen.set, "setnx": value, "getset": value, "append": value, "getdel": one,
		"setex":       func(g gen) []string { return g.ttl(1000) },
		"psetex":      func(g gen) []string { return g.ttl(1) },
		"getex":       func(g gen) []string { return append(one(g), g.getexOption()...) },
		"mset":        func(g gen) []string { return g.keyValues(1 + g.r.IntN(4)) },
		"msetnx":      func(g gen) []string { return []string{g.key() + "n", g.value(), g.key() + "n", g.value()} },
		"setrange":    func(g gen) []string { return []string{g.key(), g.offset(150_000), g.value()} },
		"setbit":      func(g gen) []string { return []string{g.key(), g.offset(1_200_000), g.pick("0", "1")} },
		"incr":        counter,
		"decr":        counter,
		"incrby":      number,
		"decrby":      number,
		"incrbyfloat": func(g gen) []string { return []string{g.counter(), g.fraction()} },
		"bitfield":    gen.bitfield,
		"bitop":       gen.bitop,

		"hset": hset, "hmset": hset, "hdel": gen.hdel,
		"hsetnx":       func(g gen) []string { return append(one(g), g.fields(1)...) },
		"hincrby":      func(g gen) []string { return []string{g.key(), g.field(), g.number()} },
		"hincrbyfloat": func(g gen) []string { return []string{g.key(), g.field(), g.fraction()} },

		"del": two, "unlink": one, "rename": gen.pair, "copy": gen.copyKey,
		"renamenx":       func(g gen) []string { k := g.key(); return []string{k, g.near(k) + "n"} },
		"restore":        gen.restore,
		"restore-asking": gen.restore,
		"expire":         func(g gen) []string { return g.expireArgs(int64(g.r.IntN(300)) - 1) },
		"pexpire":        func(g gen) []string { return g.expireArgs(int64(g.r.IntN(300_000)) - 100) },
		"expireat":       func(g gen) []string { return g.expireArgs(g.at() / 1000) },
		"pexpireat":      func(g gen) []string { return g.expireArgs(g.at()) },
		"persist":        func(g gen) []string { return []string{g.anyKey()} },
		"flushall":       flush,
		"flushdb":        flush,
	}
}

func (g *replayGen) getexOption() []string {
	if e := g.expiry(); e != nil {
		return e
	}
	if g.r.IntN(2) == 0 {
		return []string{"PERSIST"}
	}
	return nil
}
