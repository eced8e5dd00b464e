package server

import (
	"bytes"
	"sync"

	"cairn/engine"
	"cairn/internal/resp"
	"cairn/internal/slot"
	"cairn/server/command"
)

// The keys of one slot, for those who move or drop it: COUNTKEYSINSLOT, GETKEYSINSLOT.
//
// Who empties a slot asks for some keys, deletes them, and asks again. A walk from the slot's beginning would meet all
// that was deleted before, each time more of it, until the store has compacted it away. So a walk begins where the last
// one found its first key, or behind what MIGRATE has deleted since, and goes round; and it ends when it has as many as the
// slot's counter says there are.

// slotNamesMost bounds the names that one GETKEYSINSLOT gives, bytes: they are in memory together. Who moves a slot asks
// again until there are none.
const slotNamesMost = 16 << 20

// slotHints remembers where the first keys of some slots lay.
type slotHints struct {
	mu   sync.Mutex
	next int
	last [64]slotHint // as many as tools move at a time
}

type slotHint struct {
	used bool
	slot uint16
	from uint64 // the first 48 bits of the key's hash
}

func (h *slotHints) of(sl uint16) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.last {
		if h.last[i].used && h.last[i].slot == sl {
			return h.last[i].from
		}
	}
	return 0
}

func (h *slotHints) note(sl uint16, from uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := -1
	for i := range h.last {
		if h.last[i].used && h.last[i].slot == sl {
			at = i
		}
	}
	if at < 0 {
		at, h.next = h.next, (h.next+1)%len(h.last)
	}
	h.last[at] = slotHint{true, sl, from}
}

// emptied notes that keys up to one with this hash have moved away. Should another one have the same place, it is met last.
func (h *slotHints) emptied(sl uint16, hash uint64) { h.note(sl, hash>>16+1) }

// eachInSlot calls f for keys of a slot until f says no, expired ones too: from the place of the last walk on, then from
// the slot's beginning up to there. The slot is locked in txn, whose time is Forever. about is how many will do, and most
// is how many there are, -1 where that is not known.
func (s *Server) eachInSlot(txn *engine.Txn, sl uint16, about int, most int64, f func(key []byte) bool) error {
	if most == 0 {
		return nil
	}
	w := slotWalk{s: s, txn: txn, slot: sl, page: min(about, slotPage), left: most, f: f}
	hint := s.hints.of(sl)
	if err := w.run(hint, slotEnd); err != nil || w.done || hint == 0 {
		return err
	}
	return w.run(0, hint)
}

const (
	slotPage = 1000
	slotEnd  = 1 << 48 // behind all hashes
)

type slotWalk struct {
	s     *Server
	txn   *engine.Txn
	slot  uint16
	page  int
	left  int64
	found bool
	done  bool
	f     func(key []byte) bool
}

// run walks over the hashes in [from, end). A view may end early, at keys that are deleted and not in Pebble yet.
func (w *slotWalk) run(from, end uint64) error {
	for more := true; more && !w.done && from < end; {
		view, err := w.txn.Records(w.slot, from, w.page)
		if err != nil {
			return err
		}
		for ; view.Valid() && !w.done && view.Hash48() < end; view.Next() {
			if !w.found {
				w.found = true
				w.s.hints.note(w.slot, view.Hash48())
			}
			if w.left--; !w.f(view.Key()) || w.left == 0 {
				w.done = true
			}
		}
		from, more = view.More()
		if err := view.Close(); err != nil {
			return err
		}
	}
	return nil
}

// ClusterCountKeysInSlot is CLUSTER COUNTKEYSINSLOT. Keys of slots that are not this node's count too.
func (s *Server) ClusterCountKeysInSlot(x *command.Ctx) error {
	if err := s.inCluster(); err != nil {
		return err
	}
	n, ok := resp.ParseInt(x.Args[2])
	if !ok {
		return command.ErrNotInteger
	}
	if n < 0 || n >= slot.Count {
		return command.Reply("ERR Invalid slot")
	}
	x.W.Int(s.store.SlotCounters(uint16(n)).Keys)
	return nil
}

// ClusterGetKeysInSlot is CLUSTER GETKEYSINSLOT: expired keys that are not deleted yet too.
func (s *Server) ClusterGetKeysInSlot(x *command.Ctx) error {
	if err := s.inCluster(); err != nil {
		return err
	}
	n, ok := resp.ParseInt(x.Args[2])
	most, ok2 := resp.ParseInt(x.Args[3])
	if !ok || !ok2 {
		return command.ErrNotInteger
	}
	if n < 0 || n >= slot.Count || most < 0 {
		return command.Reply("ERR Invalid slot or number of keys")
	}
	return s.inSlot(x, uint16(n), func() error { return s.writeKeys(x, uint16(n), most, slotNamesMost) })
}

// writeKeys replies with names of keys in a slot, at most so many, and of about so many bytes.
func (s *Server) writeKeys(x *command.Ctx, sl uint16, most int64, bytes int) error {
	there := int64(-1)
	if !x.InMulti { // else there is what the transaction has changed itself
		there = s.store.SlotCounters(sl).Keys
	}
	var names resp.Writer
	n := 0
	if most > 0 {
		err := s.eachInSlot(x.Txn, sl, int(min(most, slotPage)), there, func(key []byte) bool {
			names.Bulk(key)
			n++
			return int64(n) < most && len(names.Buf) < bytes
		})
		if err != nil {
			return err
		}
	}
	x.W.Array(n)
	x.W.Buf = append(x.W.Buf, names.Buf...)
	return nil
}

// someKeys names some keys of a slot, at most dropBatch.
func (s *Server) someKeys(txn *engine.Txn, sl uint16) (names [][]byte, err error) {
	err = s.eachInSlot(txn, sl, dropBatch, s.store.SlotCounters(sl).Keys, func(key []byte) bool {
		names = append(names, bytes.Clone(key))
		return len(names) < dropBatch
	})
	return names, err
}
