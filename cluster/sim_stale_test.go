package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"cairn/cluster/wire"
)

// Stale news: a slot moves from shard to shard, while what its old owners said of it is held back until after the new
// owner's claim, or comes once more. Either end may restart, fail over or stand still in the middle.
//
//	tool      IMPORTING ─▶ MIGRATING ─▶ keys ─▶ NODE at the target ─▶ NODE at the source
//	links     ── held, with the source's claims in them ────────────────────────── let go ──▶
//	packets   the source's claims, kept ─────────────────────────────── delivered once more ──▶
//
// For more than two node timeouts the slot never has two owners, or none, and never do the nodes' tables differ about it
// while all is well with the slots beside it, which do not move: those tell what a failover alone does.

// simStale is one round of it.
type simStale struct {
	w       *simWorld
	r       *rand.Rand
	hops    []simHop
	fixed   []int // of each primary a slot that stays, as index of hot slots
	faults  []simStaleFault
	news    []simNews
	bad     map[string]int64 // when what is wrong began
	holdAt  int              // step of the first hop at which links are held
	begun   int              // hops
	last    int64            // when something was last done to the cluster
	movedAt int64            // when the tool last ended a move
	pending int              // faults that have not ended
	crashed bool
	slot    int                // that moved last
	claims  map[int]simArrival // the last one of each slot
	lost    map[int]bool       // slots whose last claim a crash took back, until that is repaired
	pace    int64              // how long the tool waits between steps at most
	rest    int64              // no work before this time
	beside  int                // a slot of a third shard
}

// simHop is one move of a slot.
type simHop struct {
	slot, to     int // hot slots: the one that moves, and one of the shard to which it goes
	step         int
	source, dest *simNode
	wait         uint64 // save of waitOn that the last command waits for
	waitOn       *simNode
	life         int32
	sourceFirst  bool
}

// simStaleFault is what goes wrong when the first hop comes to a step.
type simStaleFault struct {
	step, kind int
	delay      int64
}

// simNews is what a node once said.
type simNews struct {
	by  int32
	msg *wire.Message
}

const (
	simStaleNodes = 8
	simStaleEnd   = 150_000
	simNewsKept   = 64
)

func newSimStale(seed uint64, bug simBug, log func(string)) *simStale {
	w := newSimWorld(simPlan{seed: seed, nodes: simStaleNodes, class: simLoose, quiet: true, bug: bug, wire: 1}, log)
	w.tail = 0 // what is late here is late on purpose
	s := &simStale{w: w, r: rand.New(rand.NewPCG(seed, 7)), bad: map[string]int64{}}
	s.claims, s.lost = map[int]simArrival{}, map[int]bool{}
	w.stale = s
	var ofShard [][]int // hot slots by primary
	for _, n := range w.nodes {
		me := n.disk.state.Nodes[n.at]
		if len(me.Slots) == 0 {
			continue
		}
		var mine []int
		for i := range simHot {
			if r := me.Slots[0]; simHotSlot(i) >= r.First && simHotSlot(i) <= r.Last {
				mine = append(mine, i)
			}
		}
		s.r.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
		ofShard = append(ofShard, mine)
		s.fixed = append(s.fixed, mine[0])
	}
	s.r.Shuffle(len(ofShard), func(i, j int) { ofShard[i], ofShard[j] = ofShard[j], ofShard[i] })
	a, b, c := ofShard[0], ofShard[1], ofShard[2]
	s.beside = c[1]
	s.add(a[1], b[0])
	if s.r.IntN(2) == 0 {
		s.add(b[1], a[0]) // gives the source a higher epoch than the target has
	}
	switch s.r.IntN(3) {
	case 0:
		s.add(a[1], a[0]) // back
	case 1:
		s.add(a[1], c[0]) // on
	}
	s.holdAt = s.r.IntN(4)
	s.pace = []int64{5, 300}[s.r.IntN(2)]
	for range s.r.IntN(3) {
		s.faults = append(s.faults, simStaleFault{s.r.IntN(6), s.r.IntN(12), s.r.Int64N([]int64{20, 600}[s.r.IntN(2)])})
	}
	if s.r.IntN(3) == 0 {
		// The source takes part in another move at the same time.
		s.faults = append(s.faults, simStaleFault{3, 9, s.r.Int64N(60)})
	}
	// The slot has no owner until the target is told, too; only a tool that takes chances does that.
	s.hops[0].sourceFirst = len(s.faults) == 0 && s.r.IntN(3) == 0
	return s
}

func (s *simStale) add(slot, to int) {
	s.hops = append(s.hops, simHop{slot: slot, to: to})
}

// run is the whole round.
func (s *simStale) run() {
	w := s.w
	w.caught(func() {
		w.counts.runs = 1
		for _, n := range w.nodes {
			n.start()
		}
		w.until(4000)
		s.work()
		s.watch()
		for w.failure == nil && (len(s.hops) > 0 || s.pending > 0) {
			if w.now > simStaleEnd {
				w.fail("unfinished", "%d moves are left, the first at step %d", len(s.hops), s.hops[0].step)
			}
			w.until(w.now + 500)
		}
		s.release()
		w.calm, w.healedAt = true, w.now
		w.until(w.now + 8*w.timeout + 6000)
		if w.failure == nil {
			if why := w.disagreement(); why != "" {
				w.fail("agreement", "%d ms after the last change: %s", w.now-s.last, why)
			}
			for _, n := range w.nodes {
				w.checkTies(n)
				open := n.marks()
				delete(open, simHotSlot(s.beside)) // nobody looks after that one
				maps.DeleteFunc(open, func(slot uint16, _ CmdSetSlot) bool { return s.missedEnd(n, slot) })
				if len(open) > 0 {
					w.fail("open slots", "node %s: all moves have ended, and %v", n.name, open)
				}
			}
		}
	})
}

// missedEnd says that the slot's owner, and n with it, was away when the tool ended the last move. An import had raised its epoch
// before, so that an election meanwhile does not stand against it. It has the slot, open as it was: with Redis, too, that is
// for another look by the tool.
func (s *simStale) missedEnd(n *simNode, slot uint16) bool {
	owner := n.m.owner(slot)
	if owner == nil || owner.Shard != n.m.me.Shard {
		return false
	}
	return s.w.nodes[s.w.rules.node[owner.ID]].startedAt > s.movedAt
}

// work is the tool, which moves one slot after the other. What is refused, or lost with a node, is begun again.
func (s *simStale) work() {
	w := s.w
	if len(s.hops) == 0 || w.failure != nil {
		return
	}
	w.later(1+s.r.Int64N(s.pace), s.work)
	h := &s.hops[0]
	if w.now < s.rest {
		return
	}
	if h.waitOn != nil {
		n := h.waitOn
		if n.m == nil || n.life != h.life {
			h.step = 0 // no answer came
		} else if n.saved < h.wait {
			return
		}
		h.waitOn = nil
	}
	from, to := s.holder(h.slot), s.holder(h.to)
	if from == nil && h.step >= 3 {
		from = h.source // it has given the slot up
	}
	if from == nil || to == nil {
		return
	}
	if h.step > 0 && (to != h.dest || from != h.source && from != to) {
		h.step = 0 // one of the two has failed over
	}
	if h.step == 0 {
		h.source, h.dest = from, to
	}
	if from == to && (h.step == 0 || h.step > 4) {
		s.hops, s.movedAt = s.hops[1:], w.now
		s.begun++
		s.rest = w.now + 300 // news travels faster than people
		return
	}
	if !h.sourceFirst && s.r.IntN(30) == 0 {
		h.step = 0 // the tool ends, and another one begins
		return
	}
	s.reached(h.step)
	s.step(h)
	h.step++
}

// step does one step of a move.
func (s *simStale) step(h *simHop) {
	from, to, slot := h.source, h.dest, simHotSlot(h.slot)
	if !from.up() || !to.up() {
		h.step = -1
		return
	}
	step := h.step
	if h.sourceFirst && step >= 3 {
		step = 7 - step // NODE at the source, then at the target
	}
	switch step {
	case 0:
		s.command(h, to, CmdSetSlot{Slot: slot, Action: SlotImporting, ID: from.m.me.ID.String()})
	case 1:
		s.command(h, from, CmdSetSlot{Slot: slot, Action: SlotMigrating, ID: to.m.me.ID.String()})
	case 2:
		s.moveKeys(h)
	case 3:
		if to.m.slots.importing[slot] == nil {
			h.step = -1 // it was off, and does not know: a tool has lost its connection, and looks again
			return
		}
		if highest := to.m.me.Epoch == to.m.topEpoch(); s.w.bug == bugNoBump || s.w.bug == bugSameEpoch && highest {
			to.feed(func(now int64) []Effect { return to.m.claimWithoutBump(now, slot) })
			return
		}
		if s.command(h, to, CmdSetSlot{Slot: slot, Action: SlotNode, ID: to.m.me.ID.String()}) {
			s.claims[h.slot] = simArrival{to, to.life}
			delete(s.lost, h.slot)
		}
	case 4:
		if s.r.IntN(4) == 0 && !h.sourceFirst {
			return // nobody tells the source
		}
		s.moveKeys(h)
		s.command(h, from, CmdSetSlot{Slot: slot, Action: SlotNode, ID: to.m.me.ID.String()})
	}
}

func (s *simStale) command(h *simHop, n *simNode, c CmdSetSlot) (ok bool) {
	a := n.setSlot(c, s.r.IntN(2) == 0)
	s.last = s.w.now
	if a.Err != nil {
		h.step = -1
		return false
	}
	h.waitOn, h.wait, h.life = n, a.After, n.life
	return true
}

func (s *simStale) moveKeys(h *simHop) {
	from, to := &h.source.data, &h.dest.data
	if from.primary && to.primary {
		to.keys[h.slot] += from.keys[h.slot]
		from.keys[h.slot] = 0
	}
}

// holder is who says that it owns a slot, of several the one with the highest epoch.
func (s *simStale) holder(hot int) (best *simNode) {
	for _, n := range s.w.nodes {
		if n.up() && n.owns(hot) && (best == nil || n.m.me.Epoch > best.m.me.Epoch) {
			best = n
		}
	}
	return best
}

func (n *simNode) owns(hot int) bool { return n.m.me.primary() && n.m.owner(simHotSlot(hot)) == n.m.me }

// reached begins what is to happen at a step of the first hop, once.
func (s *simStale) reached(step int) {
	if s.begun > 0 {
		return
	}
	h := &s.hops[0]
	if step == s.holdAt {
		s.holdAt = -1
		s.hold(h)
		s.after(s.r.Int64N(3*s.w.timeout)+500, s.release)
	}
	for i := range s.faults {
		f := &s.faults[i]
		if f.step == step {
			f.step = -1
			source, dest := h.source, h.dest
			s.after(f.delay, func() { s.fault(f.kind, source, dest) })
		}
	}
	if step == 4 {
		for range 1 + s.r.IntN(4) {
			s.after(s.r.Int64N(3*s.w.timeout), s.repeat)
		}
	}
}

// after does something later, before the round ends.
func (s *simStale) after(ms int64, do func()) {
	s.pending++
	s.w.later(ms, func() {
		s.pending--
		s.last = s.w.now
		do()
	})
}

// hold stops what the source says to some nodes, on links that are open now, and now and then what the target says.
func (s *simStale) hold(h *simHop) {
	held := []*simNode{h.source}
	if s.r.IntN(4) == 0 {
		held = append(held, h.dest)
	}
	for _, n := range held {
		for _, c := range n.sortedConns() {
			side := uint8(0)
			if c.node[1] == n.at {
				side = 1
			}
			if c.node[1] >= 0 && s.r.IntN(2) == 0 {
				c.held[side] = true
			}
		}
	}
	s.w.note(h.source, "what it says is held back on some links")
}

// release lets go what was held.
func (s *simStale) release() {
	w := s.w
	for _, c := range w.stalled {
		c.held = [2]bool{}
	}
	for _, n := range w.nodes {
		for _, c := range n.conns {
			c.held = [2]bool{}
		}
	}
	w.note(nil, "what was held back comes")
	w.release()
}

// saw keeps a claim, for later.
func (s *simStale) saw(n *simNode, msg *wire.Message) {
	if msg.Type > wire.Meet || msg.Slots == nil || !msg.Primary.IsZero() || len(s.hops) == 0 ||
		!msg.Slots.Has(simHotSlot(s.hops[0].slot)) {
		return
	}
	news := simNews{n.at, msg}
	if len(s.news) < simNewsKept {
		s.news = append(s.news, news)
		return
	}
	s.news[s.r.IntN(simNewsKept)] = news
}

// repeat delivers old claims once more, to anybody.
func (s *simStale) repeat() {
	w := s.w
	for range 1 + s.r.IntN(12) {
		if len(s.news) == 0 {
			return
		}
		old := s.news[s.r.IntN(len(s.news))]
		n := w.nodes[old.by]
		if n.m == nil {
			continue
		}
		conns := n.sortedConns()
		if len(conns) == 0 {
			continue
		}
		c := conns[s.r.IntN(len(conns))]
		side := uint8(0)
		if c.node[1] == n.at {
			side = 1
		}
		if c.open || side == 1 {
			msg := *old.msg
			w.throw(c, side, simMessage, &msg)
		}
	}
}

// fault is one thing that goes wrong with an end of the move, or beside it.
func (s *simStale) fault(kind int, source, dest *simNode) {
	w := s.w
	restart := func(n *simNode, ms int64) {
		if n.m != nil {
			n.crash(s.r.IntN(4) == 0)
			s.after(ms, func() { w.restart(n) })
		}
	}
	soon, long := 50+s.r.Int64N(500), 4*w.timeout+s.r.Int64N(2*w.timeout)
	switch kind {
	case 0:
		restart(source, soon)
	case 1:
		restart(dest, soon)
	case 2, 3:
		if s.crashed {
			return
		}
		s.crashed = true
		restart([]*simNode{source, dest}[kind-2], long)
	case 4, 5:
		end := []*simNode{source, dest}[kind-4]
		if r := s.replicaOf(end); r != nil {
			w.rules.taking = s.r.IntN(4) == 0
			if w.rules.taking {
				r.command(CmdFailover{Takeover})
			} else {
				r.command(CmdFailover{FailoverMode(s.r.IntN(2))})
			}
			w.rules.taking = false
		}
	case 6:
		if source.up() {
			source.stopped = true
			life := source.life
			s.after(w.timeout/2+s.r.Int64N(2*w.timeout), func() {
				if source.life == life {
					w.resume(source)
				}
			})
		}
	case 9:
		s.import1(source)
	case 10, 11:
		end := []*simNode{source, dest}[kind-10]
		end.disk.slow = w.timeout / 2
		s.after(s.r.Int64N(2*w.timeout), func() { end.disk.slow = 0 })
	case 7, 8:
		restart(w.nodes[s.r.IntN(len(w.nodes))], soon)
	}
}

// import1 ends the move of another slot, from a third shard.
func (s *simStale) import1(to *simNode) {
	from := s.holder(s.beside)
	if from == nil || from == to || !to.up() || !to.m.me.primary() {
		return
	}
	slot := simHotSlot(s.beside)
	to.setSlot(CmdSetSlot{Slot: slot, Action: SlotImporting, ID: from.m.me.ID.String()}, true)
	to.setSlot(CmdSetSlot{Slot: slot, Action: SlotNode, ID: to.m.me.ID.String()}, true)
	from.data.keys[s.beside] = 0
}

func (s *simStale) replicaOf(end *simNode) *simNode {
	if end.m == nil {
		return nil
	}
	for _, n := range s.w.nodes {
		if n.up() && n.m.me.replica() && n.m.me.Primary != nil && n.m.me.Primary.ID == end.m.me.ID {
			return n
		}
	}
	return nil
}

// watch looks ten times a second who has the slot.
func (s *simStale) watch() {
	w := s.w
	if w.failure != nil {
		return
	}
	w.later(100, s.watch)
	slot := s.moving()
	for _, rule := range simStaleRules {
		why := rule.broken(s, slot)
		beside := ""
		for _, hot := range s.fixed {
			if beside == "" && why != "" {
				beside = rule.broken(s, hot)
			}
		}
		key := fmt.Sprint(rule.name, slot)
		if why == "" || beside != "" || s.lost[slot] {
			delete(s.bad, key)
			continue
		}
		if _, known := s.bad[key]; !known {
			s.bad[key] = w.now
		}
		// A slow clock, and the time between two looks.
		if since := w.now - s.bad[key]; since > 2*w.timeout+w.timeout/10+200 {
			w.fail(rule.name, "slot %d for %d ms: %s", simHotSlot(slot), since, why)
		}
	}
}

// moving is the slot that is looked at: the one that moves, or moved last.
func (s *simStale) moving() int {
	if len(s.hops) > 0 {
		s.slot = s.hops[0].slot
	}
	return s.slot
}

// simStaleRules are what must not last. Each says what is wrong, "" if nothing is.
var simStaleRules = []struct {
	name   string
	broken func(s *simStale, hot int) string
}{
	{"two owners", func(s *simStale, hot int) string {
		owners, serving := s.owners(hot)
		if len(owners) > 1 || len(serving) > 1 {
			return fmt.Sprintf("owned by %v, served by %v", owners, serving)
		}
		return ""
	}},
	{"no owner", func(s *simStale, hot int) string {
		owners, serving := s.owners(hot)
		if len(owners) == 0 || len(serving) == 0 {
			return fmt.Sprintf("owned by %v, served by %v", owners, serving)
		}
		return ""
	}},
	{"tables", func(s *simStale, hot int) string {
		var first *simNode
		if owners, _ := s.owners(hot); len(owners) != 1 {
			return ""
		}
		for _, n := range s.w.nodes {
			if !n.up() {
				continue
			}
			p := n.m.owner(simHotSlot(hot))
			if p == nil {
				return fmt.Sprintf("node %s knows no owner", n.name)
			}
			if !s.w.nodes[s.w.rules.node[p.ID]].up() {
				return "" // a failover decides
			}
			if first == nil {
				first = n
			} else if q := first.m.owner(simHotSlot(hot)); q.ID != p.ID {
				return fmt.Sprintf("node %s says %s has it, node %s says %s", first.name, q.ID, n.name, p.ID)
			}
		}
		return ""
	}},
}

// owners is who says that it owns a slot, and who serves it.
func (s *simStale) owners(hot int) (owners, serving []string) {
	for _, n := range s.w.nodes {
		if !n.up() {
			continue
		}
		if n.owns(hot) {
			owners = append(owners, n.name)
		}
		if r := &n.queue.route; r.ok && r.primary && r.owns[hot] {
			serving = append(serving, n.name)
		}
	}
	return owners, serving
}

// claimWithoutBump is the last step of a move, by a machine that keeps its epoch.
func (m *Machine) claimWithoutBump(now int64, s uint16) []Effect {
	m.closeSlot(s)
	m.unassign(s)
	m.assign(s, m.me)
	m.gained(m.afterSave())
	m.broadcastPong(now, false, m.afterSave())
	return m.settle(now)
}

func TestSimStale(t *testing.T) {
	rounds := simStaleLane()
	var log func(string)
	if *simTrace && rounds == 1 {
		log = func(line string) { fmt.Println(line) }
	}
	sum := simCollect{t: t}
	simEach(rounds, func(i int) bool {
		s := newSimStale(*simSeed+uint64(i), "", log)
		s.run()
		return sum.add(s.w, fmt.Sprintf("go test ./cluster -run 'TestSimStale$' -sim.seed=%d -sim.seeds=1 -sim.trace", *simSeed+uint64(i)))
	})
	t.Log(sum.counts.text())
}

func simStaleLane() int {
	switch {
	case *simSeeds > 0:
		return *simSeeds
	case testing.Short() || simRace:
		return 6
	}
	return 40
}
