package server

import (
	"fmt"
	"net/netip"

	"cairn/cluster"
	"cairn/internal/resp"
	"cairn/internal/slot"
	"cairn/server/command"
)

// CLUSTER commands that change something. What they say is read here, with Redis's errors; what they do is the
// machine's.

// parseSlot reads a slot as CLUSTER commands take it.
func parseSlot(word []byte) (uint16, error) {
	n, ok := resp.ParseInt(word)
	if !ok || n < 0 || n >= slot.Count {
		return 0, command.Reply(textBadSlot)
	}
	return uint16(n), nil
}

// slotSet gathers the slots that a command names, and refuses one named twice.
type slotSet struct {
	named slot.Bitmap
	view  *cluster.View
	take  bool // the slots are taken away: they must have an owner
}

func (c *slotSet) add(first, last uint16) error {
	for sl := int(first); sl <= int(last); sl++ {
		has := c.view.Owner[sl] != cluster.NoNode
		switch {
		case c.take && !has:
			return command.Reply(fmt.Sprintf("ERR Slot %d is already unassigned", sl))
		case !c.take && has:
			return command.Reply(fmt.Sprintf("ERR Slot %d is already busy", sl))
		case c.named.Has(uint16(sl)):
			return command.Reply(fmt.Sprintf("ERR Slot %d specified multiple times", sl))
		}
		c.named.Set(uint16(sl))
	}
	return nil
}

func (c *slotSet) read(words [][]byte, ranges bool) error {
	if !ranges {
		// All words are looked at before the first slot, as in Redis: the error is then that of the bad word.
		for _, w := range words {
			if _, err := parseSlot(w); err != nil {
				return err
			}
		}
		for _, w := range words {
			sl, _ := parseSlot(w)
			if err := c.add(sl, sl); err != nil {
				return err
			}
		}
		return nil
	}
	for i := 0; i < len(words); i += 2 {
		first, err := parseSlot(words[i])
		if err != nil {
			return err
		}
		last, err := parseSlot(words[i+1])
		if err != nil {
			return err
		}
		if first > last {
			return command.Reply(fmt.Sprintf("ERR start slot number %d is greater than end slot number %d", first, last))
		}
		if err := c.add(first, last); err != nil {
			return err
		}
	}
	return nil
}

// clusterSlots is ADDSLOTS and its three relatives.
func (s *Server) clusterSlots(x *command.Ctx, ranges, take bool) error {
	if err := s.inCluster(); err != nil {
		return err
	}
	if ranges && len(x.Args)%2 == 1 {
		return command.Reply("ERR wrong number of arguments for '" + x.Cmd.FullName() + "' command")
	}
	set := slotSet{take: take, view: s.bus.View()}
	if err := set.read(x.Args[2:], ranges); err != nil {
		return err
	}
	if take {
		return s.clusterOK(x, cluster.CmdDelSlots{Slots: set.named})
	}
	return s.clusterOK(x, cluster.CmdAddSlots{Slots: set.named})
}

// ClusterAddSlots is CLUSTER ADDSLOTS.
func (s *Server) ClusterAddSlots(x *command.Ctx) error { return s.clusterSlots(x, false, false) }

// ClusterAddSlotsRange is CLUSTER ADDSLOTSRANGE.
func (s *Server) ClusterAddSlotsRange(x *command.Ctx) error { return s.clusterSlots(x, true, false) }

// ClusterDelSlots is CLUSTER DELSLOTS.
func (s *Server) ClusterDelSlots(x *command.Ctx) error { return s.clusterSlots(x, false, true) }

// ClusterDelSlotsRange is CLUSTER DELSLOTSRANGE.
func (s *Server) ClusterDelSlotsRange(x *command.Ctx) error { return s.clusterSlots(x, true, true) }

// ClusterFlushSlots is CLUSTER FLUSHSLOTS.
func (s *Server) ClusterFlushSlots(x *command.Ctx) error {
	return s.clusterOK(x, cluster.CmdFlushSlots{})
}

// ClusterReset is CLUSTER RESET.
func (s *Server) ClusterReset(x *command.Ctx) error {
	hard := false
	if len(x.Args) > 3 {
		return clusterUsage(x)
	}
	if len(x.Args) == 3 {
		if hard = x.Is(2, "hard"); !hard && !x.Is(2, "soft") {
			return command.ErrSyntax
		}
	}
	return s.clusterOK(x, cluster.CmdReset{Hard: hard})
}

// ClusterSetConfigEpoch is CLUSTER SET-CONFIG-EPOCH.
func (s *Server) ClusterSetConfigEpoch(x *command.Ctx) error {
	epoch, ok := resp.ParseInt(x.Args[2])
	if !ok {
		return command.ErrNotInteger
	}
	return s.clusterOK(x, cluster.CmdSetConfigEpoch{Epoch: epoch})
}

// ClusterBumpEpoch is CLUSTER BUMPEPOCH.
func (s *Server) ClusterBumpEpoch(x *command.Ctx) error {
	ans, err := s.clusterDo(x, cluster.CmdBumpEpoch{})
	if err == nil {
		x.W.Simple(fmt.Sprintf("%s %d", ans.Word, ans.Epoch))
	}
	return err
}

// ClusterSaveConfig is CLUSTER SAVECONFIG.
func (s *Server) ClusterSaveConfig(x *command.Ctx) error { return s.clusterOK(x, cluster.CmdSave{}) }

// ClusterMeet is CLUSTER MEET.
func (s *Server) ClusterMeet(x *command.Ctx) error {
	if err := s.inCluster(); err != nil {
		return err
	}
	if len(x.Args) > 5 {
		return clusterUsage(x)
	}
	port, ok := resp.ParseInt(x.Args[3])
	if !ok {
		return command.Reply(fmt.Sprintf("ERR Invalid base port specified: %.128s", x.Args[3]))
	}
	busPort := port + 10000
	if len(x.Args) == 5 {
		if busPort, ok = resp.ParseInt(x.Args[4]); !ok {
			return command.Reply(fmt.Sprintf("ERR Invalid bus port specified: %.128s", x.Args[4]))
		}
	}
	ip, err := netip.ParseAddr(string(x.Args[2]))
	if err != nil || port <= 0 || port > 65535 || busPort <= 0 || busPort > 65535 {
		return command.Reply(fmt.Sprintf("ERR Invalid node address specified: %.128s:%.128s", x.Args[2], x.Args[3]))
	}
	return s.clusterOK(x, cluster.CmdMeet{IP: ip.String(), Port: int(port), BusPort: int(busPort)})
}

// ClusterForget is CLUSTER FORGET.
func (s *Server) ClusterForget(x *command.Ctx) error {
	return s.clusterOK(x, cluster.CmdForget{ID: string(x.Args[2])})
}

// ClusterReplicate is CLUSTER REPLICATE.
func (s *Server) ClusterReplicate(x *command.Ctx) error {
	return s.clusterOK(x, cluster.CmdReplicate{ID: string(x.Args[2])})
}

// ClusterFailover is CLUSTER FAILOVER.
func (s *Server) ClusterFailover(x *command.Ctx) error {
	if len(x.Args) > 3 {
		return clusterUsage(x)
	}
	mode := cluster.Coordinated
	if len(x.Args) == 3 {
		switch {
		case x.Is(2, "force"):
			mode = cluster.Force
		case x.Is(2, "takeover"):
			mode = cluster.Takeover
		default:
			return command.ErrSyntax
		}
	}
	return s.clusterOK(x, cluster.CmdFailover{Mode: mode})
}

// Asking is ASKING.
func (s *Server) Asking(x *command.Ctx) error {
	return s.clusterFlag(x, func(c *client) { c.asking = true })
}

// ReadOnly is READONLY.
func (s *Server) ReadOnly(x *command.Ctx) error {
	return s.clusterFlag(x, func(c *client) { c.readAny = true })
}

// ReadWrite is READWRITE.
func (s *Server) ReadWrite(x *command.Ctx) error {
	return s.clusterFlag(x, func(c *client) { c.readAny = false })
}

func (s *Server) clusterFlag(x *command.Ctx, f func(*client)) error {
	if !s.ClusterEnabled() {
		return command.Reply(textNoCluster)
	}
	f(clientOf(x))
	x.W.OK()
	return nil
}
