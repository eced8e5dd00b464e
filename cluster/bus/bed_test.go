package bus

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cairn/cluster"
	"cairn/cluster/nodesconf"
	"cairn/cluster/wire"
	"cairn/internal/slot"
	"cairn/internal/testkit"
)

// recorder is a Node, and its data, that keeps what it is told.
type recorder struct {
	mu        sync.Mutex
	calls     []string
	notes     []string
	delivered []string
	view      *cluster.View
	hold      chan struct{} // if set, Follow waits for its end
	offset    atomic.Int64
}

func (r *recorder) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *recorder) Route(v *cluster.View) {
	r.mu.Lock()
	r.view = v
	r.mu.Unlock()
	r.add("route")
}

func (r *recorder) Follow(id, ip string, port int) {
	if r.hold != nil {
		<-r.hold
	}
	r.add("follow %s:%d", ip, port)
}
func (r *recorder) Unfollow()                { r.add("unfollow") }
func (r *recorder) Promote()                 { r.add("promote") }
func (r *recorder) Pause(int64)              { r.add("pause") }
func (r *recorder) Resume()                  { r.add("resume") }
func (r *recorder) DropSlots(slots []uint16) { r.add("drop %d", len(slots)) }
func (r *recorder) Flush()                   { r.add("flush") }

func (r *recorder) Deliver(shard bool, channel, payload []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delivered = append(r.delivered, fmt.Sprintf("%v %s %s", shard, channel, payload))
}

func (r *recorder) Note(level cluster.Level, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, text)
}

func (r *recorder) Offset() int64              { return r.offset.Load() }
func (r *recorder) PrimaryLink() (bool, int64) { return false, 0 }
func (r *recorder) Keys() int64                { return 0 }
func (r *recorder) SlotKeys(uint16) int64      { return 0 }

func (r *recorder) has(call string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		if c == call {
			return true
		}
	}
	return false
}

func (r *recorder) got(publication string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.delivered {
		if p == publication {
			return true
		}
	}
	return false
}

// member is a driver under test.
type member struct {
	*Driver
	*recorder
	t    testing.TB
	port int
}

const (
	testTimeout = 3000
	soon        = 30 * time.Second
)

func options(t testing.TB, r *recorder, port int) Options {
	dir := t.TempDir()
	return Options{
		Path: filepath.Join(dir, "nodes.conf"), DataDir: filepath.Join(dir, "data"), Bind: []string{"127.0.0.1"}, Port: port,
		Config: cluster.Config{
			NodeTimeout: testTimeout, MigrationBarrier: 1, ValidityFactor: 10, ReplicaPingPeriod: 10_000, FullCoverage: true,
			ManualTimeout: 5000, BlacklistTTL: 60_000, Port: port - 10000, BusPort: port, LightHeaders: true,
		},
		Data: r, Node: r, Failed: func(err error) { r.add("failed") },
	}
}

// idOf makes an id, and a shard's.
func idOf(port int) string { return fmt.Sprintf("%040d", port) }

func fresh(port int) func() *cluster.State {
	return func() *cluster.State {
		return &cluster.State{Nodes: []nodesconf.Node{{
			ID: idOf(port), ShardID: idOf(port), Port: port - 10000, BusPort: port, Flags: nodesconf.Myself | nodesconf.Primary, Connected: true,
		}}}
	}
}

// start runs a driver that ends with the test. change may be nil.
func start(t testing.TB, change func(o *Options)) *member {
	t.Helper()
	r := &recorder{}
	const tries = 3
	for try := 1; ; try++ {
		port := testkit.FreePort(t) + 10000
		o := options(t, r, port)
		if change != nil {
			change(&o)
		}
		d, err := Load(o, fresh(port))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Start(); err != nil { // somebody else may have taken the port
			if d.Close(); try == tries {
				t.Fatal(err)
			}
			continue
		}
		m := &member{d, r, t, port}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		return m
	}
}

func (m *member) do(c cluster.Cmd) cluster.Answer {
	m.t.Helper()
	a := m.Do(c)
	if a.Err != nil {
		m.t.Fatalf("%T: %v", c, a.Err)
	}
	return a
}

func (m *member) meet(port int) {
	m.t.Helper()
	m.do(cluster.CmdMeet{IP: "127.0.0.1", Port: port - 10000, BusPort: port})
}

func (m *member) addSlots(first, last uint16) {
	m.t.Helper()
	var c cluster.CmdAddSlots
	c.Slots.SetRange(slot.Range{First: first, Last: last})
	m.do(c)
}

// node gives what the member knows of another one.
func (m *member) node(id string) (n cluster.ViewNode, ok bool) {
	v := m.Driver.View()
	for _, n := range v.Nodes {
		if n.ID == id {
			return n, true
		}
	}
	return n, false
}

// knows says whether the members with these ids, and no others, are there and linked.
func (m *member) knows(ids ...string) bool {
	v := m.Driver.View()
	if len(v.Nodes) != len(ids)+1 {
		return false
	}
	for _, id := range ids {
		n, ok := m.node(id)
		if !ok || !n.Connected || n.Flags&nodesconf.Handshake != 0 {
			return false
		}
	}
	return true
}

// text is CLUSTER NODES without what time changes.
func (m *member) text() string {
	v := m.Driver.View()
	var b strings.Builder
	for _, n := range v.Nodes {
		n.PingSent, n.PongAt = 0, 0
		b.Write(n.AppendShown(nil))
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "current epoch %d", v.CurrentEpoch)
	return b.String()
}

func connect(t testing.TB, port int) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// stranger is a message of a node that nobody knows.
func stranger(kind wire.Type) *wire.Message {
	id, _ := wire.ParseID(strings.Repeat("5", wire.IDLen))
	return &wire.Message{
		Type: kind, Sender: id, Slots: &slot.Bitmap{}, Port: 1, BusPort: 1, Flags: wire.FlagPrimary | wire.FlagMyself,
		Update: wire.NodeUpdate{Slots: &slot.Bitmap{}},
	}
}
