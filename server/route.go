package server

import (
	"fmt"

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

// redirectArgs is redirect before any lock is taken, for commands that are queued.
func (s *Server) redirectArgs(c *client, r *engine.Routing, cmd *command.Command, args [][]byte) string {
	if !r.Cluster || len(cmd.Keys) == 0 {
		return ""
	}
	slots, ok := cmd.AppendSlots(nil, args)
	if !ok {
		return ""
	}
	return s.redirect(c, r, cmd, args, command.SortSlots(slots))
}

// redirect says where the keys in slots are served, "" when it is here.
func (s *Server) redirect(_ *client, r *engine.Routing, cmd *command.Command, args [][]byte, slots []uint16) string {
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
	if r.Down {
		if !s.cfg.V.ClusterReadsWhenDown.Load() {
			return textDown
		}
		if cmd.Is(command.Write) {
			return textDownReads
		}
	}
	if r.Slots[first]&engine.SlotOwned != 0 {
		return ""
	}
	return s.routes.elsewhere(r, first)
}

// firstSlot is the slot of the first key that args name.
func firstSlot(cmd *command.Command, args [][]byte) uint16 {
	var buf [8]uint16
	slots, _ := cmd.AppendSlots(buf[:0], args)
	return slots[0]
}

// redirectExec asks the same for all keys of a transaction together.
func (s *Server) redirectExec(c *client, r *engine.Routing) string {
	if !r.Cluster {
		return ""
	}
	slot := -1
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
		if text := s.redirect(c, r, q.cmd, q.args, c.slots); text != "" {
			return "EXECABORT Transaction discarded because of: " + text
		}
	}
	return ""
}

// routes knows the other nodes' addresses. A node alone knows none.
type routes struct{}

func (*routes) elsewhere(r *engine.Routing, slot uint16) string {
	if addr, ok := r.Extra.(map[uint16]string); ok && addr[slot] != "" {
		return fmt.Sprintf("MOVED %d %s", slot, addr[slot])
	}
	return textUnbound
}
