package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"cairn/engine"
	"cairn/replication"
	"cairn/replication/psync"
	"cairn/server/command"
	"cairn/wal"
)

// The node's role. A primary takes writes from clients; a replica takes them from its primary's stream only, and its
// log is that stream, byte for byte. Everything that asks for the role reads engine.Routing.Replica.
//
//	follow   primary -> replica: the routing says so before it returns, so no client's write is committed any more;
//	         then the link connects, and asks to continue from what is here
//	promote  replica -> primary: the link has ended, the log begins a new history whose second id is the old one up
//	         to here, durably; then the routing says so. A crash between leaves a log that names the new history: it
//	         is continued by whichever role the configuration then gives.
//
// A node alone is what its configuration says when it starts: replicaof in the file, which CONFIG REWRITE writes.

// roleState is what the node is to others.
type roleState struct {
	mu   sync.Mutex // one change of role at a time
	link atomic.Pointer[primaryLink]
	// replica stays true until promote has begun a history: without it a node would go on under its primary's.
	replica atomic.Bool
}

// primaryLink is the link to a primary and what it fills.
type primaryLink struct {
	*replication.Replica
	host   string
	port   int
	number int64 // in CLIENT LIST
	// staleFrom is since when the data is known to be behind, from the link before; zero: it was never known to be whole.
	staleFrom time.Time
	apply     *applier
}

// isReplica says whether the node is a replica, whether it has a link or not.
func (s *Server) isReplica() bool { return s.role.replica.Load() }

// clusterView is what the link means for the cluster: whether the stream flows, and how long ago the primary was last
// heard; -1 while the data set here is not complete, or cannot follow because the disk is nearly full: such a node has
// nothing to offer as a primary.
func (l *primaryLink) clusterView() (up bool, age time.Duration) {
	if l.apply.dropped.Load() || l.apply.s.store.Gate() != nil {
		return false, -1
	}
	st := l.Status()
	down := st.DownFrom
	if down.IsZero() {
		down = l.staleFrom
	}
	switch {
	case st.State == replication.Connected:
		return true, max(time.Since(st.LastIO), 0)
	case down.IsZero() || st.State == replication.Syncing:
		return false, -1
	}
	return false, time.Since(down)
}

// behindSince is since when what a link brought is no longer all there is; zero: it never was all.
func (l *primaryLink) behindSince() time.Time {
	if l == nil || l.apply.dropped.Load() {
		return time.Time{}
	}
	if l.Up() {
		return time.Now()
	}
	if st := l.Status(); !st.DownFrom.IsZero() {
		return st.DownFrom
	}
	return l.staleFrom
}

// primaryLinkUp says whether nothing is amiss with the primary: there is none, or its stream flows.
func (s *Server) primaryLinkUp() bool {
	l := s.role.link.Load()
	return l != nil && l.Up() || l == nil && !s.isReplica()
}

// follow makes the node a replica of the one at host and port. When it returns, no write of a client is committed any
// more. again: it follows that one already, and nothing was done.
func (s *Server) follow(host string, port int) (again bool) {
	s.role.mu.Lock()
	defer s.role.mu.Unlock()
	old := s.role.link.Load()
	if old != nil && old.host == host && old.port == port {
		old.Hurry()
		return true
	}
	if s.draining.Load() {
		return false // the node ends, and has ended its link
	}
	staleFrom := old.behindSince()
	s.endLink()
	s.role.replica.Store(true)
	s.publishRole(true)
	s.unblockWaiters() // what they wait for will not come
	s.log.SetRole('S')
	// Those who follow this node find out by asking again whether what they have is still a part of what comes.
	s.dropReplicas("this node follows another primary now")
	l := &primaryLink{host: host, port: port, number: s.clients.nextID.Add(1), apply: newApplier(s), staleFrom: staleFrom}
	l.Replica = replication.NewReplica(replication.Options{
		Host: host, Port: port, Applier: l.apply,
		Hello: s.replicaHello, Timeout: func() time.Duration { return time.Duration(s.cfg.V.ReplTimeout.Load()) * time.Second },
		Dial: s.dialPrimary, TempDir: s.cfg.V.Dir.Load(), Mapped: s.watchLongArg, Passed: s.passedLongArg,
		Note: s.log.Notice, Warn: s.log.Warning, HandedOver: s.failoverAnswered,
	})
	s.role.link.Store(l)
	l.Start()
	return false
}

// endLink ends the link if there is one: nothing of a primary is applied any more. The caller holds role.mu.
func (s *Server) endLink() {
	l := s.role.link.Load()
	if l == nil {
		return
	}
	l.Stop()
	l.apply.close()
	s.role.link.Store(nil)
}

// promote makes a replica a primary. A primary it leaves as it is.
func (s *Server) promote() error {
	s.role.mu.Lock()
	defer s.role.mu.Unlock()
	if !s.role.replica.Load() {
		return nil
	}
	s.endLink()
	if err := s.changeHistory(follow(s.wal.History(), s.wal.End())); err != nil {
		return fmt.Errorf("begin a history of its own: %w", err)
	}
	s.dropReplicas("this node is a primary now, with a history of its own")
	s.role.replica.Store(false)
	s.publishRole(false)
	s.log.SetRole('M')
	if _, err := s.appendControl("SELECT", "0"); err != nil && !errors.Is(err, replication.ErrNotNow) { // replicas that continue may be in another database
		return err
	}
	return nil
}

// changeHistory makes what is appended from now on belong to h: first in the log, durably, then in the store, whose
// next group names it. Nobody may append meanwhile. A crash between is what recovery expects: the log's segments say
// how h follows the history that the store knows.
func (s *Server) changeHistory(h wal.History) error {
	if err := s.wal.SetHistory(h); err != nil {
		return err
	}
	s.store.SetHistory(appendHistory(nil, h))
	return nil
}

// replicaHello is what the link says of this node.
func (s *Server) replicaHello() psync.Hello {
	v := &s.cfg.V
	h := psync.Hello{
		User: v.MasterUser.Load(), Password: v.MasterAuth.Load(),
		IP: v.ReplicaAnnounceIP.Load(), Port: int(v.ReplicaAnnouncePort.Load()),
	}
	if h.Port == 0 {
		h.Port = int(v.Port.Load())
	}
	h.Failover = s.failover.now() == failoverMoving
	return h
}

// dialPrimary connects from bind-source-addr, if there is one.
func (s *Server) dialPrimary(ctx context.Context, address string) (net.Conn, error) {
	d := &net.Dialer{}
	if from := s.cfg.V.BindSourceAddr.Load(); from != "" {
		ip := net.ParseIP(from)
		if ip == nil {
			return nil, fmt.Errorf("bind-source-addr %q is no address", from)
		}
		d.LocalAddr = &net.TCPAddr{IP: ip}
	}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok && s.cfg.V.ReplDisableNoDelay.Load() {
		if err := tcp.SetNoDelay(false); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

// refuseAsReplica says why a replica does not run a command, "" when it does. In a cluster a client that writes is sent
// to the primary, which is asked later.
func (s *Server) refuseAsReplica(c *client, cmd *command.Command) string {
	if c.txn == nil || s.loading.Load() || !s.store.Routing().Replica {
		return ""
	}
	write, stale := cmd.Is(command.Write), cmd.Is(command.Stale)
	if cmd.Name == "exec" && cmd.Parent() == nil {
		for _, q := range c.multi.queue {
			write, stale = write || q.cmd.Is(command.Write), stale && q.cmd.Is(command.Stale)
		}
	}
	if write && !s.cfg.V.ClusterEnabled.Load() {
		return textReadOnly
	}
	if !stale && !s.cfg.V.ReplicaServeStaleData.Load() && !s.primaryLinkUp() {
		return textPrimaryDown
	}
	return ""
}

// refuseLocked asks again once the command has its slots: the role may have changed, and while the data goes back to a
// fork (applier_rewind.go) it is older than what clients have seen.
func (s *Server) refuseLocked(r *engine.Routing, write bool) string {
	switch {
	case s.loading.Load():
		return textLoading
	case write && r.Replica:
		return textReadOnly
	}
	return ""
}

// startsAsReplica says whether the node was a replica when it ended, in a cluster, or is configured as one.
func (s *Server) startsAsReplica() bool {
	if s.bus != nil {
		return s.bus.View().Replica()
	}
	return s.cfg.V.ReplicaOf.Load().Host != ""
}

// errReplicaOfInCluster is the start's, with Redis's words.
var errReplicaOfInCluster = errors.New("replicaof directive not allowed in cluster mode")

// startRole begins what the configuration says, before a client can write.
func (s *Server) startRole() {
	if p := s.cfg.V.ReplicaOf.Load(); p.Host != "" && s.bus == nil {
		s.follow(p.Host, int(p.Port))
	}
}

// unfollow ends the link to a primary whose address is not known any more. The node stays what it is.
func (s *Server) unfollow() {
	s.role.mu.Lock()
	defer s.role.mu.Unlock()
	s.endLink()
}

// stopRole ends the link when the node ends.
func (s *Server) stopRole() {
	s.role.mu.Lock()
	defer s.role.mu.Unlock()
	s.endLink()
}

// dropReplicas ends the links of this node's own replicas: they connect anew, and ask again.
func (s *Server) dropReplicas(why string) {
	if s.primary != nil {
		s.primary.DisconnectAll(why)
	}
}

const (
	textLoading     = "LOADING Redis is loading the dataset in memory"
	textReadOnly    = "READONLY You can't write against a read only replica."
	textPrimaryDown = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."
)

// promoteFor makes the node a primary because its own asks for that: PSYNC ... FAILOVER.
func (s *Server) promoteFor(x *command.Ctx) error {
	if err := s.promote(); err != nil {
		return err
	}
	s.log.Notice(fmt.Sprintf("MASTER MODE enabled (failover request from '%s')", addressOf(x)))
	return s.cfg.Store("replicaof", "no", "one")
}
