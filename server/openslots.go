package server

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cairn/cluster"
	"cairn/engine"
	"cairn/internal/resp"
	"cairn/replication"
	"cairn/server/command"
)

// Which slots are on their way is known to a primary's replicas, too, so that the move goes on when one of them takes
// over. It goes through the stream, in the words that Valkey 8 uses: an entry without rows
//
//	CLUSTER SETSLOT <slot> MIGRATING|IMPORTING|NODE <id>   or   CLUSTER SETSLOT <slot> STABLE
//
//	a client's SETSLOT   checked; logged; one replica has it; then done. What the node has done and told others, a replica
//	                     knows.
//	a full sync          all open slots are logged again behind the snapshot, which does not have them
//	any other change     (news of an owner, a failover) the difference to what was logged is logged
//
// Replicas that would not understand it (Redis) are not to get it: while one is attached, nothing of this is logged.
//
// The log is also what makes it quick: what it has need not wait for the sync of nodes.conf. A start does again what the
// part of the log says that it executes, in which the marks are that nodes.conf may lack. A slot's new owner is not taken
// from there, since it may be another one meanwhile: a target that lost its claim in a crash has the slot coming again, and
// takes it when it hears that the source gave it up (package cluster, openslots.go).

const (
	// slotAcks is how long a SETSLOT waits for a replica, unless TIMEOUT says otherwise, and slotAcksMost what that may say.
	slotAcks     = 2 * time.Second
	slotAcksMost = time.Minute
)

const (
	textSetSlotForm     = "ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP"
	textSetSlotPrimary  = "ERR Please use SETSLOT only with masters."
	textSetSlotShutdown = "ERR the node is shutting down"
)

// openSlots is what the log says of slots on their way.
type openSlots struct {
	mu       sync.Mutex // one change at a time, from its entry to the view in force
	told     map[uint16]openMark
	again    bool                    // told may lack something that was logged, or that replicas lack: all is to be logged again
	stale    atomic.Bool             // the view may differ from told
	recalled map[uint16]recalledSlot // what recovery met
}

// recalledSlot is what the entries say of a slot that recovery met.
type recalledSlot struct {
	last cluster.CmdSetSlot
	from string // where the slot last came from; "": not said
}

// openMark is one open slot.
type openMark struct {
	action cluster.SlotAction
	id     string
}

// note keeps in mind what an entry says.
func (o *openSlots) note(c cluster.CmdSetSlot) {
	if c.Action == cluster.SlotMigrating || c.Action == cluster.SlotImporting {
		if o.told == nil {
			o.told = make(map[uint16]openMark)
		}
		o.told[c.Slot] = openMark{c.Action, c.ID}
		return
	}
	delete(o.told, c.Slot)
}

// recall notes what an entry says that recovery meets.
func (o *openSlots) recall(commands [][][]byte) {
	for _, args := range commands {
		c, ok := setSlotOf(args)
		if !ok {
			continue
		}
		o.note(c)
		if o.recalled == nil {
			o.recalled = make(map[uint16]recalledSlot)
		}
		r := recalledSlot{c, o.recalled[c.Slot].from}
		if c.Action == cluster.SlotImporting {
			r.from = c.ID
		}
		o.recalled[c.Slot] = r
	}
}

// recallSlots does again what recovery met, before the bus speaks and the store is the node's. The cluster looks at each as
// if it came from a client: what does not fit the owners any more is passed over.
func (s *Server) recallSlots(store *engine.Store) {
	recalled := s.openSlots.recalled
	s.openSlots.recalled = nil
	if s.bus == nil || len(recalled) == 0 {
		return
	}
	v := s.bus.View()
	for _, sl := range slices.Sorted(maps.Keys(recalled)) {
		c := recalled[sl].last
		came := cameFrom(v, c, recalled[sl].from)
		switch {
		case came:
			c.Action, c.ID = cluster.SlotImporting, recalled[sl].from
		case c.Action == cluster.SlotNode && wentTo(store, v, c):
			c.Action = cluster.SlotMigrating
		case c.Action == cluster.SlotNode:
			continue
		}
		switch {
		case v.Replica():
			s.bus.Post(cluster.CmdHeedSlot(c))
		case came:
			s.bus.Post(cluster.CmdRecallSlot(c))
		default:
			s.bus.Post(cluster.CmdQuickSlot(c))
		}
	}
}

// cameFrom says that a slot was on its way here and came, by the log, and that nodes.conf has it with the shard that it came
// from, or with nobody: a crash has taken the claim back.
func cameFrom(v *cluster.View, c cluster.CmdSetSlot, from string) bool {
	if c.Action != cluster.SlotNode {
		return false
	}
	source, mine := v.Find(from), v.Shard()
	if source == cluster.NoNode || mine == cluster.NoNode || v.Nodes[mine].ID != c.ID {
		return false
	}
	owner := v.Owner[c.Slot]
	return owner == cluster.NoNode || v.Nodes[owner].ShardID == v.Nodes[source].ShardID
}

// wentTo says that a slot went to another node by the log, with all its keys, and that nodes.conf has it here: a crash has
// taken that back. The other may have crashed, too, and have taken its claim back: so the slot is not given away but
// shown as on its way, and clients are sent on to where the keys are.
func wentTo(store *engine.Store, v *cluster.View, c cluster.CmdSetSlot) bool {
	target := v.Find(c.ID)
	if v.Replica() || target == cluster.NoNode || v.Nodes[target].ShardID == v.Nodes[v.Myself].ShardID {
		return false
	}
	return v.Owner[c.Slot] == uint16(v.Myself) && store.SlotCounters(c.Slot).Keys == 0
}

// ClusterSetSlot is CLUSTER SETSLOT.
func (s *Server) ClusterSetSlot(x *command.Ctx) error {
	if err := s.inCluster(); err != nil {
		return err
	}
	if !s.loading.Load() && s.store.Routing().Replica {
		return command.Reply(textSetSlotPrimary)
	}
	c, limit, err := readSetSlot(x.Args)
	if err != nil {
		return err
	}
	if c.Action == cluster.SlotImporting && !(x.InMulti && clientOf(x).multi.locks) { // that one is refused
		if !s.loading.Load() && s.store.SlotCounters(c.Slot).Keys > 0 {
			s.bus.Do(cluster.CmdSave{}) // a loss of the slot that clients know of is on the list of drops when it is saved
		}
		if err := s.awaitDrop(c.Slot); err != nil {
			return err
		}
	}
	if c.Action == cluster.SlotMigrating && !s.loading.Load() && !x.InMulti {
		s.awaitEpoch(c.ID)
	}
	return s.setSlot(x, c, limit)
}

// epochWait is how long a slot that is to go waits for the other end to hear this node's epoch. Most often it has.
const epochWait = time.Second

// awaitEpoch waits until a member has heard this node's config epoch; in vain if it does not answer, which is not the
// tool's error.
func (s *Server) awaitEpoch(id string) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(epochWait); !s.bus.Do(cluster.CmdAskEpoch{ID: id}).OK && time.Now().Before(until); {
		select {
		case <-tick.C:
		case <-s.stop:
			return
		}
	}
}

// readSetSlot reads the command: the form of Redis, and behind it TIMEOUT ms as in Valkey.
func readSetSlot(args [][]byte) (c cluster.CmdSetSlot, limit time.Duration, err error) {
	if c.Slot, err = parseSlot(args[2]); err != nil {
		return c, 0, err
	}
	limit = slotAcks
	if n := len(args); n > 5 && resp.IsWord(args[n-2], "timeout") || n == 6 && resp.IsWord(args[4], "timeout") {
		if limit, err = timeoutOf(args[n-1]); err != nil {
			return c, 0, err
		}
		if limit == 0 || limit > slotAcksMost {
			limit = slotAcksMost
		}
		args = args[:n-2]
	}
	switch {
	case resp.IsWord(args[3], "stable") && len(args) == 4:
		return c, limit, nil
	case resp.IsWord(args[3], "migrating") && len(args) == 5:
		c.Action = cluster.SlotMigrating
	case resp.IsWord(args[3], "importing") && len(args) == 5:
		c.Action = cluster.SlotImporting
	case resp.IsWord(args[3], "node") && len(args) == 5:
		c.Action = cluster.SlotNode
	default:
		return c, 0, command.Reply(textSetSlotForm)
	}
	c.ID = string(args[4])
	return c, limit, nil
}

// setSlotOf says whether a command of a stream is CLUSTER SETSLOT, and what it says.
func setSlotOf(args [][]byte) (cluster.CmdSetSlot, bool) {
	if len(args) < 4 || !resp.IsWord(args[0], "cluster") || !resp.IsWord(args[1], "setslot") {
		return cluster.CmdSetSlot{}, false
	}
	c, _, err := readSetSlot(args)
	return c, err == nil
}

// words is the command as it is logged, without its name.
func (c *openMark) words(sl uint16) []string {
	words := []string{"SETSLOT", strconv.Itoa(int(sl))}
	switch c.action {
	case cluster.SlotStable:
		return append(words, "STABLE")
	case cluster.SlotMigrating:
		return append(words, "MIGRATING", c.id)
	case cluster.SlotImporting:
		return append(words, "IMPORTING", c.id)
	}
	return append(words, "NODE", c.id)
}

// setSlot checks a SETSLOT, has replicas know of it, and does it.
func (s *Server) setSlot(x *command.Ctx, c cluster.CmdSetSlot, limit time.Duration) error {
	s.openSlots.mu.Lock()
	defer func() {
		s.openSlots.mu.Unlock()
		s.openChanged() // what came meanwhile, or was logged and not done
	}()
	if !s.loading.Load() {
		s.unsavedSlots.begin(s.wal.End)
		defer s.unsavedSlots.end()
	}
	for {
		ans, err := s.clusterAsk(x, cluster.CmdCheckSlot(c))
		if err != nil {
			return err
		}
		logged := !ans.Replicas // it concerns others only
		if ans.Replicas {
			logged, err = s.tellReplicas(c, limit)
		}
		switch {
		case errors.Is(err, replication.ErrNotNow):
			// A failover is under way, and what is done now its winner would not know.
			if !s.awaitWrites(clientOf(x)) {
				return command.Reply(textSetSlotShutdown)
			}
			continue
		case err != nil:
			return err
		case logged:
			return s.clusterOK(x, cluster.CmdQuickSlot(c))
		}
		return s.clusterOK(x, c)
	}
}

// tellReplicas logs a SETSLOT, if it may be logged, and waits until a replica has it; for limit at most. The caller holds
// openSlots.mu.
func (s *Server) tellReplicas(c cluster.CmdSetSlot, limit time.Duration) (logged bool, err error) {
	if !s.replicasHeed() {
		return false, nil
	}
	end, err := s.logOpen(c.Slot, openMark{c.Action, c.ID})
	switch {
	case errors.Is(err, replication.ErrNotNow):
		return false, err
	case err != nil:
		return false, refuseWrite(err)
	}
	if err := s.wal.WaitDurable(end); err != nil {
		return false, err
	}
	if !s.awaitReplica(end, limit, s.draining.Load) && !s.draining.Load() {
		s.log.Warning("no replica has acknowledged a SETSLOT, which is done nevertheless", "slot", c.Slot, "ms", limit.Milliseconds())
	}
	return true, nil
}

// replicasHeed says that all attached replicas understand SETSLOT in the stream.
func (s *Server) replicasHeed() bool {
	return s.primary.Every(func(h *replication.Hello) bool { return h.RDBOnly || h.Slots || h.Rows || h.Fork })
}

// logOpen appends one entry.
func (s *Server) logOpen(sl uint16, mark openMark) (end int64, err error) {
	if end, err = s.appendControl(append([]string{"CLUSTER"}, mark.words(sl)...)...); err == nil {
		s.openSlots.note(cluster.CmdSetSlot{Slot: sl, Action: mark.action, ID: mark.id})
	}
	return end, err
}

// openChanged has what the log says of open slots brought up to the view in force. It does not wait for whoever changes it.
func (s *Server) openChanged() {
	if s.loading.Load() || s.primary == nil {
		return
	}
	o := &s.openSlots
	o.stale.Store(true)
	for o.stale.Load() && o.mu.TryLock() {
		o.stale.Store(false)
		s.logDifference()
		o.mu.Unlock()
	}
}

// logOpenAgain logs all open slots, for a replica whose data set does not have them.
func (s *Server) logOpenAgain() {
	if s.bus == nil {
		return
	}
	s.openSlots.mu.Lock()
	s.openSlots.again = true
	s.openSlots.mu.Unlock()
	s.openChanged()
}

// logDifference logs what the view says and the log does not. The caller holds openSlots.mu.
func (s *Server) logDifference() {
	o := &s.openSlots
	r := s.store.Routing()
	v := viewOf(r)
	if v == nil {
		return
	}
	if r.Replica || v.Replica() {
		o.told, o.again = nil, true // the stream is its primary's
		return
	}
	if len(v.Migrating)+len(v.Importing)+len(o.told) == 0 {
		o.again = false
		return
	}
	if !s.replicasHeed() {
		return
	}
	end, err := s.logMarks(marksOf(v))
	switch {
	case errors.Is(err, replication.ErrNotNow):
		return // it will be looked at again
	case err == nil:
		err = s.wal.WaitDurable(end)
	}
	if err != nil {
		s.log.Warning("replicas are not told which slots are on their way", "err", err)
	}
}

// logMarks logs what is not logged of want.
func (s *Server) logMarks(want map[uint16]openMark) (end int64, err error) {
	o := &s.openSlots
	for _, sl := range slices.Sorted(maps.Keys(o.told)) {
		if _, ok := want[sl]; ok {
			continue
		}
		if end, err = s.logOpen(sl, openMark{action: cluster.SlotStable}); err != nil {
			return end, err
		}
	}
	for _, sl := range slices.Sorted(maps.Keys(want)) {
		if o.told[sl] == want[sl] && !o.again {
			continue
		}
		if end, err = s.logOpen(sl, want[sl]); err != nil {
			return end, err
		}
	}
	o.again = false
	return end, nil
}

// marksOf gives the open slots of a view.
func marksOf(v *cluster.View) map[uint16]openMark {
	marks := make(map[uint16]openMark, len(v.Migrating)+len(v.Importing))
	for sl, at := range v.Importing {
		marks[sl] = openMark{cluster.SlotImporting, v.Nodes[at].ID}
	}
	for sl, at := range v.Migrating {
		marks[sl] = openMark{cluster.SlotMigrating, v.Nodes[at].ID}
	}
	return marks
}

// heedSlots tells the cluster what the primary says of slots on their way, in the commands of one entry.
func (a *applier) heedSlots(commands [][][]byte) error {
	if a.s.bus == nil {
		return nil
	}
	for _, args := range commands {
		if c, ok := setSlotOf(args); ok {
			a.s.unsavedSlots.begin(a.s.wal.End)
			defer a.s.unsavedSlots.end()
			if err := a.s.bus.Post(cluster.CmdHeedSlot(c)).Err; err != nil {
				return fmt.Errorf("take up a SETSLOT of the primary: %w", err)
			}
		}
	}
	return nil
}

// forgetSlots forgets what the primary said of slots on their way: the data changes to another state of the primary's.
func (a *applier) forgetSlots() error {
	if a.s.bus == nil {
		return nil
	}
	if err := a.s.bus.DoSaved(cluster.CmdCloseSlots{}).Err; err != nil {
		return fmt.Errorf("close the slots of the primary: %w", err)
	}
	return nil
}

// heedStates takes the open slots that a data set of Valkey lists: slot, then > and the target or < and the source, then
// a comma.
func (a *applier) heedStates(states string) error {
	if a.s.bus == nil {
		return nil
	}
	for word := range strings.SplitSeq(states, ",") {
		at := strings.IndexAny(word, "<>")
		if at < 0 {
			continue
		}
		action := "IMPORTING"
		if word[at] == '>' {
			action = "MIGRATING"
		}
		args := bytes.Fields([]byte("CLUSTER SETSLOT " + word[:at] + " " + action + " " + word[at+1:]))
		if err := a.heedSlots([][][]byte{args}); err != nil {
			return err
		}
	}
	return a.s.bus.DoSaved(cluster.CmdSave{}).Err // no log has them
}

// takeFoundSlots makes a node that is alone the owner of the slots that it has keys of: its data is older than its cluster.
func (s *Server) takeFoundSlots() {
	if s.bus != nil {
		s.bus.Do(cluster.CmdTakeFound{}) // an error says that the node ends
	}
}
