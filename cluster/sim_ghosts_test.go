package cluster

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"cairn/cluster/nodesconf"
	"cairn/cluster/wire"
)

// Two clusters that never met, on machines that change their addresses: a node of one comes back where a node of the
// other was. Nobody may take a stranger for a member, and each cluster must find its own again.

type simTwo struct {
	w     *simWorld
	r     *rand.Rand
	half  int
	of    map[wire.ID]int
	swaps int
}

func newSimTwo(seed uint64, log func(string)) *simTwo {
	w := newSimWorld(simPlan{seed: seed, nodes: 12, class: simMembers, quiet: true}, log)
	t := &simTwo{w: w, r: rand.New(rand.NewPCG(seed, 8)), half: len(w.nodes) / 2, of: map[wire.ID]int{}}
	for i, n := range w.nodes {
		cluster, primaries := i/t.half, 3
		mine := &State{CurrentEpoch: uint64(primaries)}
		for j := range t.half {
			node := n.disk.state.Nodes[cluster*t.half+j]
			head := n.disk.state.Nodes[cluster*t.half+j%primaries]
			node.Flags &= nodesconf.Myself
			node.Flags |= nodesconf.Primary
			node.ShardID, node.PrimaryID, node.Slots, node.Epoch = head.ShardID, "", nil, 0
			if j < primaries {
				node.Slots, node.Epoch = simShare(j, primaries), uint64(j+1)
			} else {
				node.Flags = node.Flags&^nodesconf.Primary | nodesconf.Replica
				node.PrimaryID = head.ID
			}
			mine.Nodes = append(mine.Nodes, node)
		}
		n.disk.state = mine
		n.data.primary = i%t.half < primaries
		n.data.history = simHistory{id: 1 + cluster*primaries + i%t.half%primaries}
		t.of[n.ids[0]] = cluster
	}
	w.histories = 2 * 3
	return t
}

func (t *simTwo) run() {
	w := t.w
	w.caught(func() {
		w.counts.runs = 1
		for _, n := range w.nodes {
			n.start()
		}
		w.until(4000)
		t.watch()
		for range 8 {
			t.swap()
			w.until(w.now + t.r.Int64N(5*w.timeout))
		}
		w.until(w.now + 4*w.timeout)
		w.calm, w.healedAt = true, w.now
		w.until(w.now + 8*w.timeout + 6000)
		for c := range 2 {
			if why := t.differs(w.nodes[c*t.half : (c+1)*t.half]); why != "" && w.failure == nil {
				w.fail("agreement", "cluster %d, %d ms after the last change: %s", c, w.now-w.healedAt, why)
			}
		}
	})
}

// swap ends a process of each cluster, and begins each again at the address of the other, or one at a new address.
func (t *simTwo) swap() {
	w := t.w
	a, b := w.nodes[t.r.IntN(t.half)], w.nodes[t.half+t.r.IntN(t.half)]
	if a.m == nil || b.m == nil {
		return
	}
	t.swaps++
	a.crash(t.r.IntN(3) == 0)
	b.crash(t.r.IntN(3) == 0)
	w.later(t.r.Int64N(2*w.timeout), func() {
		old := a.ip
		w.giveIP(a)
		if t.r.IntN(4) > 0 {
			w.takeIP(a, b.ip)
		}
		w.takeIP(b, old)
		w.note(a, "has the address %s now, %s has %s", a.ip, b.name, b.ip)
		w.restart(a)
		w.later(t.r.Int64N(w.timeout), func() { w.restart(b) })
	})
}

// takeIP gives a node an address that another one may have had.
func (w *simWorld) takeIP(n *simNode, ip string) {
	if w.address[simAddress(n.ip, n.busPort())] == n.at {
		delete(w.address, simAddress(n.ip, n.busPort()))
		delete(w.client, fmt.Sprintf("%s:%d", n.ip, n.port))
	}
	n.ip = ip
	w.address[simAddress(ip, n.busPort())] = n.at
	w.client[fmt.Sprintf("%s:%d", ip, n.port)] = n.at
}

// watch looks ten times a second whether a table has nodes of the other cluster.
func (t *simTwo) watch() {
	w := t.w
	if w.failure != nil {
		return
	}
	w.later(100, t.watch)
	for i, n := range w.nodes {
		if n.m == nil {
			continue
		}
		for _, p := range n.m.peers {
			c, known := t.of[p.ID]
			if !p.handshake() && (!known || c != i/t.half) {
				w.fail("ghost", "node %s of cluster %d knows %s, of cluster %d", n.name, i/t.half, p.ID, c)
			}
		}
	}
}

// differs says what the nodes of one cluster see differently.
func (t *simTwo) differs(nodes []*simNode) string {
	for _, n := range nodes {
		switch {
		case n.m == nil:
			return fmt.Sprintf("node %s does not run", n.name)
		case len(n.m.peers) != t.half:
			return fmt.Sprintf("node %s knows %d nodes of %d", n.name, len(n.m.peers), t.half)
		case !n.m.state.ok:
			return fmt.Sprintf("node %s sees the cluster as failed", n.name)
		case t.w.digest(n.m) != t.w.digest(nodes[0].m):
			return simDifference(nodes[0], n)
		}
		for _, p := range n.m.peers {
			if p.any(anyFailure | wire.FlagNoAddr) {
				return fmt.Sprintf("node %s: %s has the flags %x", n.name, p.ID, p.Flags)
			}
		}
	}
	return ""
}

func TestSimTwoClusters(t *testing.T) {
	rounds := min(simStaleLane(), 200)
	var log func(string)
	if *simTrace && rounds == 1 {
		log = func(line string) { fmt.Println(line) }
	}
	runs := simCollect{t: t}
	simEach(rounds, func(i int) bool {
		seed := *simSeed + uint64(i)
		two := newSimTwo(seed, log)
		two.run()
		return runs.add(two.w, fmt.Sprintf("go test ./cluster -run 'TestSimTwoClusters$' -sim.seed=%d -sim.seeds=1 -sim.trace", seed))
	})
	t.Log(runs.counts.text())
}
