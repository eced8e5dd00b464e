package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"cairn/cluster/nodesconf"
	"cairn/cluster/wire"
)

// A node of the simulation: a machine and what the driver of package bus does around it.

type simNode struct {
	w    *simWorld
	at   int32
	name string
	ip   string
	port int
	m    *Machine // nil: the process does not run
	life int32
	cfg  Config

	clockOff int64
	drift    int64 // parts in a thousand

	dark    bool // the whole machine is off: no word comes back
	stopped bool // the process stands still
	parked  []simEvent
	never   bool // gone for good
	old     bool // speaks no extensions
	mad     bool

	conns  map[LinkID]*simConn
	lastIn LinkID
	saved  uint64
	held   []Send
	queue  simQueue
	disk   simDisk
	data   simData

	startedAt  int64
	promotedAt int64
	byHand     bool
	outAt      int64 // when a cut ended in which it was in a minority, and had closed
	outLife    int32 // its life then
	disturbed  int64 // when its clock or process was last tampered with
	ids        []wire.ID
	words      map[uint16]CmdSetSlot // what the log says of slots on their way
	seen       map[*Peer]uint64
	lastEpochs [2]uint64
	hotOwner   []simOwner
	pausedAt   int64 // offset at which a manual failover's pause came in force; -1: none
}

// simDisk is where the state goes.
type simDisk struct {
	state    *State
	durable  simDurable
	saving   *Save
	waiting  *Save
	slow     int64 // by how long at most saves are held up, ms
	failNext bool
}

// simDurable is what of the durable state is compared with messages.
type simDurable struct {
	current, vote, epoch uint64
	primary              bool
}

func simDurableOf(s *State) simDurable {
	me := s.Myself()
	return simDurable{s.CurrentEpoch, s.LastVoteEpoch, me.Epoch, me.Flags&nodesconf.Primary != 0}
}

func (n *simNode) busPort() int { return n.port + 10000 }

func (n *simNode) clock() int64 {
	return simEpoch + n.clockOff + n.w.now + n.w.now*n.drift/1000
}

const simEpoch = 1_700_000_000_000

func (n *simNode) up() bool { return n.m != nil && !n.stopped }

// start begins a life of the process with what is on disk.
func (n *simNode) start() {
	w := n.w
	n.life++
	n.saved, n.held, n.lastIn = 0, nil, 0
	n.queue = simQueue{route: simRoute{}}
	n.conns = map[LinkID]*simConn{}
	n.seen = map[*Peer]uint64{}
	n.hotOwner = nil
	n.parked, n.dark, n.stopped = nil, false, false
	n.pausedAt = -1
	n.disk.saving, n.disk.waiting = nil, nil
	n.startedAt = w.now
	state := n.disk.state
	if !w.big {
		parsed, err := nodesconf.Parse(state.Append(nil))
		if err != nil {
			w.fail("restart", "node %s: its state cannot be read: %v", n.name, err)
			return
		}
		state = parsed
	}
	if w.bug == bugVoteForgotten {
		forgetful := *state
		forgetful.LastVoteEpoch = 0
		state = &forgetful
	}
	chance := rand.New(rand.NewPCG(w.plan.seed, uint64(1000+int(n.at))<<20|uint64(n.life)))
	m, err := New(n.cfg, &n.data, chance.Uint64, state, n.clock())
	if err != nil {
		w.fail("restart", "node %s does not start: %v", n.name, err)
		return
	}
	n.m = m
	n.disk.durable = simDurableOf(n.disk.state)
	n.lastEpochs = [2]uint64{m.currentEpoch, m.lastVoteEpoch}
	w.checkRestart(n)
	n.data.restart(n)
	n.recall()
	if w.stale != nil {
		w.stale.restarted(n)
	}
	w.events.push(simEvent{at: w.now + 1 + w.net.Int64N(100), kind: simTick, node: n.at, life: n.life})
}

// crash ends the process. What was being saved is on disk or not. With dark, the machine is off, too.
func (n *simNode) crash(dark bool) {
	w := n.w
	if n.m == nil {
		return
	}
	w.note(n, "crashes (power %v)", dark)
	w.counts.crashes++
	if n.disk.saving != nil && w.disk.IntN(2) == 0 {
		n.disk.state = n.disk.saving.State
	}
	conns := n.sortedConns()
	n.m, n.dark, n.stopped, n.parked = nil, dark, false, nil
	n.data.crash(n)
	if dark {
		clear(n.words) // the end of the log goes with the power
	}
	for _, c := range conns {
		side := uint8(0)
		if c.node[1] == n.at && c.life[1] == n.life && c.link[1] != 0 && n.conns[c.link[1]] == c {
			side = 1
		}
		c.gone[side] = true
		if !dark && c.node[1-side] >= 0 && (c.open || side == 1) {
			w.throw(c, side, simClosed, nil)
		}
		if c.node[1-side] >= 0 {
			w.probe(c, 1-side)
		}
	}
	n.conns = nil
}

func (n *simNode) sortedConns() []*simConn {
	ids := make([]LinkID, 0, len(n.conns))
	for id := range n.conns {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	conns := make([]*simConn, len(ids))
	for i, id := range ids {
		conns[i] = n.conns[id]
	}
	return conns
}

// feed makes one call of the machine and does what follows from it.
func (n *simNode) feed(call func(now int64) []Effect) {
	before := n.w.before(n)
	effects := call(n.clock())
	n.w.after(n, &before, effects)
	n.carryOut(effects)
}

func (n *simNode) tick() {
	w := n.w
	before := w.before(n)
	effects := n.m.Tick(n.clock())
	w.mischiefTick(n)
	w.after(n, &before, effects)
	n.carryOut(effects)
	n.data.tick(n)
	w.inspect(n)
}

func (n *simNode) hear(c *simConn, side uint8, msg *wire.Message) {
	w := n.w
	w.counts.messages++
	w.mark(simMessage, n, uint64(msg.Type)<<56^msg.CurrentEpoch<<40^msg.ConfigEpoch<<20^uint64(msg.Offset)^uint64(c.link[side])<<8)
	before := w.before(n)
	msg = w.mischiefBefore(n, msg)
	effects := n.m.Step(n.clock(), c.link[side], msg)
	effects = w.mischiefAfter(n, &before, msg, effects)
	w.after(n, &before, effects)
	w.checkHeard(n, c.link[side], msg)
	if w.stale != nil {
		w.inspectOwners(n)
	}
	n.carryOut(effects)
}

func (n *simNode) command(c Cmd) Answer {
	w := n.w
	w.counts.commands++
	var a Answer
	n.feed(func(now int64) (effects []Effect) {
		a, effects = n.m.Command(now, c)
		return effects
	})
	if a.Err != nil {
		w.counts.refused++
	}
	if w.log != nil {
		w.note(n, "command %T%+.300v: %v", c, simShort(c), a.Err)
	}
	return a
}

// simShort is a command without its bitmaps.
func simShort(c Cmd) string {
	switch c.(type) {
	case CmdAddSlots, CmdDelSlots:
		return ""
	}
	return fmt.Sprintf("%+v", c)
}

func (n *simNode) carryOut(effects []Effect) {
	w := n.w
	for _, e := range effects {
		switch e := e.(type) {
		case Send:
			if e.After > n.saved && !(w.bug == bugVoteUnsaved && e.Msg.Type == wire.AuthAck) {
				n.held = append(n.held, e)
				continue
			}
			n.send(e)
		case Connect:
			w.dial(n, e)
		case Disconnect:
			w.hangUp(n, e.Link)
		case Save:
			n.disk.waiting = &e
			n.write()
		case Note:
			if w.log != nil {
				w.note(n, "%s", e.Text)
			}
		case Deliver:
		case Route:
			n.queue.add(e.After, e, n.routeNow())
		case Follow:
			n.queue.add(e.After, e, simRoute{})
		case Promote:
			n.queue.add(e.After, e, simRoute{})
		case DropSlots:
			n.queue.add(e.After, e, simRoute{})
		case Flush:
			n.queue.add(e.After, e, simRoute{})
		default:
			n.queue.add(0, e, simRoute{})
		}
	}
	n.pump()
}

func (n *simNode) send(e Send) {
	c := n.conns[e.Link]
	if c == nil {
		return
	}
	side := uint8(0)
	if e.Link%2 == 0 {
		side = 1
	}
	n.w.checkSent(n, c, side, e.Msg)
	if n.w.stale != nil {
		n.w.stale.saw(n, e.Msg)
	}
	n.w.throw(c, side, simMessage, n.w.outgoing(n, c, side, e.Msg))
}

// write begins the save that waits, if none is under way.
func (n *simNode) write() {
	d := &n.disk
	if d.saving != nil || d.waiting == nil {
		return
	}
	d.saving, d.waiting = d.waiting, nil
	ms := 1 + n.w.disk.Int64N(20)
	if d.slow > 0 {
		ms += n.w.disk.Int64N(d.slow)
	}
	n.w.events.push(simEvent{at: n.w.now + ms, kind: simSaved, node: n.at, life: n.life})
}

// wrote ends a save.
func (n *simNode) wrote() {
	w, d := n.w, &n.disk
	if d.failNext {
		d.failNext = false
		w.counts.ioErrors++
		n.crash(false) // what cannot be saved must not be said
		return
	}
	save := d.saving
	d.saving = nil
	d.state = save.State
	d.durable = simDurableOf(save.State)
	n.saved = max(n.saved, save.Seq)
	held := n.held
	n.held = nil
	for _, s := range held {
		if s.After > n.saved {
			n.held = append(n.held, s)
			continue
		}
		n.send(s)
	}
	w.mark(simSaved, n, save.Seq)
	n.feed(func(now int64) []Effect { return n.m.Persisted(now, save.Seq) })
	n.write()
}
