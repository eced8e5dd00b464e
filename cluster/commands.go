package cluster

import (
	"errors"

	"cairn/cluster/wire"
	"cairn/internal/slot"
)

// Every change that a person asks for is answered when it is on disk: the answer waits for the save (Answer.After), so
// that nobody builds on what a crash takes back.

// run does what a command asks. The effects are the machine's.
func (m *Machine) run(now int64, c Cmd) Answer {
	switch c := c.(type) {
	case CmdMeet:
		return m.runMeet(now, c)
	case CmdForget:
		return m.runForget(now, c)
	case CmdReplicate:
		return m.runReplicate(now, c)
	case CmdFailover:
		return m.done(m.startFailover(now, c.Mode))
	case CmdAddSlots:
		return m.runAddSlots(&c.Slots)
	case CmdDelSlots:
		return m.runDelSlots(now, &c.Slots)
	case CmdFlushSlots:
		return m.runFlushSlots()
	case CmdSetSlot:
		return m.runSetSlot(now, c, false)
	case CmdQuickSlot:
		return m.runSetSlot(now, CmdSetSlot(c), true)
	case CmdCheckSlot:
		return m.runCheckSlot(CmdSetSlot(c))
	case CmdAskEpoch:
		return m.runAskEpoch(now, c)
	case CmdRecallSlot:
		return m.runRecallSlot(now, CmdSetSlot(c))
	case CmdHeedSlot:
		return m.runHeedSlot(now, CmdSetSlot(c))
	case CmdCloseSlots:
		return m.runCloseSlots()
	case CmdTakeFound:
		return m.runTakeFound()
	case CmdBumpEpoch:
		return m.runBumpEpoch()
	case CmdSetConfigEpoch:
		return m.runSetConfigEpoch(c)
	case CmdReset:
		return m.runReset(c)
	case CmdSave:
		m.afterSave()
		return m.done(nil)
	case CmdPublish:
		m.publish(now, c)
		return Answer{OK: true}
	case CmdHandOver:
		return m.handOver()
	}
	return Answer{Err: refuse("unknown command %T", c)}
}

// refuse makes an error with Redis's text.
func refuse(format string, args ...any) error { return errors.New("ERR " + text(format, args...)) }

// done answers a command: with its error, or when all that it changed is on disk.
func (m *Machine) done(err error) Answer {
	if err != nil {
		return Answer{Err: err}
	}
	if m.unsaved {
		return Answer{OK: true, After: m.afterSave()}
	}
	return Answer{OK: true}
}

// accepted has what a command changed looked at, published and saved.
func (m *Machine) accepted() Answer {
	m.askCheck()
	m.reroute = true
	m.afterSave()
	return m.done(nil)
}

func (m *Machine) runMeet(now int64, c CmdMeet) Answer {
	if !m.startHandshake(now, c.IP, c.Port, c.BusPort) {
		return Answer{Err: refuse("Invalid node address specified: %s:%d", c.IP, c.Port)}
	}
	return Answer{OK: true} // nothing of a handshake is saved
}

func (m *Machine) runForget(now int64, c CmdForget) Answer {
	p := m.lookup(c.ID)
	switch {
	case p == nil:
		// Word of it may have come from a node that was told first.
		if len(c.ID) == wire.IDLen && m.isForgotten(wire.ID([]byte(c.ID)), now) {
			return Answer{OK: true}
		}
		return Answer{Err: refuse("Unknown node %s", c.ID)}
	case p == m.me:
		return Answer{Err: refuse("I tried hard but I can't forget myself...")}
	case p == m.me.Primary:
		return Answer{Err: refuse("Can't forget my master!")}
	}
	if p == m.manual.asker {
		m.endManual()
	}
	m.forget(p.ID, now, m.cfg.BlacklistTTL)
	m.deletePeer(p)
	return m.accepted()
}

// member gives a node that has told its id: one in handshake has a made-up id that nothing may be bound to.
func (m *Machine) member(id string) *Peer {
	if p := m.lookup(id); p != nil && !p.handshake() {
		return p
	}
	return nil
}

func (m *Machine) runReplicate(now int64, c CmdReplicate) Answer {
	p := m.member(c.ID)
	switch {
	case p == nil:
		return Answer{Err: refuse("Unknown node %s", c.ID)}
	case p == m.me:
		return Answer{Err: refuse("Can't replicate myself")}
	case p.replica():
		return Answer{Err: refuse("I can only replicate a master, not a replica.")}
	case p == m.me.Primary:
		return Answer{OK: true}
	case m.me.primary() && (m.me.Slots != 0 || m.data.Keys() != 0):
		return Answer{Err: refuse("To set a master the node must be empty and without assigned slots.")}
	}
	m.becomeReplicaOf(now, p)
	return m.accepted()
}

func (m *Machine) runAddSlots(add *slot.Bitmap) Answer {
	// A replica's slots are its primary's: with own ones it would be neither.
	if !m.me.primary() {
		return Answer{Err: refuse("Slots can be added to a master only")}
	}
	for s := range uint16(slot.Count) {
		if add.Has(s) && m.owner(s) != nil {
			return Answer{Err: refuse("Slot %d is already busy", s)}
		}
	}
	for s := range uint16(slot.Count) {
		if add.Has(s) {
			m.closeSlot(s)
			m.assign(s, m.me)
		}
	}
	m.gained(m.afterSave())
	return m.accepted()
}

func (m *Machine) runDelSlots(now int64, del *slot.Bitmap) Answer {
	for s := range uint16(slot.Count) {
		if del.Has(s) && m.owner(s) == nil {
			return Answer{Err: refuse("Slot %d is already unassigned", s)}
		}
	}
	m.forgetLetGo(now)
	for s := range uint16(slot.Count) {
		if del.Has(s) {
			m.letGoOf(now, s)
			m.closeSlot(s)
			m.unassign(s)
		}
	}
	return m.accepted()
}

func (m *Machine) runFlushSlots() Answer {
	if m.data.Keys() != 0 {
		return Answer{Err: refuse("DB must be empty to perform CLUSTER FLUSHSLOTS.")}
	}
	for s := range uint16(slot.Count) {
		if m.owner(s) == m.me {
			m.closeSlot(s)
			m.unassign(s)
		}
	}
	return m.accepted()
}

func (m *Machine) runBumpEpoch() Answer {
	word := "STILL"
	if m.bumpEpoch() {
		word = "BUMPED"
	}
	a := m.done(nil)
	a.Word, a.Epoch = word, m.me.Epoch
	return a
}

func (m *Machine) runSetConfigEpoch(c CmdSetConfigEpoch) Answer {
	switch {
	case c.Epoch < 0:
		return Answer{Err: refuse("Invalid config epoch specified: %d", c.Epoch)}
	case len(m.peers) > 1:
		return Answer{Err: refuse("The user can assign a config epoch only when the node does not know any other node.")}
	case m.me.Epoch != 0:
		return Answer{Err: refuse("Node config epoch is already non-zero")}
	}
	m.me.Epoch = uint64(c.Epoch)
	m.currentEpoch = max(m.currentEpoch, m.me.Epoch)
	m.note(Notice, "configEpoch set to %d via CLUSTER SET-CONFIG-EPOCH", m.me.Epoch)
	return m.accepted()
}

// runReset leaves the cluster. A replica's data goes: it was never its own. Its shard id goes too, because two nodes
// of one shard are taken to have the same data.
func (m *Machine) runReset(c CmdReset) Answer {
	replica := m.me.replica()
	if !replica && m.data.Keys() != 0 {
		return Answer{Err: refuse("CLUSTER RESET can't be called with master nodes containing keys")}
	}
	m.endManual()
	m.election = election{}
	if replica {
		m.becomePrimary()
		m.me.Shard = m.rand.id()
	}
	m.closeSlots()
	for s := range uint16(slot.Count) {
		if m.owner(s) != nil {
			m.unassign(s)
		}
	}
	for i := len(m.peers) - 1; i >= 0; i-- {
		if p := m.peers[i]; p != m.me {
			m.deletePeer(p)
		}
	}
	clear(m.forgot)
	m.me.Flags &^= wire.FlagMigrateTo
	if c.Hard {
		m.hardReset()
	}
	after := m.afterSave()
	if replica {
		m.emit(Promote{After: after})
		m.emit(Flush{After: after})
		m.gained(after)
	}
	return m.accepted()
}

// hardReset makes this a node that was never seen before. Epochs begin anew only because the id does: under the old one
// they must not fall.
func (m *Machine) hardReset() {
	m.currentEpoch, m.lastVoteEpoch, m.me.Epoch = 0, 0, 0
	m.note(Notice, "configEpoch set to 0 via CLUSTER RESET HARD")
	delete(m.byID, m.me.ID)
	m.me.ID, m.me.Shard = m.rand.id(), m.rand.id()
	m.byID[m.me.ID] = m.me
	m.told, m.saving = m.self(), nil // what is on disk was another one's
	m.note(Notice, "Node hard reset, now I'm %s", m.me.ID)
}
