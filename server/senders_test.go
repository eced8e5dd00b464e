package server

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"cairn/internal/resp"
	"cairn/internal/testkit"
)

// arrivingSlot is a cluster of three in which slot 12182, of the third, is on its way to the second.
func arrivingSlot(t *testing.T) (nodes []*testNode, source, target *testkit.Conn) {
	t.Helper()
	nodes, conns := startNodes(t, 3)
	join(t, nodes, conns, 3)
	agree(t, conns)
	source, target = conns[2], conns[1]
	mustOK(t, target, "CLUSTER", "SETSLOT", "12182", "IMPORTING", source.Do("CLUSTER", "MYID").Value.(string))
	mustOK(t, source, "CLUSTER", "SETSLOT", "12182", "MIGRATING", target.Do("CLUSTER", "MYID").Value.(string))
	return nodes, source, target
}

func dumpOf(t *testing.T, c *testkit.Conn, value string) string {
	t.Helper()
	mustOK(t, c, "SET", "{Qi}x", value) // in slot 5460, of the first or second
	return c.Do("DUMP", "{Qi}x").Value.(string)
}

// What an earlier connection brings takes nothing's place that a later one has brought; a retry over a later one does.
func TestLateCopyReplacesNothing(t *testing.T) {
	t.Parallel()
	nodes, _, target := arrivingSlot(t)
	n := startServer(t).dial(t)
	older, newer := dumpOf(t, n, "older"), dumpOf(t, n, "newer")
	first, second, third := nodes[1].dial(t), nodes[1].dial(t), nodes[1].dial(t)
	first.Do("PING") // it is there before the others
	mustOK(t, second, "RESTORE-ASKING", "{foo}k", "0", newer)
	const busy = "-BUSYKEY Target key name already exists.\r\n"
	if got := first.Do("RESTORE-ASKING", "{foo}k", "0", older).Raw; got != busy {
		t.Errorf("over the earlier connection: %q, want %q", got, busy)
	}
	mustOK(t, first, "RESTORE-ASKING", "{foo}other", "0", older) // nothing is there
	mustOK(t, target, "ASKING")
	if got := target.Do("GET", "{foo}k").Raw; got != "$5\r\nnewer\r\n" {
		t.Errorf("the key is %q", got)
	}
	mustOK(t, second, "RESTORE-ASKING", "{foo}k", "0", older)
	mustOK(t, third, "RESTORE-ASKING", "{foo}k", "0", newer)
}

// What waits here and whose sender has hung up is not executed, also when more of it is still unread.
func TestCopyOfWhoHungUp(t *testing.T) {
	t.Parallel()
	nodes, _, target := arrivingSlot(t)
	payload := dumpOf(t, startServer(t).dial(t), "v")
	mustOK(t, target, "CLIENT", "PAUSE", "100000", "WRITE")
	late, err := net.Dial("tcp", nodes[1].Addr)
	if err != nil {
		t.Fatal(err)
	}
	var sent []byte
	for i := range 500 { // more than is read at once
		sent = resp.AppendCommand(sent, []byte("RESTORE-ASKING"), []byte("{foo}k"+strconv.Itoa(i)), []byte("0"), []byte(payload))
	}
	sent = resp.AppendCommand(sent, []byte("CLIENT"), []byte("SETNAME"), []byte("late"))
	if _, err := late.Write(sent); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, replyWait, func() bool {
		return strings.Contains(target.Do("CLIENT", "LIST").Raw, "cmd=restore-asking")
	}, "the command waits")
	if err := late.Close(); err != nil {
		t.Fatal(err)
	}
	mustOK(t, target, "CLIENT", "UNPAUSE")
	testkit.Eventually(t, replyWait, func() bool {
		return !strings.Contains(target.Do("CLIENT", "LIST").Raw, "cmd=restore-asking")
	}, "the connection goes")
	if got := target.Do("CLUSTER", "COUNTKEYSINSLOT", "12182").Raw; got != ":0\r\n" {
		t.Errorf("keys came: %q", got)
	}
}

// A source that gave up goes on with the key, and moves it later: the target has the last value, whatever was under way.
func TestMigrateAfterTimeouts(t *testing.T) {
	t.Parallel()
	nodes, source, target := arrivingSlot(t)
	mustOK(t, source, "CLUSTER", "SETSLOT", "12182", "STABLE")
	mustOK(t, source, "SET", "{foo}k", "v0")
	mustOK(t, source, "CLUSTER", "SETSLOT", "12182", "MIGRATING", target.Do("CLUSTER", "MYID").Value.(string))
	migrate := func(ms int) string {
		return source.Do("MIGRATE", "127.0.0.1", strconv.Itoa(nodes[1].Port), "{foo}k", "0", strconv.Itoa(ms)).Raw
	}
	mustOK(t, target, "CLIENT", "PAUSE", "100000", "WRITE")
	for i := range 8 {
		if got := migrate(20); !strings.HasPrefix(got, "-IOERR") {
			t.Fatalf("MIGRATE to a target that does not answer: %q", got)
		}
		mustOK(t, source, "SET", "{foo}k", "v"+strconv.Itoa(i+1))
	}
	waiting := func() int { return strings.Count(target.Do("CLIENT", "LIST").Raw, "cmd=restore-asking") }
	before := waiting()
	answer := later(t, nodes[2].dial(t), "MIGRATE", "127.0.0.1", strconv.Itoa(nodes[1].Port), "{foo}k", "0", "100000")
	testkit.Eventually(t, replyWait, func() bool { return waiting() > before }, "the last one waits with the others")
	mustOK(t, target, "CLIENT", "UNPAUSE")
	if got := <-answer; got != "+OK\r\n" {
		t.Fatalf("MIGRATE: %q", got)
	}
	mustOK(t, target, "ASKING")
	if got := target.Do("GET", "{foo}k").Raw; got != "$2\r\nv8\r\n" {
		t.Errorf("at the target: %q, want the value of the last SET, v8", got)
	}
	if got := source.Do("CLUSTER", "COUNTKEYSINSLOT", "12182").Raw; got != ":0\r\n" {
		t.Errorf("left at the source: %q", got)
	}
}
