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
func (s *Server) redirect(c *client, r *engine.Routing, _ *command.Command, _ [][]byte, slots []uint16) string {
	if !r.Cluster || len(slots) == 0 {
		return ""
	}
	if len(slots) > 1 && len(slots) < slot.Count {
		return textCrossSlot
	}
	if len(slots) == slot.Count {
		return "" // a command on all slots is about this node
	}
	if r.Slots[slots[0]]&engine.SlotOwned != 0 {
		if r.Down {
			return textDown
		}
		return ""
	}
	return s.routes.elsewhere(r, slots[0])
}

// redirectExec asks the same for all keys of a transaction together.
func (s *Server) redirectExec(c *client, r *engine.Routing) string {
	if !r.Cluster {
		return ""
	}
	var slots []uint16
	for _, q := range c.multi.queue {
		if len(q.cmd.Keys) > 0 {
			slots, _ = q.cmd.AppendSlots(slots, q.args)
		}
	}
	slots = command.SortSlots(slots)
	if len(slots) > 1 {
		return textCrossSlot
	}
	if text := s.redirect(c, r, nil, nil, slots); text != "" {
		return "EXECABORT Transaction discarded because of: " + text
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
