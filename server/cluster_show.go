package server

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"

	"cairn/cluster"
	"cairn/cluster/bus"
	"cairn/cluster/nodesconf"
	"cairn/cluster/wire"
	"cairn/internal/resp"
	"cairn/internal/slot"
	"cairn/server/command"
	"cairn/server/config"
)

// CLUSTER commands that tell something. They answer from a picture of the machine, taken for each, unless what they tell
// changes rarely.

// addressFor is this node's address for a client: what it announces, what other nodes see it as, else the one that the
// client came to. It is never empty.
func (s *Server) addressFor(x *command.Ctx, known string) string {
	if ip := s.cfg.V.ClusterAnnounceIP.Load(); ip != "" {
		return ip
	}
	if known != "" {
		return known
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

// shown is the view as this client is told: this node has an address in it.
func (s *Server) shown(x *command.Ctx) (*cluster.View, error) {
	if err := s.inCluster(); err != nil {
		return nil, err
	}
	v := s.bus.View()
	me := &v.Nodes[v.Myself]
	me.IP = s.addressFor(x, me.IP)
	return v, nil
}

// ClusterNodes is CLUSTER NODES.
func (s *Server) ClusterNodes(x *command.Ctx) error {
	v, err := s.shown(x)
	if err != nil {
		return err
	}
	var text []byte
	for i := range v.Nodes {
		text = append(v.Nodes[i].AppendShown(text), '\n')
	}
	x.W.Verbatim("txt", text)
	return nil
}

// ClusterInfo is CLUSTER INFO.
func (s *Server) ClusterInfo(x *command.Ctx) error {
	if err := s.inCluster(); err != nil {
		return err
	}
	v := s.bus.View()
	var w infoWriter
	state := "fail" // what commands are answered by, which is a moment behind what the bus found out
	if s.opened.Load() && !s.store.Routing().Down {
		state = "ok"
	}
	w.put("cluster_state", state)
	w.put("cluster_slots_assigned", v.Assigned)
	w.put("cluster_slots_ok", v.SlotsOK)
	w.put("cluster_slots_pfail", v.SlotsPFail)
	w.put("cluster_slots_fail", v.SlotsFail)
	w.put("cluster_known_nodes", len(v.Nodes))
	w.put("cluster_size", v.Size)
	w.put("cluster_current_epoch", v.CurrentEpoch)
	w.put("cluster_my_epoch", v.MyEpoch)
	messageCounts(&w, "sent", v.Stats.Sent[:])
	messageCounts(&w, "received", v.Stats.Received[:])
	w.put("total_cluster_links_buffer_limit_exceeded", s.bus.OverLimit())
	s.infoMigration(&w)
	x.W.Verbatim("txt", w.Bytes())
	return nil
}

// messageCounts writes how many messages of each type there were, and of all types.
func messageCounts(w *infoWriter, way string, counts []int64) {
	var sum int64
	for t := wire.Ping; int(t) < len(counts) && t.Name() != ""; t++ {
		if counts[t] > 0 {
			w.put("cluster_stats_messages_"+t.Name()+"_"+way, counts[t])
		}
		sum += counts[t]
	}
	w.put("cluster_stats_messages_"+way, sum)
}

// ownedRange is a run of slots with the node that has them.
type ownedRange struct {
	slot.Range
	node uint16
}

// rangesInOrder lists the runs of all primaries by slot, which is the order of CLUSTER SLOTS.
func rangesInOrder(v *cluster.View) (out []ownedRange) {
	for i := range v.Nodes {
		for _, r := range v.Nodes[i].Slots {
			out = append(out, ownedRange{r, uint16(i)})
		}
	}
	slices.SortFunc(out, func(a, b ownedRange) int { return cmp.Compare(a.First, b.First) })
	return out
}

// ClusterSlots is CLUSTER SLOTS. Client libraries ask for it often, so it is told from a picture that is there already.
func (s *Server) ClusterSlots(x *command.Ctx) error {
	if err := s.inCluster(); err != nil {
		return err
	}
	v := s.bus.Known()
	me := v.Nodes[v.Myself] // a copy, with an address in it
	me.IP = s.addressFor(x, me.IP)
	at := func(i uint16) *cluster.ViewNode {
		if int(i) == v.Myself {
			return &me
		}
		return &v.Nodes[i]
	}
	ranges := rangesInOrder(v)
	x.W.Array(len(ranges))
	for _, r := range ranges {
		primary := at(r.node)
		var replicas []*cluster.ViewNode
		for _, i := range primary.Replicas {
			if n := at(i); n.Health == cluster.Online {
				replicas = append(replicas, n)
			}
		}
		x.W.Array(3 + len(replicas))
		x.W.Int(int64(r.First))
		x.W.Int(int64(r.Last))
		s.writeEndpoint(x.W, primary)
		for _, n := range replicas {
			s.writeEndpoint(x.W, n)
		}
	}
	return nil
}

// writeEndpoint appends a node as CLUSTER SLOTS has it: where to find it, and what else is known of that.
func (s *Server) writeEndpoint(w *resp.Writer, n *cluster.ViewNode) {
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
func (s *Server) writePreferred(w *resp.Writer, n *cluster.ViewNode) {
	if address, known := s.preferred(n); known {
		w.BulkString(address)
		return
	}
	w.Null()
}

// preferred is the address that clients are to use for a node. Not known: the one that they used for this node.
func (s *Server) preferred(n *cluster.ViewNode) (address string, known bool) {
	switch s.cfg.V.ClusterEndpointType.Load() {
	case config.EndpointIP:
		return n.IP, true
	case config.EndpointHostname:
		if n.Hostname == "" {
			return "?", true
		}
		return n.Hostname, true
	default:
		return "", false
	}
}

// ClusterShards is CLUSTER SHARDS: nodes of one shard id together, in the order in which they are known.
func (s *Server) ClusterShards(x *command.Ctx) error {
	v, err := s.shown(x)
	if err != nil {
		return err
	}
	var shards [][]*cluster.ViewNode
	at := map[string]int{}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if n.Flags&nodesconf.Handshake != 0 {
			continue
		}
		id := n.ShardID
		if id == "" {
			id = n.ID
		}
		if _, ok := at[id]; !ok {
			at[id] = len(shards)
			shards = append(shards, nil)
		}
		shards[at[id]] = append(shards[at[id]], n)
	}
	x.W.Array(len(shards))
	for _, members := range shards {
		s.writeShard(x.W, members)
	}
	return nil
}

func (s *Server) writeShard(w *resp.Writer, members []*cluster.ViewNode) {
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

func (s *Server) writeMember(w *resp.Writer, n *cluster.ViewNode) {
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
	address, _ := s.preferred(n) // here Redis has no null for one that is not told
	w.BulkString(address)
	if n.Hostname != "" {
		w.BulkString("hostname")
		w.BulkString(n.Hostname)
	}
	role := "master"
	if n.Flags&nodesconf.Replica != 0 {
		role = "replica"
	}
	w.BulkString("role")
	w.BulkString(role)
	w.BulkString("replication-offset")
	w.Int(n.Offset)
	w.BulkString("health")
	w.BulkString(string(n.Health))
}

// ClusterMyID is CLUSTER MYID.
func (s *Server) ClusterMyID(x *command.Ctx) error {
	if err := s.inCluster(); err != nil {
		return err
	}
	v := s.bus.Known()
	x.W.BulkString(v.Nodes[v.Myself].ID)
	return nil
}

// ClusterMyShardID is CLUSTER MYSHARDID.
func (s *Server) ClusterMyShardID(x *command.Ctx) error {
	if err := s.inCluster(); err != nil {
		return err
	}
	v := s.bus.Known()
	x.W.BulkString(v.Nodes[v.Myself].ShardID)
	return nil
}

// ClusterLinks is CLUSTER LINKS.
func (s *Server) ClusterLinks(x *command.Ctx) error {
	if err := s.inCluster(); err != nil {
		return err
	}
	links := s.busLinks()
	x.W.Array(len(links))
	for i := range links {
		writeLink(x.W, &links[i])
	}
	return nil
}

// busLinks are the links of the bus; none without a cluster.
func (s *Server) busLinks() []bus.LinkStatus {
	if s.inCluster() != nil {
		return nil
	}
	return s.bus.Links()
}

// linkBytes is what the links of the bus take, bytes.
func (s *Server) linkBytes() (sum int64) {
	for _, l := range s.busLinks() {
		sum += l.Memory
	}
	return sum
}

func writeLink(w *resp.Writer, l *bus.LinkStatus) {
	w.Map(6)
	direction, events := "from", "r"
	if l.Out {
		direction = "to"
	}
	if l.Queued > 0 {
		events = "rw"
	}
	w.BulkString("direction")
	w.BulkString(direction)
	w.BulkString("node")
	w.BulkString(l.Node)
	w.BulkString("create-time")
	w.Int(l.Created)
	w.BulkString("events")
	w.BulkString(events)
	w.BulkString("send-buffer-allocated")
	w.Int(l.Queued)
	w.BulkString("send-buffer-used")
	w.Int(l.Queued)
}

// ClusterKeySlot is CLUSTER KEYSLOT.
func (s *Server) ClusterKeySlot(x *command.Ctx) error {
	if err := s.inCluster(); err != nil {
		return err
	}
	x.W.Int(int64(slot.Of(x.Args[2])))
	return nil
}

// find looks a node up by the id in the arguments.
func find(v *cluster.View, id []byte) (*cluster.ViewNode, error) {
	if at := v.Find(string(id)); at != cluster.NoNode {
		return &v.Nodes[at], nil
	}
	return nil, command.Reply(fmt.Sprintf("ERR Unknown node %.128s", id))
}

// ClusterCountFailureReports is CLUSTER COUNT-FAILURE-REPORTS.
func (s *Server) ClusterCountFailureReports(x *command.Ctx) error {
	if err := s.inCluster(); err != nil {
		return err
	}
	n, known := 0, false
	s.bus.Ask(func(m *cluster.Machine) { n, known = m.FailureReports(string(x.Args[2]), s.bus.Now()) })
	if !known {
		return command.Reply(fmt.Sprintf("ERR Unknown node %.128s", x.Args[2]))
	}
	x.W.Int(int64(n))
	return nil
}

// ClusterReplicas is CLUSTER REPLICAS.
func (s *Server) ClusterReplicas(x *command.Ctx) error {
	v, err := s.shown(x)
	if err != nil {
		return err
	}
	n, err := find(v, x.Args[2])
	if err != nil {
		return err
	}
	if n.Flags&nodesconf.Replica != 0 {
		return command.Reply("ERR The specified node is not a master")
	}
	x.W.Array(len(n.Replicas))
	for _, i := range n.Replicas {
		x.W.BulkString(string(v.Nodes[i].AppendShown(nil)))
	}
	return nil
}
