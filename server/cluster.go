package server

import (
	"fmt"
	"sync"

	"cairn/cluster/nodesconf"
	"cairn/engine"
	"cairn/internal/resp"
	"cairn/internal/slot"
	"cairn/server/command"
)

// What this node knows of the cluster, and the commands that tell and change it. There is no bus yet: a node
// owns slots by itself, and knows other nodes only from a nodes.conf that was taken over.
//
// A change is saved (cluster_file.go) before it is published as the store's routing, and published before it is
// answered; so a client that got its answer finds the change after a crash.

// clusterView is what this node knows, all under mu. Until the data is open, that is nothing.
type clusterView struct {
	mu   sync.Mutex
	path string // of nodes.conf
	file nodesconf.File
}

// clone copies the view's file, so that a change can be tried.
func (v *clusterView) clone() nodesconf.File {
	f := v.file
	f.Nodes = append([]nodesconf.Node(nil), f.Nodes...)
	return f
}

const (
	textNoCluster = "ERR This instance has cluster support disabled"
	textBadSlot   = "ERR Invalid or out of range slot"
)

// ClusterEnabled says whether the node was started as one of a cluster.
func (s *Server) ClusterEnabled() bool { return s.cfg.V.ClusterEnabled.Load() }

// clusterHandler is what the commands below have in common: cluster mode, and the view locked.
func (s *Server) clusterHandler(f func(v *clusterView) error) error {
	if !s.ClusterEnabled() {
		return command.Reply(textNoCluster)
	}
	v := &s.admin.cluster
	v.mu.Lock()
	defer v.mu.Unlock()
	return f(v)
}

// clusterChange runs f on a copy of the view's file and puts that in force: saved, published, answered.
func (s *Server) clusterChange(x *command.Ctx, f func(*nodesconf.File) error) error {
	return s.clusterHandler(func(v *clusterView) error {
		if x.InMulti && x.Txn.Writing() {
			// Its commit would find the routing changed, and run it again and again.
			return command.Reply("ERR slots cannot change inside a transaction that writes")
		}
		next := v.clone()
		if err := f(&next); err != nil {
			return err
		}
		return s.clusterPut(v, next)
	})
}

// clusterPut saves and publishes a new state. The caller holds mu.
func (s *Server) clusterPut(v *clusterView, next nodesconf.File) error {
	if err := saveNodes(v.path, &next); err != nil {
		s.log.Warning("cluster configuration not saved", "err", err)
		return command.Reply("ERR error saving the cluster node config: " + err.Error())
	}
	v.file = next
	s.store.SetRouting(s.clusterRouting(&next))
	return nil
}

// clusterReroute publishes the routing again after a directive changed that it depends on.
func (s *Server) clusterReroute() error {
	v := &s.admin.cluster
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.file.Nodes) == 0 || s.loading.Load() {
		return nil // no cluster, or the data is not open yet: opening it reads the directive
	}
	s.store.SetRouting(s.clusterRouting(&v.file))
	return nil
}

// clusterRouting is what a state means for commands.
func (s *Server) clusterRouting(f *nodesconf.File) *engine.Routing {
	r := &engine.Routing{Cluster: true}
	for i := range r.Slots {
		r.Slots[i] = engine.SlotUnserved
	}
	elsewhere := map[uint16]string{}
	down, owned, primaries := false, false, 0
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if len(n.Slots) > 0 && n.Flags&nodesconf.Failed == 0 {
			primaries++
		}
		for _, span := range n.Slots {
			for sl := int(span.First); sl <= int(span.Last); sl++ {
				r.Slots[sl] = 0
				if n.Flags&nodesconf.Myself != 0 {
					r.Slots[sl], owned = engine.SlotOwned, true
				} else {
					elsewhere[uint16(sl)] = fmt.Sprintf("%s:%d", n.IP, n.Port)
					down = down || n.Flags&nodesconf.Failed != 0
				}
			}
		}
	}
	if s.cfg.V.ClusterFullCoverage.Load() {
		for i := range r.Slots {
			down = down || r.Slots[i] == engine.SlotUnserved
		}
	} else {
		down = false
	}
	r.Down = down || !owned && primaries == 0
	r.Extra = elsewhere
	return r
}

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
	owner func(uint16) bool // whether some node has the slot
	take  bool              // the slots are taken away: they must have an owner
}

func (c *slotSet) add(first, last uint16) error {
	for sl := int(first); sl <= int(last); sl++ {
		has := c.owner(uint16(sl))
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

// clusterSlots is ADDSLOTS and its three relatives.
func (s *Server) clusterSlots(x *command.Ctx, ranges, take bool) error {
	if ranges && len(x.Args)%2 == 1 {
		return command.Reply("ERR wrong number of arguments for '" + x.Cmd.FullName() + "' command")
	}
	err := s.clusterChange(x, func(f *nodesconf.File) error {
		bitmaps := bitmapsOf(f)
		set := slotSet{take: take, owner: func(sl uint16) bool {
			for i := range bitmaps {
				if bitmaps[i].Has(sl) {
					return true
				}
			}
			return false
		}}
		if err := set.read(x.Args[2:], ranges); err != nil {
			return err
		}
		for i := range f.Nodes {
			mine := f.Nodes[i].Flags&nodesconf.Myself != 0
			for sl := range uint16(slot.Count) {
				switch {
				case !set.named.Has(sl):
				case take:
					bitmaps[i].Clear(sl)
				case mine:
					bitmaps[i].Set(sl)
				}
			}
			f.Nodes[i].Slots = bitmaps[i].Ranges()
		}
		return nil
	})
	if err == nil {
		x.W.OK()
	}
	return err
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

// bitmapsOf gives the slots of each node.
func bitmapsOf(f *nodesconf.File) []slot.Bitmap {
	out := make([]slot.Bitmap, len(f.Nodes))
	for i := range f.Nodes {
		for _, r := range f.Nodes[i].Slots {
			out[i].SetRange(r)
		}
	}
	return out
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
	return s.clusterEmpty(x, "ERR DB must be empty to perform CLUSTER FLUSHSLOTS.", func(f *nodesconf.File) {
		f.Myself().Slots = nil
	})
}

// clusterEmpty makes a change that is only for a node without keys. Keys may arrive until the slots are gone;
// then they are counted again, and the change is taken back if there are any.
func (s *Server) clusterEmpty(x *command.Ctx, refusal command.Reply, f func(*nodesconf.File)) error {
	if s.ClusterEnabled() && s.store.Keys() > 0 {
		return refusal
	}
	var before nodesconf.File
	err := s.clusterChange(x, func(next *nodesconf.File) error {
		before = s.admin.cluster.file
		f(next)
		return nil
	})
	if err != nil {
		return err
	}
	if s.store.Keys() > 0 {
		err := s.clusterHandler(func(v *clusterView) error { return s.clusterPut(v, before) })
		if err == nil {
			err = refusal
		}
		return err
	}
	x.W.OK()
	return nil
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
	return s.clusterEmpty(x, "ERR CLUSTER RESET can't be called with master nodes containing keys", func(f *nodesconf.File) {
		me := *f.Myself()
		me.Slots, me.Open = nil, nil
		if hard {
			id, shard := newID(), newID()
			me.ID, me.ShardID, me.Epoch = string(id[:]), string(shard[:]), 0
			f.CurrentEpoch, f.LastVoteEpoch = 0, 0
			s.log.Notice("Node hard reset, now I'm " + me.ID)
		}
		f.Nodes = []nodesconf.Node{me}
	})
}

// ClusterSetConfigEpoch is CLUSTER SET-CONFIG-EPOCH.
func (s *Server) ClusterSetConfigEpoch(x *command.Ctx) error {
	epoch, ok := resp.ParseInt(x.Args[2])
	err := s.clusterChange(x, func(f *nodesconf.File) error {
		switch {
		case !ok:
			return command.ErrNotInteger
		case epoch < 0:
			return command.Reply(fmt.Sprintf("ERR Invalid config epoch specified: %d", epoch))
		case len(f.Nodes) > 1:
			return command.Reply("ERR The user can assign a config epoch only when the node does not know any other node.")
		case f.Myself().Epoch != 0:
			return command.Reply("ERR Node config epoch is already non-zero")
		}
		f.Myself().Epoch = uint64(epoch)
		f.CurrentEpoch = max(f.CurrentEpoch, uint64(epoch))
		return nil
	})
	if err == nil {
		x.W.OK()
	}
	return err
}

// ClusterBumpEpoch is CLUSTER BUMPEPOCH.
func (s *Server) ClusterBumpEpoch(x *command.Ctx) error {
	word, epoch := "STILL", uint64(0)
	err := s.clusterChange(x, func(f *nodesconf.File) error {
		highest := f.CurrentEpoch
		for i := range f.Nodes {
			highest = max(highest, f.Nodes[i].Epoch)
		}
		me := f.Myself()
		if me.Epoch == 0 || me.Epoch != highest {
			f.CurrentEpoch++
			me.Epoch, word = f.CurrentEpoch, "BUMPED"
		}
		epoch = me.Epoch
		return nil
	})
	if err == nil {
		x.W.Simple(fmt.Sprintf("%s %d", word, epoch))
	}
	return err
}

// ClusterSaveConfig is CLUSTER SAVECONFIG.
func (s *Server) ClusterSaveConfig(x *command.Ctx) error {
	err := s.clusterHandler(func(v *clusterView) error {
		if err := saveNodes(v.path, &v.file); err != nil {
			return command.Reply("ERR error saving the cluster node config: " + err.Error())
		}
		return nil
	})
	if err == nil {
		x.W.OK()
	}
	return err
}

func clusterUsage(x *command.Ctx) error {
	return command.Reply(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.128s'. Try CLUSTER HELP.", x.Args[1]))
}
