package cluster

import (
	"strings"
	"testing"

	"cairn/cluster/nodesconf"
	"cairn/cluster/wire"
	"cairn/internal/slot"
)

// solo is one machine whose peers are played by the test. It is node "a" of those in its state.
type solo struct {
	*Machine
	t    *testing.T
	now  int64
	data *nodeData
	in   map[byte]LinkID // links that the peers opened, by the letter of their id
	next LinkID
	last []Effect // of the last call
}

func letterID(c byte) wire.ID { return wire.ID([]byte(strings.Repeat(string(c), wire.IDLen))) }

func rangeOf(first, last int) *slot.Bitmap {
	b := new(slot.Bitmap)
	if last >= first {
		b.SetRange(slot.Range{First: uint16(first), Last: uint16(last)})
	}
	return b
}

// newSolo makes a machine from a state in text: "a 3 0-99" is a primary with epoch and slots, "b of a" a replica. It is a;
// the others are at 10.0.0.<letter>, each in its primary's shard, and all were heard just now.
func newSolo(t *testing.T, specs ...string) *solo {
	t.Helper()
	s := &solo{t: t, now: startTime, data: &nodeData{keys: map[uint16]int64{}}, in: map[byte]LinkID{}}
	file := &State{}
	for _, spec := range specs {
		f := strings.Fields(spec)
		c := f[0][0]
		n := nodesconf.Node{
			ID: letterID(c).String(), ShardID: letterID(c).String(), Flags: nodesconf.Primary, IP: "10.0.0." + f[0],
			Port: 7000 + int(c), BusPort: 17000 + int(c),
		}
		if f[1] == "of" {
			n.Flags, n.PrimaryID = nodesconf.Replica, letterID(f[2][0]).String()
		} else {
			n.Epoch = uint64(f[1][0] - '0')
			for _, r := range f[2:] {
				parsed, err := slot.ParseRange(r)
				if err != nil {
					t.Fatal(err)
				}
				n.Slots = append(n.Slots, parsed)
			}
		}
		if c == 'a' {
			n.Flags |= nodesconf.Myself
		}
		file.Nodes = append(file.Nodes, n)
	}
	seed := uint64(1)
	random := func() uint64 { seed = seed*6364136223846793005 + 1442695040888963407; return seed ^ seed>>29 }
	cfg := testConfig(0)
	cfg.FullCoverage = false
	m, err := New(cfg, s.data, random, file, s.now)
	if err != nil {
		t.Fatal(err)
	}
	s.Machine = m
	s.settleSaves(m.settle(s.now))
	for _, p := range m.peers {
		if p != m.me {
			s.open(p.ID[0])
		}
	}
	all := make([]byte, 0, len(m.peers))
	for _, p := range m.peers {
		if p != m.me {
			all = append(all, p.ID[0])
		}
	}
	s.tick(2100, all...) // past the delay after a start
	return s
}

func (s *solo) p(c byte) *Peer { return s.byID[letterID(c)] }

// settleSaves has every save succeed, and keeps the effects.
func (s *solo) settleSaves(effects []Effect) []Effect {
	s.last = effects
	for i := 0; i < len(s.last); i++ {
		if save, ok := s.last[i].(Save); ok {
			s.last = append(s.last, s.Persisted(s.now, save.Seq)...)
		}
	}
	return s.last
}

// open opens a link from a peer, which says hello on it, and answers the one that goes there.
func (s *solo) open(c byte) {
	s.next += 2
	s.in[c] = s.next
	s.Accepted(s.now, s.next, "10.0.0."+string(c), "10.0.0.a")
	for _, e := range s.settleSaves(s.Tick(s.now)) {
		if e, ok := e.(Connect); ok {
			s.Connected(s.now, e.Link, "10.0.0.a")
		}
	}
	if s.p(c) != nil {
		s.say(c, s.word(c, wire.Ping))
		s.pong(c)
	}
}

// word is what a peer's header says when it knows what this node knows of it.
func (s *solo) word(c byte, kind wire.Type) *wire.Message {
	msg := &wire.Message{
		Type: kind, Sender: letterID(c), Port: 7000 + uint16(c), BusPort: 17000 + uint16(c), CurrentEpoch: s.currentEpoch,
		Flags: wire.FlagPrimary, Slots: new(slot.Bitmap), Bits: wire.Extensions,
	}
	p := s.p(c)
	if p == nil {
		return msg
	}
	msg.Ext.ShardID = p.Shard
	if p.replica() {
		msg.Flags = wire.FlagReplica
		if p = p.Primary; p == nil {
			return msg
		}
		msg.Primary = p.ID
	}
	msg.ConfigEpoch, msg.Slots = p.Epoch, s.collect(p, true)
	return msg
}

// claims is a peer's ping, with these slots under this epoch.
func (s *solo) claims(c byte, epoch uint64, slots *slot.Bitmap) *wire.Message {
	msg := s.word(c, wire.Ping)
	msg.Primary, msg.Flags = wire.ID{}, wire.FlagPrimary
	msg.ConfigEpoch, msg.CurrentEpoch, msg.Slots = epoch, max(epoch, s.currentEpoch), slots
	return msg
}

// say has a peer say something on the link that it opened.
func (s *solo) say(c byte, msg *wire.Message) []Effect {
	return s.settleSaves(s.Step(s.now, s.in[c], msg))
}

// pong has a peer answer on the link to it.
func (s *solo) pong(c byte) []Effect {
	return s.settleSaves(s.Step(s.now, s.p(c).out, s.word(c, wire.Pong)))
}

// tick lets time pass, in which the peers named answer all pings.
func (s *solo) tick(ms int64, answer ...byte) {
	for end := s.now + ms; s.now < end; {
		s.now += 100
		for _, e := range s.settleSaves(s.Tick(s.now)) {
			if e, ok := e.(Connect); ok {
				s.settleSaves(s.Connected(s.now, e.Link, "10.0.0.a"))
			}
		}
		for _, c := range answer {
			if p := s.p(c); p.outUp && p.PingSent != 0 {
				s.pong(c)
			}
		}
	}
}

// hears has a peer gossip about another node.
func (s *solo) hears(from, about byte, flags wire.Flags) []Effect {
	msg := s.word(from, wire.Ping)
	msg.Gossip = []wire.Gossip{{
		ID: letterID(about), IP: "10.0.0." + string(about), Port: 7000 + uint16(about), BusPort: 17000 + uint16(about),
		Flags: flags,
	}}
	return s.say(from, msg)
}

// owns counts the slots that a peer has in the table.
func (s *solo) owns(c byte) int { return s.p(c).Slots }

// find gives the effects of one type.
func find[E Effect](effects []Effect) (found []E) {
	for _, e := range effects {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// sent gives the messages of a type among effects.
func sent(effects []Effect, kind wire.Type) (found []*wire.Message) {
	for _, e := range find[Send](effects) {
		if e.Msg.Type == kind {
			found = append(found, e.Msg)
		}
	}
	return found
}
