package server

import (
	"fmt"
	"net/netip"

	"cairn/cluster/nodesconf"
	"cairn/internal/resp"
	"cairn/server/command"
)

// Commands that need other nodes. Without a bus they say what is wrong with the request as Redis would, and
// otherwise that they cannot.

func clusterCannot(what string) error {
	return command.Reply("ERR CLUSTER " + what + " is not supported yet")
}

// ClusterMeet is CLUSTER MEET.
func (s *Server) ClusterMeet(x *command.Ctx) error {
	return s.clusterHandler(func(*clusterView) error {
		if len(x.Args) > 5 {
			return clusterUsage(x)
		}
		port, ok := resp.ParseInt(x.Args[3])
		if !ok {
			return command.Reply(fmt.Sprintf("ERR Invalid base port specified: %.128s", x.Args[3]))
		}
		if len(x.Args) == 5 {
			if _, ok := resp.ParseInt(x.Args[4]); !ok {
				return command.Reply(fmt.Sprintf("ERR Invalid bus port specified: %.128s", x.Args[4]))
			}
		}
		if _, err := netip.ParseAddr(string(x.Args[2])); err != nil || port <= 0 || port > 65535 {
			return command.Reply(fmt.Sprintf("ERR Invalid node address specified: %.128s:%.128s", x.Args[2], x.Args[3]))
		}
		return clusterCannot("MEET")
	})
}

// ClusterForget is CLUSTER FORGET.
func (s *Server) ClusterForget(x *command.Ctx) error {
	err := s.clusterChange(x, func(f *nodesconf.File) error {
		n, err := s.admin.cluster.lookUp(x.Args[2])
		switch {
		case err != nil:
			return err
		case n.Flags&nodesconf.Myself != 0:
			return command.Reply("ERR I tried hard but I can't forget myself...")
		}
		for i := range f.Nodes {
			if f.Nodes[i].ID == n.ID {
				f.Nodes = append(f.Nodes[:i], f.Nodes[i+1:]...)
				break
			}
		}
		return nil
	})
	if err == nil {
		x.W.OK()
	}
	return err
}

// ClusterReplicate is CLUSTER REPLICATE.
func (s *Server) ClusterReplicate(x *command.Ctx) error {
	return s.clusterHandler(func(v *clusterView) error {
		n, err := v.lookUp(x.Args[2])
		switch {
		case err != nil:
			return err
		case n.Flags&nodesconf.Myself != 0:
			return command.Reply("ERR Can't replicate myself")
		case n.Flags&nodesconf.Replica != 0:
			return command.Reply("ERR I can only replicate a master, not a replica.")
		case len(v.file.Myself().Slots) > 0 || s.store.Keys() > 0:
			return command.Reply("ERR To set a master the node must be empty and without assigned slots.")
		}
		return clusterCannot("REPLICATE")
	})
}

// ClusterFailover is CLUSTER FAILOVER. This node is a primary.
func (s *Server) ClusterFailover(x *command.Ctx) error {
	return s.clusterHandler(func(*clusterView) error {
		if len(x.Args) > 3 {
			return clusterUsage(x)
		}
		if len(x.Args) == 3 && !x.Is(2, "force") && !x.Is(2, "takeover") {
			return command.ErrSyntax
		}
		return command.Reply("ERR You should send CLUSTER FAILOVER to a replica")
	})
}

// ClusterSetSlot is CLUSTER SETSLOT, as far as it is about this node alone.
func (s *Server) ClusterSetSlot(x *command.Ctx) error {
	err := s.clusterChange(x, func(f *nodesconf.File) error {
		sl, err := parseSlot(x.Args[2])
		if err != nil {
			return err
		}
		mine := bitmapsOf(&nodesconf.File{Nodes: []nodesconf.Node{*f.Myself()}})[0].Has(sl)
		switch {
		case x.Is(3, "stable") && len(x.Args) == 4:
			me := f.Myself()
			me.Open = nil
			return nil
		case x.Is(3, "migrating") && len(x.Args) == 5:
			if !mine {
				return command.Reply(fmt.Sprintf("ERR I'm not the owner of hash slot %d", sl))
			}
		case x.Is(3, "importing") && len(x.Args) == 5:
			if mine {
				return command.Reply(fmt.Sprintf("ERR I'm already the owner of hash slot %d", sl))
			}
		case x.Is(3, "node") && len(x.Args) == 5:
			return s.assign(f, sl, x.Args[4])
		default:
			return command.Reply("ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP")
		}
		if _, err := s.admin.cluster.lookUp(x.Args[4]); err != nil {
			return command.Reply(fmt.Sprintf("ERR I don't know about node %.128s", x.Args[4]))
		}
		return clusterCannot("SETSLOT MIGRATING and IMPORTING")
	})
	if err == nil {
		x.W.OK()
	}
	return err
}

// assign gives a slot to the node with this id.
func (s *Server) assign(f *nodesconf.File, sl uint16, id []byte) error {
	to, err := s.admin.cluster.lookUp(id)
	if err != nil {
		return err
	}
	if to.Flags&nodesconf.Replica != 0 {
		return command.Reply("ERR Target node is not a master")
	}
	bitmaps := bitmapsOf(f)
	for i := range f.Nodes {
		mine := f.Nodes[i].Flags&nodesconf.Myself != 0
		if mine && bitmaps[i].Has(sl) && to.ID != f.Nodes[i].ID && s.store.SlotCounters(sl).Keys > 0 {
			return command.Reply(fmt.Sprintf("ERR Can't assign hashslot %d to a different node while I still hold keys for this hash slot.", sl))
		}
		bitmaps[i].Clear(sl)
		if f.Nodes[i].ID == to.ID {
			bitmaps[i].Set(sl)
		}
		f.Nodes[i].Slots = bitmaps[i].Ranges()
	}
	return nil
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
