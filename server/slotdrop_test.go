package server

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"cairn/cluster"
	"cairn/engine"
	"cairn/internal/resp"
	"cairn/internal/slot"
	"cairn/internal/testkit"
	"cairn/server/command"
)

// lostNode is a node alone in its cluster that had slots and gave them away.
func lostNode(t *testing.T) (*testNode, *testkit.Conn) {
	t.Helper()
	n := startServer(t, "cluster-enabled yes", "cluster-require-full-coverage no", "notify-keyspace-events KEA")
	c := n.dial(t)
	c.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	n.awaitState(t, c)
	return n, c
}

// fillSlot writes keys {tag}0, {tag}1 ... and gives their slot.
func fillSlot(t *testing.T, c *testkit.Conn, tag string, keys int) uint16 {
	t.Helper()
	for i := range keys {
		mustOK(t, c, "SET", "{"+tag+"}"+strconv.Itoa(i), "v")
	}
	return slot.Of([]byte(tag))
}

func unowned(t *testing.T, c *testkit.Conn, slots ...uint16) {
	t.Helper()
	for _, sl := range slots {
		mustOK(t, c, "CLUSTER", "DELSLOTS", strconv.Itoa(int(sl)))
	}
}

func migration(t *testing.T, c *testkit.Conn, field string) string {
	t.Helper()
	return infoField(t, c, "migration", "migration_"+field)
}

// The keys of a slot that went to another node go, without an event, those of a slot that is this node's stay, though it
// was named.
func TestSlotDrops(t *testing.T) {
	t.Parallel()
	n, c := lostNode(t)
	const keys = 2*dropBatch + 10
	gone, kept := fillSlot(t, c, "gone", keys), fillSlot(t, c, "kept", keys)
	unowned(t, c, gone)
	ear := n.dial(t)
	ear.Do("SUBSCRIBE", "__keyevent@0__:del")
	n.pauseWrites(pauseFailover, true)
	n.dropSlots([]uint16{kept, gone})
	if got := migration(t, c, "drop_keys"); got != strconv.Itoa(keys) {
		t.Errorf("%s keys wait, want %d", got, keys)
	}
	n.pauseWrites(pauseFailover, false)
	testkit.Eventually(t, replyWait, func() bool { return n.store.SlotCounters(gone).Keys == 0 }, "the keys go")
	testkit.Eventually(t, replyWait, func() bool { return migration(t, c, "drop_slots") == "0" }, "the list is empty")
	if got := n.store.SlotCounters(kept).Keys; got != keys {
		t.Errorf("%d keys in the slot that is this node's, want %d", got, keys)
	}
	if got := migration(t, c, "dropped_keys"); got != strconv.Itoa(keys) {
		t.Errorf("%s keys are counted as dropped, want %d", got, keys)
	}
	c.Do("DEL", "{kept}1")
	if got, err := ear.Receive(); err != nil || !strings.HasSuffix(got.Raw, "\r\n{kept}1\r\n") {
		t.Errorf("the first event is %q, %v", got.Raw, err)
	}
}

// A node that was stopped while it dropped goes on when it is back. What is in other foreign slots stays, hidden.
func TestSlotDropsGoOn(t *testing.T) {
	t.Parallel()
	nodes, conns := startNodes(t, 2)
	join(t, nodes, conns, 2)
	const keys = 30
	gone, left := fillSlot(t, conns[0], "b", keys), slot.Of([]byte("foo")) // 3300 and 12182
	ids := []string{conns[0].Do("CLUSTER", "MYID").Value.(string), conns[1].Do("CLUSTER", "MYID").Value.(string)}
	payload := conns[0].Do("DUMP", "{b}1").Value.(string)
	mustOK(t, conns[0], "CLUSTER", "SETSLOT", strconv.Itoa(int(left)), "IMPORTING", ids[1])
	for i := range keys {
		mustOK(t, conns[0], "RESTORE-ASKING", "{foo}"+strconv.Itoa(i), "0", payload)
	}
	n := nodes[0]
	n.drops.add([]uint16{left}) // and no worker: a slot that comes back before its turn
	n.saveDrops()
	mustOK(t, conns[0], "CLUSTER", "SETSLOT", "12183", "IMPORTING", ids[1])
	if got := n.drops.list(); len(got) > 0 || n.drops.file.holds(func(uint16) bool { return true }) {
		t.Errorf("to drop %v, though keys arrive there", got)
	}
	n.drops.first() // as the worker does at its end
	mustOK(t, conns[0], "CLUSTER", "SETSLOT", strconv.Itoa(int(left)), "STABLE")
	n.pauseWrites(pauseFailover, true)
	mustOK(t, conns[1], "CLUSTER", "SETSLOT", strconv.Itoa(int(gone)), "NODE", ids[1])
	testkit.Eventually(t, clusterWait, func() bool { return migration(t, conns[0], "drop_keys") == strconv.Itoa(keys) }, "the keys are to go")
	path := filepath.Join(n.dataDir(), dropsName)
	testkit.Eventually(t, replyWait, func() bool { _, err := os.Stat(path); return err == nil }, "the list is on file")
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := n.drops.keys.Load(); got > 0 {
		t.Fatalf("%d keys were dropped before the restart", got)
	}
	n, c := again(t, n)
	testkit.Eventually(t, clusterWait, func() bool { return n.store.SlotCounters(gone).Keys == 0 }, "the keys go")
	testkit.Eventually(t, replyWait, func() bool { _, err := os.Stat(path); return errors.Is(err, os.ErrNotExist) }, "the list is gone")
	if got := n.store.SlotCounters(left).Keys; got != keys {
		t.Errorf("%d keys left, want %d", got, keys)
	}
	if got := migration(t, c, "foreign_keys"); got != strconv.Itoa(keys) {
		t.Errorf("%s foreign keys, want %d", got, keys)
	}
	if got := c.Do("DBSIZE").Raw; got != ":0\r\n" {
		t.Errorf("DBSIZE is %q", got)
	}
}

// A list that does not read drops nothing.
func TestDamagedDropsDropNothing(t *testing.T) {
	n, c := lostNode(t)
	gone := fillSlot(t, c, "gone", 3)
	unowned(t, c, gone)
	n.drops.add([]uint16{gone})
	n.saveDrops()
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(n.dataDir(), dropsName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[0] ^= 1 // another digit
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	n, _ = again(t, n)
	if !strings.Contains(n.log.String(), "does not read") || n.store.SlotCounters(gone).Keys != 3 || len(n.drops.list()) > 0 {
		t.Errorf("%d keys, to drop %v, log:\n%s", n.store.SlotCounters(gone).Keys, n.drops.list(), n.log)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the damaged list is still there: %v", err)
	}
}

// A slot is lost to a claim with a higher epoch. Until its keys are gone it does not come back by an import, or old and
// new ones would mix.
func TestLostSlotIsEmptyBeforeAnImport(t *testing.T) {
	nodes, conns := startNodes(t, 2)
	join(t, nodes, conns, 2)
	lost := slot.Of([]byte("b")) // 3300, of the first
	const keys = 3*dropBatch + 1
	fillSlot(t, conns[0], "b", keys)
	ids := []string{conns[0].Do("CLUSTER", "MYID").Value.(string), conns[1].Do("CLUSTER", "MYID").Value.(string)}
	nodes[0].pauseWrites(pauseFailover, true)
	mustOK(t, conns[1], "CLUSTER", "SETSLOT", strconv.Itoa(int(lost)), "NODE", ids[1])
	testkit.Eventually(t, clusterWait, func() bool { return migration(t, conns[0], "drop_keys") == strconv.Itoa(keys) }, "the keys are to go")
	if got := conns[0].Do("DBSIZE").Raw + conns[0].Do("CLUSTER", "COUNTKEYSINSLOT", strconv.Itoa(int(lost))).Raw; got != ":0\r\n:"+strconv.Itoa(keys)+"\r\n" {
		t.Errorf("DBSIZE and COUNTKEYSINSLOT: %q", got)
	}
	answer := make(chan string)
	other := nodes[0].dial(t)
	go func() {
		got, err := other.Try("CLUSTER", "SETSLOT", strconv.Itoa(int(lost)), "IMPORTING", ids[1])
		answer <- fmt.Sprint(got.Raw, err)
	}()
	testkit.Eventually(t, replyWait, nodes[0].drops.hurried, "the import waits")
	nodes[0].pauseWrites(pauseFailover, false)
	if got := <-answer; got != "+OK\r\n<nil>" {
		t.Errorf("SETSLOT IMPORTING: %q", got)
	}
	if got := nodes[0].store.SlotCounters(lost).Keys; got != 0 {
		t.Errorf("%d old keys are there when new ones come", got)
	}
}

// Who hears that a slot is lost, and begins to bring it back at once, finds it empty: the drop begins when the loss is saved, which
// is later than clients are redirected.
func TestImportOfWhatWasJustLost(t *testing.T) {
	t.Parallel()
	nodes, conns := startNodes(t, 2)
	join(t, nodes, conns, 2)
	ids := []string{conns[0].Do("CLUSTER", "MYID").Value.(string), conns[1].Do("CLUSTER", "MYID").Value.(string)}
	for _, tag := range []string{"b", "f", "j", "n", "r", "v"} {
		if !strings.HasPrefix(conns[0].Do("GET", "{"+tag+"}").Raw, "$") {
			continue // the other one has the slot
		}
		lost := strconv.Itoa(int(fillSlot(t, conns[0], tag, 300)))
		mustOK(t, conns[1], "CLUSTER", "SETSLOT", lost, "NODE", ids[1])
		testkit.Eventually(t, clusterWait, func() bool {
			return strings.HasPrefix(conns[0].Do("GET", "{"+tag+"}0").Raw, "-MOVED")
		}, "the loss is known")
		mustOK(t, conns[0], "CLUSTER", "SETSLOT", lost, "IMPORTING", ids[1])
		if got := conns[0].Do("CLUSTER", "COUNTKEYSINSLOT", lost).Raw; got != ":0\r\n" {
			t.Errorf("slot %s: %q old keys are there when new ones come", lost, got)
		}
	}
}

// Keys that arrive are shown by what moves slots and by nothing else, on the primary and on its replica.
func TestArrivingKeysAreHidden(t *testing.T) {
	nodes, conns := startNodes(t, 3)
	join(t, nodes, conns, 2)
	const own = 5
	fillSlot(t, conns[0], "b", own) // slot 3300
	payload := conns[0].Do("DUMP", "{b}1").Value.(string)
	arrives := strconv.Itoa(int(slot.Of([]byte("foo")))) // 12182, of the second
	mustOK(t, conns[0], "CLUSTER", "SETSLOT", arrives, "IMPORTING", conns[1].Do("CLUSTER", "MYID").Value.(string))
	for i := range 3 {
		mustOK(t, conns[0], "RESTORE-ASKING", "{foo}"+strconv.Itoa(i), "0", payload)
	}
	inStep(t, conns[0], conns[2])
	mustOK(t, conns[2], "READONLY")
	for i, c := range []*testkit.Conn{conns[0], conns[2]} {
		for words, want := range map[string]string{
			"DBSIZE": ":5\r\n", "KEYS {foo}*": "*0\r\n", "SCAN 0 MATCH {foo}* COUNT 1000": "*2\r\n$1\r\n0\r\n*0\r\n",
			"CLUSTER COUNTKEYSINSLOT " + arrives: ":3\r\n",
		} {
			if got := c.Do(strings.Fields(words)...).Raw; got != want {
				t.Errorf("node %d, %s: %q, want %q", i, words, got, want)
			}
			c.Do("MULTI")
			c.Do(strings.Fields(words)...)
			if got := c.Do("EXEC").Raw; got != "*1\r\n"+want {
				t.Errorf("node %d, %s in a transaction: %q, want %q", i, words, got, want)
			}
		}
		for range 20 {
			if got := c.Do("RANDOMKEY").Raw; !strings.Contains(got, "{b}") {
				t.Fatalf("node %d: RANDOMKEY gives %q", i, got)
			}
		}
		if got := strings.Count(c.Do("CLUSTER", "GETKEYSINSLOT", arrives, "2147483648").Raw, "{foo}"); got != 3 {
			t.Errorf("node %d: GETKEYSINSLOT gives %d keys", i, got)
		}
		if got := infoField(t, c, "keyspace", "db0"); !strings.HasPrefix(got, "keys=8,") {
			t.Errorf("node %d: INFO keyspace says %s", i, got)
		}
	}
	for field, want := range map[string]string{
		"slots_importing": "1", "keys_arrived": "3", "received_keys": "3", "received_bytes": strconv.Itoa(3 * len(payload)), "foreign_keys": "0",
	} {
		if got := migration(t, conns[0], field); got != want {
			t.Errorf("%s: %s, want %s", field, got, want)
		}
	}
	if got := conns[0].Do("CLUSTER", "INFO").Raw; !strings.Contains(got, "\r\nmigration_received_keys:3\r\n") {
		t.Errorf("CLUSTER INFO: %s", got)
	}
}

// GETKEYSINSLOT gives no more names than memory should hold; who moves a slot asks again.
func TestKeysInSlotAreBounded(t *testing.T) {
	n, c := lostNode(t)
	sl := fillSlot(t, c, "a", 100)
	for most, want := range map[int]int{0: 0, 200: 8, 1 << 20: 100} {
		x := command.Ctx{Txn: n.store.NewTxn(), W: &resp.Writer{Proto: 2}}
		x.Txn.Begin([]uint16{sl}, false, engine.Forever)
		err := n.writeKeys(&x, sl, 1000, most)
		x.Txn.End()
		if got := strings.Count(string(x.W.Buf), "{a}"); err != nil || got < want-1 || got > want+20 || want == 100 && got != 100 {
			t.Errorf("%d bytes: %d names, %v", most, got, err)
		}
	}
}

// A walk begins where the last one did, and goes round: it gives all keys, each once, wherever it begins.
func TestKeysInSlotGoRound(t *testing.T) {
	n, c := lostNode(t)
	const keys = 3000
	sl := strconv.Itoa(int(fillSlot(t, c, "a", keys)))
	left := map[string]bool{}
	for i := range keys {
		left["{a}"+strconv.Itoa(i)] = true
	}
	for round := range 3 {
		all := c.Do("CLUSTER", "GETKEYSINSLOT", sl, "100000").Value.([]any)
		seen := map[string]bool{}
		for _, name := range all {
			seen[name.(string)] = true
		}
		if len(all) != len(left) || !maps.Equal(seen, left) {
			t.Fatalf("round %d: %d names, %d different, want %d", round, len(all), len(seen), len(left))
		}
		for range 7 { // deleted from where the walk begins, and one behind it comes in between
			some := c.Do("CLUSTER", "GETKEYSINSLOT", sl, "100").Value.([]any)
			if len(some) != 100 {
				t.Fatalf("%d names, want 100", len(some))
			}
			for _, name := range some {
				c.Do("DEL", name.(string))
				delete(left, name.(string))
			}
			back := some[0].(string)
			mustOK(t, c, "SET", back, "again")
			left[back] = true
		}
		n.hints.note(slot.Of([]byte("a")), uint64(round)*slotEnd/2) // a third tool, elsewhere
	}
}

func TestDropsText(t *testing.T) {
	var b slot.Bitmap
	b.SetRange(slot.Range{First: 0, Last: 99})
	b.Set(5461)
	if got, want := string(appendDrops(nil, &b)), "0-99 5461 b26a734f\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, text := range []string{"", "00000000", "0-99 5461 b26a734e\n", "0-99 5461 B26A734F\n", "0-98 5461 b26a734f\n"} {
		if got, err := parseDrops([]byte(text)); err == nil || got.Count() > 0 {
			t.Errorf("%q: %d slots, %v", text, got.Count(), err)
		}
	}
}

func FuzzDrops(f *testing.F) {
	for _, text := range []string{"00000000\n", "0-99 5461 b26a734f\n", "16384 ", "3-1 ", ""} {
		f.Add([]byte(text))
		f.Add(fmt.Appendf([]byte(text), "%08x\n", dropsSum([]byte(text))))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := parseDrops(text)
		if err != nil {
			return
		}
		if again, err := parseDrops(appendDrops(nil, &b)); err != nil || again != b {
			t.Errorf("%q: read again %v, %v", text, again.Ranges(), err)
		}
	})
}

// While the bus has not ticked for long, as in a process that was stopped, no write is taken; reads go on.
func TestNoWritesWhileTheBusSleeps(t *testing.T) {
	n := startServer(t, "cluster-enabled yes", "cluster-node-timeout 500")
	c := n.dial(t)
	c.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	n.awaitState(t, c)
	n.bus.Ask(func(*cluster.Machine) { // holds the ticks up
		testkit.Eventually(t, replyWait, func() bool { return c.Do("SET", "k", "v").Raw == "-"+textDown+"\r\n" }, "writes are refused")
		if got := c.Do("GET", "k").Raw; got[0] != '$' {
			t.Errorf("GET: %q", got)
		}
	})
	testkit.Eventually(t, replyWait, func() bool { return c.Do("SET", "k", "v").Raw == "+OK\r\n" }, "writes are taken again")
}

// awaitState waits until the node says that the cluster is ok.
func (n *testNode) awaitState(t *testing.T, c *testkit.Conn) {
	t.Helper()
	testkit.Eventually(t, replyWait, func() bool { return c.Do("SET", "first", "v").Raw == "+OK\r\n" }, "the cluster is ok")
}
