package bus

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"cairn/cluster"
	"cairn/cluster/nodesconf"
	"cairn/cluster/wire"
	"cairn/internal/slot"
	"cairn/internal/testkit"
)

var badPackets = flag.Int("bad-packets", 20000, "how many TestBadPackets sends")

// ended waits until the other side has closed the connection. What it sends meanwhile is of no interest.
func ended(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the link is still there")
	}
}

// answers sends a ping and wants a pong: the node is alive, and the link as well.
func answers(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write(wire.Append(nil, stranger(wire.Ping))); err != nil {
		t.Fatal(err)
	}
	if m := read(t, c); m.Type != wire.Pong {
		t.Fatalf("a ping is answered by type %d", m.Type)
	}
}

func read(t *testing.T, c net.Conn) *wire.Message {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, wire.HeadLength)
	if _, err := io.ReadFull(c, head); err != nil {
		t.Fatal(err)
	}
	n, err := wire.Length(head)
	if err != nil {
		t.Fatal(err)
	}
	frame := append(head, make([]byte, n-len(head))...)
	if _, err := io.ReadFull(c, frame[len(head):]); err != nil {
		t.Fatal(err)
	}
	m, err := wire.Decode(frame)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func head(length uint32, kind uint16) []byte {
	b := append([]byte("RCmb"), 0, 0, 0, 0, 0, 1, 0, 0, 0, 0)
	binary.BigEndian.PutUint32(b[4:], length)
	binary.BigEndian.PutUint16(b[12:], kind)
	return append(b, make([]byte, 100)...)
}

// TestEndedLinks: what no packet begins with, and more than a stranger may send, ends the link; so does taking forever.
func TestEndedLinks(t *testing.T) {
	t.Parallel()
	a := start(t, func(o *Options) { o.Config.NodeTimeout = 500 })
	for name, bytes := range map[string][]byte{
		"another protocol":          []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"length 0":                  head(0, 0),
		"length 2255":               head(2255, 0),
		"length 4 GiB":              head(1<<32-1, 0),
		"publication of 512 MiB":    head(512<<20, 4),
		"light one of 512 MiB":      head(512<<20, 0x8004),
		"ping of a byte too much":   head(strangerFrame+1, 0),
		"light one, from nobody":    wire.Append(nil, &wire.Message{Type: wire.Publish, Light: true}),
		"nothing":                   nil,
		"a head and then nothing":   head(2256, 0),
		"the first byte of a frame": []byte("R"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, a.port)
			if _, err := c.Write(bytes); err != nil {
				t.Fatal(err)
			}
			ended(t, c)
		})
	}
	t.Run("a byte now and then", func(t *testing.T) {
		t.Parallel()
		c := connect(t, a.port)
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			frame := wire.Append(nil, stranger(wire.Ping))
			for _, b := range frame {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				<-time.After(100 * time.Millisecond) // the dribble itself
			}
		}()
		ended(t, c)
		c.Close()
		<-stop
	})
}

// TestBadPackets sends packets with a few bytes changed, at speed. None of them ends the node, and it holds no more
// afterwards than before.
func TestBadPackets(t *testing.T) {
	a, b := start(t, nil), start(t, nil)
	a.meet(b.port)
	testkit.Eventually(t, soon, func() bool { return a.knows(idOf(b.port)) && b.knows(idOf(a.port)) }, "they meet")
	rng := rand.New(rand.NewPCG(1, 2))
	// Of the kinds that are not answered, so that nobody has to read.
	kinds := []wire.Type{wire.Pong, wire.Fail, wire.Publish, wire.AuthRequest, wire.AuthAck, wire.Update, wire.ManualStart, wire.Module, wire.PublishShard}
	before := heap()
	c := connect(t, a.port)
	for i := range *badPackets {
		m := stranger(kinds[rng.IntN(len(kinds))])
		if rng.IntN(2) == 0 {
			m.Gossip = make([]wire.Gossip, rng.IntN(4))
		}
		frame := wire.Append(nil, m)
		for range 1 + rng.IntN(3) {
			at := 8 + rng.IntN(len(frame)-8) // not its length: the next one must be found
			frame[at] = byte(rng.Uint32())
		}
		frame[12] &= 0x7f // a light header ends the link
		if _, err := c.Write(frame); err != nil {
			t.Fatalf("packet %d: %v", i, err)
		}
	}
	answers(t, c)
	after := heap()
	t.Logf("%d packets; heap %d KiB before, %d after", *badPackets, before>>10, after>>10)
	if after > before+4<<20 {
		t.Errorf("heap grew from %d to %d bytes", before, after)
	}
	if !a.knows(idOf(b.port)) {
		t.Errorf("the table changed:\n%s", a.text())
	}
	a.recorder.mu.Lock()
	defer a.recorder.mu.Unlock()
	if n := len(a.notes); n > 50 {
		t.Errorf("%d lines for the log, the last of them: %s", n, a.notes[n-1])
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestStrangersMemory fills the strangers' places with links that each hold as much as they may, and measures it.
func TestStrangersMemory(t *testing.T) {
	a := start(t, nil)
	frame := wire.Append(nil, stranger(wire.Ping))
	frame = append(frame, make([]byte, strangerFrame-len(frame))...)
	binary.BigEndian.PutUint32(frame[4:], strangerFrame)
	before := heap()
	const n = maxStrangers
	for range n {
		c := connect(t, a.port)
		if _, err := c.Write(frame[:len(frame)-1]); err != nil {
			t.Fatal(err)
		}
	}
	var most int64
	testkit.Eventually(t, soon, func() bool {
		a.Driver.mu.Lock()
		strangers := len(a.strangers)
		a.Driver.mu.Unlock()
		most = max(most, (heap()-before)/n)
		return most > strangerFrame*3/4 || strangers == 0
	}, "the links hold what they may")
	t.Logf("%d bytes a stranger, its client included", most)
	// Under the race detector everything is larger; else it is so much less that the answers fit, too.
	if most > StrangerBytes {
		t.Errorf("%d bytes a stranger, want at most %d", most, StrangerBytes)
	}
	if most <= strangerFrame*3/4 {
		t.Errorf("%d bytes a stranger: the test measures nothing", most)
	}
}

// TestTooManyStrangers: who holds links that say nothing keeps nobody out.
func TestTooManyStrangers(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	var silent []net.Conn
	for range 3 * maxStrangers {
		silent = append(silent, connect(t, a.port))
	}
	ended(t, silent[0])
	a.Driver.mu.Lock()
	n, links := len(a.strangers), len(a.links)
	a.Driver.mu.Unlock()
	if n > maxStrangers+1 || links > maxStrangers+1 {
		t.Errorf("%d strangers, %d links, want at most %d", n, links, maxStrangers+1)
	}
	answers(t, connect(t, a.port))
	b := start(t, nil)
	b.meet(a.port)
	testkit.Eventually(t, soon, func() bool { return a.knows(idOf(b.port)) && b.knows(idOf(a.port)) }, "a real node gets in")
}

// TestPeerThatDoesNotRead: a stranger that asks and does not listen is not read from, and cut off after a while.
func TestPeerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	c := connect(t, a.port)
	if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	ping := wire.Append(nil, stranger(wire.Ping))
	done := make(chan error, 1)
	go func() { done <- askOn(c, ping) }()
	var most int64
	testkit.Eventually(t, 2*soon, func() bool {
		a.Driver.mu.Lock()
		for _, l := range a.links {
			most = max(most, l.waiting())
		}
		a.Driver.mu.Unlock()
		return len(done) > 0
	}, "the link to end")
	if err := <-done; err != nil {
		t.Error(err)
	}
	if limit := strangerAnswers + 2*int64(len(ping)); most == 0 || most > limit {
		t.Errorf("%d bytes waited, want at most %d", most, limit)
	}
}

// askOn asks again and again, listens to no answer, and returns when the other side has ended the link.
func askOn(c net.Conn, ask []byte) error {
	for i := range 100_000 {
		if err := c.SetWriteDeadline(time.Now().Add(soon)); err != nil {
			return err
		}
		if _, err := c.Write(ask); errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("still there after %d pings: %w", i, err)
		} else if err != nil {
			return nil
		}
	}
	return errors.New("still there after 100 000 pings")
}

// TestLongPackets: a member may send a megabyte, a publication of any size, and data of modules that nobody here wants.
func TestLongPackets(t *testing.T) {
	t.Parallel()
	a, b := start(t, nil), start(t, nil)
	a.meet(b.port)
	testkit.Eventually(t, soon, func() bool { return a.knows(idOf(b.port)) && b.knows(idOf(a.port)) }, "they meet")
	big := []byte(strings.Repeat("x", 5<<20))
	b.do(cluster.CmdPublish{Channel: []byte("c"), Payload: big})
	testkit.Eventually(t, soon, func() bool { return a.got("false c " + string(big)) }, "5 MiB arrive")

	// By hand, in the name of b, which is gone so that its link does not take this one's place: its first packet on this link
	// is longer than a stranger's may be.
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	me := wire.ID([]byte(idOf(b.port)))
	ping := stranger(wire.Ping)
	ping.Sender, ping.Port, ping.BusPort = me, uint16(b.port-10000), uint16(b.port)
	ping.Gossip = make([]wire.Gossip, 1000) // their ids are none, so that they are passed over
	c := connect(t, a.port)
	if _, err := c.Write(wire.Append(nil, ping)); err != nil {
		t.Fatal(err)
	}
	if m := read(t, c); m.Type != wire.Pong {
		t.Fatalf("answered by type %d", m.Type)
	}
	module := stranger(wire.Module)
	module.Sender, module.Module.Data = me, make([]byte, 3*memberFrame)
	ping.Gossip = nil
	if _, err := c.Write(wire.Append(wire.Append(nil, module), ping)); err != nil {
		t.Fatal(err)
	}
	if m := read(t, c); m.Type != wire.Pong {
		t.Fatalf("after data of a module answered by type %d", m.Type)
	}
}

// TestNoLeaks: nothing runs any more after Close, whatever the links were doing.
func TestNoLeaks(t *testing.T) {
	before := runtime.NumGoroutine()
	a := start(t, nil)
	var conns []net.Conn
	for i := range 20 {
		c := connect(t, a.port)
		conns = append(conns, c)
		if _, err := c.Write(wire.Append(nil, stranger(wire.Ping))[:2256-i]); err != nil {
			t.Fatal(err)
		}
	}
	// Nobody answers there: the dial lasts.
	a.do(cluster.CmdMeet{IP: "192.0.2.1", Port: 1, BusPort: 1})
	testkit.Eventually(t, soon, func() bool {
		a.Driver.mu.Lock()
		defer a.Driver.mu.Unlock()
		return len(a.links) > len(conns)-1
	}, "links are there")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, soon, func() bool { return runtime.NumGoroutine() <= before+1 }, "goroutines end")
}

// TestBug: a message that meets a bug ends its link, and the node goes on.
func TestBug(t *testing.T) {
	t.Parallel()
	a := start(t, nil)
	ok := a.with(func(int64) []cluster.Effect { panic("a bug") })
	if ok {
		t.Error("with a bug it is as if nothing had happened")
	}
	testkit.Eventually(t, soon, func() bool {
		a.recorder.mu.Lock()
		defer a.recorder.mu.Unlock()
		for _, n := range a.notes {
			if strings.Contains(n, "BUG") && strings.Contains(n, "hostile_test.go") {
				return true
			}
		}
		return false
	}, "the log tells where")
	answers(t, connect(t, a.port))
}

// outcome is what an attack changed, as the node shows it.
type outcome struct{ added, failed, epoch, slots, heard bool }

func (o outcome) String() string {
	var words []string
	for _, w := range []struct {
		is   bool
		word string
	}{
		{o.added, "an entry in handshake, until the timeout"},
		{o.failed, "a member counts as failed"},
		{o.epoch, "the epoch rises"},
		{o.slots, "slots change their owner"},
		{o.heard, "subscribers hear it"},
	} {
		if w.is {
			words = append(words, w.word)
		}
	}
	if words == nil {
		return "nothing"
	}
	return strings.Join(words, "; ")
}

func allSlots() *slot.Bitmap {
	b := &slot.Bitmap{}
	b.SetRange(slot.Range{First: 0, Last: slot.Count - 1})
	return b
}

// attacks are messages as a stranger sends them. Sent in the name of a member they are what that one might say.
func attacks(third wire.ID) map[string]*wire.Message {
	all := map[string]*wire.Message{}
	for name, kind := range map[string]wire.Type{
		"MEET": wire.Meet, "FAIL of a member": wire.Fail, "UPDATE with a high epoch": wire.Update, "AUTH_ACK": wire.AuthAck,
		"PUBLISH": wire.Publish, "MFSTART": wire.ManualStart, "PING with all slots, epoch 100": wire.Ping, "PING with epoch 2^64-1": wire.Ping,
	} {
		m := stranger(kind)
		m.Failed = third
		m.Update = wire.NodeUpdate{Epoch: 100, ID: third, Slots: allSlots()}
		m.Publication = wire.Publication{Channel: []byte("chan"), Payload: []byte("forged")}
		switch {
		case strings.HasSuffix(name, "100"):
			m.Slots, m.ConfigEpoch, m.CurrentEpoch = allSlots(), 100, 100
		case strings.HasSuffix(name, "-1"):
			m.CurrentEpoch = 1<<64 - 1
		}
		if kind != wire.Update {
			m.Update.Slots = m.Slots
		}
		all[name] = m
	}
	return all
}

// TestStranger sends what changes a cluster to a node of ours and to a real server, as a node that nobody knows and in the name
// of a member. Ours changes nothing that the real one does not. The table is that of docs/security.md.
func TestStranger(t *testing.T) {
	t.Parallel()
	names := slices.Sorted(maps.Keys(attacks(wire.ID{})))
	names = slices.DeleteFunc(names, func(n string) bool { return n == "MEET" })
	names = append(names, "MEET") // the only one that changes something for those behind it
	t.Run("nobody", func(t *testing.T) {
		t.Parallel()
		ours, theirs := victimOurs(t), victimRedis(t)
		for _, name := range names {
			compare(t, name, "a stranger", ours.strike(t, name, false), theirs.strike(t, name, false))
		}
	})
	for _, name := range names {
		t.Run("member, "+name, func(t *testing.T) {
			t.Parallel()
			compare(t, name, "in a member's name", victimOurs(t).strike(t, name, true), victimRedis(t).strike(t, name, true))
		})
	}
}

func compare(t *testing.T, name, who string, ours, theirs outcome) {
	t.Helper()
	t.Logf("TABLE | %s | %s | %s | %s |", name, who, ours, theirs)
	// The current epoch is never below that of an owner here: it rises with what an UPDATE moves.
	if ours.added && !theirs.added || ours.failed && !theirs.failed || ours.epoch && !theirs.epoch && !theirs.slots ||
		ours.slots && !theirs.slots || ours.heard && !theirs.heard {
		t.Errorf("%s, %s: ours: %s; a real server: %s", name, who, ours, theirs)
	}
}

// victim is a member of a cluster of three, whose bus port somebody reaches.
type victim struct {
	port          int
	member, third *member
	look          func() outcome // what has changed since it was made
}

func (v *victim) strike(t *testing.T, name string, stolen bool) outcome {
	t.Helper()
	strike(t, v.port, name, stolen, idOf(v.member.port), idOf(v.third.port), v.member.port)
	return v.look()
}

// settings of the members that stand around the victim: they are slow to ping, so that they do not repair at once.
func slow(o *Options) { o.Config.NodeTimeout = 20000 }

func strike(t *testing.T, port int, name string, stolen bool, member, third string, memberPort int) {
	t.Helper()
	m := attacks(wire.ID([]byte(third)))[name]
	if stolen {
		m.Sender, m.Port, m.BusPort = wire.ID([]byte(member)), uint16(memberPort-10000), uint16(memberPort)
	}
	c := connect(t, port)
	frame := wire.Append(nil, m)
	// The ping behind it is answered after it was taken.
	ping := stranger(wire.Ping)
	if stolen {
		ping.Sender, ping.Port, ping.BusPort, ping.Slots, ping.ConfigEpoch = m.Sender, m.Port, m.BusPort, m.Slots, m.ConfigEpoch
	}
	if _, err := c.Write(wire.Append(frame, ping)); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	pongs := 1
	if m.Type == wire.Ping || m.Type == wire.Meet {
		pongs = 2
	}
	for range pongs {
		for read(t, c).Type != wire.Pong {
		}
	}
}

func victimOurs(t *testing.T) *victim {
	t.Helper()
	a, b, third := start(t, slow), start(t, slow), start(t, slow)
	for i, m := range []*member{a, b, third} { // else two of them have the same, and one raises its own some time
		m.do(cluster.CmdSetConfigEpoch{Epoch: int64(i + 1)})
	}
	a.meet(b.port)
	a.meet(third.port)
	testkit.Eventually(t, soon, func() bool {
		return a.knows(idOf(b.port), idOf(third.port)) && b.knows(idOf(a.port), idOf(third.port)) && third.knows(idOf(a.port), idOf(b.port))
	}, "they meet")
	a.addSlots(0, 99)
	b.addSlots(100, 199)
	testkit.Eventually(t, soon, func() bool {
		n, _ := a.node(idOf(b.port))
		return len(n.Slots) == 1 && a.Driver.View().CurrentEpoch == 3
	}, "slots are known")
	epoch := a.Driver.View().CurrentEpoch
	return &victim{a.port, b, third, func() outcome {
		v := a.Driver.View()
		n, _ := a.node(idOf(third.port))
		me := v.Nodes[v.Myself]
		return outcome{
			added: len(v.Nodes) > 3, failed: n.Flags&nodesconf.Failed != 0, epoch: v.CurrentEpoch > epoch,
			slots: len(me.Slots) != 1 || me.Slots[0].Last != 99, heard: a.got("false chan forged"),
		}
	}}
}

func victimRedis(t *testing.T) *victim {
	t.Helper()
	r := testkit.StartRedis(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "20000")
	client := testkit.Dial(t, r.Addr)
	id := strings.TrimSpace(client.Do("CLUSTER", "MYID").Value.(string))
	node := &redisNode{r, client, id}
	b, third := start(t, slow), start(t, slow)
	client.Do("CLUSTER", "SET-CONFIG-EPOCH", "1")
	b.do(cluster.CmdSetConfigEpoch{Epoch: 2})
	third.do(cluster.CmdSetConfigEpoch{Epoch: 3})
	b.meet(node.bus())
	third.meet(b.port)
	testkit.Eventually(t, soon, func() bool { return node.knows(idOf(b.port)) && node.knows(idOf(third.port)) }, "they meet")
	client.Do("CLUSTER", "ADDSLOTSRANGE", "0", "99")
	b.addSlots(100, 199)
	testkit.Eventually(t, soon, func() bool { return strings.HasSuffix(node.line(idOf(b.port)), " 100-199") && infoEpoch(client) == "3" }, "slots are known")
	sub := testkit.Dial(t, r.Addr)
	sub.Do("SUBSCRIBE", "chan")
	epoch := infoEpoch(client)
	return &victim{node.bus(), b, third, func() (o outcome) {
		nodes, line := client.Do("CLUSTER", "NODES").Value.(string), node.line(idOf(third.port))
		o = outcome{
			added: strings.Count(nodes, "\n") > 3, failed: strings.Contains(line, "master,fail "),
			epoch: infoEpoch(client) != epoch, slots: !strings.HasSuffix(node.line(id), " 0-99"),
		}
		client.Do("PUBLISH", "chan", "end")
		for {
			m := must(t, sub).Raw
			if strings.Contains(m, "end") {
				return o
			}
			o.heard = o.heard || strings.Contains(m, "forged")
		}
	}}
}

func infoEpoch(c *testkit.Conn) string {
	_, rest, _ := strings.Cut(c.Do("CLUSTER", "INFO").Raw, "cluster_current_epoch:")
	epoch, _, _ := strings.Cut(rest, "\r")
	return epoch
}
