package cluster

import (
	"maps"
	"slices"

	"cairn/cluster/wire"
	"cairn/internal/slot"
)

// What people and their tools ask of the nodes, with and without sense.

func (w *simWorld) nextCommand() {
	if w.calm || w.now > w.faultsEnd() {
		return
	}
	n := w.nodes[w.faults.IntN(len(w.nodes))]
	if n.up() {
		switch w.class {
		case simLoose:
			if w.faults.IntN(2) == 0 {
				w.looseCommand(n)
			} else {
				w.safeCommand(n)
			}
		case simMembers:
			if w.faults.IntN(2) == 0 {
				w.memberCommand(n)
			} else {
				w.safeCommand(n)
			}
		default:
			w.safeCommand(n)
		}
	}
	w.later(500+w.faults.Int64N(8000), w.nextCommand)
}

// anyID is the id of some node.
func (w *simWorld) anyID() string {
	o := w.nodes[w.faults.IntN(len(w.nodes))]
	return o.ids[len(o.ids)-1].String()
}

// pickReplica finds a running replica, from a node on.
func (w *simWorld) pickReplica(n *simNode) *simNode {
	for i := range w.nodes {
		if o := w.nodes[(int(n.at)+i)%len(w.nodes)]; o.up() && o.m.me.replica() {
			return o
		}
	}
	return nil
}

// safeCommand is one that makes no epoch without votes.
func (w *simWorld) safeCommand(n *simNode) {
	r := w.pickReplica(n)
	switch w.faults.IntN(9) {
	case 0, 1, 2:
		if r != nil {
			r.command(CmdFailover{Coordinated})
		}
	case 3:
		if r != nil {
			r.command(CmdFailover{Force})
		}
	case 4:
		if r != nil {
			r.command(CmdReplicate{w.anyID()})
		}
	case 5:
		n.command(CmdReplicate{w.anyID()}) // most often refused
	case 6:
		o := w.nodes[w.faults.IntN(len(w.nodes))]
		n.command(CmdMeet{o.ip, o.port, o.busPort()}) // known already
	case 7:
		n.command(CmdSetConfigEpoch{7})
	case 8:
		n.command(CmdSave{})
	}
}

// looseCommand is one that may give a slot two owners for a while.
func (w *simWorld) looseCommand(n *simNode) {
	switch w.faults.IntN(6) {
	case 0:
		w.takeOver(w.pickReplica(n))
	case 1:
		n.command(CmdBumpEpoch{})
	case 2, 3, 4:
		w.moveSlot(n)
	case 5:
		var b slot.Bitmap
		b.Set(simHotSlot(w.faults.IntN(simHot)))
		n.command(CmdAddSlots{b}) // busy, most often
	}
}

// takeOver has a replica take its primary's place without asking, and sometimes its sister at the same time, so that both
// claim the same slots in the same epoch.
func (w *simWorld) takeOver(r *simNode) {
	if r == nil {
		return
	}
	both := []*simNode{r}
	if w.faults.IntN(2) == 0 {
		for _, o := range w.nodes {
			if o != r && o.up() && o.m.me.replica() && o.m.me.Primary != nil && r.m.me.Primary != nil &&
				o.m.me.Primary.ID == r.m.me.Primary.ID {
				both = append(both, o)
				break
			}
		}
	}
	w.rules.taking = true
	for _, o := range both {
		o.command(CmdFailover{Takeover})
	}
	w.rules.taking = false
}

// moveSlot moves a slot as tools do, and stops in the middle now and then.
func (w *simWorld) moveSlot(to *simNode) {
	s := simHotSlot(w.faults.IntN(simHot))
	var from *simNode
	for _, o := range w.nodes {
		if o.up() && o.m.me.primary() && o.m.owner(s) == o.m.me && o != to {
			from = o
		}
	}
	if from == nil || !to.m.me.primary() {
		return
	}
	fromID, toID := from.m.me.ID.String(), to.m.me.ID.String()
	last, quick := w.faults.IntN(12), w.faults.IntN(2) == 0
	touch := func() { w.rules.operator[s] = w.now }
	touch()
	steps := []func(){
		func() { to.setSlot(CmdSetSlot{s, SlotImporting, fromID}, quick) },
		func() { from.setSlot(CmdSetSlot{s, SlotMigrating, toID}, quick) },
		func() {
			if from.data.primary && to.data.primary {
				to.data.keys[s/1024] += from.data.keys[s/1024]
				from.data.keys[s/1024] = 0
			}
		},
		func() { to.setSlot(CmdSetSlot{s, SlotNode, toID}, quick) },
		func() {
			from.data.keys[s/1024] = 0
			from.setSlot(CmdSetSlot{s, SlotNode, toID}, quick)
		},
	}
	for i, step := range steps {
		if i > last {
			break
		}
		w.later(int64(i)*200+1, func() {
			if to.up() && from.up() {
				touch()
				step()
			}
		})
	}
}

// memberCommand changes who belongs to the cluster.
func (w *simWorld) memberCommand(n *simNode) {
	switch w.faults.IntN(4) {
	case 0:
		n.command(CmdForget{w.anyID()}) // on one node only
	case 1:
		id := w.anyID()
		for _, o := range w.nodes {
			if o.up() && w.faults.IntN(2) == 0 {
				o.command(CmdForget{id})
			}
		}
	case 2:
		w.removeNode(n)
	case 3:
		w.resetNode(n)
	}
}

// removeNode takes a replica out of the cluster for good, as an operator would: it goes, and all others forget it, one
// after the other. If that was done on all of them, it must not come back.
func (w *simWorld) removeNode(n *simNode) {
	if !n.up() || !n.m.me.replica() || w.rules.removed >= 2 || w.part.side != nil {
		return
	}
	for _, o := range w.nodes {
		if !o.up() && !o.never {
			return
		}
	}
	w.rules.removed++
	id := n.m.me.ID
	n.crash(false)
	n.never = true
	f := &simForgetting{id: id, cuts: w.part.serial, lives: map[int32]int32{}}
	for _, o := range w.nodes {
		if o.never {
			continue
		}
		f.lives[o.at] = o.life
		f.left++
		w.later(100+w.faults.Int64N(10_000), func() {
			if !o.up() || o.life != f.lives[o.at] {
				return // never complete
			}
			if a := o.command(CmdForget{id.String()}); a.Err == nil {
				w.later(500, func() { w.forgotten(f, o, a.After) })
			}
		})
	}
}

// simForgetting is a node on its way out.
type simForgetting struct {
	id    wire.ID
	lives map[int32]int32
	cuts  int // serial of the last cut when it began: what waits in a cut may come after the time of forgetting
	left  int
}

func (w *simWorld) forgotten(f *simForgetting, o *simNode, after uint64) {
	if o.m == nil || o.life != f.lives[o.at] || o.saved < after {
		return
	}
	f.left--
	if f.left > 0 || w.part.serial != f.cuts {
		return
	}
	for _, n := range w.nodes {
		if life, ok := f.lives[n.at]; ok && (n.m == nil || n.life != life) {
			return
		}
	}
	w.note(nil, "all have forgotten %s", f.id)
	w.rules.forgotten[f.id] = true
}

// resetNode makes a replica a new node that joins again.
func (w *simWorld) resetNode(n *simNode) {
	if !n.m.me.replica() {
		return
	}
	hard := w.faults.IntN(2) == 0
	w.rules.resetting = true // one that asked for votes in vain is no winner for that
	a := n.command(CmdReset{hard})
	w.rules.resetting = false
	if a.Err != nil {
		return
	}
	w.sawID(n)
	w.later(2000, func() {
		if o := w.pickPrimary(); o != nil && n.up() {
			o.command(CmdMeet{n.ip, n.port, n.busPort()})
		}
	})
	w.later(2000+3*w.timeout, func() {
		if n.up() && n.m.me.primary() && len(n.m.peers) > 2 {
			n.command(CmdReplicate{w.anyID()})
		}
	})
}

// sawID notes that a node has another id.
func (w *simWorld) sawID(n *simNode) {
	id := n.m.me.ID
	if n.ids[len(n.ids)-1] != id {
		n.ids = append(n.ids, id)
		w.rules.node[id] = n.at
	}
	n.lastEpochs = [2]uint64{n.m.currentEpoch, n.m.lastVoteEpoch}
	clear(n.seen)
}

// repair is what an operator does when all faults are over: nodes that are not there any more are forgotten, those that
// are there meet.
func (w *simWorld) repair() {
	if w.class == simLoose {
		w.closeOpen()
		w.cover()
	}
	if w.class != simMembers {
		return
	}
	live := map[wire.ID]*simNode{}
	for _, n := range w.nodes {
		if n.m != nil {
			live[n.m.me.ID] = n
		}
	}
	for _, n := range w.nodes {
		if n.m == nil {
			continue
		}
		for _, p := range append([]*Peer(nil), n.m.peers...) {
			if p.handshake() || live[p.ID] != nil {
				continue
			}
			if p == n.m.me.Primary {
				if o := w.pickPrimary(); o != nil {
					n.command(CmdReplicate{o.m.me.ID.String()})
				}
			}
			n.command(CmdForget{p.ID.String()})
		}
		for _, o := range w.nodes {
			if o.m != nil && n.m.byID[o.m.me.ID] == nil {
				n.command(CmdMeet{o.ip, o.port, o.busPort()})
			}
		}
	}
}

// closeOpen ends the moves that nobody ended, as tools do: a slot that is open at both ends goes over; otherwise what is
// left of the move is taken back, and the keys go to the owner.
func (w *simWorld) closeOpen() {
	for _, n := range w.nodes {
		if n.m == nil || !n.m.me.primary() {
			continue
		}
		open := n.marks()
		for _, s := range slices.Sorted(maps.Keys(open)) {
			w.closeMark(n, s, open[s])
		}
	}
}

// closeMark is closeOpen of one mark.
func (w *simWorld) closeMark(n *simNode, s uint16, c CmdSetSlot) {
	var other *simNode
	for _, o := range w.nodes {
		if other == nil && o.m != nil && o.m.me.primary() && o.m.me.ID.String() == c.ID {
			other = o
		}
	}
	move := func(from, to *simNode) {
		if from.data.primary && to.data.primary {
			to.data.keys[s/1024] += from.data.keys[s/1024]
			from.data.keys[s/1024] = 0
		}
	}
	if other == nil {
		n.setSlot(CmdSetSlot{Slot: s, Action: SlotStable}, true)
		return
	}
	from, to := n, other
	if c.Action == SlotImporting {
		from, to = other, n
	}
	if from.marks()[s].Action != SlotMigrating || to.marks()[s].Action != SlotImporting || !from.owns(int(s/1024)) {
		if from.owns(int(s / 1024)) {
			move(to, from)
		}
		n.setSlot(CmdSetSlot{Slot: s, Action: SlotStable}, true)
		return
	}
	w.rules.operator[s] = w.now
	move(from, to)
	to.setSlot(CmdSetSlot{Slot: s, Action: SlotNode, ID: to.m.me.ID.String()}, true)
	from.setSlot(CmdSetSlot{Slot: s, Action: SlotNode, ID: to.m.me.ID.String()}, true)
}

// cover gives the slots that nobody owns to somebody, as tools do.
func (w *simWorld) cover() {
	for i := range simHot {
		w.coverSlot(i)
	}
}

func (w *simWorld) coverSlot(hot int) {
	var owner, some *simNode
	for _, n := range w.nodes {
		if n.m == nil || !n.m.me.votes() {
			continue
		}
		if some = n; n.owns(hot) {
			owner = n
		}
	}
	if owner != nil || some == nil {
		return
	}
	var b slot.Bitmap
	b.Set(simHotSlot(hot))
	w.rules.operator[simHotSlot(hot)] = w.now
	some.command(CmdDelSlots{b})
	some.command(CmdAddSlots{b})
	some.command(CmdBumpEpoch{})
}
