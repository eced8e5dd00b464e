package server

import (
	"errors"
	"strconv"

	"cairn/engine"
	"cairn/server/command"
)

// How MIGRATE sends keys.
//
// Small values are made ready under the lock, a window of them at a time, so that memory is bounded and nobody waits long
// for the lock. A window is sent while the target works on the one before it; with more on the way, both sides could
// wait for each other with full buffers.
const (
	windowBytes = 48 << 10
	windowKeys  = 128
)

// largeValue is a value that is streamed: of the last key of a window.
type largeValue struct {
	key      int // index in move.keys
	deadline int64
	dump     *command.ValueDump
}

// send sends all keys and hears the answers.
func (m *move) send() error {
	for {
		err := m.sendWindow()
		if err != nil {
			m.hearRest()
			return err
		}
		if m.next == len(m.keys) {
			return m.hear(len(m.sent))
		}
		if err := m.hear(len(m.sent) - windowKeys); err != nil {
			return err
		}
		m.c.txn.Begin(m.slots, false, m.s.clock())
		m.fill()
		m.c.txn.End()
	}
}

// sendWindow sends what fill has made ready.
func (m *move) sendWindow() error {
	err := m.peer.write(m.out)
	m.out = m.out[:0]
	if err == nil && m.large != nil {
		err = m.sendLarge()
	}
	return err
}

// fill makes the next keys ready. Their slots are locked.
func (m *move) fill() {
	for n := 0; n < windowKeys && m.next < len(m.keys) && len(m.out) < windowBytes && m.large == nil; n++ {
		if err := m.ready(m.next); err != nil {
			m.blame(err)
		}
		m.next++
	}
}

// ready appends the command that brings a key to the target, or opens its value when that is large. A key that has
// expired since it was looked up is left out.
func (m *move) ready(i int) error {
	k, err := m.c.txn.Key(m.keys[i].name)
	if err != nil || !k.Exists() {
		return err
	}
	m.keys[i].arrived = k.Rec.Arrived
	payload, ok, err := command.AppendPlainDump(m.body[:0], m.c.txn, k)
	if err != nil {
		return err
	}
	if m.body = payload; ok {
		m.small(i, k, payload)
		return nil
	}
	d, err := command.OpenDump(m.c.txn, k)
	if errors.Is(err, command.ErrNotDumpable) {
		return command.Reply("ERR " + err.Error())
	}
	if err != nil {
		return err
	}
	if payload, ok = d.Payload(); ok {
		m.small(i, k, payload)
	} else {
		m.large = &largeValue{key: i, deadline: k.Rec.Deadline, dump: d}
	}
	return nil
}

// small appends the command of a key whose payload is at hand.
func (m *move) small(i int, k *engine.Key, payload []byte) {
	m.begins(i, k.Rec.Deadline, int64(len(payload)))
	m.out = append(m.out, payload...)
	m.ends(i, len(payload))
}

// begins appends a key's command up to the payload.
func (m *move) begins(i int, deadline, size int64) {
	words := int64(4)
	if m.want.Replace {
		words++
	}
	name := "RESTORE"
	if m.s.ClusterEnabled() {
		name = "RESTORE-ASKING"
	}
	ttl := int64(0)
	if deadline != 0 {
		ttl = max(deadline-m.s.clock(), 1)
	}
	var digits [20]byte
	m.out = appendHeader(m.out, '*', words)
	m.out = append(appendHeader(m.out, '$', int64(len(name))), name...)
	m.out = appendArgument(append(m.out, '\r', '\n'), m.keys[i].name)
	m.out = appendArgument(m.out, strconv.AppendInt(digits[:0], ttl, 10))
	m.out = appendHeader(m.out, '$', size)
}

// ends appends what follows the payload.
func (m *move) ends(i, size int) {
	m.out = append(m.out, '\r', '\n')
	if m.want.Replace {
		m.out = appendArgument(m.out, []byte("REPLACE"))
	}
	m.sent = append(m.sent, i)
	m.keys[i].bytes = size
}

func appendHeader(dst []byte, kind byte, n int64) []byte {
	return append(strconv.AppendInt(append(dst, kind), n, 10), '\r', '\n')
}

func appendArgument(dst, b []byte) []byte {
	return append(append(appendHeader(dst, '$', int64(len(b))), b...), '\r', '\n')
}

// sendLarge streams a value. Nothing is locked. When it cannot be read to its end the connection is of no use any more: the
// target waits for the rest.
func (m *move) sendLarge() error {
	v := m.large
	size, err := v.dump.Size()
	if err != nil {
		m.blame(err)
		m.closeLarge()
		return nil
	}
	m.begins(v.key, v.deadline, size)
	w := peerWriter{p: m.peer, buf: m.out}
	err = v.dump.Write(&w)
	m.out = w.buf
	switch {
	case w.err != nil:
		return w.err
	case err != nil:
		return err
	}
	m.closeLarge()
	m.ends(v.key, int(size))
	err = m.peer.write(m.out)
	m.out = m.out[:0]
	return err
}

func (m *move) closeLarge() {
	if m.large == nil {
		return
	}
	if err := m.large.dump.Close(); err != nil {
		m.s.log.Warning("the view of a value that MIGRATE sent could not be closed", "err", err)
	}
	m.large = nil
}

// peerWriter gathers what is written for a peer.
type peerWriter struct {
	p   *peer
	buf []byte
	err error // of the connection
}

func (w *peerWriter) Write(b []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if w.buf = append(w.buf, b...); len(w.buf) >= peerPiece {
		w.err = w.p.write(w.buf)
		w.buf = w.buf[:0]
	}
	return len(b), w.err
}

// hear reads answers until n keys have theirs.
func (m *move) hear(n int) error {
	for m.heard < n {
		refused, err := m.peer.reply()
		if err != nil {
			return err
		}
		k := &m.keys[m.sent[m.heard]]
		m.heard++
		if refused != "" && !(m.back && k.arrived && refused == string(command.ErrBusyOriginal)) {
			m.blame(targetError(refused))
			continue
		}
		k.acked = true
		m.acked++
	}
	return nil
}

// hearRest takes note of the answers that have come when sending has failed: why it failed may be among them.
func (m *move) hearRest() {
	m.peer.timeout = peerLastAsk
	_ = m.hear(len(m.sent)) // it ends in an error, and there was one before
	if m.large != nil && m.heard == len(m.sent) && m.refuse == nil {
		if refused, err := m.peer.reply(); err == nil && refused != "" {
			m.blame(targetError(refused))
		}
	}
}

// blame keeps the first error.
func (m *move) blame(err error) {
	if m.refuse == nil {
		m.refuse = err
	}
}
