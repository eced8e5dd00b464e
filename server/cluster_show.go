package server

import (
	"fmt"
	"net"
	"strings"

	"cairn/cluster/nodesconf"
	"cairn/internal/resp"
	"cairn/internal/slot"
	"cairn/server/command"
	"cairn/server/config"
)

// busPort is where the cluster bus of this node is said to be.
func (s *Server) busPort() int {
	v := &s.cfg.V
	switch {
	case v.ClusterAnnounceBusPort.Load() != 0:
		return int(v.ClusterAnnounceBusPort.Load())
	case v.ClusterPort.Load() != 0:
		return int(v.ClusterPort.Load())
	}
	return int(v.Port.Load()) + 10000
}

// myself is this node as a client is told: what it announces, else the address that the client came to, since
// without a bus nobody has told the node its own.
func (s *Server) myself(x *command.Ctx, n nodesconf.Node) nodesconf.Node {
	v := &s.cfg.V
	n.IP = s.addressFor(x)
	n.Port = int(v.Port.Load())
	if p := v.ClusterAnnouncePort.Load(); p != 0 {
		n.Port = int(p)
	}
	n.BusPort = s.busPort()
	n.Hostname, n.Name = v.ClusterAnnounceHostname.Load(), v.ClusterAnnounceNodename.Load()
	n.PingSent, n.PongAt, n.Connected = 0, 0, true
	return n
}

func (s *Server) addressFor(x *command.Ctx) string {
	if ip := s.cfg.V.ClusterAnnounceIP.Load(); ip != "" {
		return ip
	}
	if c := clientOf(x); c != nil && !c.unix {
		if host, _, err := net.SplitHostPort(c.laddr); err == nil && host != "" {
			return host
		}
	}
	for _, b := range s.cfg.V.Bind.Load() {
		if b = strings.TrimPrefix(b, "-"); b != "*" && b != "::*" {
			return b
		}
	}
	return "127.0.0.1"
}

// shownNodes is the view with this node as the client is told.
func (s *Server) shownNodes(x *command.Ctx, v *clusterView) []nodesconf.Node {
	nodes := v.clone().Nodes
	for i := range nodes {
		if nodes[i].Flags&nodesconf.Myself != 0 {
			nodes[i] = s.myself(x, nodes[i])
		} else {
			nodes[i].Connected = false
		}
	}
	return nodes
}

// ClusterNodes is CLUSTER NODES.
func (s *Server) ClusterNodes(x *command.Ctx) error {
	return s.clusterHandler(func(v *clusterView) error {
		var text []byte
		for _, n := range s.shownNodes(x, v) {
			text = append(n.AppendShown(text), '\n')
		}
		x.W.Verbatim("txt", text)
		return nil
	})
}

// ClusterInfo is CLUSTER INFO.
func (s *Server) ClusterInfo(x *command.Ctx) error {
	return s.clusterHandler(func(v *clusterView) error {
		var w infoWriter
		assigned, failed, maybe, primaries := 0, 0, 0, 0
		for i := range v.file.Nodes {
			n := &v.file.Nodes[i]
			have := 0
			for _, r := range n.Slots {
				have += r.Len()
			}
			assigned += have
			if have > 0 {
				primaries++
			}
			switch {
			case n.Flags&nodesconf.Failed != 0:
				failed += have
			case n.Flags&nodesconf.MaybeFailed != 0:
				maybe += have
			}
		}
		state := "ok"
		if s.store.Routing().Down {
			state = "fail"
		}
		w.put("cluster_state", state)
		w.put("cluster_slots_assigned", assigned)
		w.put("cluster_slots_ok", assigned-failed-maybe)
		w.put("cluster_slots_pfail", maybe)
		w.put("cluster_slots_fail", failed)
		w.put("cluster_known_nodes", len(v.file.Nodes))
		w.put("cluster_size", primaries)
		w.put("cluster_current_epoch", v.file.CurrentEpoch)
		w.put("cluster_my_epoch", v.file.Myself().Epoch)
		w.zeros("cluster_stats_messages_sent cluster_stats_messages_received total_cluster_links_buffer_limit_exceeded")
		x.W.Verbatim("txt", w.Bytes())
		return nil
	})
}

// ownedRange is a run of slots with the node that has them.
type ownedRange struct {
	slot.Range
	node *nodesconf.Node
}

// rangesInOrder lists the runs of all primaries by slot, which is the order of CLUSTER SLOTS.
func rangesInOrder(nodes []nodesconf.Node) (out []ownedRange) {
	var owner [slot.Count]*nodesconf.Node
	for i := range nodes {
		for _, r := range nodes[i].Slots {
			for sl := int(r.First); sl <= int(r.Last); sl++ {
				owner[sl] = &nodes[i]
			}
		}
	}
	for sl, n := range owner {
		switch last := len(out) - 1; {
		case n == nil:
		case last >= 0 && out[last].node == n && int(out[last].Last) == sl-1:
			out[last].Last = uint16(sl)
		default:
			out = append(out, ownedRange{slot.Range{First: uint16(sl), Last: uint16(sl)}, n})
		}
	}
	return out
}

// ClusterSlots is CLUSTER SLOTS.
func (s *Server) ClusterSlots(x *command.Ctx) error {
	return s.clusterHandler(func(v *clusterView) error {
		ranges := rangesInOrder(s.shownNodes(x, v))
		x.W.Array(len(ranges))
		for _, r := range ranges {
			x.W.Array(3)
			x.W.Int(int64(r.First))
			x.W.Int(int64(r.Last))
			s.writeEndpoint(x.W, r.node)
		}
		return nil
	})
}

// writeEndpoint appends a node as CLUSTER SLOTS has it: where to find it, and what else is known of that.
func (s *Server) writeEndpoint(w *resp.Writer, n *nodesconf.Node) {
	kind := s.cfg.V.ClusterEndpointType.Load()
	w.Array(4)
	s.writePreferred(w, n)
	w.Int(int64(n.Port))
	w.BulkString(n.ID)
	more := [][2]string{}
	if kind != config.EndpointIP {
		more = append(more, [2]string{"ip", n.IP})
	}
	if kind != config.EndpointHostname && n.Hostname != "" {
		more = append(more, [2]string{"hostname", n.Hostname})
	}
	w.Map(len(more))
	for _, m := range more {
		w.BulkString(m[0])
		w.BulkString(m[1])
	}
}

// writePreferred appends the address that clients are to use.
func (s *Server) writePreferred(w *resp.Writer, n *nodesconf.Node) {
	switch s.cfg.V.ClusterEndpointType.Load() {
	case config.EndpointIP:
		w.BulkString(n.IP)
	case config.EndpointHostname:
		if n.Hostname == "" {
			w.BulkString("?")
			return
		}
		w.BulkString(n.Hostname)
	default:
		w.Null()
	}
}

// ClusterShards is CLUSTER SHARDS: nodes of one shard id together, in the order in which they are known.
func (s *Server) ClusterShards(x *command.Ctx) error {
	return s.clusterHandler(func(v *clusterView) error {
		nodes := s.shownNodes(x, v)
		var shards [][]*nodesconf.Node
		at := map[string]int{}
		for i := range nodes {
			id := nodes[i].ShardID
			if id == "" {
				id = nodes[i].ID
			}
			if _, ok := at[id]; !ok {
				at[id] = len(shards)
				shards = append(shards, nil)
			}
			shards[at[id]] = append(shards[at[id]], &nodes[i])
		}
		x.W.Array(len(shards))
		for _, members := range shards {
			s.writeShard(x.W, members)
		}
		return nil
	})
}

func (s *Server) writeShard(w *resp.Writer, members []*nodesconf.Node) {
	w.Map(2)
	w.BulkString("slots")
	var ranges []slot.Range
	for _, n := range members {
		ranges = append(ranges, n.Slots...)
	}
	w.Array(2 * len(ranges))
	for _, r := range ranges {
		w.Int(int64(r.First))
		w.Int(int64(r.Last))
	}
	w.BulkString("nodes")
	w.Array(len(members))
	for _, n := range members {
		s.writeMember(w, n)
	}
}

func (s *Server) writeMember(w *resp.Writer, n *nodesconf.Node) {
	fields := 7
	if n.Hostname != "" {
		fields++
	}
	w.Map(fields)
	w.BulkString("id")
	w.BulkString(n.ID)
	w.BulkString("port")
	w.Int(int64(n.Port))
	w.BulkString("ip")
	w.BulkString(n.IP)
	w.BulkString("endpoint")
	s.writePreferred(w, n)
	if n.Hostname != "" {
		w.BulkString("hostname")
		w.BulkString(n.Hostname)
	}
	role, offset, health := "master", int64(0), "online"
	switch {
	case n.Flags&nodesconf.Myself != 0:
		offset = s.logEnd()
	case n.Flags&nodesconf.Replica != 0:
		role = "replica"
	}
	if n.Flags&nodesconf.Failed != 0 {
		health = "fail"
	}
	w.BulkString("role")
	w.BulkString(role)
	w.BulkString("replication-offset")
	w.Int(offset)
	w.BulkString("health")
	w.BulkString(health)
}

// ClusterMyID is CLUSTER MYID.
func (s *Server) ClusterMyID(x *command.Ctx) error {
	return s.clusterHandler(func(v *clusterView) error {
		x.W.BulkString(v.file.Myself().ID)
		return nil
	})
}

// ClusterMyShardID is CLUSTER MYSHARDID.
func (s *Server) ClusterMyShardID(x *command.Ctx) error {
	return s.clusterHandler(func(v *clusterView) error {
		x.W.BulkString(v.file.Myself().ShardID)
		return nil
	})
}

// ClusterLinks is CLUSTER LINKS.
func (s *Server) ClusterLinks(x *command.Ctx) error {
	return s.clusterHandler(func(*clusterView) error {
		x.W.Array(0)
		return nil
	})
}

// ClusterKeySlot is CLUSTER KEYSLOT.
func (s *Server) ClusterKeySlot(x *command.Ctx) error {
	return s.clusterHandler(func(*clusterView) error {
		x.W.Int(int64(slot.Of(x.Args[2])))
		return nil
	})
}

// ClusterCountKeysInSlot is CLUSTER COUNTKEYSINSLOT. Keys of slots that are not this node's count too.
func (s *Server) ClusterCountKeysInSlot(x *command.Ctx) error {
	return s.clusterHandler(func(*clusterView) error {
		n, ok := resp.ParseInt(x.Args[2])
		if !ok {
			return command.ErrNotInteger
		}
		if n < 0 || n >= slot.Count {
			return command.Reply("ERR Invalid slot")
		}
		x.W.Int(s.store.SlotCounters(uint16(n)).Keys)
		return nil
	})
}

// ClusterGetKeysInSlot is CLUSTER GETKEYSINSLOT: expired keys that are not deleted yet too.
func (s *Server) ClusterGetKeysInSlot(x *command.Ctx) error {
	if !s.ClusterEnabled() {
		return command.Reply(textNoCluster)
	}
	n, ok := resp.ParseInt(x.Args[2])
	most, ok2 := resp.ParseInt(x.Args[3])
	if !ok || !ok2 {
		return command.ErrNotInteger
	}
	if n < 0 || n >= slot.Count || most < 0 {
		return command.Reply("ERR Invalid slot or number of keys")
	}
	return s.inSlot(x, uint16(n), func() error { return writeKeys(x, uint16(n), most) })
}

func writeKeys(x *command.Ctx, sl uint16, most int64) error {
	const page = 1000
	var names resp.Writer
	n := 0
	for from, more := uint64(0), true; more && int64(n) < most; {
		walk, err := x.Txn.Records(sl, from, int(min(most, page)))
		if err != nil {
			return err
		}
		for ; walk.Valid() && int64(n) < most; walk.Next() {
			names.Bulk(walk.Key())
			n++
		}
		from, more = walk.More()
		if err := walk.Close(); err != nil {
			return err
		}
	}
	x.W.Array(n)
	x.W.Buf = append(x.W.Buf, names.Buf...)
	return nil
}

// lookUp finds a node by the id in the arguments.
func (v *clusterView) lookUp(id []byte) (n *nodesconf.Node, err error) {
	for i := range v.file.Nodes {
		if v.file.Nodes[i].ID == string(id) {
			return &v.file.Nodes[i], nil
		}
	}
	return nil, command.Reply(fmt.Sprintf("ERR Unknown node %.128s", id))
}

// ClusterCountFailureReports is CLUSTER COUNT-FAILURE-REPORTS.
func (s *Server) ClusterCountFailureReports(x *command.Ctx) error {
	return s.clusterHandler(func(v *clusterView) error {
		if _, err := v.lookUp(x.Args[2]); err != nil {
			return err
		}
		x.W.Int(0)
		return nil
	})
}

// ClusterReplicas is CLUSTER REPLICAS.
func (s *Server) ClusterReplicas(x *command.Ctx) error {
	return s.clusterHandler(func(v *clusterView) error {
		n, err := v.lookUp(x.Args[2])
		if err != nil {
			return err
		}
		if n.Flags&nodesconf.Replica != 0 {
			return command.Reply("ERR The specified node is not a master")
		}
		var lines []string
		for _, r := range s.shownNodes(x, v) {
			if r.PrimaryID == n.ID {
				lines = append(lines, string(r.AppendShown(nil)))
			}
		}
		x.W.Array(len(lines))
		for _, l := range lines {
			x.W.BulkString(l)
		}
		return nil
	})
}
