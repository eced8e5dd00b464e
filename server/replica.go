package server

import (
	"fmt"
	"strconv"
	"time"

	"cairn/internal/resp"
	"cairn/replication"
	"cairn/server/command"
)

// What a replica answers about itself, and the commands that make it one. Texts and fields are Redis's; of our own is
// master_last_error, which says why the link is down.

// ReplicaOf is REPLICAOF and SLAVEOF.
func (s *Server) ReplicaOf(x *command.Ctx) error {
	if s.cfg.V.ClusterEnabled.Load() {
		return command.Reply("ERR REPLICAOF not allowed in cluster mode.")
	}
	if x.InMulti {
		// The link's end would wait for slots that the transaction holds.
		return command.Reply("ERR REPLICAOF is not possible inside a transaction")
	}
	if s.loading.Load() {
		return command.Reply(textLoading)
	}
	if s.failover.now() != failoverNone {
		return command.Reply("ERR REPLICAOF not allowed while failing over.")
	}
	if x.Is(1, "no") && x.Is(2, "one") {
		return s.replicaOfNoOne(x)
	}
	port, ok := resp.ParseInt(x.Args[2])
	if !ok || port < 0 || port > 65535 {
		return command.Reply("ERR Invalid master port")
	}
	host := string(x.Args[1])
	// The name goes into the file that CONFIG REWRITE writes, and is held to the directive's rules.
	if err := s.cfg.Store("replicaof", host, strconv.FormatInt(port, 10)); err != nil {
		return command.Reply("ERR " + oneLine(err.Error()))
	}
	if s.follow(host, int(port)) {
		s.log.Notice("REPLICAOF would result into synchronization with the master we are already connected with. No operation performed.")
		x.W.Simple("OK Already connected to specified master")
		return nil
	}
	s.log.Notice(fmt.Sprintf("REPLICAOF %s:%d enabled (user request from '%s')", host, port, addressOf(x)))
	x.W.OK()
	return nil
}

func (s *Server) replicaOfNoOne(x *command.Ctx) error {
	was := s.isReplica()
	if err := s.promote(); err != nil {
		return command.Reply("ERR this node cannot be a primary: " + oneLine(err.Error()))
	}
	if err := s.cfg.Store("replicaof", "no", "one"); err != nil {
		return err
	}
	if was {
		s.log.Notice(fmt.Sprintf("MASTER MODE enabled (user request from '%s')", addressOf(x)))
	}
	x.W.OK()
	return nil
}

func addressOf(x *command.Ctx) string {
	if c := clientOf(x); c != nil {
		return fmt.Sprintf("id=%d addr=%s", c.id, c.addr)
	}
	return ""
}

// oneLine keeps a text within one line of reply.
func oneLine(text string) string {
	b := []byte(text)
	for i, c := range b {
		if c == '\r' || c == '\n' {
			b[i] = ' '
		}
	}
	return string(b)
}

// roleAsReplica is ROLE of a replica.
func (s *Server) roleAsReplica(x *command.Ctx) error {
	st, ok := s.linkStatus()
	if !ok {
		return command.Reply("ERR the role is changing, ask again")
	}
	x.W.Array(5)
	x.W.BulkString("slave")
	x.W.BulkString(st.Host)
	x.W.Int(int64(st.Port))
	x.W.BulkString(st.State.String())
	if st.State == replication.Connected {
		x.W.Int(st.Applied)
	} else {
		x.W.Int(-1)
	}
	return nil
}

func (s *Server) linkStatus() (st replication.Status, ok bool) {
	l := s.role.link.Load()
	if l == nil {
		return st, false
	}
	return l.Status(), true
}

// infoReplicaPart writes what INFO replication says of a replica, between role and connected_slaves.
func (s *Server) infoReplicaPart(w *infoWriter) {
	st, ok := s.linkStatus()
	if !ok {
		return
	}
	v, now := &s.cfg.V, time.Now()
	up := st.State == replication.Connected
	w.put("master_host", st.Host)
	w.put("master_port", st.Port)
	status, ago := "down", int64(-1)
	if up {
		status, ago = "up", wholeSeconds(now.Sub(st.LastIO))
	}
	w.put("master_link_status", status)
	w.put("master_last_io_seconds_ago", ago)
	syncing := st.State == replication.Syncing
	w.put("master_sync_in_progress", btoi(syncing))
	read, applied := st.Read, st.Applied
	if !up {
		read = s.wal.End()
		applied = read
	}
	w.put("slave_read_repl_offset", read)
	w.put("slave_repl_offset", applied)
	if syncing {
		s.infoSync(w, &st, now)
	}
	if !up {
		down := int64(-1)
		if !st.DownFrom.IsZero() {
			down = wholeSeconds(now.Sub(st.DownFrom))
		}
		w.put("master_link_down_since_seconds", down)
		w.put("master_last_error", oneLine(st.LastErr))
	}
	w.put("slave_priority", v.ReplicaPriority.Load())
	w.put("slave_read_only", 1)
	w.put("replica_announced", btoi(v.ReplicaAnnounced.Load()))
}

// infoSync tells how far a full sync is. Of data to a mark the length is not known: Redis shows what it shows then.
func (s *Server) infoSync(w *infoWriter, st *replication.Status, now time.Time) {
	total, left, percent := max(st.SyncTotal, 0), st.SyncTotal-st.SyncRead, 0.0
	if st.SyncTotal > 0 {
		percent = 100 * float64(st.SyncRead) / float64(st.SyncTotal)
	}
	w.put("master_sync_total_bytes", total)
	w.put("master_sync_read_bytes", st.SyncRead)
	w.put("master_sync_left_bytes", left)
	w.put("master_sync_perc", fmt.Sprintf("%.2f", percent))
	w.put("master_sync_last_io_seconds_ago", wholeSeconds(now.Sub(st.LastIO)))
}

func wholeSeconds(d time.Duration) int64 { return max(0, int64(d/time.Second)) }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// appendLink appends the line of CLIENT LIST about the link to the primary, flag M, if it is connected. A number asks
// for the link only if it has that one; 0 asks in any case.
func (s *Server) appendLink(dst []byte, number int64) []byte {
	l := s.role.link.Load()
	if l == nil || number != 0 && number != l.number {
		return dst
	}
	st := l.Status()
	if st.Local == "" {
		return dst
	}
	now := time.Now()
	return fmt.Appendf(dst, "id=%d addr=%s laddr=%s fd=-1 name= age=%d idle=%d flags=M db=0 sub=0 psub=0 ssub=0 multi=-1"+
		" qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0"+
		" events=r cmd=NULL user=(superuser) redir=-1 resp=2 lib-name= lib-ver=\n",
		l.number, st.Remote, st.Local, wholeSeconds(now.Sub(st.Since)), wholeSeconds(now.Sub(st.LastIO)))
}

// killLink closes the connection to the primary if CLIENT KILL means it. The link connects anew.
func (s *Server) killLink(f *killFilter) (killed int64) {
	l := s.role.link.Load()
	if l == nil {
		return 0
	}
	st := l.Status()
	switch {
	case st.Local == "",
		f.addr != nil && st.Remote != string(f.addr),
		f.laddr != nil && st.Local != string(f.laddr),
		f.byKind && f.kind != kindPrimary,
		f.id != 0 && f.id != l.number:
		return 0
	}
	l.Drop()
	return 1
}
