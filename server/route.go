package server

import (
	"fmt"
	"strings"

	"cairn/cluster"
	"cairn/engine"
	"cairn/internal/slot"
	"cairn/server/command"
)

// Redirection: what a client is told about keys that this node does not serve. Texts are Redis's.

const (
	textCrossSlot = "CROSSSLOT Keys in request don't hash to the same slot"
	textDown      = "CLUSTERDOWN The cluster is down"
	textDownReads = "CLUSTERDOWN The cluster is down and only accepts read commands"
	textUnbound   = "CLUSTERDOWN Hash slot not served"
)

// redirectArgs is redirect before any lock is taken, for commands that are queued or staged.
func (s *Server) redirectArgs(c *client, r *engine.Routing, cmd *command.Command, args [][]byte) string {
	if !r.Cluster || len(cmd.Keys) == 0 {
		return ""
	}
	slots, ok := cmd.AppendSlots(nil, args)
	if !ok {
		return ""
	}
	slots = command.SortSlots(slots)
	if len(slots) != 1 || !s.moving(c, r, cmd, slots[0]) || cmd.Is(command.OwnTxns) {
		return s.redirect(c, r, cmd, args, slots)
	}
	for {
		c.txn.Begin(slots, false, s.clock())
		// A key that is gone, and may come back, must not be told to be elsewhere.
		if over := s.leaving.holds(cmd, args, false); over != nil {
			c.txn.End()
			if s.awaitLeft(c, over) {
				continue
			}
			return ""
		}
		text := s.redirect(c, c.txn.Routing(), cmd, args, slots)
		c.txn.End()
		return text
	}
}

// refuseLoading answers a command that wants data while it is not there. A node that goes back to a fork knows who has what:
// as with Redis its clients are sent there first.
func (s *Server) refuseLoading(c *client, cmd *command.Command, args [][]byte) string {
	if !s.Serves() {
		return textLoading // nor is the cluster there
	}
	r := s.store.Routing()
	if !r.Cluster || len(cmd.Keys) == 0 {
		return textLoading
	}
	slots, ok := cmd.AppendSlots(nil, args)
	if !ok {
		return textLoading
	}
	slots = command.SortSlots(slots)
	if len(slots) == 1 && s.moving(c, r, cmd, slots[0]) {
		return textLoading // which of the two nodes has a key is not known
	}
	if text := s.redirect(c, r, cmd, args, slots); text != "" {
		return text
	}
	return textLoading
}

// redirect says where the keys in slots are served, "" when it is here. A slot that is on its way must be locked in c.txn.
func (s *Server) redirect(c *client, r *engine.Routing, cmd *command.Command, args [][]byte, slots []uint16) string {
	if !r.Cluster || len(slots) == 0 || len(slots) == slot.Count {
		return "" // a command on all slots is about this node
	}
	first := slots[0]
	if len(slots) > 1 {
		if first = firstSlot(cmd, args); r.Slots[first]&engine.SlotUnserved != 0 {
			return textUnbound
		}
		return textCrossSlot
	}
	if r.Slots[first]&engine.SlotUnserved != 0 {
		return textUnbound
	}
	if text := s.refuseDown(r, cmd); text != "" {
		return text
	}
	if s.moving(c, r, cmd, first) && !ofChannels(cmd) {
		if cmd.Is(command.OwnTxns) {
			return "" // MIGRATE takes keys out of a slot, wherever that is on its way to or from
		}
		if c.txn == nil || !c.txn.Open() {
			return textTryAgain // it began to move since the caller looked
		}
		var keys keyCount
		if err := keys.add(c, cmd, args); err != nil {
			return "IOERR " + err.Error()
		}
		return s.redirectMoving(c, r, cmd.Is(command.Asking), first, &keys)
	}
	if r.Slots[first]&engine.SlotOwned != 0 && (!r.Replica || s.readsHere(c, cmd)) {
		return ""
	}
	return s.elsewhere(r, first)
}

// refuseDown says what a cluster that is down answers to a command, "" when it is not down, or does not refuse it.
func (s *Server) refuseDown(r *engine.Routing, cmd *command.Command) string {
	switch v := &s.cfg.V; {
	case !r.Down && cmd.Is(command.Write) && s.bus.Slept():
		return textDown
	case !r.Down, ofChannels(cmd) && v.ClusterPubSubWhenDown.Load():
		return ""
	case ofChannels(cmd) || !v.ClusterReadsWhenDown.Load():
		return textDown
	case cmd.Is(command.Write):
		return textDownReads
	}
	return ""
}

// ofChannels says whether what a command names are shard channels, not keys.
func ofChannels(cmd *command.Command) bool { return cmd.Is(command.PubSub) }

// readsHere says whether a replica serves a command itself: one about shard channels, or one that reads, for a client
// that said READONLY.
func (s *Server) readsHere(c *client, cmd *command.Command) bool {
	return ofChannels(cmd) || c != nil && c.readAny && !cmd.Is(command.Write)
}

// firstSlot is the slot of the first key that args name.
func firstSlot(cmd *command.Command, args [][]byte) uint16 {
	var buf [8]uint16
	slots, _ := cmd.AppendSlots(buf[:0], args)
	return slots[0]
}

// redirectExec asks the same for all keys of a transaction together. A redirection is told as it is, so that clients can
// follow it.
func (s *Server) redirectExec(c *client, r *engine.Routing) string {
	if !r.Cluster {
		return ""
	}
	text := s.redirectQueued(c, r)
	if strings.HasPrefix(text, "IOERR ") {
		text = "EXECABORT Transaction discarded because of: " + text
	}
	return text
}

func (s *Server) redirectQueued(c *client, r *engine.Routing) string {
	slot, onTheWay, asking := -1, false, true
	var keys keyCount
	for _, q := range c.multi.queue {
		if len(q.cmd.Keys) == 0 {
			continue
		}
		slots, _ := q.cmd.AppendSlots(c.slots[:0], q.args)
		c.slots = command.SortSlots(slots)
		if len(c.slots) == 0 {
			continue
		}
		if slot >= 0 && int(c.slots[0]) != slot {
			return textCrossSlot
		}
		slot = int(c.slots[0])
		if len(c.slots) > 1 || !s.moving(c, r, q.cmd, c.slots[0]) || ofChannels(q.cmd) {
			if text := s.redirect(c, r, q.cmd, q.args, c.slots); text != "" {
				return text
			}
			continue
		}
		if text := s.refuseDown(r, q.cmd); text != "" {
			return text
		}
		onTheWay, asking = true, asking && q.cmd.Is(command.Asking)
		if err := keys.add(c, q.cmd, q.args); err != nil {
			return "IOERR " + err.Error()
		}
	}
	if !onTheWay {
		return ""
	}
	return s.redirectMoving(c, r, asking, uint16(slot), &keys)
}

// elsewhere is where a slot of another node is served.
func (s *Server) elsewhere(r *engine.Routing, sl uint16) string {
	v := viewOf(r)
	if v == nil || v.Owner[sl] == cluster.NoNode {
		return textUnbound
	}
	n := &v.Nodes[v.Owner[sl]]
	address, _ := s.preferred(n)
	return fmt.Sprintf("MOVED %d %s:%d", sl, address, n.Port)
}
