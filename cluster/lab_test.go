package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"cairn/cluster/nodesconf"
	"cairn/cluster/wire"
	"cairn/internal/slot"
)

// lab is a few machines with links that work at once, disks that do not fail, and one clock.
type lab struct {
	t     *testing.T
	now   int64
	nodes map[string]*resident // by their letter
	order []string
	queue []passage
	links LinkID           // last even number given out
	deaf  map[string]bool  // nothing reaches it and nothing comes from it
	heard func(d *passage) // told of every message on its way; may be nil
	slow  bool             // disks take their time: saves end when flush says so
}

// resident is one machine and what its driver did.
type resident struct {
	*Machine
	name    string
	data    *labData
	peer    map[LinkID]farEnd // the other ends of its links
	last    *State
	notes   []string
	done    []string // calls of the node's data, in order
	writes  bool     // the driver lets writes in
	slowPau bool     // Pause takes effect later, by hand
	routes  []*View
	toSave  []Save   // asked for, not on disk
	durable uint64   // last save on disk
	held    []Effect // wait for a save
}

type farEnd struct {
	name string
	link LinkID
}

type passage struct {
	from, to string
	link     LinkID
	msg      *wire.Message
	call     func() // instead of a message: what a driver has to tell a machine
}

// labData is a node's data.
type labData struct {
	offset   int64
	up       bool
	since    int64
	keys     int64
	slotKeys map[uint16]int64
}

func (d *labData) Offset() int64              { return d.offset }
func (d *labData) PrimaryLink() (bool, int64) { return d.up, d.since }
func (d *labData) Keys() int64                { return d.keys }
func (d *labData) SlotKeys(s uint16) int64    { return d.slotKeys[s] }

const labTimeout = 2000

func labConfig() Config {
	return Config{
		NodeTimeout: labTimeout, MigrationBarrier: 1, ValidityFactor: 10, ReplicaPingPeriod: 10_000, FullCoverage: true,
		ReplicaMigration: true, ManualTimeout: 5000, BlacklistTTL: 60_000,
	}
}

func nameID(name string) string { return strings.Repeat(name, wire.IDLen) }

func labID(t *testing.T, name string) wire.ID {
	t.Helper()
	id, ok := wire.ParseID(nameID(name))
	if !ok {
		t.Fatalf("%q is no id", nameID(name))
	}
	return id
}

// newLab makes machines that know each other already. A spec is a letter a-f, and for a primary its epoch and slots
// ("a 1 0-5460"), for a replica "d of a".
func newLab(t *testing.T, specs ...string) *lab {
	w := &lab{t: t, now: 1_000_000, nodes: map[string]*resident{}, deaf: map[string]bool{}}
	var file nodesconf.File
	for i, spec := range specs {
		f := strings.Fields(spec)
		w.order = append(w.order, f[0])
		n := nodesconf.Node{
			ID: nameID(f[0]), IP: "10.0.0." + f[0], Port: 7000 + i, BusPort: 17000 + i, Flags: nodesconf.Primary,
			ShardID: nameID(f[0]), Connected: true,
		}
		n.IP = fmt.Sprintf("10.0.0.%d", i+1)
		if f[1] == "of" {
			n.Flags, n.PrimaryID, n.ShardID = nodesconf.Replica, nameID(f[2]), nameID(f[2])
		} else {
			fmt.Sscan(f[1], &n.Epoch)
			for _, r := range f[2:] {
				parsed, err := slot.ParseRange(r)
				if err != nil {
					t.Fatal(err)
				}
				n.Slots = append(n.Slots, parsed)
			}
			file.CurrentEpoch = max(file.CurrentEpoch, n.Epoch)
		}
		file.Nodes = append(file.Nodes, n)
	}
	for i, name := range w.order {
		mine := nodesconf.File{Nodes: slices.Clone(file.Nodes), CurrentEpoch: file.CurrentEpoch}
		mine.Nodes[i].Flags |= nodesconf.Myself
		w.start(name, &mine)
	}
	w.run(4000) // over the wait after a start
	return w
}

// start begins a life of a node.
func (w *lab) start(name string, s *State) {
	w.t.Helper()
	me := s.Myself()
	cfg := labConfig()
	cfg.Port, cfg.BusPort, cfg.IP = me.Port, me.BusPort, me.IP
	n := &resident{
		name: name, data: &labData{offset: 100, up: true, since: w.now}, peer: map[LinkID]farEnd{}, writes: true, last: s,
	}
	if old := w.nodes[name]; old != nil {
		n.data = old.data
	}
	seed := uint64(name[0])
	chance := func() uint64 {
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		return seed
	}
	m, err := New(cfg, n.data, chance, s, w.now)
	if err != nil {
		w.t.Fatalf("node %s: %v", name, err)
	}
	n.Machine = m
	w.nodes[name] = n
}

// at gives the node at an address.
func (w *lab) at(busPort int) *resident {
	for _, name := range w.order {
		if n := w.nodes[name]; n.cfg.BusPort == busPort {
			return n
		}
	}
	return nil
}

// do carries out what a machine decided; what waits for a save when that is on disk.
func (w *lab) do(n *resident, effects []Effect) {
	for _, e := range effects {
		if s, ok := e.(Save); ok {
			n.toSave = append(n.toSave, s)
		} else if waitsFor(e) > n.durable {
			n.held = append(n.held, e)
		} else {
			w.carryOut(n, e)
		}
	}
	if !w.slow {
		w.flush(n)
	}
}

// flush ends all saves that were asked for.
func (w *lab) flush(n *resident) {
	if len(n.toSave) == 0 {
		return
	}
	last := n.toSave[len(n.toSave)-1]
	n.toSave, n.last, n.durable = nil, last.State, last.Seq
	held := n.held
	n.held = nil
	w.do(n, held)
	w.do(n, n.Persisted(w.now, last.Seq))
}

// waitsFor is the save that an effect waits for.
func waitsFor(e Effect) uint64 {
	switch e := e.(type) {
	case Send:
		return e.After
	case Route:
		return e.After
	case Follow:
		return e.After
	case Promote:
		return e.After
	case DropSlots:
		return e.After
	case Flush:
		return e.After
	}
	return 0
}

func (w *lab) carryOut(n *resident, e Effect) {
	switch e := e.(type) {
	case Send:
		if to, ok := n.peer[e.Link]; ok {
			w.queue = append(w.queue, passage{from: n.name, to: to.name, link: to.link, msg: e.Msg})
		}
	case Connect:
		to := w.at(e.BusPort)
		if to == nil || w.deaf[to.name] || w.deaf[n.name] {
			w.later(n, func() []Effect { return n.Closed(w.now, e.Link) })
			return
		}
		w.links += 2
		in := w.links
		n.peer[e.Link], to.peer[in] = farEnd{to.name, in}, farEnd{n.name, e.Link}
		w.later(to, func() []Effect { return to.Accepted(w.now, in, n.cfg.IP, to.cfg.IP) })
		w.later(n, func() []Effect { return n.Connected(w.now, e.Link, n.cfg.IP) })
	case Disconnect:
		if to, ok := n.peer[e.Link]; ok {
			delete(n.peer, e.Link)
			other := w.nodes[to.name]
			delete(other.peer, to.link)
			w.later(other, func() []Effect { return other.Closed(w.now, to.link) })
		}
	case Note:
		n.notes = append(n.notes, e.Text)
	case Pause:
		n.done = append(n.done, "pause")
		if !n.slowPau {
			n.writes = false
			w.later(n, func() []Effect { return n.Paused(w.now) })
		}
	case Resume:
		n.done = append(n.done, "resume")
		n.writes = true
	case Route:
		n.done = append(n.done, "route")
		n.routes = append(n.routes, n.View())
	case Promote:
		n.done = append(n.done, "promote")
	case Flush:
		n.done = append(n.done, "flush")
		n.data.keys = 0
	case Follow:
		n.done = append(n.done, "follow "+e.ID.String()[:1])
	case DropSlots:
		n.done = append(n.done, fmt.Sprintf("drop %d", len(e.Slots)))
	}
}

// later makes a call of a machine after what is under way, if it lives then.
func (w *lab) later(n *resident, call func() []Effect) {
	w.queue = append(w.queue, passage{call: func() {
		if w.nodes[n.name] == n {
			w.do(n, call())
		}
	}})
}

// deliver delivers messages until there are none.
func (w *lab) deliver() {
	for count := 0; len(w.queue) > 0; count++ {
		if count == 100_000 {
			w.t.Fatalf("messages beget messages without end\n%s", w.dump())
		}
		d := w.queue[0]
		w.queue = w.queue[1:]
		if d.call != nil {
			d.call()
			continue
		}
		to := w.nodes[d.to]
		if w.heard != nil {
			w.heard(&d)
		}
		if _, ok := to.peer[d.link]; !ok || w.deaf[d.to] || w.deaf[d.from] {
			continue
		}
		msg := *d.msg // the receiver's own
		w.do(to, to.Step(w.now, d.link, &msg))
	}
}

// run lets time pass, in ticks.
func (w *lab) run(ms int64) {
	for end := w.now + ms; w.now < end; {
		w.now += 100
		for _, name := range w.order {
			n := w.nodes[name]
			if w.deaf[name] {
				continue
			}
			if p := n.me.Primary; p != nil && n.data.up {
				n.data.since = w.now
				if w.deaf[p.ID.String()[:1]] {
					n.data.up = false
				}
			}
			w.do(n, n.Tick(w.now))
		}
		w.deliver()
	}
}

// until lets time pass until something holds.
func (w *lab) until(limit int64, what string, holds func() bool) {
	w.t.Helper()
	for end := w.now + limit; !holds(); {
		if w.now >= end {
			w.t.Fatalf("after %d ms: not %s\n%s", limit, what, w.dump())
		}
		w.run(100)
	}
}

// command runs a command on a node and delivers what comes of it.
func (w *lab) command(name string, c Cmd) Answer {
	w.t.Helper()
	n := w.nodes[name]
	a, effects := n.Command(w.now, c)
	w.do(n, effects)
	w.deliver()
	return a
}

// must runs a command that is to succeed.
func (w *lab) must(name string, c Cmd) Answer {
	w.t.Helper()
	a := w.command(name, c)
	if a.Err != nil {
		w.t.Fatalf("node %s: %T: %v", name, c, a.Err)
	}
	return a
}

// refused runs a command that is to be refused with a text.
func (w *lab) refused(name string, c Cmd, text string) {
	w.t.Helper()
	if a := w.command(name, c); a.Err == nil || a.Err.Error() != text {
		w.t.Fatalf("node %s: %+v: answer %v, want %q", name, c, a.Err, text)
	}
}

// roles is every living node's view of every living node: a letter, in upper case for primaries with their slots.
func (w *lab) roles(on string) string {
	var b strings.Builder
	n := w.nodes[on]
	for _, p := range n.peers {
		letter := p.ID.String()[:1]
		if w.deaf[letter] {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		if p.primary() {
			fmt.Fprintf(&b, "%s:%d", letter, p.Slots)
		} else if p.Primary != nil {
			fmt.Fprintf(&b, "%s>%s", letter, p.Primary.ID.String()[:1])
		} else {
			fmt.Fprintf(&b, "%s>?", letter)
		}
	}
	return b.String()
}

// agree waits until all living nodes see these roles.
func (w *lab) agree(limit int64, want string) {
	w.t.Helper()
	w.until(limit, "agreed on "+want, func() bool {
		for _, name := range w.order {
			if !w.deaf[name] && w.roles(name) != want {
				return false
			}
		}
		return true
	})
}

func (w *lab) dump() string {
	var b strings.Builder
	for _, name := range w.order {
		n := w.nodes[name]
		fmt.Fprintf(&b, "%s (epoch %d, ok %v, deaf %v): %s\n", name, n.currentEpoch, n.state.ok, w.deaf[name], w.roles(name))
		for _, note := range n.notes[max(0, len(n.notes)-12):] {
			fmt.Fprintf(&b, "    %s\n", note)
		}
	}
	return b.String()
}

// noted says whether the node's log has a line that begins so.
func (n *resident) noted(text string) bool {
	return slices.ContainsFunc(n.notes, func(s string) bool { return strings.HasPrefix(s, text) })
}

// sentOf gives the messages of a type among effects.
func sentOf(effects []Effect, kind wire.Type) (out []Send) {
	for _, e := range effects {
		if s, ok := e.(Send); ok && s.Msg.Type == kind {
			out = append(out, s)
		}
	}
	return out
}

// savedIn gives the save among effects, if there is one.
func savedIn(effects []Effect) (s Save) {
	for _, e := range effects {
		if e, ok := e.(Save); ok {
			s = e
		}
	}
	return s
}
