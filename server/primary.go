package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"cairn/engine"
	"cairn/internal/resp"
	"cairn/replication"
	"cairn/replication/psync"
	"cairn/replication/rows"
	"cairn/server/command"
	"cairn/server/config"
	"cairn/wal"
)

// The node as a primary: commands by which replicas attach, and what package replication needs of the node. Texts are
// Redis 7.2's.

// newPrimary makes the holder of attached replicas. Store and log are open.
func (s *Server) newPrimary() *replication.Primary {
	v := &s.cfg.V
	seconds := func(n int64) time.Duration { return time.Duration(n) * time.Second }
	return replication.NewPrimary(replication.PrimaryOptions{
		Log:       s.wal,
		Source:    snapshotSource{s},
		Append:    s.appendControl,
		Timeout:   func() time.Duration { return seconds(v.ReplTimeout.Load()) },
		PingEvery: func() time.Duration { return seconds(v.ReplPingPeriod.Load()) },
		MaxLag:    func() time.Duration { return seconds(v.MinReplicasMaxLag.Load()) },
		Logf:      s.log.Event,
	})
}

// runPrimary is the clock of the attached replicas.
func (s *Server) runPrimary() { s.primary.Run(s.stop) }

// appendControl appends an entry without rows (PING, GETACK, SELECT, PUBLISH) to the log, as a primary and while nothing holds
// writes back: a failover waits for the end of the stream to stand still, and a replica's stream is its primary's.
func (s *Server) appendControl(words ...string) (end int64, err error) {
	if err := s.store.AwaitRoom(0); err != nil {
		return 0, err
	}
	args := make([][]byte, len(words)-1)
	for i, w := range words[1:] {
		args[i] = []byte(w)
	}
	txn := s.takeTxn()
	defer s.txns.Put(txn)
	for {
		txn.Begin(nil, true, s.clock())
		if r := txn.Routing(); r.Replica || r.WritesPaused {
			txn.End()
			return 0, replication.ErrNotNow
		}
		txn.LogStrings(words[0], args...)
		if end, err = txn.Commit(); !errors.Is(err, engine.ErrRerouted) {
			txn.TakeSeen()
			return end, err
		}
	}
}

// snapshotSource gives the store's snapshots to package replication.
type snapshotSource struct{ s *Server }

// Snapshot is part of replication.Source.
func (src snapshotSource) Snapshot() (replication.Snapshot, error) {
	sn, err := src.s.store.Snapshot()
	if err != nil {
		return nil, err
	}
	h, err := decodeHistory(sn.History())
	if err != nil {
		return nil, errors.Join(err, sn.Close())
	}
	src.s.logOpenAgain()
	return &snapshot{sn, h, command.RDBInfo{
		RedisVersion: redisVersion, CreatedSec: time.Now().Unix(), UsedMemory: src.s.memoryUse().used, ReplID: string(h.ID[:]),
	}, src.s.rowsCodec()}, nil
}

// snapshot is a snapshot of the store, with what its RDB tells beside the data: the same each time it is written.
type snapshot struct {
	*engine.Snapshot
	history wal.History
	info    command.RDBInfo
	codec   rows.Codec
}

// History is part of replication.Snapshot.
func (sn *snapshot) History() wal.History { return sn.history }

// WriteRDB is part of replication.Snapshot.
func (sn *snapshot) WriteRDB(w io.Writer) error { return command.WriteRDB(sn.Snapshot, w, sn.info) }

// WriteRows is part of replication.Snapshot.
func (sn *snapshot) WriteRows(w io.Writer) error { return command.WriteRows(sn.Snapshot, w, sn.codec) }

// rowsCodec is what repl-compression says.
func (s *Server) rowsCodec() rows.Codec {
	switch s.cfg.V.ReplCompression.Load() {
	case config.CompressNo:
		return rows.Plain
	case config.CompressZstd:
		return rows.Zstd
	}
	return rows.S2
}

// ReplConf is REPLCONF as a connection sends it before it becomes a replica. What it says is kept for PSYNC.
func (s *Server) ReplConf(x *command.Ctx) error {
	if len(x.Args)%2 == 0 {
		return command.ErrSyntax
	}
	c := clientOf(x)
	if c.hello == nil {
		c.hello = &replication.Hello{}
	}
	for i := 1; i < len(x.Args); i += 2 {
		if x.Is(i, "ack") || x.Is(i, "getack") {
			return nil // between a replica and its primary; others are not even answered
		}
		if err := replConf(x, i, c.hello); err != nil {
			return err
		}
	}
	x.W.OK()
	return nil
}

// replConf takes one option.
func replConf(x *command.Ctx, i int, h *replication.Hello) error {
	value := x.Args[i+1]
	switch {
	case x.Is(i, "listening-port"):
		port, err := x.Int(i + 1)
		if err != nil {
			return err
		}
		h.ListeningPort = int(min(max(port, 0), math.MaxInt32))
	case x.Is(i, "ip-address"):
		const most = 255 // and a NUL, in a host name of Redis
		if len(value) > most {
			return command.Reply(fmt.Sprintf("ERR REPLCONF ip-address provided by replica instance is too long: %d bytes", len(value)))
		}
		if !validAttribute(value) {
			return command.Reply("ERR REPLCONF ip-address is not an address")
		}
		h.IP = string(value)
	case x.Is(i, "capa"):
		switch {
		case x.Is(i+1, "eof"):
			h.EOF = true
		case x.Is(i+1, "psync2"):
			h.PSYNC2 = true
		case x.Is(i+1, "fork"):
			h.Fork = true
		case x.Is(i+1, psync.RowsCapa):
			h.Rows = true
		}
	case x.Is(i, "rdb-only"):
		n, err := x.Int(i + 1)
		if err != nil || n < 0 || n > 1 {
			if err == nil {
				err = command.Reply("ERR value is out of range, value must between 0 and 1")
			}
			return err
		}
		h.RDBOnly = n == 1
	case x.Is(i, "rdb-filter-only"):
		return filterRDB(string(value), h)
	case x.Is(i, "version"):
		// What a Valkey replica tells of itself.
		major, _, _ := bytes.Cut(value, []byte("."))
		n, ok := resp.ParseInt(major)
		h.Slots = ok && n >= 8
	default:
		return command.Reply(fmt.Sprintf("ERR Unrecognized REPLCONF option: %.128s", untilNUL(x.Args[i])))
	}
	return nil
}

// filterRDB takes the list of what a data set is to hold. There are no functions yet, so all that can be named is
// empty.
func filterRDB(list string, h *replication.Hello) error {
	h.NoData = true
	for word := range strings.FieldsSeq(list) {
		if word = strings.Trim(word, `"'`); !strings.EqualFold(word, "functions") && word != "" {
			return command.Reply(fmt.Sprintf("ERR Unsupported rdb-filter-only option: %.128s", word))
		}
	}
	return nil
}

const (
	errPendingOutput command.Reply = "ERR SYNC and PSYNC are invalid with pending output"
	errFiltered      command.Reply = "ERR Filtered replica requires EOF capability"
	errNoLink        command.Reply = "NOMASTERLINK Can't SYNC while not connected with my master"
	errFailingOver   command.Reply = "NOMASTERLINK Can't SYNC while failing over"
	errFailoverHere  command.Reply = "ERR PSYNC FAILOVER can't be sent to a master."
	errFailoverID    command.Reply = "ERR PSYNC FAILOVER replid must match my replid."
)

// PSync is PSYNC: the connection becomes a replica's. One that watches all commands is not even answered.
func (s *Server) PSync(x *command.Ctx) error {
	if s.admin.monitors.has(clientOf(x)) {
		return nil
	}
	if len(x.Args) > 3 && x.Is(3, "failover") {
		if !s.store.Routing().Replica {
			return errFailoverHere
		}
		if h := s.wal.History(); !bytes.EqualFold(x.Args[1], h.ID[:]) {
			return errFailoverID
		}
		if err := s.promoteFor(x); err != nil {
			return err
		}
	}
	if err := s.refuseSync(x); err != nil {
		return err
	}
	next, ok := resp.ParseInt(x.Args[2])
	if !ok {
		return command.ErrNotInteger
	}
	h := clientOf(x).takeHello()
	h.ReplID, h.Next = bytes.Clone(x.Args[1]), next
	s.handOver(clientOf(x), h)
	return nil
}

// Sync is SYNC, the command before PSYNC, and of tools that want the data set.
func (s *Server) Sync(x *command.Ctx) error {
	if s.admin.monitors.has(clientOf(x)) {
		return nil
	}
	if err := s.refuseSync(x); err != nil {
		return err
	}
	h := clientOf(x).takeHello()
	h.Old = true
	s.handOver(clientOf(x), h)
	return nil
}

// refuseSync says why no replica may attach now. What is temporary has a word that makes a replica come again.
func (s *Server) refuseSync(x *command.Ctx) error {
	h := clientOf(x).hello
	switch {
	case s.store.Routing().WritesPaused:
		return errFailingOver
	case !s.primaryLinkUp():
		return errNoLink
	case len(x.W.Buf) > 0:
		return errPendingOutput
	case h != nil && h.NoData && !h.EOF:
		return errFiltered
	}
	return nil
}

func (c *client) takeHello() *replication.Hello {
	h := c.hello
	if h == nil {
		h = &replication.Hello{}
	}
	c.hello = nil
	return h
}

// handOver makes the connection a replica's as soon as the command is done, until it ends.
func (s *Server) handOver(c *client, h *replication.Hello) {
	h.Conn, h.Framer, h.Addr = c.conn, c.framer, c.addr
	c.after = func() {
		s.endMulti(c)
		s.forgetSubscriptions(c)
		c.push.close(c) // what others have sent to it goes first
		if delay, ok := c.conn.(interface{ SetNoDelay(noDelay bool) error }); ok && s.cfg.V.ReplDisableNoDelay.Load() {
			_ = delay.SetNoDelay(false) // it is faster, no more
		}
		c.closing = true
		c.tellPending()
		s.primary.Serve(*h, func(r *replication.Attached) { c.replica.Store(r) })
	}
}

// drainReplicas lets the replicas have the end of the stream before a primary stops, for at most shutdown-timeout in all. Writes
// are held back meanwhile, and are not answered any more.
func (s *Server) drainReplicas(until time.Time) {
	if s.loading.Load() || s.primary == nil || s.primary.Len() == 0 || s.store.Routing().Replica || s.admin.hurry.Load() {
		return
	}
	s.primary.AskAcks(s.wal.End())
	s.pauseWrites(pauseShutdown, true)
	if s.wal.WaitDurable(s.wal.End()) != nil {
		return // the log has failed, which is told already
	}
	if behind := s.primary.Drain(time.Until(until)); behind > 0 {
		s.log.Warning("replicas do not have the end of the stream", "replicas", behind, "offset", s.wal.End())
	}
}

// tooFewReplicas says whether writes wait for replicas that are not there, or lag behind.
func (s *Server) tooFewReplicas() bool {
	want := s.cfg.V.MinReplicasToWrite.Load()
	return want > 0 && s.cfg.V.MinReplicasMaxLag.Load() > 0 && !s.loading.Load() &&
		s.primary.Good() < want && !s.store.Routing().Replica
}

// Role is ROLE.
func (s *Server) Role(x *command.Ctx) error {
	if s.loading.Load() {
		x.W.Array(3)
		x.W.BulkString("master")
		x.W.Int(0)
		x.W.Array(0)
		return nil
	}
	if s.store.Routing().Replica {
		return s.roleAsReplica(x)
	}
	x.W.Array(3)
	x.W.BulkString("master")
	x.W.Int(s.wal.End())
	online := s.primary.Statuses()[:0]
	for _, st := range s.primary.Statuses() {
		if st.State == replication.SyncOnline {
			online = append(online, st)
		}
	}
	x.W.Array(len(online))
	for _, st := range online {
		x.W.Array(3)
		x.W.BulkString(st.IP)
		x.W.BulkInt(int64(st.Port))
		x.W.BulkInt(st.Acked)
	}
	return nil
}

func (s *Server) infoReplication(w *infoWriter) {
	if s.loading.Load() {
		s.infoReplicationEarly(w)
		return
	}
	replica := s.store.Routing().Replica
	if replica {
		w.put("role", "slave")
		s.infoReplicaPart(w)
	} else {
		w.put("role", "master")
	}
	all := s.primary.Statuses()
	w.put("connected_slaves", len(all))
	if v := &s.cfg.V; v.MinReplicasToWrite.Load() > 0 && v.MinReplicasMaxLag.Load() > 0 {
		w.put("min_slaves_good_slaves", s.primary.Good())
	}
	for i, st := range all {
		w.put(fmt.Sprintf("slave%d", i), fmt.Sprintf("ip=%s,port=%d,state=%s,offset=%d,lag=%d", st.IP, st.Port, st.State, st.Acked, st.Lag))
	}
	w.put("master_failover_state", s.failover.now().String())
	h, first, end := s.wal.History(), s.wal.First(), s.wal.End()
	w.put("master_replid", string(h.ID[:]))
	w.put("master_replid2", string(h.ID2[:]))
	w.put("master_repl_offset", end)
	w.put("second_repl_offset", h.Offset2)
	w.put("repl_backlog_active", 1) // the backlog is the log
	w.put("repl_backlog_size", s.cfg.V.ReplBacklogSize.Load())
	w.put("repl_backlog_first_byte_offset", first+1) // Redis numbers bytes from 1
	w.put("repl_backlog_histlen", end-first)
}

// infoReplicationEarly is the section before there is a log.
func (s *Server) infoReplicationEarly(w *infoWriter) {
	w.put("role", "master")
	w.put("connected_slaves", 0)
	w.put("master_failover_state", "no-failover")
	w.put("master_replid", strings.Repeat("0", 40))
	w.put("master_replid2", strings.Repeat("0", 40))
	w.put("master_repl_offset", 0)
	w.put("second_repl_offset", -1)
	w.zeros("repl_backlog_active")
	w.put("repl_backlog_size", s.cfg.V.ReplBacklogSize.Load())
	w.zeros("repl_backlog_first_byte_offset repl_backlog_histlen")
}

// infoSyncs are the counters of INFO's section stats.
func (s *Server) infoSyncs(w *infoWriter) {
	if s.loading.Load() {
		w.zeros("sync_full sync_partial_ok sync_partial_err")
		return
	}
	w.put("sync_full", s.primary.Full.Load())
	w.put("sync_partial_ok", s.primary.PartialOK.Load())
	w.put("sync_partial_err", s.primary.PartialErr.Load())
}

// replicaOutput is how many bytes went to replicas.
func (s *Server) replicaOutput() int64 {
	if s.loading.Load() {
		return 0
	}
	return s.primary.OutBytes.Load()
}

// attachedReplicas is how many connections are replicas'.
func (s *Server) attachedReplicas() int {
	if s.loading.Load() {
		return 0
	}
	return s.primary.Len()
}
