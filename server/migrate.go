package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cairn/cluster"
	"cairn/engine"
	"cairn/server/command"
)

// MIGRATE: keys go from here to another node. It runs on the goroutine of the connection that asked for it, and nobody
// else waits for it but who wants to change one of its keys.
//
//	 slots shared    keys are looked up and marked as on their way (leaving.go); the first window of them is dumped
//	 no lock         windows are sent, and made ready under the shared lock again; values in rows are streamed from a view
//	                 of the data, with no lock at all
//	                 the target answers +OK when it has a key, and so have its replicas
//	 slots exclusive the keys that were answered with +OK are deleted, one entry for all, and marked as gone
//	 no lock         the reply; the marks go when a replica has executed the deletion (migrate_keep.go)
//
// A key is deleted only if its slot is to this node what it was when the key was looked up. Whatever else happens the key
// stays, and asking again is harmless: the target takes a key again that came by an earlier attempt.
//
// The target may be the node that the slot is on its way from: a tool that repairs a broken move may make that one the owner,
// and bring what has moved back there. What it still has it has not heard to be here, and has gone on with; what arrived here, and
// was not written since, is only a copy of that. So such a key is deleted here when the target says that what it has was there
// all the time (returns.go).
//
// With COPY nothing is marked or deleted: each key is sent as it is at some moment of the call.

// move is one MIGRATE.
type move struct {
	s    *Server
	c    *client
	x    *command.Ctx
	want command.Migration
	peer *peer

	slots   []uint16
	expired bool     // some key's time has passed
	began   slotRole // what the slots are to this node
	back    bool     // to where the slot comes from, to whom what it has is the truth
	keys    []movingKey
	names   []string // of keys, for the marks
	marks   *departure

	next   int // the first of keys that has not been made ready
	out    []byte
	body   []byte // a payload under construction
	sent   []int  // indexes of keys, in the order in which they are sent
	heard  int    // how many of sent have been answered
	acked  int    // these the target has
	large  *largeValue
	refuse error // the first thing that went wrong with a key while others go on
}

type movingKey struct {
	name    []byte
	bytes   int  // of its payload
	arrived bool // and was not written since
	acked   bool // the target has it
}

// slotRole is what a slot is to this node.
type slotRole struct {
	state engine.SlotState
	to    string // id of the node that it is on its way to
	from  string // id of the node that it comes from
}

// Replies of MIGRATE that are no errors of the target.
const (
	errNoKey     command.Reply = "NOKEY" // a status
	errNotHere   command.Reply = "ERR MIGRATE is not for a stream"
	textNotMoved               = "ERR keys were moved but not deleted here, so this node still serves them: "
)

// turnedAway is a redirection, and the like.
type turnedAway string

func (t turnedAway) Error() string { return string(t) }

// errLeft ends a command whose connection, or whose node, has ended meanwhile.
var errLeft = errors.New("the connection has ended")

// Migrate is MIGRATE.
func (s *Server) Migrate(x *command.Ctx) error {
	c := clientOf(x)
	if c == nil {
		return errNotHere
	}
	if text := s.redirectArgs(c, s.store.Routing(), x.Cmd, x.Args); text != "" {
		s.turnAway(c, text)
		return nil
	}
	want, err := command.ParseMigration(x)
	if err != nil {
		return err
	}
	m := &move{s: s, c: c, x: x, want: want}
	m.slots, _ = x.Cmd.AppendSlots(nil, x.Args)
	m.slots = command.SortSlots(m.slots)
	s.moves.running.Add(1)
	defer s.moves.running.Add(-1)
	return m.reply(m.run())
}

// reply answers what came of it.
func (m *move) reply(err error) error {
	var turned turnedAway
	switch {
	case err == nil:
		m.x.W.OK()
	case errors.Is(err, errNoKey):
		m.x.W.Simple(string(errNoKey))
	case errors.Is(err, errLeft):
		m.c.closing = true
		m.x.W.Error("ERR the node or the connection ends")
	case errors.As(err, &turned):
		m.s.turnAway(m.c, string(turned))
	default:
		var p *peerError
		if errors.As(err, &p) {
			m.s.log.Verbose("MIGRATE could not reach its target", "target", fmt.Sprintf("%s:%d", m.want.Host, m.want.Port), "err", p.err)
		}
		return err
	}
	return nil
}

// run moves the keys, a second time if the connection was of no use: one that is kept may have been closed by the target.
func (m *move) run() error {
	for again := true; ; again = false {
		err := m.try()
		var p *peerError
		if !again || !errors.As(err, &p) || p.timeout() || m.heard > 0 {
			return err
		}
	}
}

// try moves the keys once.
func (m *move) try() (err error) {
	m.peer, m.keys, m.next, m.sent, m.heard, m.acked, m.refuse = nil, nil, 0, nil, 0, 0, nil
	if err := m.connect(); err != nil {
		return err
	}
	m.out, m.body = m.s.peers.buffer(), m.s.peers.buffer()
	if err := m.open(); err != nil {
		m.s.peers.put(m.peer)
		return err
	}
	if err = m.s.peers.usable(m.peer); err == nil { // the keys may have waited for a call that has given up
		err = m.send()
	}
	m.closeLarge()
	m.s.peers.giveBack(m.out)
	m.s.peers.giveBack(m.body)
	m.out, m.body = nil, nil
	again := err != nil
	if !m.want.Copy && m.acked > 0 {
		if bad := m.remove(); bad != nil {
			m.refuse, again = bad, true
		}
	}
	if again { // the keys will come once more, over a connection that is made after this one
		m.s.peers.giveUp(m.peer)
	} else {
		m.s.peers.put(m.peer)
	}
	if !m.want.Copy {
		m.s.leaving.end(m.names, m.marks)
	}
	if m.refuse != nil {
		return m.refuse
	}
	return err
}

// begin locks the slots when the command may run here. An error is for the client, and nothing is locked then.
func (m *move) begin(write bool, now int64) error {
	for {
		m.s.pause.wait(m.c, true)
		m.c.txn.Begin(m.slots, write, now)
		r := m.c.txn.Routing()
		if r.WritesPaused {
			m.c.txn.End()
			if !m.s.awaitWrites(m.c) {
				return errLeft
			}
			continue
		}
		text := m.s.redirect(m.c, r, m.x.Cmd, m.x.Args, m.slots)
		if text == "" {
			text = m.s.refuseLocked(r, true)
		}
		if text != "" {
			m.c.txn.End()
			return turnedAway(text)
		}
		return nil
	}
}

// connect finds or makes a connection. When one has to be made, it looks first whether there is anything to move.
func (m *move) connect() error {
	m.peer = m.s.peers.take(&m.want)
	fresh := m.peer == nil
	if fresh {
		if err := m.begin(false, m.s.clock()); err != nil {
			return err
		}
		any, err := m.anyKey()
		m.c.txn.End()
		if err == nil && !any {
			err = m.nothing()
		}
		if err != nil {
			return err
		}
		if m.peer, err = m.s.peers.dial(&m.want, m.s.stop); err != nil {
			return err
		}
	}
	refused, err := m.peer.login(&m.want, fresh)
	if refused != "" {
		err = targetError(refused)
	}
	if err != nil {
		m.s.peers.drop(m.peer)
	}
	return err
}

func targetError(refused string) command.Reply {
	return command.Reply("ERR Target instance replied with error: " + refused)
}

func (m *move) anyKey() (bool, error) {
	for _, name := range m.want.Keys {
		k, err := m.c.txn.KeyNoTouch(name)
		if err != nil || k.Exists() {
			return err == nil, err
		}
		m.expired = m.expired || k.Expired()
	}
	return false, nil
}

// open looks the keys up, marks them, and makes the first ones ready.
func (m *move) open() error {
	for counted := false; ; {
		if err := m.begin(false, m.s.clock()); err != nil {
			return err
		}
		if err := m.find(!counted); err != nil {
			m.c.txn.End()
			return err
		}
		counted = true
		if len(m.keys) == 0 {
			_, _ = m.c.txn.Commit() // it has nothing but events of missed keys
			m.s.events.deliver(m.s)
			return m.nothing()
		}
		var busy <-chan struct{}
		if !m.want.Copy {
			m.marks, busy = m.s.leaving.mark(m.names)
		}
		if busy == nil {
			break
		}
		m.c.txn.End()
		if !m.s.awaitLeft(m.c, busy) {
			return errLeft
		}
	}
	m.began = m.role(m.c.txn.Routing())
	m.back = !m.want.Copy && m.goesBack(m.c.txn.Routing())
	m.fill()
	_, _ = m.c.txn.Commit() // as above
	m.s.events.deliver(m.s)
	return nil
}

// find lists the keys that exist. count: they are counted as read, found and missed.
func (m *move) find(count bool) error {
	m.keys, m.names = m.keys[:0], nil
	whole := 0
	for _, name := range m.want.Keys {
		k, err := m.c.txn.Key(name)
		if err != nil {
			return err
		}
		if count {
			m.x.CountRead(k)
		}
		m.expired = m.expired || k.Expired()
		if k.Exists() {
			m.keys = append(m.keys, movingKey{name: name})
			whole += len(name)
		}
	}
	// The marks outlive the command's arguments. One string holds all names.
	var b strings.Builder
	b.Grow(whole)
	for _, k := range m.keys {
		b.Write(k.name)
	}
	m.names = make([]string, len(m.keys))
	at := 0
	for i, k := range m.keys {
		m.names[i] = b.String()[at : at+len(k.name)]
		at += len(k.name)
	}
	return nil
}

// nothing is the answer when none of the keys is here. Those whose time has passed are deleted: whoever empties a slot key
// by key would meet them for ever.
func (m *move) nothing() error {
	if m.expired {
		if err := m.deleteExpired(); err != nil {
			return err
		}
	}
	return errNoKey
}

func (m *move) deleteExpired() error {
	for {
		if err := m.begin(true, engine.Forever); err != nil {
			return err
		}
		txn, now := m.c.txn, m.s.clock()
		var gone [][]byte
		for _, name := range m.want.Keys {
			k, err := txn.KeyNoTouch(name)
			if err != nil {
				txn.End()
				return err
			}
			if k.Exists() && k.Rec.Deadline != 0 && k.Rec.Deadline < now {
				txn.Delete(k)
				txn.Event('x', "expired", name)
				gone = append(gone, name)
			}
		}
		if len(gone) == 0 {
			txn.End()
			return nil
		}
		txn.LogStrings("DEL", gone...)
		end, err := txn.Commit()
		if errors.Is(err, engine.ErrRerouted) {
			continue
		}
		m.c.waitFor(end)
		m.s.stats.expiredKeys.Add(int64(len(gone)))
		m.s.events.deliver(m.s)
		return err
	}
}

// role says what the slots are to this node; all the same where there is no cluster.
func (m *move) role(r *engine.Routing) (role slotRole) {
	if !r.Cluster || len(m.slots) == 0 {
		return role
	}
	sl := m.slots[0]
	role.state = r.Slots[sl]
	if v := viewOf(r); v != nil {
		if at, ok := v.Migrating[sl]; ok && at != cluster.NoNode {
			role.to = v.Nodes[at].ID
		}
		if at, ok := v.Importing[sl]; ok && at != cluster.NoNode {
			role.from = v.Nodes[at].ID
		}
	}
	return role
}

// goesBack says whether the target is the node that the slot comes from.
func (m *move) goesBack(r *engine.Routing) bool {
	v := viewOf(r)
	if v == nil || m.began.from == "" || m.began.state&engine.SlotOwned != 0 {
		return false
	}
	at := v.Find(m.began.from)
	return at != cluster.NoNode && v.Nodes[at].IP == m.want.Host && int64(v.Nodes[at].Port) == m.want.Port
}

// deleteMost is how many keys one entry deletes: others wait for the slot meanwhile.
const deleteMost = 1024

// remove deletes the keys that the target has.
func (m *move) remove() error {
	var have []int
	for i := range m.keys {
		if m.keys[i].acked {
			have = append(have, i)
		}
	}
	for part := range slices.Chunk(have, deleteMost) {
		if err := m.removePart(part); err != nil {
			return err
		}
	}
	return nil
}

func (m *move) removePart(part []int) error {
	for {
		if err := m.s.store.Reserve(0); err != nil {
			return refuseWrite(err)
		}
		if err := m.begin(true, m.s.clock()); err != nil {
			return notMoved(err)
		}
		if now := m.role(m.c.txn.Routing()); now != m.began {
			m.c.txn.End()
			return notMoved(fmt.Errorf("slot %d is not any more what it was", m.slots[0]))
		}
		end, err := m.deleteKeys(part)
		if errors.Is(err, engine.ErrRerouted) {
			continue
		}
		if err != nil {
			return notMoved(err)
		}
		if m.began.state&engine.SlotMigrating != 0 {
			m.s.returns.went(m.slots[0])
		}
		m.c.wrote(end)
		m.c.waitFor(end)
		m.s.events.deliver(m.s)
		return nil
	}
}

func notMoved(err error) error {
	if errors.Is(err, errLeft) {
		return err
	}
	return command.Reply(textNotMoved + err.Error())
}

// deleteKeys deletes keys under the lock that is held.
func (m *move) deleteKeys(part []int) (end int64, err error) {
	txn := m.c.txn
	gone, names := make([][]byte, 0, len(part)), make([]string, 0, len(part))
	keys, bytes := int64(0), int64(0)
	last := uint64(0)
	for _, i := range part {
		k := &m.keys[i]
		key, err := txn.Key(k.name)
		if err != nil {
			txn.End()
			return 0, err
		}
		if !key.Exists() {
			continue // its time has passed, or all keys were deleted
		}
		txn.Delete(key)
		txn.Event('g', "del", k.name)
		gone, names = append(gone, k.name), append(names, m.names[i])
		keys, bytes = keys+1, bytes+int64(k.bytes)
		last = max(last, key.Hash)
	}
	if len(gone) == 0 {
		return txn.End(), nil
	}
	txn.LogStrings("DEL", gone...)
	if !txn.Routing().Cluster {
		end, err = txn.Commit()
	} else {
		// Before the lock goes: nobody may find the key missing in between.
		parted := m.s.leaving.part(names)
		if end, err = txn.Commit(); err != nil {
			m.s.leaving.rejoin(names, parted, m.marks)
		} else {
			m.s.keepGone(goneKeys{names, parted, end, time.Now().Add(m.patience())})
		}
	}
	if err == nil {
		m.s.hints.emptied(m.slots[0], last)
		m.s.moves.keysOut.Add(keys)
		m.s.moves.bytesOut.Add(bytes)
	}
	return end, err
}
