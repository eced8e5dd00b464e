package server

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"cairn/cluster"
	"cairn/internal/slot"
	"cairn/internal/testkit"
	"cairn/tools/node"
)

// openAt is what a node knows of slots on their way: "5>" it goes, "5<" it comes, and the port of the other end.
func openAt(n *testNode) string {
	v := n.bus.View()
	var open []string
	for sl := range uint16(slot.Count) {
		if at, ok := v.Migrating[sl]; ok {
			open = append(open, fmt.Sprintf("%d>%d", sl, v.Nodes[at].Port))
		}
		if at, ok := v.Importing[sl]; ok {
			open = append(open, fmt.Sprintf("%d<%d", sl, v.Nodes[at].Port))
		}
	}
	return strings.Join(open, " ")
}

func wantOpen(t *testing.T, n *testNode, want string) {
	t.Helper()
	if got := openAt(n); got != want {
		t.Fatalf("node %d has open slots %q, want %q\n%s", n.Port, got, want, n.log)
	}
}

func ids(conns []*testkit.Conn) (ids []string) {
	for _, c := range conns {
		ids = append(ids, c.Do("CLUSTER", "MYID").Value.(string))
	}
	return ids
}

// A slot is on its way between two shards, and both primaries hand over to their replicas: the move goes on, and ends.
func TestOpenSlotsSurviveFailovers(t *testing.T) {
	t.Parallel()
	nodes, conns := startNodes(t, 5)
	join(t, nodes, conns, 3)
	agree(t, conns)
	id := ids(conns)
	const name, there = "{b}here", "{b}there"
	sl := strconv.Itoa(int(slot.Of([]byte(name)))) // 3300, of the first
	mustOK(t, conns[0], "SET", name, "1")
	mustOK(t, conns[1], "CLUSTER", "SETSLOT", sl, "IMPORTING", id[0])
	mustOK(t, conns[0], "CLUSTER", "SETSLOT", sl, "MIGRATING", id[1])
	// Once it is answered, the replicas know.
	leaves, comes := sl+">"+strconv.Itoa(nodes[1].Port), sl+"<"+strconv.Itoa(nodes[0].Port)
	wantOpen(t, nodes[3], leaves)
	wantOpen(t, nodes[4], comes)
	for _, c := range conns[3:] {
		if got := c.Do("CLUSTER", "NODES").Raw; strings.Contains(got, "[") {
			t.Errorf("a replica shows open slots: %s", got)
		}
	}
	inStep(t, conns[0], conns[3])
	mustOK(t, conns[3], "READONLY")
	ask := fmt.Sprintf("-ASK %s 127.0.0.1:%d\r\n", sl, nodes[1].Port)
	testkit.Eventually(t, replyWait, func() bool {
		return conns[3].Do("GET", name).Raw+conns[3].Do("GET", there).Raw == "$1\r\n1\r\n"+ask
	}, "the source's replica sends readers on")
	// They outlive a restart, and a new replica is told with its data.
	if err := nodes[4].Stop(); err != nil {
		t.Fatal(err)
	}
	nodes[4], conns[4] = again(t, nodes[4])
	wantOpen(t, nodes[4], comes)
	fresh, freshConns := startNodes(t, 1)
	mustOK(t, freshConns[0], "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(nodes[0].Port))
	testkit.Eventually(t, clusterWait, func() bool {
		return strings.Contains(freshConns[0].Do("CLUSTER", "NODES").Raw, id[0]) && strings.Contains(freshConns[0].Do("CLUSTER", "NODES").Raw, id[1])
	}, "the new node knows the cluster")
	mustOK(t, freshConns[0], "CLUSTER", "REPLICATE", id[0])
	inStep(t, conns[0], freshConns[0])
	testkit.Eventually(t, clusterWait, func() bool { return openAt(fresh[0]) == leaves }, "the new replica knows the open slot")
	for i, from := range []int{1, 0} {
		to := conns[4-i]
		inStep(t, conns[from], to)
		mustOK(t, to, "CLUSTER", "FAILOVER")
		testkit.Eventually(t, clusterWait, func() bool { return strings.Contains(conns[from].Do("ROLE").Raw, "slave") }, "a replica took over")
	}
	leaves, comes = sl+">"+strconv.Itoa(nodes[4].Port), sl+"<"+strconv.Itoa(nodes[3].Port)
	for i, n := range []*testNode{nodes[3], nodes[4], nodes[0], nodes[1], fresh[0]} {
		want := []string{leaves, comes}[i%2]
		if i == 4 {
			want = leaves
		}
		testkit.Eventually(t, clusterWait, func() bool { return openAt(n) == want }, "node %d of the shards follows both failovers", i)
	}
	all := append(conns, freshConns...)
	ask = fmt.Sprintf("-ASK %s 127.0.0.1:%d\r\n", sl, nodes[4].Port)
	if got := conns[3].Do("GET", name).Raw + conns[3].Do("GET", there).Raw; got != "$1\r\n1\r\n"+ask {
		t.Errorf("reads at the new source: %q", got)
	}
	mustOK(t, conns[4], "ASKING")
	mustOK(t, conns[4], "SET", there, "2")
	endMove(t, append(nodes, fresh...), conns, all, sl, id[4], name, there)
}

// endMove moves the last key, as MIGRATE would, ends the move, and sees that nothing stays open.
func endMove(t *testing.T, nodes []*testNode, conns, all []*testkit.Conn, sl, owner, name, there string) {
	t.Helper()
	payload := conns[3].Do("DUMP", name).Value.(string)
	mustOK(t, conns[4], "RESTORE-ASKING", name, "0", payload)
	conns[3].Do("DEL", name)
	mustOK(t, conns[4], "CLUSTER", "SETSLOT", sl, "NODE", owner)
	mustOK(t, conns[3], "CLUSTER", "SETSLOT", sl, "NODE", owner, "TIMEOUT", "500")
	mustOK(t, conns[2], "CLUSTER", "SETSLOT", sl, "NODE", owner)
	if got := conns[4].Do("MGET", name, there).Raw; got != "*2\r\n$1\r\n1\r\n$1\r\n2\r\n" {
		t.Errorf("after the move: %q", got)
	}
	agree(t, all)
	for _, n := range nodes {
		testkit.Eventually(t, clusterWait, func() bool { return openAt(n) == "" }, "nothing is open any more")
	}
}

// Who would not understand SETSLOT in the stream does not get it; a replica of Valkey 8 does, before it is done.
func TestSetSlotInTheStream(t *testing.T) {
	t.Parallel()
	nodes, conns := startNodes(t, 2)
	join(t, nodes, conns, 2)
	id := ids(conns)
	old := nodes[0].attach(t, "7001")
	mustOK(t, conns[0], "CLUSTER", "SETSLOT", "5", "MIGRATING", id[1])
	mustOK(t, conns[0], "SET", "b", "1")
	for got := ""; got != "SET b 1"; {
		if got = old.command(); strings.HasPrefix(got, "CLUSTER") {
			t.Errorf("in the stream of a replica of Redis: %q", got)
		}
	}
	if err := old.Net().Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, replyWait, func() bool { return nodes[0].primary.Len() == 0 }, "the replica left")
	h := nodes[0].attach(t, "7002", "version", "8.0.1")
	testkit.Eventually(t, replyWait, func() bool { return nodes[0].primary.Len() == 1 }, "the replica is there")
	start, err := strconv.ParseInt(nodes[0].replicationInfo(t)["master_repl_offset"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	// It has not acknowledged when the node is asked whether the slot is open.
	answer := later(t, nodes[0].dial(t), "CLUSTER", "SETSLOT", "6", "MIGRATING", id[1], "TIMEOUT", "50000")
	// The slot opened before could not be told; it is told as soon as something changes.
	var told []string
	for len(told) == 0 || !strings.HasPrefix(told[len(told)-1], "CLUSTER SETSLOT 6") {
		told = append(told, h.command())
	}
	if want := "CLUSTER SETSLOT 6 MIGRATING " + id[1]; told[len(told)-1] != want {
		t.Errorf("in the stream: %q, want %q", told, want)
	}
	wantOpen(t, nodes[0], "5>"+strconv.Itoa(nodes[1].Port))
	h.ack(start + 10_000)
	if got := <-answer; got != "+OK\r\n" {
		t.Errorf("SETSLOT: %q", got)
	}
	mustOK(t, conns[0], "CLUSTER", "SETSLOT", "6", "STABLE", "TIMEOUT", "1")
	for want := "CLUSTER SETSLOT 6 STABLE"; ; {
		if got := h.command(); got == want {
			break
		}
	}
	wantOpen(t, nodes[0], "5>"+strconv.Itoa(nodes[1].Port))
}

// A failover that is under way is waited for: what is done meanwhile its winner would not know.
func TestSetSlotWaitsForAFailover(t *testing.T) {
	t.Parallel()
	nodes, conns := startNodes(t, 2)
	join(t, nodes, conns, 2)
	id := ids(conns)
	nodes[0].pauseWrites(pauseFailover, true)
	answer := later(t, nodes[0].dial(t), "CLUSTER", "SETSLOT", "6", "MIGRATING", id[1])
	testkit.Eventually(t, replyWait, func() bool { return nodes[0].stats.blocked.Load() == 1 }, "SETSLOT waits")
	wantOpen(t, nodes[0], "")
	nodes[0].pauseWrites(pauseFailover, false)
	if got := <-answer; got != "+OK\r\n" {
		t.Errorf("SETSLOT: %q", got)
	}
	wantOpen(t, nodes[0], "6>"+strconv.Itoa(nodes[1].Port))
}

// Entries of the stream, as a primary of Valkey 8 writes them, and its data set.
func TestReplicaHeedsItsPrimary(t *testing.T) {
	t.Parallel()
	nodes, conns := startNodes(t, 3)
	join(t, nodes, conns, 2)
	id := ids(conns)
	r := nodes[2]
	a := newApplier(r.Server)
	defer a.close()
	say := func(lines ...string) {
		t.Helper()
		var entry [][][]byte
		for _, l := range lines {
			var args [][]byte
			for w := range strings.FieldsSeq(l) {
				args = append(args, []byte(w))
			}
			entry = append(entry, args)
		}
		if err := a.heedSlots(entry); err != nil {
			t.Fatal(err)
		}
	}
	to := strconv.Itoa(nodes[1].Port)
	say("cluster setslot 5 migrating "+id[1], "CLUSTER SETSLOT 6 MIGRATING "+id[1]+" TIMEOUT 2000", "SET a b", "CLUSTER SETSLOT")
	wantOpen(t, r, "5>"+to+" 6>"+to)
	say("CLUSTER SETSLOT 5 STABLE", "CLUSTER SETSLOT 6 NODE "+id[1])
	wantOpen(t, r, "")
	say("CLUSTER SETSLOT 99999 STABLE", "CLUSTER SETSLOT 7 NODE nobody", "CLUSTER SETSLOT 7 MIGRATING "+id[1]+" x")
	wantOpen(t, r, "")
	if err := a.heedStates("7>" + id[1] + ",9000<" + id[1] + ",,x>y,8"); err != nil {
		t.Fatal(err)
	}
	wantOpen(t, r, "7>"+to+" 9000<"+to)
	if err := a.forgetSlots(); err != nil {
		t.Fatal(err)
	}
	wantOpen(t, r, "")
}

// An entry was logged, and the node stopped before it did what it says: what replicas know of it is taken back.
func TestSetSlotThatWasNotDone(t *testing.T) {
	t.Parallel()
	nodes, conns := startNodes(t, 3)
	join(t, nodes, conns, 2)
	id := ids(conns)
	if _, err := nodes[0].logOpen(5, openMark{cluster.SlotMigrating, id[1]}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, replyWait, func() bool { return openAt(nodes[2]) != "" }, "the replica has heard")
	nodes[0].openChanged()
	testkit.Eventually(t, replyWait, func() bool { return openAt(nodes[2]) == "" }, "the replica has heard that it is not so")
}

// Marks that recovery finds in the log are not the cluster's.
func TestRecalledSlots(t *testing.T) {
	var o openSlots
	for _, l := range []string{
		"CLUSTER SETSLOT 1 MIGRATING x", "CLUSTER SETSLOT 2 IMPORTING y", "CLUSTER SETSLOT 1 STABLE", "SET a b", "CLUSTER SETSLOT 3 NODE z",
		"CLUSTER SETSLOT 4 MIGRATING x TIMEOUT 5",
	} {
		var args [][]byte
		for w := range strings.FieldsSeq(l) {
			args = append(args, []byte(w))
		}
		o.recall([][][]byte{args})
	}
	want := map[uint16]openMark{2: {cluster.SlotImporting, "y"}, 4: {cluster.SlotMigrating, "x"}}
	if fmt.Sprint(o.told) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", o.told, want)
	}
}

// What a start does again of what recovery met: marks, the import of a slot whose claim a crash took back, and that one is
// on its way whose handing over a crash took back; not when there are keys in it.
func TestRecalledSlotsAreDoneAgain(t *testing.T) {
	t.Parallel()
	nodes, conns := startNodes(t, 2)
	join(t, nodes, conns, 2)
	id := ids(conns)
	n, port := nodes[0], strconv.Itoa(nodes[1].Port)
	name := node.Tags(7)[6] // of slot 6
	if got := conns[0].Do("SET", name, "x").Raw; got != "+OK\r\n" {
		t.Fatal(got)
	}
	for _, l := range []string{
		"CLUSTER SETSLOT 1 MIGRATING " + id[1],
		"CLUSTER SETSLOT 5 NODE " + id[1],
		"CLUSTER SETSLOT 6 NODE " + id[1],
		"CLUSTER SETSLOT 7 NODE " + strings.Repeat("f", 40),
		"CLUSTER SETSLOT 2 MIGRATING " + id[1], "CLUSTER SETSLOT 2 STABLE",
		"CLUSTER SETSLOT 3 IMPORTING " + id[1], // its own
		"CLUSTER SETSLOT 9001 IMPORTING " + id[1], "CLUSTER SETSLOT 9001 NODE " + id[0],
		"CLUSTER SETSLOT 9002 IMPORTING " + id[1], "CLUSTER SETSLOT 9002 NODE " + id[1],
		"CLUSTER SETSLOT 9003 NODE " + id[0],
		"CLUSTER SETSLOT 9004 IMPORTING " + strings.Repeat("f", 40), "CLUSTER SETSLOT 9004 NODE " + id[0],
		"CLUSTER SETSLOT 4 IMPORTING " + id[1], "CLUSTER SETSLOT 4 NODE " + id[0], // it was saved
	} {
		var args [][]byte
		for w := range strings.FieldsSeq(l) {
			args = append(args, []byte(w))
		}
		n.openSlots.recall([][][]byte{args})
	}
	n.recallSlots(n.store)
	wantOpen(t, n, "1>"+port+" 5>"+port+" 9001<"+port)
}

func TestSetSlotTimeout(t *testing.T) {
	n := startServer(t, "cluster-enabled yes")
	c := n.dial(t)
	for words, want := range map[string]string{
		"5 STABLE TIMEOUT 10":      "+OK\r\n",
		"5 STABLE timeout 0":       "+OK\r\n",
		"5 STABLE TIMEOUT x":       "-ERR timeout is not an integer or out of range\r\n",
		"5 STABLE TIMEOUT -1":      "-ERR timeout is negative\r\n",
		"5 STABLE TIMEOUT":         "-" + textSetSlotForm + "\r\n",
		"5 TIMEOUT 5":              "-" + textSetSlotForm + "\r\n",
		"5 NODE x TIMEOUT":         "-" + textSetSlotForm + "\r\n",
		"5 NODE x TIMEOUT 5":       "-ERR Unknown node x\r\n",
		"5 STABLE TIMEOUT 5 6":     "-" + textSetSlotForm + "\r\n",
		"16384 STABLE TIMEOUT 5":   "-" + textBadSlot + "\r\n",
		"5 IMPORTING timeout":      "-ERR I don't know about node timeout\r\n",
		"5 STABLE x TIMEOUT 5":     "-" + textSetSlotForm + "\r\n",
		"5 IMPORTING x TIMEOUT -5": "-ERR timeout is negative\r\n",
	} {
		if got := c.Do(append([]string{"CLUSTER", "SETSLOT"}, strings.Fields(words)...)...).Raw; got != want {
			t.Errorf("SETSLOT %s: %q, want %q", words, got, want)
		}
	}
}

// Data that is older than the cluster: a node that knows no other owns the slots that it has keys of, as in Redis.
func TestSlotsOfFoundKeys(t *testing.T) {
	n := startServer(t)
	mustOK(t, n.dial(t), "MSET", "a", "1", "b", "2", "{b}c", "3")
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := n.cfg.Store("cluster-enabled", "yes"); err != nil {
		t.Skip("cluster-enabled cannot be set here: ", err)
	}
	_, c := again(t, n)
	if got := c.Do("CLUSTER", "NODES").Raw; !strings.HasSuffix(got, " connected 3300 15495\n\r\n") {
		t.Errorf("got %q", got)
	}
}
