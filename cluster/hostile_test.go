package cluster

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"cairn/cluster/wire"
	"cairn/internal/slot"
)

// checkTable says what in the table contradicts itself; "": nothing.
func (m *Machine) checkTable() string {
	owned := map[*Peer]int{}
	for s, p := range &m.slots.owner {
		if p == nil {
			if m.slots.noClaim.Has(uint16(s)) {
				return fmt.Sprintf("slot %d has no owner and is marked", s)
			}
			continue
		}
		if m.byID[p.ID] != p {
			return fmt.Sprintf("slot %d is of %s, who is gone", s, p.ID)
		}
		owned[p]++
	}
	handshakes, replicas := 0, 0
	for i, p := range m.peers {
		if i > 0 && !before(m.peers[i-1].ID, p.ID) {
			return fmt.Sprintf("peers %d and %d are not in order", i-1, i)
		}
		if p.Slots != owned[p] {
			return fmt.Sprintf("%s counts %d slots, has %d", p.ID, p.Slots, owned[p])
		}
		if p.handshake() {
			handshakes++
		} else if p.primary() == p.replica() {
			return fmt.Sprintf("%s has flags %d", p.ID, p.Flags)
		}
		if p.Primary != nil {
			replicas++
			if !p.replica() || m.byID[p.Primary.ID] != p.Primary {
				return fmt.Sprintf("%s replicates %s", p.ID, p.Primary.ID)
			}
			if p.Shard != p.Primary.Shard {
				return fmt.Sprintf("%s is not of its primary's shard", p.ID)
			}
		}
		for _, r := range p.Replicas {
			if r.Primary != p {
				return fmt.Sprintf("%s has a replica that does not know it", p.ID)
			}
		}
		if p.out != 0 && m.outLink[p.out] != p || p.in != 0 && (m.inLink[p.in] == nil || m.inLink[p.in].peer != p) {
			return fmt.Sprintf("the links of %s are not its own", p.ID)
		}
		if p.Epoch > m.currentEpoch {
			return fmt.Sprintf("%s has epoch %d, the current one is %d", p.ID, p.Epoch, m.currentEpoch)
		}
		if p.any(wire.FlagMaybeFailed) && p.failed() {
			return fmt.Sprintf("%s has failed and is suspected", p.ID)
		}
	}
	if handshakes != m.handshakes || replicas != m.replicas || len(m.byID) != len(m.peers) {
		return fmt.Sprintf("%d in handshake, counted %d; %d replicas, counted %d; %d by id, %d peers", handshakes,
			m.handshakes, replicas, m.replicas, len(m.byID), len(m.peers))
	}
	if m.me.any(anyFailure|wire.FlagNoAddr|wire.FlagHandshake) || m.me.replica() && m.me.Slots > 0 {
		return fmt.Sprintf("this node has flags %d and %d slots", m.me.Flags, m.me.Slots)
	}
	if m.size(); m.state.size >= 0 && m.state.size != m.size() {
		return fmt.Sprintf("%d primaries with slots, counted %d", m.size(), m.state.size)
	}
	return ""
}

func (m *Machine) size() (n int) {
	for _, p := range m.peers {
		if p.votes() {
			n++
		}
	}
	return n
}

// Words that a decoder lets through, from members and strangers, in any order: the table stays whole, this node's epochs do
// not fall, and it never has slots that it did not have, for nobody gives it any but by a vote that it asked for.
func TestNonsense(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := newSolo(t, "a 1 0-9", "b 2 10-19", "c 3 20-29", "d of a", "e of b", "f 4")
		s.Accepted(s.now, 800, "10.0.0.x", "10.0.0.a")
		for step := range 400 {
			epoch, mine := s.currentEpoch, s.me.Slots
			what := s.nonsense(r)
			if wrong := s.checkTable(); wrong != "" {
				t.Fatalf("seed %d, step %d: %s; after %s", seed, step, wrong, what)
			}
			if s.currentEpoch < epoch || s.currentEpoch > epoch+epochLeap+1 {
				t.Fatalf("seed %d, step %d, after %s: epoch %d, was %d", seed, step, what, s.currentEpoch, epoch)
			}
			if s.me.Slots > mine && s.election.voters == nil && len(find[Promote](s.last)) == 0 {
				t.Fatalf("seed %d, step %d, after %s: %d slots, had %d", seed, step, what, s.me.Slots, mine)
			}
		}
	}
}

// nonsense has something happen, and says what.
func (s *solo) nonsense(r *rand.Rand) string {
	const letters = "abcdefxy"
	letter := func() byte { return letters[r.IntN(len(letters))] }
	s.now += int64(r.IntN(300))
	links := []LinkID{800}
	for _, p := range s.peers {
		for _, link := range []LinkID{p.out, p.in} {
			if link != 0 {
				links = append(links, link)
			}
		}
	}
	link := links[r.IntN(len(links))]
	switch r.IntN(20) {
	case 0, 1, 2:
		for _, e := range s.settleSaves(s.Tick(s.now)) {
			if e, ok := e.(Connect); ok && r.IntN(4) > 0 {
				s.settleSaves(s.Connected(s.now, e.Link, "10.0.0.a"))
			}
		}
		return "a tick"
	case 3:
		s.settleSaves(s.Closed(s.now, link))
		if link == 800 {
			s.Accepted(s.now, 800, "10.0.0.x", "10.0.0.a")
		}
		return fmt.Sprintf("link %d closed", link)
	case 4:
		_, effects := s.Command(s.now, CmdForget{ID: letterID(letter()).String()})
		s.settleSaves(effects)
		return "a node forgotten"
	}
	msg := s.anyWord(r, letter)
	s.settleSaves(s.Step(s.now, link, msg))
	if s.inLink[800] == nil {
		s.Accepted(s.now, 800, "10.0.0.x", "10.0.0.a")
	}
	return fmt.Sprintf("link %d: %+v", link, msg)
}

func (s *solo) anyWord(r *rand.Rand, letter func() byte) *wire.Message {
	anyEpoch := func() uint64 {
		switch r.IntN(12) {
		case 0:
			return math.MaxUint64
		case 1:
			return s.currentEpoch + epochLeap
		}
		return uint64(r.IntN(12))
	}
	anySlots := func() *slot.Bitmap {
		first := r.IntN(40)
		return rangeOf(first, first+r.IntN(30)-5)
	}
	c := letter()
	// Mostly from the node whose link it is, or nothing is believed.
	msg := s.word(c, wire.Type(r.IntN(12)))
	msg.ConfigEpoch, msg.CurrentEpoch, msg.Slots = anyEpoch(), anyEpoch(), anySlots()
	msg.Flags, msg.Bits, msg.Offset = wire.Flags(r.IntN(1<<16)), wire.MessageFlags(r.IntN(8)), int64(r.IntN(3))
	msg.Primary = wire.ID{}
	if r.IntN(3) == 0 {
		msg.Primary = letterID(letter())
	}
	msg.Failed = letterID(letter())
	msg.Update = wire.NodeUpdate{ID: letterID(letter()), Epoch: anyEpoch(), Slots: anySlots()}
	msg.Light = r.IntN(30) == 0
	if msg.Type <= wire.Meet {
		msg.Ext.ShardID = letterID(letter())
		for range r.IntN(4) {
			about := letter()
			msg.Gossip = append(msg.Gossip, wire.Gossip{
				ID: letterID(about), IP: "10.0.0." + string(letter()), Port: 1, BusPort: uint16(r.IntN(3)),
				Flags: wire.Flags(r.IntN(1 << 13)), PongReceived: uint32(s.now / 1000),
			})
		}
		if r.IntN(10) == 0 {
			msg.Ext.Forgotten = []wire.Forgotten{{ID: letterID(letter()), Seconds: r.Uint64()}}
		}
	}
	return msg
}
