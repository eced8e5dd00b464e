package server

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strings"

	"cairn/cluster"
	"cairn/cluster/bus"
	"cairn/cluster/nodesconf"
	"cairn/server/command"
)

// The cluster's side of the node: the driver of the bus, what it is told (this file), what it does with the node
// (cluster_node.go), and the commands that ask and change it (cluster_change.go, cluster_show.go).
//
// A change is saved before it is published as the store's routing, and published before it is answered; so a client that
// got its answer finds the change after a crash.

const (
	textNoCluster = "ERR This instance has cluster support disabled"
	textBadSlot   = "ERR Invalid or out of range slot"
)

// ClusterEnabled says whether the node was started as one of a cluster.
func (s *Server) ClusterEnabled() bool { return s.cfg.V.ClusterEnabled.Load() }

// inCluster says why a command about the cluster cannot be answered.
func (s *Server) inCluster() error {
	switch {
	case !s.ClusterEnabled():
		return command.Reply(textNoCluster)
	case !s.busLoaded.Load():
		return command.Reply(textLoading) // clients come before the bus does, and the bus before the data
	}
	return nil
}

// loadCluster reads what the node knew of the cluster when it last ran. A node that never ran in a cluster gets an id. The
// bus is silent until startCluster.
func (s *Server) loadCluster() error {
	if !s.ClusterEnabled() {
		return nil
	}
	if err := s.checkBusReach(); err != nil {
		return err
	}
	v := &s.cfg.V
	d, err := bus.Load(bus.Options{
		FS: s.fs, Path: s.cfg.Path(v.ClusterConfigFile.Load()), DataDir: s.dataDir(),
		Bind: v.Bind.Load(), Port: s.busListens(), Source: v.BindSourceAddr.Load(),
		Config: s.clusterConfig(), Data: clusterData{s}, Node: &clusterNode{s: s}, SendLimit: s.linkLimit(),
		Failed: s.fail,
	}, s.firstNodes)
	if err != nil {
		return err
	}
	s.bus = d
	s.busLoaded.Store(true)
	s.log.Notice("Node configuration loaded, I'm " + d.ID())
	return nil
}

// checkBusReach says what it means that other machines reach the bus: nothing on it asks who they are. With
// cluster-bus-port-protected-mode the node does not start then, and CONFIG SET does not take it.
func (s *Server) checkBusReach() error {
	check := func() error {
		text := s.busReach()
		if text == "" || !s.cfg.V.ClusterBusProtected.Load() {
			return nil
		}
		return command.Reply(text + ": bind to addresses of this machine alone, or, when a firewall or a private network keeps " +
			"strangers from that port, set cluster-bus-port-protected-mode no")
	}
	if err := check(); err != nil {
		return err
	}
	if text := s.busReach(); text != "" {
		s.log.Warning(text + ": let only the cluster's nodes reach that port")
	}
	s.cfg.OnChange("cluster-bus-port-protected-mode", func(string, string) error { return check() })
	return nil
}

// busReach says how other machines reach the bus, "" when they do not.
func (s *Server) busReach() string {
	open := openAddresses(s.cfg.V.Bind.Load())
	if len(open) == 0 {
		return ""
	}
	return fmt.Sprintf("the cluster bus, port %d, is open to other machines (bind %s), and who reaches it can change the cluster",
		s.busListens(), strings.Join(open, " "))
}

// openAddresses are those of bind that other machines may reach.
func openAddresses(bind []string) (open []string) {
	for _, b := range bind {
		host := strings.TrimPrefix(b, "-")
		if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && ip.IsLoopback() {
			continue
		}
		open = append(open, b)
	}
	return open
}

// startCluster opens the bus to others.
func (s *Server) startCluster() error {
	if s.bus == nil {
		return nil
	}
	if err := s.bus.Start(); err != nil {
		return err
	}
	s.busRuns = true
	return nil
}

// stopCluster ends the bus. Nothing of the cluster reaches the data any more when it returns.
func (s *Server) stopCluster() error {
	if s.bus == nil {
		return nil
	}
	return s.bus.Close()
}

// firstNodes is what a node knows that has never been in a cluster: itself.
func (s *Server) firstNodes() *cluster.State {
	id, shard := newID(), newID()
	s.log.Notice("No cluster configuration found, I'm " + string(id[:]))
	return &cluster.State{Nodes: []nodesconf.Node{{
		ID: string(id[:]), ShardID: string(shard[:]), Port: int(s.cfg.V.Port.Load()), BusPort: s.busPort(),
		Flags: nodesconf.Myself | nodesconf.Primary, Connected: true,
	}}}
}

// clusterConfig is what the directives say, as the machine wants it.
func (s *Server) clusterConfig() cluster.Config {
	v := &s.cfg.V
	c := cluster.Config{
		NodeTimeout: v.ClusterNodeTimeout.Load(), PingInterval: v.ClusterPingInterval.Load(),
		MigrationBarrier: int(v.ClusterMigrationBarrier.Load()), ValidityFactor: v.ClusterValidityFactor.Load(),
		ReplicaPingPeriod: v.ReplPingPeriod.Load() * 1000, FullCoverage: v.ClusterFullCoverage.Load(),
		ReplicaMigration: v.ClusterAllowMigration.Load(), NoFailover: v.ClusterNoFailover.Load(),
		ManualTimeout: manualFailover, BlacklistTTL: forgetFor,
		Port: int(v.Port.Load()), BusPort: s.busPort(), IP: v.ClusterAnnounceIP.Load(),
		Hostname: v.ClusterAnnounceHostname.Load(), Nodename: v.ClusterAnnounceNodename.Load(), LightHeaders: true,
	}
	if p := v.ClusterAnnouncePort.Load(); p != 0 {
		c.Port = int(p)
	}
	c.PPort = int(v.ClusterAnnounceTLSPort.Load())
	return c
}

const (
	manualFailover = 5000  // ms, as in Redis
	forgetFor      = 60000 // ms, as in Redis
)

const (
	busAbove = 10000 // the bus listens that far above the port of clients
	maxPort  = 65535
)

// busListens is the port of the bus. It stays where it is when the port of clients is changed.
func (s *Server) busListens() int {
	if s.bus != nil {
		return s.bus.Port()
	}
	if p := s.cfg.V.ClusterPort.Load(); p != 0 {
		return int(p)
	}
	return int(s.cfg.V.Port.Load()) + busAbove
}

// busPort is where the cluster bus of this node is said to be.
func (s *Server) busPort() int {
	if p := s.cfg.V.ClusterAnnounceBusPort.Load(); p != 0 {
		return int(p)
	}
	return s.busListens()
}

func (s *Server) linkLimit() int64 { return min(s.cfg.V.ClusterLinkSendLimit.Load(), math.MaxInt64) }

// clusterConfigure hands changed directives to the machine.
func (s *Server) clusterConfigure() error {
	if s.bus != nil {
		s.bus.Configure(s.clusterConfig(), s.linkLimit())
	}
	return nil
}

// clusterDirectives are those that the machine works by.
func clusterDirectives() []string {
	return []string{
		"cluster-node-timeout", "cluster-ping-interval", "cluster-migration-barrier", "cluster-replica-validity-factor",
		"repl-ping-replica-period", "cluster-require-full-coverage", "cluster-allow-replica-migration",
		"cluster-replica-no-failover", "cluster-announce-ip", "cluster-announce-port", "cluster-announce-tls-port",
		"cluster-announce-bus-port", "cluster-announce-hostname", "cluster-announce-human-nodename",
		"cluster-link-sendbuf-limit", "port",
	}
}

// clusterData answers the machine's questions about the data. None of them waits.
type clusterData struct{ s *Server }

// Offset is part of cluster.Data, as are the methods below.
func (d clusterData) Offset() int64 {
	if !d.s.opened.Load() {
		return 0
	}
	return d.s.wal.End()
}

// PrimaryLink tells of the link to the primary.
func (d clusterData) PrimaryLink() (up bool, since int64) {
	l := d.s.role.link.Load()
	if l == nil || d.s.bus == nil {
		return false, 0
	}
	up, age := l.clusterView()
	if age < 0 {
		return up, 0
	}
	return up, d.s.bus.Now() - age.Milliseconds()
}

// Keys counts all keys.
func (d clusterData) Keys() int64 {
	if !d.s.opened.Load() {
		return 0
	}
	return d.s.store.Keys()
}

// SlotKeys counts the keys of a slot.
func (d clusterData) SlotKeys(slot uint16) int64 {
	if !d.s.opened.Load() {
		return 0
	}
	return d.s.store.SlotCounters(slot).Keys
}

// clusterDo runs a command of the cluster and gives its error as a reply.
func (s *Server) clusterDo(x *command.Ctx, c cluster.Cmd) (cluster.Answer, error) {
	return s.clusterRun(x, func() cluster.Answer { return s.bus.Do(c) })
}

// clusterAsk is clusterDo for a command that changes nothing: there is nothing to wait for.
func (s *Server) clusterAsk(x *command.Ctx, c cluster.Cmd) (cluster.Answer, error) {
	return s.clusterRun(x, func() cluster.Answer { return s.bus.Post(c) })
}

func (s *Server) clusterRun(x *command.Ctx, run func() cluster.Answer) (cluster.Answer, error) {
	if err := s.inCluster(); err != nil {
		return cluster.Answer{}, err
	}
	if x.InMulti && clientOf(x).multi.locks {
		// It would wait for a change of role or routing that waits for the slots, or find the routing changed when it is
		// committed, and run again and again.
		return cluster.Answer{}, command.Reply("ERR the cluster cannot be changed inside a transaction that has keys")
	}
	ans := run()
	switch {
	case errors.Is(ans.Err, net.ErrClosed):
		clientOf(x).closing = true // the node ends: whether the change will be found again is not known
		return ans, command.Reply("ERR the node is shutting down")
	case ans.Err != nil:
		return ans, command.Reply(ans.Err.Error())
	}
	return ans, nil
}

// clusterOK is clusterDo for a command whose answer is OK.
func (s *Server) clusterOK(x *command.Ctx, c cluster.Cmd) error {
	_, err := s.clusterDo(x, c)
	if err == nil {
		x.W.OK()
	}
	return err
}

func clusterUsage(x *command.Ctx) error {
	return command.Reply(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.128s'. Try CLUSTER HELP.", x.Args[1]))
}
