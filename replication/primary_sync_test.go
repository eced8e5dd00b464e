package replication

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/internal/testkit"
	"cairn/wal"
)

const ownID = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func TestPartialFollowsTheLog(t *testing.T) {
	l := newLab(t, nil)
	all := l.write(300_000)
	c := l.join(Hello{PSYNC2: true, ReplID: []byte(ownID), Next: 1001})
	if got := c.line(); got != "+CONTINUE "+ownID {
		t.Fatalf("got %q", got)
	}
	if got := c.bytes(len(all) - 1000); !bytes.Equal(got, all[1000:]) {
		t.Fatal("the stream is not the log from offset 1000 on")
	}
	more := l.write(70_000)
	if got := c.bytes(len(more)); !bytes.Equal(got, more) {
		t.Fatal("the stream is not what was appended")
	}
	if st := l.Statuses()[0]; st.State != SyncOnline || st.Acked != 1000 {
		t.Errorf("status %+v", st)
	}
	if l.PartialOK.Load() != 1 || l.PartialErr.Load() != 0 || l.Full.Load() != 0 {
		t.Errorf("counted %d, %d, %d", l.PartialOK.Load(), l.PartialErr.Load(), l.Full.Load())
	}
	c.conn.Close()
	c.closed()
	if n := l.Len(); n != 0 {
		t.Errorf("%d replicas after the end of the link", n)
	}
	old := l.join(Hello{ReplID: []byte(strings.ToUpper(ownID)), Next: l.log.End() + 1})
	if got := old.line(); got != "+CONTINUE" {
		t.Errorf("to a replica without psync2: %q", got)
	}
}

func TestFullSyncMarked(t *testing.T) {
	l := newLab(t, nil)
	l.data.size = 200_000
	l.write(500)
	c := l.join(Hello{EOF: true, PSYNC2: true, ReplID: []byte("?"), Next: -1, ListeningPort: 7001, IP: "10.1.2.3"})
	if got := c.line(); got != "+FULLRESYNC "+ownID+" 500" {
		t.Fatalf("got %q", got)
	}
	if n := keysOf(t, c.markedRDB()); n != 200 {
		t.Fatalf("%d keys", n)
	}
	more := l.write(100)
	testkit.Eventually(t, 10*time.Second, func() bool { return c.r.State() == SyncTransferred }, "transferred")
	if n := l.Acked(0); n != 0 {
		t.Errorf("%d replicas count before the first acknowledgement", n)
	}
	// A bare line end is no acknowledgement; until there is one, nothing follows the mark.
	c.send("\n")
	if n := c.rd.Buffered(); n != 0 {
		t.Fatalf("%d bytes follow the mark before the acknowledgement", n)
	}
	c.ack(500)
	if got := c.bytes(len(selectZero) + len(more)); string(got) != selectZero+string(more) {
		t.Fatalf("the stream begins with %.40q", got)
	}
	c.ack(500+len(selectZero)+len(more), "FACK", 510)
	testkit.Eventually(t, 10*time.Second, func() bool { return l.Acked(l.log.End()) == 1 }, "acknowledged")
	if l.AckedSynced(510) != 1 || l.AckedSynced(511) != 0 {
		t.Error("FACK is not what was said")
	}
	if st := l.Statuses()[0]; st.IP != "10.1.2.3" || st.Port != 7001 || st.State != SyncOnline {
		t.Errorf("status %+v", st)
	}
	if l.Full.Load() != 1 || l.PartialErr.Load() != 0 {
		t.Errorf("counted %d, %d", l.Full.Load(), l.PartialErr.Load())
	}
}

// A node of this program gets rows, as long as it is a replica and the end is marked.
func TestFullSyncRows(t *testing.T) {
	l := newLab(t, nil)
	for _, h := range []Hello{
		{EOF: true, Rows: true, ReplID: []byte("?")},
		{Rows: true, ReplID: []byte("?")},
		{EOF: true, Rows: true, RDBOnly: true, ReplID: []byte("?")},
	} {
		c := l.join(h)
		c.line()
		if !h.EOF {
			if n, err := strconv.Atoi(strings.TrimPrefix(c.line(), "$")); err != nil || keysOf(t, c.bytes(n)) != 1 {
				t.Errorf("%+v: no RDB", h)
			}
			continue
		}
		data := c.markedRDB()
		if rows := string(data) == "rows"; rows == h.RDBOnly {
			t.Errorf("%+v: %.20q was sent", h, data)
		}
		c.conn.Close()
		c.closed()
	}
}

func TestFullSyncCounted(t *testing.T) {
	l := newLab(t, nil)
	l.data.size = 200_000
	l.write(500)
	c := l.join(Hello{Old: true})
	n, err := strconv.Atoi(strings.TrimPrefix(c.line(), "$"))
	if err != nil {
		t.Fatal(err)
	}
	if keys := keysOf(t, c.bytes(n)); keys != 200 {
		t.Fatalf("%d keys", keys)
	}
	more := l.write(100)
	if got := c.bytes(len(selectZero) + len(more)); string(got) != selectZero+string(more) {
		t.Fatalf("the stream begins with %.40q", got)
	}
	// It never acknowledges, and is not closed for that.
	l.tick(time.Now().Add(time.Hour))
	more = l.write(10)
	if got := c.bytes(len(more)); !bytes.Equal(got, more) {
		t.Fatal("the stream ended")
	}
}

func TestFullSyncOnly(t *testing.T) {
	l := newLab(t, nil)
	for _, h := range []Hello{
		{Old: true, EOF: true, RDBOnly: true},
		{Old: true, EOF: true, RDBOnly: true, NoData: true},
	} {
		c := l.join(h)
		want := 1
		if h.NoData {
			want = 0
		}
		if n := keysOf(t, c.markedRDB()); n != want {
			t.Errorf("%+v: %d keys, want %d", h, n, want)
		}
		if b, err := io.ReadAll(c.rd); len(b) > 0 || err != nil {
			t.Errorf("%+v: %q, %v behind the data set", h, b, err)
		}
		c.conn.Close()
		c.closed()
	}
	if l.log.End() != 0 {
		t.Errorf("%d bytes in the log for replicas that want no stream", l.log.End())
	}
}

// TestRefused covers what makes a partial resync a full one.
func TestRefused(t *testing.T) {
	l := newLab(t, nil)
	l.write(500)
	for i, h := range []Hello{
		{EOF: true, ReplID: []byte(strings.Repeat("b", 40)), Next: 10},
		{EOF: true, ReplID: []byte(ownID), Next: 5000},
	} {
		c := l.join(h)
		if got := c.line(); !strings.HasPrefix(got, "+FULLRESYNC ") {
			t.Errorf("%+v: %q", h, got)
		}
		if n := l.PartialErr.Load(); n != int64(i+1) {
			t.Errorf("%+v: %d counted", h, n)
		}
		l.DisconnectAll("next")
		c.closed()
	}
}

func TestForkIsTold(t *testing.T) {
	l := newLab(t, nil)
	l.write(500)
	h := l.log.History()
	h.ID2, h.Offset2, h.ID, h.Counter = h.ID, 501, [40]byte([]byte(strings.Repeat("b", 40))), 2
	if err := l.log.SetHistory(h); err != nil {
		t.Fatal(err)
	}
	c := l.join(Hello{Fork: true, ReplID: []byte(ownID), Next: 700})
	if got := c.line(); got != "+FORK "+string(h.ID[:])+" 500" {
		t.Fatalf("got %q", got)
	}
	c.conn.Close()
	c.closed()
	c = l.join(Hello{PSYNC2: true, ReplID: []byte(ownID), Next: 501})
	if got := c.line(); got != "+CONTINUE "+string(h.ID[:]) {
		t.Fatalf("got %q", got)
	}
}

// TestTurns has more replicas ask for the data set than are served at a time: all are told that they are not forgotten.
func TestTurns(t *testing.T) {
	l := newLab(t, nil)
	l.data.hold = make(chan struct{})
	var all []*hand
	for range syncsMost + 2 {
		all = append(all, l.join(Hello{EOF: true, ReplID: []byte("?")}))
	}
	for _, c := range all {
		if b, err := c.rd.ReadByte(); err != nil || b != '\n' {
			t.Fatalf("%q, %v while waiting", b, err)
		}
		if st := c.r.State(); st != SyncWaiting {
			t.Errorf("state %v", st)
		}
	}
	// One gives up while it waits.
	all[len(all)-1].conn.Close()
	all[len(all)-1].closedSoon(l)
	close(l.data.hold)
	for _, c := range all[:len(all)-1] {
		if got := c.line(); !strings.HasPrefix(got, "+FULLRESYNC ") {
			t.Fatalf("got %q", got)
		}
		keysOf(t, c.markedRDB())
	}
}

// TestHangingReplicasKeepNoTurn: who takes nothing loses a turn that another one waits for, and no sooner.
func TestHangingReplicasKeepNoTurn(t *testing.T) {
	l := newLab(t, nil)
	l.data.size = 20_000_000 // more than sockets hold
	var hanging []*hand
	for range syncsMost {
		c := l.join(Hello{EOF: true, ReplID: []byte("?")})
		if err := c.conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
			t.Fatal(err)
		}
		if got := c.line(); !strings.HasPrefix(got, "+FULLRESYNC ") {
			t.Fatalf("got %q", got)
		}
		hanging = append(hanging, c)
	}
	late := func() time.Time { return time.Now().Add(turnPatience) }
	for _, c := range hanging {
		testkit.Eventually(t, handPatience, func() bool { return c.r.pace.waited(late()) >= turnPatience }, "it does not hang")
	}
	l.tick(late())
	if n := l.Len(); n != syncsMost {
		t.Fatalf("%d links while nobody waited", n)
	}
	next := l.join(Hello{EOF: true, ReplID: []byte("?")})
	testkit.Eventually(t, handPatience, func() bool {
		l.tick(late())
		return next.r.State() == SyncSending
	}, "the one that waits has a turn")
	testkit.Eventually(t, handPatience, func() bool { return l.heardOf("others wait for a full sync") }, "one of the others is closed")
	testkit.Eventually(t, handPatience, func() bool { return l.Len() == syncsMost }, "no other one is closed")
	next.line()
	if keys := keysOf(t, next.markedRDB()); keys != 20_000 {
		t.Errorf("%d keys", keys)
	}
}

// TestPace: only the time counts in which a piece was waited for, and a piece that is taken is forgotten.
func TestPace(t *testing.T) {
	var p pace
	at := time.Unix(0, 0)
	after := func(d time.Duration) time.Time { at = at.Add(d); return at }
	p.begin(after(0))
	if got := p.waited(after(2 * time.Second)); got != 2*time.Second {
		t.Errorf("%v", got)
	}
	p.end(after(time.Second), turnBytes/2)
	p.begin(after(time.Hour)) // of other work
	p.end(after(time.Second), turnBytes/2-1)
	if got := p.waited(after(time.Hour)); got != 4*time.Second {
		t.Errorf("%v", got)
	}
	p.begin(after(0))
	p.end(after(time.Second), 1)
	if got := p.waited(after(0)); got != 0 {
		t.Errorf("%v of a piece that was taken", got)
	}
}

func (c *hand) closedSoon(l *lab) {
	c.t.Helper()
	testkit.Eventually(c.t, 10*time.Second, func() bool {
		select {
		case <-c.r.gone:
			return true
		default:
			return false
		}
	}, "the link is given up")
}

func TestSilenceEndsTheLink(t *testing.T) {
	l := newLab(t, nil)
	c := l.join(Hello{ReplID: []byte(ownID), Next: 1})
	c.line()
	// Online a moment after its line was sent, and silence counts from then on only.
	testkit.Eventually(t, handPatience, func() bool { return c.r.State() == SyncOnline }, "online")
	l.tick(time.Now().Add(19 * time.Second))
	if l.Len() != 1 {
		t.Fatal("the link ended before repl-timeout")
	}
	l.tick(time.Now().Add(21 * time.Second))
	c.closed()
	if !l.heardOf("no acknowledgement for 2") {
		t.Errorf("the log says %q", l.said)
	}
}

// TestStrayCommands: a replica's connection takes acknowledgements and nothing else, and is never answered.
func TestStrayCommands(t *testing.T) {
	l := newLab(t, nil)
	c := l.join(Hello{ReplID: []byte(ownID), Next: 1})
	c.line()
	c.send("\r\n\nREPLCONF ACK x\r\nREPLCONF getack *\r\nPSYNC ? -1\r\nSYNC\r\n")
	c.ack(0)
	more := l.write(10)
	if got := c.bytes(10); !bytes.Equal(got, more) {
		t.Fatalf("got %q", got)
	}
	c.send("PING\r\n")
	c.closed()
	if !l.heardOf("generated a reply to command 'PING'") {
		t.Errorf("the log says %q", l.said)
	}
	c = l.join(Hello{ReplID: []byte(ownID), Next: 1})
	c.line()
	c.send("*2\r\n$1000000\r\n")
	c.closed()
}

func TestDisconnectAll(t *testing.T) {
	l := newLab(t, nil)
	l.data.hold = make(chan struct{})
	a := l.join(Hello{ReplID: []byte(ownID), Next: 1})
	a.line()
	b := l.join(Hello{EOF: true, ReplID: []byte("?")})
	l.DisconnectAll("the history changed")
	a.closed()
	close(l.data.hold)
	b.closed()
	if n := l.Len(); n != 0 {
		t.Errorf("%d replicas left", n)
	}
}

func TestPingAndGetack(t *testing.T) {
	l := newLab(t, nil)
	for range 20 {
		l.tick(time.Now())
	}
	if l.log.End() != 0 {
		t.Fatal("pinged without replicas")
	}
	c := l.join(Hello{ReplID: []byte(ownID), Next: 1})
	c.line()
	for range 10 {
		l.tick(time.Now())
	}
	const ping = "*1\r\n$4\r\nping\r\n"
	if got := c.bytes(len(ping)); string(got) != ping {
		t.Fatalf("got %q", got)
	}
	end := l.log.End()
	l.AskAcks(end)
	l.AskAcks(end) // asked already
	const getack = "*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n"
	if got := c.bytes(len(getack)); string(got) != getack {
		t.Fatalf("got %q", got)
	}
	if got := l.log.End(); got != end+getackLen {
		t.Errorf("log ends at %d, want %d", got, end+getackLen)
	}
	l.mu.Lock()
	l.notNow = true
	l.mu.Unlock()
	for range 20 {
		l.tick(time.Now())
	}
	l.AskAcks(l.log.End())
	if got := l.log.End(); got != end+getackLen {
		t.Error("something was appended while nothing may be")
	}
}

// TestGood counts replicas for min-replicas-to-write.
func TestGood(t *testing.T) {
	l := newLab(t, nil)
	if l.Good() != 0 {
		t.Error("good without replicas")
	}
	changed := l.Changed()
	c := l.join(Hello{ReplID: []byte(ownID), Next: 1})
	c.line()
	<-changed
	testkit.Eventually(t, 10*time.Second, func() bool { return l.Good() == 1 }, "good")
	c.r.heard.Store(time.Now().Add(-11 * time.Second).UnixMilli())
	l.tick(time.Now())
	if l.Good() != 0 {
		t.Error("good without an acknowledgement for 11 s")
	}
}

// TestPinHoldsTheLog: what a replica in a full sync will want is not trimmed, and is when it has caught up.
func TestPinHoldsTheLog(t *testing.T) {
	l := newLab(t, func(o *wal.Options) { o.SegmentBytes, o.KeepBytes = 16<<10, 1 })
	trim := func() {
		t.Helper()
		if err := l.log.SyncAll(); err != nil {
			t.Fatal(err)
		}
		if err := l.log.Trim(l.log.End()); err != nil {
			t.Fatal(err)
		}
	}
	c := l.join(Hello{EOF: true, ReplID: []byte("?")})
	c.line()
	c.markedRDB()
	var sent []byte
	for range 40 {
		sent = append(sent, l.write(10_000)...)
		trim()
	}
	c.ack(0)
	if got := c.bytes(len(selectZero) + len(sent)); !bytes.Equal(got[len(selectZero):], sent) {
		t.Fatal("the stream is not what was appended meanwhile")
	}
	l.tick(time.Now())
	c.ack(l.log.End())
	testkit.Eventually(t, 10*time.Second, func() bool { return l.Acked(l.log.End()) == 1 }, "acknowledged")
	l.tick(time.Now())
	if st := l.log.Stats(); st.Pins != 0 {
		t.Fatalf("%d pins after it caught up", st.Pins)
	}
	trim()
	if first := l.log.First(); first == 0 {
		t.Error("the log was not trimmed")
	}
}

// TestLostPin: what was promised is gone, so the link ends, and says why.
func TestLostPin(t *testing.T) {
	l := newLab(t, nil)
	c := l.join(Hello{EOF: true, ReplID: []byte("?")})
	c.line()
	c.markedRDB()
	l.log.EndPins()
	l.tick(time.Now())
	c.closed()
	if !l.heardOf("repl-pin-limit") {
		t.Errorf("the log says %q", l.said)
	}
}

// TestSlowReplicaHoldsNothing: nothing waits for a replica that does not read, and it finds the log where it left it.
func TestSlowReplicaHoldsNothing(t *testing.T) {
	l := newLab(t, func(o *wal.Options) { o.KeepBytes = 1 << 30 })
	c := l.join(Hello{ReplID: []byte(ownID), Next: 1})
	c.line()
	// More than both ends' buffers of a connection take.
	const size = 32 << 20
	for range size >> 20 {
		l.write(1 << 20)
	}
	if sent := c.r.sent.Load(); sent >= size {
		t.Fatalf("%d bytes were sent to a replica that reads nothing", sent)
	}
	want := make([]byte, 1<<20)
	for i := range want {
		want[i] = byte(i)
	}
	for at := 0; at < size; at += len(want) {
		if !bytes.Equal(c.bytes(len(want)), want) {
			t.Fatalf("the stream is not the log somewhere behind offset %d", at)
		}
	}
}

// TestAlwaysFeedsSyncedBytes: with appendfsync always a replica never has what this node could lose.
func TestAlwaysFeedsSyncedBytes(t *testing.T) {
	l := newLab(t, func(o *wal.Options) { o.Policy, o.ManualTick = wal.Always, true })
	c := l.join(Hello{ReplID: []byte(ownID), Next: 1})
	c.line()
	end := l.log.Append([]byte("0123456789"))
	if err := l.log.Wait(end, wal.LevelKernel); err != nil {
		t.Fatal(err)
	}
	if sent := c.r.sent.Load(); sent != 0 {
		t.Fatalf("%d bytes were sent before they were synced", sent)
	}
	if err := l.log.Wait(end, wal.LevelSynced); err != nil {
		t.Fatal(err)
	}
	c.bytes(10)
}

func TestCounterRefusesMore(t *testing.T) {
	c := counter{w: io.Discard, limit: 5}
	if _, err := c.Write([]byte("12345")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("6")); err == nil {
		t.Error("a sixth byte was taken")
	}
	if got := fmt.Sprint(c.n); got != "5" {
		t.Errorf("counted %s", got)
	}
}

// TestSourceThatFails: the link ends with the reason, after a moment, so that a replica that comes back at once does not
// have a snapshot taken many times a second.
func TestSourceThatFails(t *testing.T) {
	l := newLab(t, nil)
	l.data.fail = true
	for _, h := range []Hello{{EOF: true, ReplID: []byte("?")}, {Old: true}} {
		began := time.Now()
		c := l.join(h)
		if _, err := io.Copy(io.Discard, c.rd); err != nil {
			t.Errorf("%+v: %v", h, err)
		}
		c.closed()
		if took := time.Since(began); took < restTime {
			t.Errorf("%+v: the link ended after %v", h, took)
		}
	}
	if !l.heardOf("the key has no form") {
		t.Errorf("the log says %q", l.said)
	}
}
