package cluster

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"cairn/cluster/nodesconf"
	"cairn/cluster/wire"
	"cairn/internal/slot"
)

// A small world for tests that begins with strangers: machines in one process, links that are asked for, opened, cut and
// lost, saves that succeed at once unless a test holds them. Time moves only by world.run.

// startTime is a plausible Unix time: some rules compare with times of other nodes' clocks.
const startTime = 1_700_000_000_000

const testTimeout = 2000 // cluster-node-timeout of tests

type world struct {
	t     *testing.T
	now   int64
	nodes []*node
	queue []func() // what is to happen, in order
	cut   map[[2]int]bool
	conns map[*node]map[LinkID]end
}

// end is the other end of a link.
type end struct {
	n    *node
	link LinkID
}

type node struct {
	w      *world
	at     int
	m      *Machine
	up     bool
	accept LinkID // last even number
	seed   uint64

	data     nodeData
	held     bool // saves are not carried out
	pending  []Save
	waiting  []Send // after a save
	disk     []byte // text of the last save that is done
	effects  []Effect
	received []*wire.Message // by this node, newest last
}

type nodeData struct {
	offset int64
	keys   map[uint16]int64
	linkUp bool
	since  int64
}

func (d *nodeData) Offset() int64              { return d.offset }
func (d *nodeData) PrimaryLink() (bool, int64) { return d.linkUp, d.since }
func (d *nodeData) SlotKeys(s uint16) int64    { return d.keys[s] }
func (d *nodeData) Keys() (n int64) {
	for _, k := range d.keys {
		n += k
	}
	return n
}

// testID is an id that shows which node it is.
func testID(i int) wire.ID {
	var id wire.ID
	copy(id[:], bytes.Repeat([]byte{'0'}, wire.IDLen))
	copy(id[:], fmt.Sprintf("%c%03d", 'a'+i%26, i))
	return id
}

func testConfig(i int) Config {
	return Config{
		NodeTimeout: testTimeout, MigrationBarrier: 1, ValidityFactor: 10, ReplicaPingPeriod: 10, FullCoverage: true,
		ReplicaMigration: true, ManualTimeout: 5000, BlacklistTTL: 60000,
		Port: 7000 + i, BusPort: 17000 + i,
	}
}

func newWorld(t *testing.T, n int) *world {
	w := &world{t: t, now: startTime, cut: map[[2]int]bool{}, conns: map[*node]map[LinkID]end{}}
	for i := range n {
		w.add(i)
	}
	return w
}

func (w *world) add(i int) *node {
	n := &node{w: w, at: i, seed: uint64(i)*7919 + 1, data: nodeData{keys: map[uint16]int64{}}}
	n.boot(testConfig(i), &State{Nodes: []nodesconf.Node{{
		ID: testID(i).String(), ShardID: testID(i).String(), Flags: nodesconf.Myself | nodesconf.Primary,
	}}})
	w.nodes = append(w.nodes, n)
	return n
}

func (n *node) boot(cfg Config, s *State) {
	m, err := New(cfg, &n.data, n.random, s, n.w.now)
	if err != nil {
		n.w.t.Fatal(err)
	}
	n.m, n.up = m, true
	n.w.conns[n] = map[LinkID]end{}
}

func (n *node) random() uint64 { // splitmix64
	n.seed += 0x9e3779b97f4a7c15
	z := n.seed
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// ip is this node's address.
func (n *node) ip() string { return "10.0.0." + strconv.Itoa(n.at) }

// do carries out a call's effects.
func (n *node) do(effects []Effect) {
	n.effects = append(n.effects, effects...)
	for _, e := range effects {
		switch e := e.(type) {
		case Send:
			if e.After > n.m.saved {
				n.waiting = append(n.waiting, e)
			} else {
				n.transmit(e)
			}
		case Connect:
			n.connect(e)
		case Disconnect:
			n.disconnect(e.Link)
		case Save:
			n.pending = append(n.pending, e)
			if !n.held {
				n.w.queue = append(n.w.queue, n.persist)
			}
		}
	}
}

// persist carries out the saves that were asked for.
func (n *node) persist() {
	if len(n.pending) == 0 || !n.up {
		return
	}
	last := n.pending[len(n.pending)-1]
	n.pending = nil
	n.disk = last.State.Append(nil)
	n.do(n.m.Persisted(n.w.now, last.Seq))
	for len(n.waiting) > 0 && n.waiting[0].After <= n.m.saved {
		s := n.waiting[0]
		n.waiting = n.waiting[1:]
		n.transmit(s)
	}
}

func (n *node) transmit(s Send) {
	to, ok := n.w.conns[n][s.Link]
	if !ok || n.w.cut[[2]int{n.at, to.n.at}] {
		return
	}
	n.w.queue = append(n.w.queue, func() {
		if _, still := n.w.conns[to.n][to.link]; still && to.n.up {
			to.n.received = append(to.n.received, s.Msg)
			to.n.do(to.n.m.Step(n.w.now, to.link, s.Msg))
		}
	})
}

func (n *node) connect(c Connect) {
	var to *node
	for _, other := range n.w.nodes {
		if other.up && other.ip() == c.IP && other.m.cfg.BusPort == c.BusPort && !n.w.cut[[2]int{n.at, other.at}] &&
			!n.w.cut[[2]int{other.at, n.at}] {
			to = other
		}
	}
	n.w.queue = append(n.w.queue, func() {
		if to == nil || !to.up || !n.up {
			n.do(n.m.Closed(n.w.now, c.Link))
			return
		}
		to.accept += 2
		link := to.accept
		n.w.conns[n][c.Link] = end{to, link}
		n.w.conns[to][link] = end{n, c.Link}
		to.do(to.m.Accepted(n.w.now, link, n.ip(), to.ip()))
		n.do(n.m.Connected(n.w.now, c.Link, n.ip()))
	})
}

func (n *node) disconnect(link LinkID) {
	other, ok := n.w.conns[n][link]
	if !ok {
		return
	}
	delete(n.w.conns[n], link)
	delete(n.w.conns[other.n], other.link)
	n.w.queue = append(n.w.queue, func() {
		if other.n.up {
			other.n.do(other.n.m.Closed(n.w.now, other.link))
		}
	})
}

// stop ends a node as a kill does.
func (n *node) stop() {
	n.up = false
	links := make([]LinkID, 0, len(n.w.conns[n]))
	for link := range n.w.conns[n] {
		links = append(links, link)
	}
	slices.Sort(links)
	for _, link := range links {
		n.disconnect(link)
	}
	n.pending, n.waiting = nil, nil
}

// restart starts a node again from its disk.
func (n *node) restart() {
	s, err := nodesconf.Parse(n.disk)
	if err != nil {
		n.w.t.Fatal(err)
	}
	n.boot(testConfig(n.at), s)
}

// rest lets everything happen that needs no time.
func (w *world) rest() {
	for i := 0; len(w.queue) > 0; i++ {
		if i > 1_000_000 {
			w.t.Fatal("the world does not come to rest")
		}
		next := w.queue[0]
		w.queue = w.queue[1:]
		next()
	}
}

// run lets time pass.
func (w *world) run(ms int64) {
	w.rest()
	for end := w.now + ms; w.now < end; {
		w.now += 100
		for _, n := range w.nodes {
			if n.up {
				n.do(n.m.Tick(w.now))
			}
			w.rest()
		}
	}
}

// until lets time pass until something is so, and says how long it took.
func (w *world) until(what string, limit int64, so func() bool) int64 {
	w.t.Helper()
	from := w.now
	for !so() {
		if w.now-from > limit {
			w.t.Fatalf("not within %d ms: %s", limit, what)
		}
		w.run(100)
	}
	return w.now - from
}

// meet has a node meet another one.
func (n *node) meet(other *node) {
	a, effects := n.m.Command(n.w.now, CmdMeet{IP: other.ip(), Port: other.m.cfg.Port, BusPort: other.m.cfg.BusPort})
	if a.Err != nil {
		n.w.t.Fatal(a.Err)
	}
	n.do(effects)
}

// own gives a node slots, as an operator does.
func (n *node) own(first, last int) {
	for s := first; s <= last; s++ {
		n.m.assign(uint16(s), n.m.me)
	}
	n.m.afterSave()
	n.do(n.m.settle(n.w.now))
}

func (n *node) peer(other *node) *Peer { return n.m.byID[other.m.me.ID] }

func (n *node) flags(other *node) wire.Flags {
	if p := n.peer(other); p != nil {
		return p.Flags
	}
	return 0
}

// joined makes a cluster of n primaries that share the slots, and waits until all agree.
func joined(t *testing.T, n int) *world {
	t.Helper()
	w := newWorld(t, n)
	for i, node := range w.nodes {
		node.m.me.Epoch, node.m.currentEpoch = uint64(i+1), uint64(i+1)
		node.own(i*slot.Count/n, (i+1)*slot.Count/n-1)
		if i > 0 {
			w.nodes[0].meet(node)
		}
	}
	w.until("all nodes are ok", 20000, func() bool { return w.all(func(n *node) bool { return n.m.state.ok }) })
	w.until("all know all", 20000, func() bool {
		return w.all(func(x *node) bool { return len(x.m.peers) == n && x.m.handshakes == 0 })
	})
	return w
}

func (w *world) all(so func(*node) bool) bool {
	for _, n := range w.nodes {
		if n.up && !so(n) {
			return false
		}
	}
	return true
}
