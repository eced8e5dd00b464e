package server

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/engine"
	"cairn/internal/slot"
	"cairn/internal/testkit"
)

// arrivals is a node without sockets and its session.
func arrivals(t *testing.T) (*Server, *session) {
	t.Helper()
	now := &atomic.Int64{}
	now.Store(1_700_000_000_000)
	return arrivalsOn(t, vfs.NewMem(), now)
}

func arrivalsOn(t *testing.T, fs vfs.FS, now *atomic.Int64) (*Server, *session) {
	t.Helper()
	s := openReplay(t, fs, now, true, "--cluster-enabled", "yes")
	s.primary = s.newPrimary()
	s.store.SetRouting(&engine.Routing{})
	return s, newSession(s)
}

// route makes the node one of a cluster in which all slots are in one state.
func route(s *Server, state engine.SlotState) {
	r := &engine.Routing{Cluster: true}
	for i := range r.Slots {
		r.Slots[i] = state
	}
	s.store.SetRouting(r)
}

// marked says whether a key has the mark of one that has arrived.
func marked(t *testing.T, s *Server, key string) bool {
	t.Helper()
	txn := s.store.NewTxn()
	txn.Begin([]uint16{slot.Of([]byte(key))}, false, engine.Forever)
	defer txn.End()
	k, err := txn.Key([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return k.Rec.Arrived
}

func (x *session) must(t *testing.T, want string, args ...string) {
	t.Helper()
	if got := x.do(args...); got != want {
		t.Fatalf("%.100q: got %.200q, want %.200q", args, got, want)
	}
}

const ok = "+OK\r\n"

// fillForArrivals makes values of all kinds at the keys that a replayGen names.
func (g *replayGen) fillForArrivals() {
	for i := range 25 {
		for _, tag := range []string{"a", "b", "c"} {
			key := "{" + tag + "}" + strconv.Itoa(i)
			g.x.do("DEL", key)
			switch g.r.IntN(3) {
			case 0:
				g.x.do("SET", key, g.value(), "PX", "10000000")
			case 1:
				g.x.do("SET", key, g.value())
			default:
				g.x.do(append([]string{"HSET", key}, g.fields(1+g.r.IntN(3))...)...)
			}
		}
	}
	for i := range 5 {
		g.x.do("SET", "{a}n"+strconv.Itoa(i), g.number())
	}
}

// writtenBy gives the keys that a command writes, not those that it only reads.
func writtenBy(name string, args []string) (keys []string) {
	switch name {
	case "bitop", "copy", "rename", "renamenx":
		return args[1:2]
	case "mset", "msetnx":
		for i := 0; i < len(args); i += 2 {
			keys = append(keys, args[i])
		}
		return keys
	}
	return args[:1]
}

// The mark is there after RESTORE-ASKING and after no other write, whatever it writes.
func TestEveryWriteEndsArrival(t *testing.T) {
	t.Parallel()
	s, x := arrivals(t)
	g := &replayGen{r: rand.New(rand.NewPCG(1, 5)), x: x, used: map[string]int{}}
	g.now.Store(s.clock())
	g.fillForArrivals()
	all := writers()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(name, "flush") {
			continue
		}
		seen := 0
		for try := 0; seen < 8 && try < 400; try++ {
			if try%40 == 39 {
				g.fillForArrivals()
			}
			args := all[name](g)
			keys := writtenBy(name, args)
			g.arrive(t, keys)
			before := s.wal.End()
			x.do(append([]string{strings.ToUpper(name)}, args...)...)
			if s.wal.End() == before {
				continue
			}
			for _, key := range keys {
				if x.do("EXISTS", key) == ":0\r\n" {
					continue
				}
				if seen++; marked(t, s, key) != (name == "restore-asking") {
					t.Errorf("after %s %.100q: mark of %s is %v", name, args, key, marked(t, s, key))
				}
			}
		}
		// These leave no key, or write none that is there.
		if seen == 0 && !slices.Contains([]string{"del", "unlink", "getdel", "setnx", "msetnx", "renamenx"}, name) {
			t.Errorf("%s never wrote a key", name)
		}
	}
}

// arrive brings keys anew as they are, so that they have the mark.
func (g *replayGen) arrive(t *testing.T, keys []string) {
	t.Helper()
	for _, key := range keys {
		dump := bulk(g.x.do("DUMP", key))
		if dump == "" {
			continue
		}
		g.x.must(t, ok, "RESTORE-ASKING", key, g.pick("0", "10000000"), dump, "REPLACE")
		if !marked(t, g.x.s, key) {
			t.Fatalf("%s has no mark after RESTORE-ASKING", key)
		}
	}
}

// Two writes in a transaction are as two writes.
func TestArrivalInTransactions(t *testing.T) {
	s, x := arrivals(t)
	x.must(t, ok, "SET", "a", "1")
	dump := bulk(x.do("DUMP", "a"))
	for _, c := range []struct {
		commands [][]string
		want     bool
	}{
		{[][]string{{"RESTORE-ASKING", "b", "0", dump, "REPLACE"}}, true},
		{[][]string{{"RESTORE-ASKING", "b", "0", dump, "REPLACE"}, {"INCR", "b"}}, false},
		{[][]string{{"RESTORE-ASKING", "b", "0", dump, "REPLACE"}, {"GET", "b"}}, true},
		{[][]string{{"INCR", "b"}, {"RESTORE-ASKING", "b", "0", dump, "REPLACE"}}, true},
		{[][]string{{"RESTORE-ASKING", "b", "1000", dump, "REPLACE"}}, true},
		{[][]string{{"RESTORE", "b", "0", dump, "REPLACE"}}, false},
	} {
		x.must(t, ok, "MULTI")
		for _, args := range c.commands {
			x.must(t, "+QUEUED\r\n", args...)
		}
		if got := x.do("EXEC"); strings.Contains(got, "-") {
			t.Fatalf("%q: %q", c.commands, got)
		}
		if marked(t, s, "b") != c.want {
			t.Errorf("%q: mark is %v", c.commands, !c.want)
		}
	}
}

// A key that comes a second time into a slot that is arriving takes the place of its first copy. One that was written
// here does not, and neither does one in any other slot.
func TestKeyArrivesAgain(t *testing.T) {
	s, x := arrivals(t)
	dumpOf := func(value string) string {
		x.must(t, ok, "SET", "x", value)
		return bulk(x.do("DUMP", "x"))
	}
	older, newer := dumpOf("older"), dumpOf("newer")
	busy := "-BUSYKEY Target key name already exists.\r\n"
	value := func(want string) {
		t.Helper()
		x.asking = true
		x.must(t, "$"+strconv.Itoa(len(want))+"\r\n"+want+"\r\n", "GET", "k")
	}
	route(s, engine.SlotImporting)
	x.must(t, ok, "RESTORE-ASKING", "k", "0", older)
	x.must(t, ok, "RESTORE-ASKING", "k", "0", older) // the reply was lost
	x.must(t, ok, "RESTORE-ASKING", "k", "100000", newer)
	value("newer")
	x.must(t, ok, "RESTORE-ASKING", "k", "0", older)
	x.asking = true
	x.must(t, ":-1\r\n", "TTL", "k")
	value("older")
	// What was broken or has expired is no retry: the copy stays, or goes as with REPLACE.
	x.must(t, "-ERR DUMP payload version or checksum are wrong\r\n", "RESTORE-ASKING", "k", "0", "broken payload")
	value("older")
	x.asking = true
	x.must(t, ":6\r\n", "APPEND", "k", "!")
	x.must(t, busy, "RESTORE-ASKING", "k", "0", newer)
	value("older!")
	x.must(t, ok, "RESTORE-ASKING", "k", "0", newer, "REPLACE")
	x.must(t, ok, "RESTORE-ASKING", "k", "1", older, "ABSTTL")
	x.asking = true
	x.must(t, ":0\r\n", "EXISTS", "k")
	x.must(t, ok, "RESTORE-ASKING", "k", "0", newer)
	for _, state := range []engine.SlotState{engine.SlotOwned, engine.SlotOwned | engine.SlotImporting, engine.SlotOwned | engine.SlotMigrating} {
		route(s, state)
		x.must(t, busy, "RESTORE-ASKING", "k", "0", older)
	}
	route(s, engine.SlotOwned|engine.SlotUnfinished) // as a tool leaves it that repairs a move
	x.must(t, ok, "RESTORE-ASKING", "k", "0", older)
	s.store.SetRouting(&engine.Routing{})
	x.must(t, busy, "RESTORE-ASKING", "k", "0", older)
	x.must(t, busy, "RESTORE", "k", "0", older)
	if !marked(t, s, "k") {
		t.Error("a refused command took the mark away")
	}
}

// What was decided at the first execution is in the log: recovery and replicas, whose routing is another, do the same.
func TestArrivalIsReplayed(t *testing.T) {
	var now, later atomic.Int64
	now.Store(1_700_000_000_000)
	later.Store(now.Load() + 1<<41)
	fs := vfs.NewCrashableMem()
	a, x := arrivalsOn(t, fs, &now)
	x.must(t, ok, "SET", "x", "value")
	dump := bulk(x.do("DUMP", "x"))
	x.must(t, ":2\r\n", "HSET", "h", "f", strings.Repeat("v", 3000), "g", "2")
	hash := bulk(x.do("DUMP", "h"))
	x.must(t, ok, "SET", "long", strings.Repeat("0123456789abcdef", 100_000))
	long := bulk(x.do("DUMP", "long"))
	route(a, engine.SlotImporting)
	for i, payload := range []string{dump, hash, long, dump, dump, hash} {
		key := "k" + strconv.Itoa(i%4)
		x.must(t, ok, "RESTORE-ASKING", key, strconv.Itoa(i%2*100_000), payload)
		x.must(t, ok, "RESTORE-ASKING", key, "0", payload)
		x.must(t, ok, "RESTORE-ASKING", key, strconv.FormatInt(now.Load()+5000, 10), payload, "ABSTTL")
	}
	x.asking = true
	x.do("HSET", "k1", "f", "1")
	if err := a.wal.SyncAll(); err != nil {
		t.Fatal(err)
	}
	stream := streamOf(t, a)
	b := openReplay(t, fs.CrashClone(vfs.CrashCloneCfg{}), &later, true)
	c := openReplay(t, vfs.NewMem(), &later, false)
	feed(t, c, stream)
	want := rowsOf(t, a)
	sameRows(t, "recovered", want, rowsOf(t, b))
	sameRows(t, "fed as a stream", want, rowsOf(t, c))
	for _, s := range []*Server{a, b, c} {
		if !marked(t, s, "k0") || !marked(t, s, "k2") || marked(t, s, "k1") || marked(t, s, "x") {
			t.Error("marks differ from what was written")
		}
	}
}

// Without the mark the reply is Redis's.
func TestRestoreAskingBusyIsRedis(t *testing.T) {
	p := startPair(t)
	p.same("SET a 1")
	dump, redis := p.cairn.Do("DUMP", "a").Value.(string), p.redis.Do("DUMP", "a").Value.(string)
	for _, args := range [][]string{{"a", "0"}, {"b", "0"}, {"b", "0"}, {"b", "x"}, {"c", "-1"}} {
		for _, more := range [][]string{nil, {"ABSTTL"}, {"NOSUCH"}} {
			words := slices.Concat([]string{"RESTORE-ASKING"}, args)
			got := p.cairn.Do(slices.Concat(words, []string{dump}, more)...).Raw
			want := p.redis.Do(slices.Concat(words, []string{redis}, more)...).Raw
			if got != want {
				t.Errorf("%q: got %q, want %q", words, got, want)
			}
		}
	}
}

// +OK for a key that has arrived says that a replica has it. A replica that is stopped is waited for, and in the end the
// connection is closed without a reply; where there is none the reply comes at once.
func TestArrivalWaitsForAReplica(t *testing.T) {
	t.Parallel()
	n := startServer(t, "cluster-enabled yes", "cluster-node-timeout 500")
	c := n.dial(t)
	c.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	clusterState(t, c, "ok")
	c.Do("SET", "a", "1")
	dump := c.Do("DUMP", "a").Value.(string)
	arrive := func(key string) (string, error) {
		t.Helper()
		reply, err := n.dial(t).Try("RESTORE-ASKING", key, "0", dump)
		return reply.Raw, err
	}
	if got, err := arrive("alone"); got != ok || err != nil {
		t.Fatalf("without a replica: %q, %v", got, err)
	}
	r, replica := startRedisReplica(t, n)
	awaitLink(t, replica)
	n.awaitOffset(t, replica)
	for i := range 5 {
		key := "k" + strconv.Itoa(i)
		if got, err := arrive(key); got != ok || err != nil {
			t.Fatalf("with a replica: %q, %v", got, err)
		}
		if got := replica.Do("EXISTS", key).Raw; got != ":1\r\n" {
			t.Errorf("the replica does not have %s: %q", key, got)
		}
	}
	if err := syscall.Kill(r.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, commands := range [][][]string{
		{{"RESTORE-ASKING", "l", "0", dump}},
		{{"PING"}, {"RESTORE-ASKING", "l2", "0", dump}, {"PING"}},
		{{"MULTI"}, {"RESTORE-ASKING", "l3", "0", dump}, {"EXEC"}},
	} {
		conn := n.dial(t)
		var all []byte
		for _, args := range commands {
			all = testkit.AppendCommand(all, args...)
		}
		if _, err := conn.Net().Write(all); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn.Net())
		if bytes.Contains(got, []byte("OK")) && !bytes.Contains(got, []byte("QUEUED")) || bytes.Contains(got, []byte("*")) ||
			err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%q: got %q, %v", commands, got, err)
		}
		if got := c.Do("SET", "others", "go on").Raw; got != ok {
			t.Errorf("others are answered %q", got)
		}
	}
	if err := syscall.Kill(r.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	awaitLink(t, replica)
	n.awaitOffset(t, replica)
	for _, key := range []string{"l", "l2", "l3"} {
		if got := replica.Do("EXISTS", key).Raw; got != ":1\r\n" {
			t.Errorf("the replica does not have %s: %q", key, got)
		}
	}
}
