package cluster

import (
	"strings"
	"sync"
	"testing"

	"cairn/cluster/wire"
)

// The museum: bugs that clusters have had, made again around the machine. The simulation must find each of them, by the
// rule that it breaks, or it would not find the next one of its kind.

type simBug string

const (
	bugVoteUnsaved    simBug = "a vote leaves before it is on disk"
	bugVoteForgotten  simBug = "a node forgets after a restart that it voted"
	bugStaleWins      simBug = "an older epoch takes a slot"
	bugEqualWins      simBug = "an equal epoch takes a slot"
	bugFailAlone      simBug = "one node's suspicion is enough"
	bugVotesTwice     simBug = "a vote counts twice"
	bugBlacklist      simBug = "gossip brings back who was forgotten"
	bugOffsetAhead    simBug = "the offset counts what was not executed"
	bugPauseTold      simBug = "the pause is told before it is in force"
	bugMinorityServes simBug = "a minority goes on writing"
	bugSubReplica     simBug = "a replica stays with a replica"
	bugNoBump         simBug = "a moved slot is claimed in the old epoch"
	bugSameEpoch      simBug = "a moved slot is claimed in the old epoch if that is the highest"
	bugGivesBack      simBug = "a moved slot is given back to a source that does not know yet"
	bugSenderEpoch    simBug = "an old claim counts as one of the sender's last epoch"
	bugRejoinsAtOnce  simBug = "who was in a minority serves at once when it is over"
)

// mischiefBefore makes bugs that come before a message is taken.
func (w *simWorld) mischiefBefore(n *simNode, msg *wire.Message) *wire.Message {
	switch w.bug {
	case bugBlacklist:
		n.m.forgot = nil
	case bugGivesBack:
		clear(n.m.slots.taken)
	case bugSenderEpoch:
		if p := n.m.byID[msg.Sender]; p != nil && p.primary() && msg.Primary.IsZero() && msg.ConfigEpoch < p.Epoch {
			forged := *msg // it may be on its way to others, too
			forged.ConfigEpoch = p.Epoch
			return &forged
		}
	}
	return msg
}

// mischiefAfter makes bugs that come with a message.
func (w *simWorld) mischiefAfter(n *simNode, before *simBefore, msg *wire.Message, effects []Effect) []Effect {
	m := n.m
	sender := m.byID[msg.Sender]
	if w.bug == "" || sender == nil || sender == m.me || sender.handshake() {
		return effects
	}
	switch w.bug {
	case bugStaleWins, bugEqualWins:
		if !msg.Primary.IsZero() || !sender.primary() || msg.Slots == nil || msg.Type > wire.Meet {
			break
		}
		for i := range simHot {
			s := simHotSlot(i)
			p := m.owner(s)
			if msg.Slots.Has(s) && p != nil && p != sender && (w.bug == bugStaleWins || p.Epoch == msg.ConfigEpoch) {
				m.assign(s, sender)
			}
		}
	case bugVotesTwice:
		if e := &m.election; msg.Type == wire.AuthAck && e.sent && len(e.voters) > 0 {
			e.voters = append(e.voters, sender)
			m.askElection()
		}
	case bugSubReplica:
		if p := before.primary; p != nil && p.replica() && p.Primary != nil && m.me.Primary == p.Primary {
			m.setPrimary(m.me, p)
		}
	}
	return append(effects, m.settle(n.clock())...)
}

// mischiefTick makes bugs that come with time.
func (w *simWorld) mischiefTick(n *simNode) {
	m := n.m
	switch w.bug {
	case bugRejoinsAtOnce:
		m.state.minorityAt = 0
		return
	case bugFailAlone:
	default:
		return
	}
	for _, p := range m.peers {
		if p.any(wire.FlagMaybeFailed) {
			m.setFailed(n.clock(), p)
			msg := m.header(wire.Fail)
			msg.Failed = p.ID
			m.broadcast(msg, 0)
		}
	}
}

func TestSimFindsBugs(t *testing.T) {
	exhibits := []struct {
		bug   simBug
		class simClass
		rules string // one of which finds it
		seeds int
	}{
		{bugVoteUnsaved, simStrict, "vote epoch", 60},
		{bugVoteForgotten, simStrict, "vote epoch", 60},
		{bugStaleWins, simStrict, "stale", 20},
		{bugEqualWins, simLoose, "stale", 60},
		{bugFailAlone, simStrict, "fail", 20},
		{bugVotesTwice, simStrict, "quorum", 40},
		{bugBlacklist, simMembers, "forgotten", 60},
		{bugOffsetAhead, simStrict, "offset", 60},
		{bugPauseTold, simStrict, "offset", 60},
		{bugMinorityServes, simStrict, "minority", 40},
		{bugSubReplica, simStrict, "ties", 60},
		{bugRejoinsAtOnce, simStrict, "rejoin", 60},
		{bugNoBump, simMoves, "two owners no owner tables stale", 60},
		{bugStaleWins, simMoves, "two owners no owner tables stale", 20},
		{bugSameEpoch, simMoves, "stale", 200},
		{bugGivesBack, simMoves, "keys two owners", 200},
		{bugSenderEpoch, simMoves, "two owners no owner tables stale keys", 100},
	}
	var mu sync.Mutex
	for _, x := range exhibits {
		t.Run(strings.ReplaceAll(string(x.class)+" "+string(x.bug), " ", "-"), func(t *testing.T) {
			found, how := 0, error(nil)
			simEach(x.seeds, func(i int) bool {
				w := simWith(uint64(i+1), x.bug, x.class)
				if w.failure == nil {
					return true
				}
				mu.Lock()
				defer mu.Unlock()
				rule, _, _ := strings.Cut(w.failure.Error(), " at ")
				if strings.Contains(x.rules, rule) {
					if found == 0 || i+1 < found {
						found, how = i+1, w.failure
					}
					return false
				}
				t.Logf("seed %d: %v", i+1, w.failure)
				return true
			})
			if found == 0 {
				t.Fatalf("not found in %d runs", x.seeds)
			}
			t.Logf("seed %d: %v", found, how)
		})
	}
}

// simWith is a run with a bug.
func simWith(seed uint64, bug simBug, class simClass) *simWorld {
	if class == simMoves {
		s := newSimStale(seed, bug, nil)
		s.run()
		return s.w
	}
	w := newSimWorld(simPlan{seed: seed, nodes: 12, length: 120_000, bug: bug, class: class}, nil)
	w.run()
	return w
}
