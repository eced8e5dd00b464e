package engine

import (
	"errors"
	"slices"

	"cairn/engine/layout"
	"cairn/engine/pending"
	"cairn/internal/invariant"
	"cairn/internal/slot"
)

// ErrRerouted means that ownership, role or pause changed while the command ran: nothing was committed, route
// and run it again.
var ErrRerouted = errors.New("routing changed during the command")

// Key is one key as a transaction sees it. Handlers change Rec and call Txn.Put, or call Txn.Delete.
type Key struct {
	Name []byte
	Slot uint16
	Hash uint64
	Rec  layout.Record // as of now in this transaction; zero when the key does not exist

	old     layout.Record // as committed before this transaction, Body left out
	oldSize int64
	dirty   bool
	expired bool   // a record is there and its time has passed
	value   []byte // content of the value row
	setVal  bool   // value is new
	byValue bool   // Rec is what value tells, see KeyForValue
}

// Exists says whether the key holds a value.
func (k *Key) Exists() bool { return k.Rec.Type != 0 }

// Expired says whether a record whose time has passed is hidden here.
func (k *Key) Expired() bool { return k.expired }

// ExistedBefore says whether the key held a record (expired ones included) before this transaction.
func (k *Key) ExistedBefore() bool { return k.old.Type != 0 }

// Event is a keyspace event, delivered after the commit in the order of commits.
type Event struct {
	Class byte // Redis's letter: g $ l s h z x e t d m n
	Name  string
	Key   []byte
}

// Txn is one command's (or one EXEC's) view and change of some slots. A connection has one and uses it again
// and again; it is not safe for concurrent use.
//
//	Begin -> Key, Put, Delete, Elements ... -> Commit or End
//
// Byte slices that a Txn returns are valid until its next Begin; slices given to it must stay until Commit.
type Txn struct {
	s       *Store
	lane    int
	slots   []uint16
	write   bool
	open    bool
	now     int64
	routing *Routing

	keys   []*Key // used ones first
	used   int
	byName map[string]*Key
	arena  []byte
	scan   []byte // row keys under construction

	elems   map[uint16]*pending.Tree
	dropped []uint16 // slots dropped as a whole, by DropSlots
	dropAll bool

	entry   []byte     // log entry under construction, MULTI header first
	long    []longPart // arguments that the entry's bytes leave out
	pieces  [][]byte   // of a long entry: what comes before entry
	nlogged int
	dirty   int
	events  []Event
	purged  int
	fresh   []uint64 // generations given out by this transaction
	adopted []*Staged

	moves   bool            // Move was called
	holders map[uint64]*Key // at the commit after a Move: changed keys by the generation of their rows; nil: not asked yet

	pieceDrops []drop // of values of fields that no row names any more

	seen int64 // see TakeSeen
}

// NewTxn makes a transaction of s.
func (s *Store) NewTxn() *Txn {
	return &Txn{s: s, lane: int(s.lanes.Add(1)) % cutShards}
}

// Forever as the time of a transaction makes every deadline lie ahead: replicas and recovery never expire
// anything by themselves, the primary's DEL tells them.
const Forever int64 = 0

// Begin locks slots, which are sorted and distinct; write decides how. nowMs is the time of all that happens
// inside, Unix milliseconds, or Forever. Waiting for room (Store.Reserve) comes before.
func (t *Txn) Begin(slots []uint16, write bool, nowMs int64) {
	if invariant.Enabled {
		invariant.Check(!t.open, "transaction began twice")
	}
	t.reset()
	t.slots = append(t.slots[:0], slots...)
	t.write, t.now, t.open = write, nowMs, true
	t.s.lockSlots(t.slots, write)
	t.routing = t.s.routing.Load()
}

// BeginAll is Begin on every slot.
func (t *Txn) BeginAll(write bool, nowMs int64) { t.Begin(t.s.allSlots, write, nowMs) }

// What a transaction keeps for its next use, in bytes and in keys. One command may have named a million.
const (
	arenaKept = 64 << 10
	keysKept  = 1024
)

func (t *Txn) reset() {
	t.used, t.nlogged, t.dirty, t.purged = 0, 0, 0, 0
	if len(t.keys) > keysKept {
		t.keys, t.byName = nil, nil
	}
	clear(t.byName)
	if cap(t.arena) > arenaKept {
		t.arena = nil
	}
	if cap(t.entry) > arenaKept {
		t.entry = nil
	}
	t.arena, t.entry = t.arena[:0], t.entry[:0]
	clear(t.elems)
	t.dropped, t.dropAll = t.dropped[:0], false
	clear(t.long)
	t.long, t.pieces = t.long[:0], nil
	clear(t.events)
	clear(t.adopted)
	t.events, t.adopted, t.fresh = t.events[:0], t.adopted[:0], t.fresh[:0]
	t.pieceDrops = t.pieceDrops[:0]
	t.moves, t.holders = false, nil
}

// Large says that the transaction still holds much of its last use: long arguments that others gave it, values read, or
// many keys.
func (t *Txn) Large() bool {
	return len(t.long) > 0 || len(t.keys) > keysKept || cap(t.arena) > arenaKept || cap(t.entry) > arenaKept
}

// Forget lets go of all that, if the transaction is not open.
func (t *Txn) Forget() {
	if t.open {
		return
	}
	t.reset()
	for _, k := range t.keys {
		*k = Key{}
	}
}

// Now is the transaction's time in Unix milliseconds, Forever when deadlines do not count.
func (t *Txn) Now() int64 { return t.now }

// Writing says whether the transaction may change anything.
func (t *Txn) Writing() bool { return t.write }

// Open says whether the transaction holds its locks.
func (t *Txn) Open() bool { return t.open }

// Store is where the transaction runs.
func (t *Txn) Store() *Store { return t.s }

// Routing is the value under which the transaction runs.
func (t *Txn) Routing() *Routing { return t.routing }

// Dirty counts changes so far. A handler that did not raise it changed nothing.
func (t *Txn) Dirty() int { return t.dirty }

// Key looks name up. The same name gives the same *Key again. An expired key does not exist; in a writing
// transaction its deletion is part of what is committed and logged, before anything else about it.
func (t *Txn) Key(name []byte) (*Key, error) { return t.lookup(name, access{touch: true}) }

// KeyNoTouch is Key for who only asks about a key: it counts as no access, neither for OBJECT IDLETIME and FREQ nor
// for what stays in memory.
func (t *Txn) KeyNoTouch(name []byte) (*Key, error) { return t.lookup(name, access{}) }

func (t *Txn) lookup(name []byte, how access) (*Key, error) {
	k, err := t.load(layout.Hash(name), name, how)
	if err == nil && t.passed(&k.Rec) {
		t.hide(k)
	}
	return k, err
}

// load is lookup without the look at the deadline.
func (t *Txn) load(h uint64, name []byte, how access) (*Key, error) {
	if k := t.known(h, name); k != nil {
		if k.byValue && !how.value {
			return k, t.loadWhole(k, how.touch)
		}
		return k, nil
	}
	k := t.newKey()
	*k = Key{Name: name, Slot: t.slotOf(name), Hash: h}
	if invariant.Enabled {
		t.checkLocked(k)
	}
	if err := t.loadRecord(k, how); err != nil {
		t.used--
		return nil, err
	}
	if len(t.byName) > 0 { // else known begins it when there are more
		t.byName[string(name)] = k
	}
	if k.Rec.Type == 0 {
		return k, nil
	}
	k.old = k.Rec
	k.oldSize = recordSize(k)
	return k, nil
}

// slotOf is the slot of a key. Of a transaction with one slot it is that one: whoever began it has reckoned it.
func (t *Txn) slotOf(name []byte) uint16 {
	if len(t.slots) == 1 {
		return t.slots[0]
	}
	return slot.Of(name)
}

// passed says whether a record's time has passed. A deadline may lie in the past from the first (SET ... PXAT 1),
// so a key that the transaction itself wrote is asked too.
func (t *Txn) passed(r *layout.Record) bool {
	return t.now != Forever && r.Deadline != 0 && r.Deadline < t.now
}

// hide makes an expired key one that does not exist. Whoever may delete it does so here; what this transaction
// wrote is its own to delete, in any slot.
func (t *Txn) hide(k *Key) {
	k.expired = true
	k.Rec = layout.Record{}
	k.value, k.setVal = nil, false
	if k.dirty || t.write && !t.routing.Replica && t.ownsExpiry(k.Slot) {
		t.purge(k)
	}
}

// ownsExpiry says whether this node may delete an expired key of slot: one that is still arriving belongs to
// its source.
func (t *Txn) ownsExpiry(slot uint16) bool {
	return !t.routing.Cluster || t.routing.Slots[slot]&SlotOwned != 0
}

// purge makes the disappearance of an expired key part of the entry.
func (t *Txn) purge(k *Key) {
	k.dirty = true
	t.purged++
	t.LogStrings("DEL", k.Name)
	t.Event('x', "expired", k.Name)
}

const scanKeysUpTo = 16

func (t *Txn) known(h uint64, name []byte) *Key {
	if t.used <= scanKeysUpTo {
		for _, k := range t.keys[:t.used] {
			if k.Hash == h && string(k.Name) == string(name) {
				return k
			}
		}
		return nil
	}
	if len(t.byName) == 0 {
		if t.byName == nil {
			t.byName = make(map[string]*Key)
		}
		for _, k := range t.keys[:t.used] {
			t.byName[string(k.Name)] = k
		}
	}
	return t.byName[string(name)]
}

func (t *Txn) newKey() *Key {
	if t.used == len(t.keys) {
		t.keys = append(t.keys, new(Key))
	}
	t.used++
	return t.keys[t.used-1]
}

// Put makes the change of k.Rec part of the transaction. k.Rec.Body must stay as it is until Commit. Rec.Arrived ends: who
// brings a key sets it anew, after Put.
func (t *Txn) Put(k *Key) {
	if invariant.Enabled {
		invariant.Check(!k.byValue, "key %.64q is changed, and only its value is known", k.Name)
	}
	k.Rec.Arrived = false
	k.dirty = true
	k.expired = false
	t.dirty++
}

// SetValue sets the content of k's value row; k.Rec must say ValueRow by the time of Commit.
func (t *Txn) SetValue(k *Key, value []byte) {
	k.value, k.setVal = value, true
}

// Delete removes the key and whatever it holds, at once whatever its size.
func (t *Txn) Delete(k *Key) {
	if !k.Exists() {
		return
	}
	k.Rec = layout.Record{}
	k.value, k.setVal = nil, false
	t.Put(k)
}

// Room gives an empty slice with room for n bytes, for what a command makes and the transaction takes: of the transaction's
// own memory, which is no garbage, unless it has used much of that already.
func (t *Txn) Room(n int) []byte {
	at := len(t.arena)
	if at+n > arenaKept {
		return make([]byte, 0, n)
	}
	t.arena = slices.Grow(t.arena, n)[:at+n]
	return t.arena[at : at : at+n]
}

// NewGeneration gives a number for the rows of a value, never used before. Rows under it that no record names by
// the time of Commit are not committed.
func (t *Txn) NewGeneration() uint64 {
	gen := t.s.nextGen.Add(1) - 1
	t.fresh = append(t.fresh, gen)
	return gen
}

// Move gives dst the value of src, which then does not exist. Rows are under a generation and do not move when
// both are in one slot; the caller checked that with SameSlot, or copies.
func (t *Txn) Move(src, dst *Key) error {
	if src.Rec.Form == layout.ValueRow {
		v, err := t.Value(src)
		if err != nil {
			return err
		}
		t.SetValue(dst, v)
	}
	dst.Rec = src.Rec
	t.moves = true
	t.Put(dst)
	src.Rec = layout.Record{}
	src.value, src.setVal = nil, false
	t.Put(src)
	return nil
}

// Event queues a keyspace event.
func (t *Txn) Event(class byte, name string, key []byte) {
	if t.s.effects == nil {
		return
	}
	t.events = append(t.events, Event{class, name, key})
}

// Events lists the queued events, for Effects.Committed.
func (t *Txn) Events() []Event { return t.events }

// EachChanged calls f for every key that the transaction changed.
func (t *Txn) EachChanged(f func(*Key)) {
	for _, k := range t.keys[:t.used] {
		if k.dirty {
			f(k)
		}
	}
}

// DroppedAll says whether the transaction emptied every slot, Dropped which ones otherwise.
func (t *Txn) DroppedAll() bool { return t.dropAll }

// DropAll empties every slot. The transaction holds all of them.
func (t *Txn) DropAll() {
	t.forget()
	t.dropAll = true
	t.dirty++
}

// DropSlot empties one slot.
func (t *Txn) DropSlot(slot uint16) {
	t.forget()
	t.dropped = append(t.dropped, slot)
	t.dirty++
}

// forget gives up what the transaction knows of keys: a drop comes before all its other rows.
func (t *Txn) forget() {
	t.used = 0
	clear(t.byName)
	clear(t.elems)
}

func (t *Txn) checkLocked(k *Key) {
	_, locked := slices.BinarySearch(t.slots, k.Slot)
	invariant.Check(locked && k.Slot == slot.Of(k.Name), "slot %d of key %.64q is not locked, only %d others are", slot.Of(k.Name), k.Name, len(t.slots))
}
