package cluster

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"

	"cairn/cluster/nodesconf"
	"cairn/cluster/wire"
	"cairn/internal/slot"
)

// simPlan says which run it is.
type simPlan struct {
	seed   uint64
	nodes  int
	length int64 // ms
	wire   int   // percent of the messages that pass the byte format
	bug    simBug
	class  simClass
	quiet  bool // no faults but those that a test makes
}

// simClass is what may happen in a run, and so what must hold.
type simClass string

const (
	simStrict  simClass = "strict"  // no epochs are made without votes: no slot has two owners in one epoch
	simLoose   simClass = "loose"   // TAKEOVER, BUMPEPOCH, SETSLOT: collisions come, and must be gone at the end
	simMembers simClass = "members" // nodes are forgotten, reset and met
	simMoves   simClass = "moves"   // a round of stale news, see simStale
	simMad     simClass = "mad"     // one node talks nonsense: the others need not agree, but stay sane
)

type simWorld struct {
	plan    simPlan
	class   simClass
	bug     simBug
	log     func(string)
	now     int64
	events  simHeap
	trace   uint64
	failure error
	counts  simCounts

	net, disk, faults, load, mad *rand.Rand // each for its purpose, so that more of one does not change the others

	nodes     []*simNode
	address   map[string]int32 // of bus ports
	client    map[string]int32 // of client ports
	cutOff    []bool
	stalled   []*simConn
	part      simPart
	timeout   int64
	latency   int64
	tail      int  // per mille of the messages that are very late
	calm      bool // no faults any more
	big       bool // too many nodes for the costly checks
	histories int
	nextIP    int
	healedAt  int64
	agreedAt  int64 // when all agreed after healing; 0: not yet

	healedEpoch uint64 // the highest current epoch when faults ended
	quietFrom   int64  // messages until the last, quiet part of the run

	rules simRules
	stale *simStale // of a round of stale news; else nil
}

func newSimWorld(p simPlan, log func(string)) *simWorld {
	stream := func(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(p.seed, purpose)) }
	w := &simWorld{
		plan: p, class: p.class, bug: p.bug, log: log,
		net: stream(1), disk: stream(2), faults: stream(3), load: stream(4), mad: stream(5),
		address: map[string]int32{}, client: map[string]int32{}, big: p.nodes > 100,
	}
	shape := stream(6)
	if w.class == "" {
		w.class = [...]simClass{
			simStrict, simStrict, simLoose, simStrict, simMembers, simLoose, simStrict, simMad,
		}[shape.IntN(8)]
	}
	w.timeout = []int64{2000, 3000, 5000}[shape.IntN(3)]
	w.latency = []int64{1, 5, 40}[shape.IntN(3)]
	w.tail = shape.IntN(3)
	w.rules.init()
	primaries := max(3, p.nodes/[]int{2, 3, 4}[shape.IntN(3)])
	old := shape.IntN(4) == 0
	for i := range p.nodes {
		n := w.addNode(i)
		n.old = old && shape.IntN(3) == 0
		if shape.IntN(2) == 0 {
			n.drift = shape.Int64N(101) - 50
		}
	}
	if w.class == simMad {
		w.nodes[shape.IntN(p.nodes)].mad = true
	}
	w.form(shape, primaries)
	return w
}

func (w *simWorld) addNode(i int) *simNode {
	n := &simNode{w: w, at: int32(i), name: fmt.Sprintf("n%d", i), port: 7000, words: map[uint16]CmdSetSlot{}}
	n.data.n = n
	w.nodes = append(w.nodes, n)
	w.giveIP(n)
	n.cfg = Config{
		NodeTimeout: w.timeout, MigrationBarrier: 1, ValidityFactor: 10, ReplicaPingPeriod: 10_000, FullCoverage: true,
		ReplicaMigration: true, ManualTimeout: 5000, BlacklistTTL: 60_000, Port: n.port, BusPort: n.busPort(),
		NoteLevel: Warning + 1,
	}
	if w.log != nil {
		n.cfg.NoteLevel = Verbose
	}
	if w.class == simMembers {
		n.cfg.BlacklistTTL = 20_000
	}
	return n
}

// giveIP gives a node an address that none had before.
func (w *simWorld) giveIP(n *simNode) {
	if w.address[simAddress(n.ip, n.busPort())] == n.at {
		delete(w.address, simAddress(n.ip, n.busPort()))
		delete(w.client, fmt.Sprintf("%s:%d", n.ip, n.port))
	}
	w.nextIP++
	n.ip = fmt.Sprintf("10.%d.%d.%d", w.nextIP>>16, w.nextIP>>8&255, w.nextIP&255)
	w.address[simAddress(n.ip, n.busPort())] = n.at
	w.client[fmt.Sprintf("%s:%d", n.ip, n.port)] = n.at
}

func simID(r *rand.Rand) wire.ID { return Random(r.Uint64).id() }

// form gives the nodes their first states: those of a cluster that is there already.
func (w *simWorld) form(r *rand.Rand, primaries int) {
	ids := make([]wire.ID, len(w.nodes))
	all := make([]nodesconf.Node, len(w.nodes))
	for i, n := range w.nodes {
		ids[i] = simID(r)
		n.ids = append(n.ids, ids[i])
		w.rules.node[ids[i]] = n.at
		all[i] = nodesconf.Node{
			ID: ids[i].String(), IP: n.ip, Port: n.port, BusPort: n.busPort(), Connected: true, Flags: nodesconf.Primary,
			ShardID: ids[i%primaries].String(),
		}
		if i >= primaries {
			all[i].Flags, all[i].PrimaryID = nodesconf.Replica, ids[i%primaries].String()
			continue
		}
		all[i].Epoch, all[i].Slots = uint64(i+1), simShare(i, primaries)
	}
	for i, n := range w.nodes {
		s := &State{Nodes: append([]nodesconf.Node(nil), all...), CurrentEpoch: uint64(primaries)}
		s.Nodes[i].Flags |= nodesconf.Myself
		n.disk.state = s
		n.data.primary = i < primaries
		n.data.history = simHistory{id: 1 + i%primaries}
	}
	w.histories = primaries
}

// simShare is one primary's share of the slots.
func simShare(i, primaries int) []slot.Range {
	first, last := i*slot.Count/primaries, (i+1)*slot.Count/primaries-1
	return []slot.Range{{First: uint16(first), Last: uint16(last)}}
}

func (w *simWorld) fail(rule, format string, args ...any) {
	if w.failure == nil {
		w.failure = fmt.Errorf("%s at %d.%03d s: %s", rule, w.now/1000, w.now%1000, fmt.Sprintf(format, args...))
	}
}

// mark makes an event part of the trace.
func (w *simWorld) mark(kind simKind, n *simNode, what uint64) {
	h := w.trace ^ uint64(w.now)<<32 ^ uint64(kind)<<24 ^ uint64(n.at)<<8 ^ what
	h ^= h >> 29
	h *= 0x9E3779B97F4A7C15
	w.trace = h ^ h>>32
}

func (w *simWorld) note(n *simNode, format string, args ...any) {
	if w.log == nil {
		return
	}
	name, role := "-", ""
	if n != nil {
		name = n.name
		if n.m != nil {
			name += " " + string(n.m.me.ID[:6])
			if n.m.me.replica() {
				role = " r"
			}
		}
	}
	w.log(fmt.Sprintf("%4d.%03d %s%s: %s", w.now/1000, w.now%1000, name, role, fmt.Sprintf(format, args...)))
}

// later makes call happen in ms milliseconds.
func (w *simWorld) later(ms int64, call func()) {
	w.events.push(simEvent{at: w.now + ms, kind: simDo, node: -1, call: call})
}

// run is the whole run: faults in the first part, none in the second.
func (w *simWorld) run() {
	w.caught(w.play)
}

// caught makes a panic a failure.
func (w *simWorld) caught(f func()) {
	defer func() {
		if r := recover(); r != nil {
			w.failure = fmt.Errorf("panic at %d ms: %v\n%s", w.now, r, debug.Stack())
		}
	}()
	f()
}

func (w *simWorld) play() {
	w.counts.runs = 1
	for _, n := range w.nodes {
		n.start()
	}
	if w.plan.quiet {
		return
	}
	w.startFaults()
	w.until(w.plan.length * 6 / 10)
	w.heal()
	w.until(w.plan.length)
	w.atEnd()
}

// until runs all events up to a time.
func (w *simWorld) until(end int64) {
	for w.failure == nil && len(w.events.events) > 0 && w.events.events[0].at <= end {
		e := w.events.pop()
		w.now = max(w.now, e.at)
		w.counts.events++
		w.happen(e)
	}
	w.now = max(w.now, end)
}

func (w *simWorld) happen(e simEvent) {
	if e.kind == simDo {
		e.call()
		return
	}
	if e.conn != nil {
		w.arrive(e)
		return
	}
	n := w.nodes[e.node]
	if n.m == nil || n.life != e.life {
		return
	}
	if n.stopped {
		n.parked = append(n.parked, e)
		return
	}
	switch e.kind {
	case simTick:
		n.tick()
		w.events.push(simEvent{at: w.now + 100, kind: simTick, node: n.at, life: n.life})
	case simSaved:
		n.wrote()
	case simTask:
		n.didTask()
	}
}
