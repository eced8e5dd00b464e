package cluster

import (
	"fmt"
)

// A node's data: an offset that grows, keys in a few slots, a history that a replica must share to go on from where it is.
// And the queue in which the machine's orders to the data are carried out, one after the other.

// simRoute is what clients were last told they may do.
type simRoute struct {
	ok, primary bool
	owns        [simHot]bool
}

// simHot is how many slots get keys.
const simHot = 16

func simHotSlot(i int) uint16 { return uint16(i * 1024) }

type simQueue struct {
	tasks []simOrder
	busy  bool
	route simRoute
}

type simOrder struct {
	after  uint64
	effect Effect
	route  simRoute
}

func (q *simQueue) add(after uint64, e Effect, r simRoute) {
	q.tasks = append(q.tasks, simOrder{after, e, r})
}

func (n *simNode) routeNow() (r simRoute) {
	r.ok, r.primary = n.m.state.ok, n.m.me.primary()
	for i := range r.owns {
		r.owns[i] = n.m.owner(simHotSlot(i)) == n.m.me
	}
	return r
}

// pump carries out what may be carried out.
func (n *simNode) pump() {
	q := &n.queue
	for !q.busy && len(q.tasks) > 0 && q.tasks[0].after <= n.saved {
		if _, ok := q.tasks[0].effect.(Route); ok {
			q.route = q.tasks[0].route
			q.tasks = q.tasks[1:]
			continue
		}
		q.busy = true
		n.w.events.push(simEvent{at: n.w.now + 1 + n.w.disk.Int64N(30), kind: simTask, node: n.at, life: n.life})
		if _, ok := q.tasks[0].effect.(Pause); ok && n.w.bug == bugPauseTold {
			n.feed(n.m.Paused)
		}
	}
}

// didTask ends the task that the queue is at.
func (n *simNode) didTask() {
	q, d := &n.queue, &n.data
	effect := q.tasks[0].effect
	q.tasks, q.busy = q.tasks[1:], false
	n.w.mark(simTask, n, uint64(len(q.tasks)))
	switch e := effect.(type) {
	case Follow:
		d.follow(n, e)
	case Unfollow:
		d.target, d.up, d.since = "", false, n.clock()
	case Promote:
		d.promote(n)
	case Pause:
		d.pauseUntil = e.Until
		if n.w.bug != bugPauseTold {
			n.pausedAt = d.offset
			n.feed(n.m.Paused)
		}
	case Resume:
		d.pauseUntil, n.pausedAt = 0, -1
	case DropSlots:
		for i := range d.keys {
			for _, s := range e.Slots {
				if s == simHotSlot(i) && !q.route.owns[i] && !n.owns(i) {
					n.w.checkDrop(n, i)
					d.keys[i] = 0
				}
			}
		}
	case Flush:
		d.keys = [simHot]int64{}
		d.offset, d.history = 0, n.w.newHistory(simHistory{}, 0)
	}
	n.pump()
}

// simHistory is a line of data: it went on from another one at an offset.
type simHistory struct {
	id, from int
	fork     int64
}

func (w *simWorld) newHistory(from simHistory, fork int64) simHistory {
	w.histories++
	return simHistory{w.histories, from.id, fork}
}

type simData struct {
	n          *simNode
	offset     int64
	keys       [simHot]int64
	history    simHistory
	primary    bool
	target     string // whom it follows: address
	targetID   string
	up         bool
	since      int64
	syncing    int64 // when a full synchronization ends; 0: none
	incomplete bool
	pauseUntil int64
}

// Offset and the others are what the machine asks.
func (d *simData) Offset() int64 {
	if d.n.w.bug == bugOffsetAhead && !d.primary {
		if p := d.source(); p != nil {
			return p.data.offset // received, as if executed
		}
	}
	return d.offset
}

func (d *simData) PrimaryLink() (bool, int64) {
	if d.incomplete {
		return false, 0
	}
	return d.up, d.since
}

func (d *simData) Keys() (sum int64) {
	for _, k := range d.keys {
		sum += k
	}
	return sum
}

func (d *simData) SlotKeys(s uint16) int64 {
	if s%1024 != 0 {
		return 0
	}
	return d.keys[s/1024]
}

func (d *simData) crash(n *simNode) {
	d.offset -= n.w.disk.Int64N(min(d.offset, 50) + 1) // what was not on disk yet
	if d.primary {
		d.history = n.w.newHistory(d.history, d.offset) // replicas may have what was lost: the line ends here
	}
	if d.syncing != 0 {
		d.incomplete = true
	}
}

func (d *simData) restart(n *simNode) {
	d.up, d.since, d.syncing, d.target, d.pauseUntil = false, 0, 0, "", 0
	d.primary = n.m.me.primary()
}

func (d *simData) follow(n *simNode, e Follow) {
	d.primary, d.target, d.targetID, d.syncing = false, fmt.Sprintf("%s:%d", e.IP, e.Port), e.ID.String(), 0
	if d.up {
		d.up, d.since = false, n.clock()
	}
}

func (d *simData) promote(n *simNode) {
	d.syncing, d.incomplete = 0, false // what a primary has is all there is
	d.primary, d.target, d.up = true, "", false
	d.history = n.w.newHistory(d.history, d.offset)
}

// tick replicates, or writes.
func (d *simData) tick(n *simNode) {
	if d.primary {
		d.write(n)
		return
	}
	if d.target == "" {
		return
	}
	was := d.up
	d.replicate(n)
	if at := n.m.Awaited(); d.up != was || at >= 0 && d.offset >= at {
		n.feed(n.m.Synced)
	}
}

// source is the node that this one's data comes from, if there is a way to it.
func (d *simData) source() *simNode {
	w := d.n.w
	at, ok := w.client[d.target]
	if !ok {
		return nil
	}
	p := w.nodes[at]
	if !p.up() || p == d.n || w.cut(p.at, d.n.at) || w.cut(d.n.at, p.at) {
		return nil
	}
	return p
}

func (d *simData) replicate(n *simNode) {
	w := n.w
	p := d.source()
	if p == nil || p.data.incomplete || !p.data.primary && !p.data.up {
		if d.up {
			d.up, d.since = false, n.clock()
		}
		if d.syncing != 0 {
			d.syncing, d.incomplete = 0, true
		}
		return
	}
	o := &p.data
	whole := false
	switch {
	case d.syncing != 0:
		if w.now < d.syncing {
			return
		}
		d.syncing, d.incomplete, whole = 0, false, true
	case d.incomplete, !d.history.leadsTo(o.history, d.offset, o.offset):
		d.up, d.incomplete = false, true
		d.syncing = w.now + 100 + w.load.Int64N(2000)
		w.counts.fulls++
		return
	case w.load.IntN(4) == 0:
		return // behind
	}
	d.offset, d.keys, d.history = o.offset, o.keys, o.history
	d.up, d.since = true, n.clock()
	n.followMarks(p, whole)
}

// leadsTo says that one who is at an offset of this line can go on with the other one.
func (h simHistory) leadsTo(o simHistory, mine, its int64) bool {
	return h.id == o.id && mine <= its || h.id == o.from && mine <= o.fork
}

// write is what clients do to a primary.
func (d *simData) write(n *simNode) {
	w, r := n.w, &n.queue.route
	serves := r.ok || w.bug == bugMinorityServes && !n.m.state.ok
	if !serves || !r.primary || d.pauseUntil != 0 && n.clock() < d.pauseUntil {
		return
	}
	wrote := false
	for i, owns := range r.owns {
		if owns && w.load.IntN(3) == 0 {
			w.checkServes(n, i)
			if n.m.slots.migrating[simHotSlot(i)] != nil {
				continue // a new key is asked for at the target
			}
			d.keys[i] += 1 + w.load.Int64N(5)
			d.offset += 1 + w.load.Int64N(100)
			wrote = true
			w.checkWriter(n, i)
		}
	}
	if wrote {
		w.checkWrite(n)
	}
}
