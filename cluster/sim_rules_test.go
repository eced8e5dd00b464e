package cluster

import (
	"slices"

	"cairn/cluster/wire"
	"cairn/internal/slot"
)

// The rules that hold at every moment, whatever goes wrong:
//
//	owner      for each slot and epoch, at most one node claims it (strict runs)
//	epoch      epochs never fall, over all lives; no config epoch is above the current epoch
//	vote       no node votes for two in one epoch, over all its lives; a candidate's own vote is spent
//	quorum     who wins has the votes of more than half, and no other wins in that epoch
//	fail       who is marked as failed was suspected by more than half
//	durable    nothing is said that is not on disk
//	minority   a primary cut from the majority writes for a node timeout at most
//	two writers  a primary that is left behind has stopped when another one takes its place
//	offset     a manual failover loses no write
//	rejoin     and begins again only a while after the cut ends
//	vacated    who has heard a claim with a higher epoch neither has nor serves the slot
//	keys       they are dropped only when another node has their slot, on disk
//	memory     what a node keeps grows with the number of nodes alone
//	stale      a slot goes to a higher epoch only
//	forgotten  who was forgotten by all does not come back
//	handshake  none lasts longer than it may
//	loop       replicas do not follow each other in a circle, but for a moment

type simVote struct {
	id    wire.ID
	epoch uint64
}

type simClaim struct {
	id    wire.ID
	slots *slot.Bitmap
}

type simSuspicion struct {
	by int32
	id wire.ID
}

type simOwner struct {
	id    wire.ID
	epoch uint64
	open  bool    // for whoever claims it
	to    wire.ID // where it is on its way to
}

type simRules struct {
	node      map[wire.ID]int32
	told      map[wire.ID]uint64 // the highest current epoch that a node told
	voted     map[wire.ID]uint64
	votes     map[simVote]wire.ID
	acks      map[simVote][]wire.ID // by candidate
	wins      map[uint64]wire.ID
	claims    map[uint64][]simClaim
	suspected map[simSuspicion]int64
	forgotten map[wire.ID]bool
	operator  map[uint16]int64 // when a person last had to do with a slot
	taking    bool             // a TAKEOVER is under way
	resetting bool             // a RESET is
	removed   int
	written   [simHot]simWrite // the last write to each slot
}

// simWrite is a write by a primary to a slot.
type simWrite struct {
	by    int32
	epoch uint64
}

func (r *simRules) init() {
	*r = simRules{
		node: map[wire.ID]int32{}, told: map[wire.ID]uint64{}, voted: map[wire.ID]uint64{}, votes: map[simVote]wire.ID{},
		acks: map[simVote][]wire.ID{}, wins: map[uint64]wire.ID{}, claims: map[uint64][]simClaim{},
		suspected: map[simSuspicion]int64{}, forgotten: map[wire.ID]bool{}, operator: map[uint16]int64{},
	}
}

// simBefore is what a call of the machine is compared with.
type simBefore struct {
	id      wire.ID
	quorum  int
	replica bool
	sent    bool
	manual  bool // a manual failover that has heard where the primary stands
	byHand  bool // the election was asked for by a person
	epoch   uint64
	primary *Peer
}

func (w *simWorld) before(n *simNode) simBefore {
	m := n.m
	return simBefore{
		id: m.me.ID, quorum: m.quorum(), replica: m.me.replica(), sent: m.election.sent, epoch: m.election.epoch,
		manual: m.manual.deadline != 0 && m.manual.offset >= 0, primary: m.me.Primary, byHand: m.election.manual,
	}
}

// after looks at what a call did.
func (w *simWorld) after(n *simNode, b *simBefore, effects []Effect) {
	m := n.m
	if m.me.ID != b.id {
		n.lastEpochs = [2]uint64{}
		w.sawID(n)
	}
	if m.currentEpoch < n.lastEpochs[0] || m.lastVoteEpoch < n.lastEpochs[1] {
		w.fail("epoch", "node %s: currentEpoch, lastVoteEpoch fell from %v to %d, %d", n.name, n.lastEpochs, m.currentEpoch,
			m.lastVoteEpoch)
	}
	n.lastEpochs = [2]uint64{m.currentEpoch, m.lastVoteEpoch}
	if b.replica && m.me.primary() && m.me.ID == b.id {
		w.promoted(n, b)
	}
	if w.class == simMad || w.big {
		return
	}
	var seen *wire.Message
	for _, e := range effects {
		if s, ok := e.(Send); ok && s.Msg != seen && s.Msg.Type == wire.Fail {
			seen = s.Msg
			w.checkFail(n, b, s.Msg.Failed)
		}
	}
}

// promoted looks at a replica that became a primary.
func (w *simWorld) promoted(n *simNode, b *simBefore) {
	m := n.m
	if w.rules.taking {
		w.counts.takeovers++
		return
	}
	if w.rules.resetting || m.me.Slots == 0 && !b.sent {
		return
	}
	w.counts.wins++
	n.promotedAt, n.byHand = w.now, b.byHand
	w.checkBest(n, b)
	w.note(n, "has won epoch %d", m.me.Epoch)
	if w.big {
		return
	}
	if !b.sent {
		w.fail("quorum", "node %s became a primary without asking for votes", n.name)
		return
	}
	if who, won := w.rules.wins[b.epoch]; won && who != m.me.ID && w.class == simStrict {
		w.fail("quorum", "nodes %s and %s both won epoch %d", who, m.me.ID, b.epoch)
	}
	w.rules.wins[b.epoch] = m.me.ID
	votes := len(w.rules.acks[simVote{m.me.ID, b.epoch}])
	if votes < min(b.quorum, m.quorum()) && w.class != simMad {
		w.fail("quorum", "node %s won epoch %d with %d votes of %d", n.name, b.epoch, votes, b.quorum)
	}
	if !b.manual || b.primary == nil {
		return
	}
	w.counts.manualWins++
	at, ok := w.rules.node[b.primary.ID]
	if !ok || w.class == simMad {
		return
	}
	p := w.nodes[at]
	if p.m == nil || p.startedAt > w.now-15_000 || p.disturbed > w.now-15_000 || n.disturbed > w.now-15_000 ||
		!p.data.primary || p.m.me.ID != b.primary.ID {
		return // its pause may be over by right
	}
	if n.data.offset < p.data.offset {
		w.fail("offset", "node %s at offset %d took over from %s, which was at %d", n.name, n.data.offset, p.name,
			p.data.offset)
	}
}

// checkFail looks at who suspects a node that is said to have failed.
func (w *simWorld) checkFail(n *simNode, b *simBefore, id wire.ID) {
	w.counts.failures++
	by := 0
	for _, o := range w.nodes {
		at, ok := w.rules.suspected[simSuspicion{o.at, id}]
		if o == n || ok && w.now-at < 90_000 {
			by++
		}
	}
	if by < min(b.quorum, n.m.quorum()) {
		w.fail("fail", "node %s says that %s has failed, which %d suspect; %d are the majority", n.name, id, by, b.quorum)
	}
}

// checkRestart compares what a node comes back with, with what it has said.
func (w *simWorld) checkRestart(n *simNode) {
	id := n.m.me.ID
	if told := w.rules.told[id]; n.m.currentEpoch < told {
		w.fail("epoch", "node %s told epoch %d, and came back with %d", n.name, told, n.m.currentEpoch)
	}
	if voted := w.rules.voted[id]; n.m.lastVoteEpoch < voted {
		w.fail("vote", "node %s voted in epoch %d, and came back with %d", n.name, voted, n.m.lastVoteEpoch)
	}
}

// checkSent looks at a message that leaves.
func (w *simWorld) checkSent(n *simNode, c *simConn, side uint8, msg *wire.Message) {
	if msg.Light {
		return
	}
	r, d := &w.rules, &n.disk.durable
	if w.big {
		return
	}
	if msg.CurrentEpoch > d.current && w.bug != bugVoteUnsaved {
		w.fail("durable", "node %s tells epoch %d, on disk is %d", n.name, msg.CurrentEpoch, d.current)
	}
	r.told[msg.Sender] = max(r.told[msg.Sender], msg.CurrentEpoch)
	switch msg.Type {
	case wire.AuthAck:
		if d.vote < msg.CurrentEpoch && w.bug != bugVoteUnsaved {
			w.fail("durable", "node %s votes in epoch %d, on disk is %d", n.name, msg.CurrentEpoch, d.vote)
		}
		if p := n.m.outLink[c.link[side]]; p != nil {
			w.checkVote(n, msg, p.ID)
			key := simVote{p.ID, msg.CurrentEpoch}
			if !slices.Contains(r.acks[key], msg.Sender) {
				r.acks[key] = append(r.acks[key], msg.Sender)
			}
			w.afterVote(n)
		}
	case wire.AuthRequest:
		w.checkVote(n, msg, msg.Sender)
	}
	if msg.Primary.IsZero() && msg.Slots != nil && n.m.me.Slots > 0 {
		w.checkClaim(n, msg)
	}
}

func (w *simWorld) checkVote(n *simNode, msg *wire.Message, candidate wire.ID) {
	r := &w.rules
	key := simVote{msg.Sender, msg.CurrentEpoch}
	if who, voted := r.votes[key]; voted && who != candidate {
		w.fail("vote", "node %s votes for %s and %s in epoch %d", n.name, who, candidate, key.epoch)
	}
	r.votes[key] = candidate
	r.voted[msg.Sender] = max(r.voted[msg.Sender], msg.CurrentEpoch)
}

// checkClaim looks at a primary's claim to slots.
func (w *simWorld) checkClaim(n *simNode, msg *wire.Message) {
	d := &n.disk.durable
	if d.primary && msg.ConfigEpoch > d.epoch {
		w.fail("durable", "node %s claims slots in epoch %d, on disk is %d", n.name, msg.ConfigEpoch, d.epoch)
	}
	if w.class != simStrict {
		return
	}
	claims := w.rules.claims[msg.ConfigEpoch]
	for i := range claims {
		if claims[i].id == msg.Sender {
			if claims[i].slots == msg.Slots {
				return
			}
			claims[i].slots = msg.Slots
			continue
		}
		if overlaps(claims[i].slots, msg.Slots) {
			w.fail("owner", "nodes %s and %s claim a slot in epoch %d", claims[i].id, msg.Sender, msg.ConfigEpoch)
		}
	}
	for i := range claims {
		if claims[i].id == msg.Sender {
			return
		}
	}
	w.rules.claims[msg.ConfigEpoch] = append(claims, simClaim{msg.Sender, msg.Slots})
}

func overlaps(a, b *slot.Bitmap) bool {
	for i := range a {
		if a[i]&b[i] != 0 {
			return true
		}
	}
	return false
}

// checkWriter looks at a primary that takes a write to a slot which another one writes to under a higher epoch. In a cut
// the one that was left behind must have stopped by the time that the other one begins. What an operator forces, or a
// process that stood still, is another matter.
func (w *simWorld) checkWriter(n *simNode, i int) {
	last := &w.rules.written[i]
	epoch := n.m.me.Epoch
	if last.epoch <= epoch || last.by == n.at {
		*last = simWrite{n.at, epoch}
		return
	}
	other, p := w.nodes[last.by], &w.part
	if w.class != simStrict || p.side == nil || !p.whole || p.side[n.at] == p.side[last.by] || other.byHand ||
		other.promotedAt < p.since || max(n.disturbed, n.startedAt) > p.since-w.timeout {
		return
	}
	w.fail("two writers", "nodes %s, epoch %d, and %s, epoch %d, both write to slot %d, %d ms after the cut", n.name, epoch,
		other.name, last.epoch, simHotSlot(i), w.now-p.since)
}

// checkWrite looks at a primary that takes a write.
func (w *simWorld) checkWrite(n *simNode) {
	w.checkRejoin(n)
	p := &w.part
	reached, cut := w.reachedInCut(n)
	if !cut {
		return
	}
	for _, o := range w.nodes {
		if o.disturbed > p.since {
			return // what it heard before the cut may come later
		}
	}
	if reached < n.m.quorum() {
		w.fail("minority", "node %s writes %d ms after it was cut from the majority (it has %d of %d)", n.name, w.now-p.since,
			reached, n.m.quorum())
	}
}

// reachedInCut counts the primaries with slots on a node's side of a cut. False: there is none, or it is too young for
// its minority to have noticed.
func (w *simWorld) reachedInCut(n *simNode) (reached int, cut bool) {
	p := &w.part
	// Slack: a tick, a slow clock.
	limit := w.timeout + w.timeout/20 + 200
	if p.side == nil || !p.whole || w.class == simMad || w.now-max(p.since, n.disturbed, n.startedAt) <= limit {
		return 0, false
	}
	for _, o := range n.m.peers {
		if !o.votes() {
			continue
		}
		if at, ok := w.rules.node[o.ID]; ok && p.side[at] == p.side[n.at] {
			reached++
		}
	}
	return reached, true
}

// inspect looks at a node's table, at each tick.
func (w *simWorld) inspect(n *simNode) {
	if w.big {
		return
	}
	m := n.m
	if m.me.replica() {
		n.outAt = 0 // and what it is as a primary, it is anew
	}
	now := n.clock()
	for _, p := range m.peers {
		if p.Epoch < n.seen[p] {
			w.fail("epoch", "node %s: the config epoch of %s fell from %d to %d", n.name, p.ID, n.seen[p], p.Epoch)
		}
		if p.Epoch != 0 {
			n.seen[p] = p.Epoch
		}
		if p.Epoch > m.currentEpoch {
			w.fail("epoch", "node %s: the config epoch of %s is %d, the current epoch %d", n.name, p.ID, p.Epoch, m.currentEpoch)
		}
		if p.any(anyFailure) {
			w.rules.suspected[simSuspicion{n.at, p.ID}] = w.now
		}
		if p.handshake() && now-p.Created > max(w.timeout, handshakeMinMs)+200 {
			w.fail("handshake", "node %s: a handshake lasts %d ms", n.name, now-p.Created)
		}
		if w.rules.forgotten[p.ID] {
			w.fail("forgotten", "node %s knows %s again", n.name, p.ID)
		}
		if p.primary() == p.replica() && !p.handshake() {
			w.fail("role", "node %s: %s has the flags %x", n.name, p.ID, p.Flags)
		}
		if p.replica() && p.Slots > 0 {
			w.fail("role", "node %s: replica %s owns %d slots", n.name, p.ID, p.Slots)
		}
	}
	// Old messages that come when a cut ends may make a circle for a moment.
	at := m.me
	for steps := 0; at != nil && w.calm && w.now-w.healedAt > 4*w.timeout && w.class != simMad; at = at.Primary {
		if steps++; steps > len(m.peers) {
			w.fail("loop", "node %s: its primaries go in a circle", n.name)
			break
		}
	}
	w.inspectOwners(n)
}

// inspectOwners looks for slots that went to another node which had no right to them.
func (w *simWorld) inspectOwners(n *simNode) {
	m := n.m
	first := n.hotOwner == nil
	if first {
		n.hotOwner = make([]simOwner, simHot)
	}
	for i := range n.hotOwner {
		s := simHotSlot(i)
		was, p := n.hotOwner[i], m.owner(s)
		is := simOwner{}
		if p != nil {
			is = simOwner{id: p.ID, epoch: p.Epoch, open: m.slots.noClaim.Has(s)}
		}
		if to := m.slots.migrating[s]; to != nil && p == m.me {
			is.to = to.ID
		}
		n.hotOwner[i] = is
		if first || was.id == is.id || was.open || was.to == is.id || was.id.IsZero() || p == nil {
			continue
		}
		if to := m.byID[was.to]; to != nil && to.Shard == p.Shard {
			continue // who was on its way to get it has failed over
		}
		old := m.byID[was.id]
		if is.epoch > was.epoch || old == nil || old.replica() || w.class == simMad {
			continue
		}
		if at, ok := w.rules.operator[s]; ok && w.now-at < 2000 {
			continue
		}
		w.fail("stale", "node %s: slot %d went from %s, epoch %d, to %s, epoch %d", n.name, s, was.id, was.epoch, is.id,
			is.epoch)
	}
}
