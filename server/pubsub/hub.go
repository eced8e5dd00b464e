// Package pubsub is the tables of who listens to what: channels, patterns and shard channels.
//
// Shape. A Hub is of the whole node, a Set is what one subscriber listens to. A message is handed to every
// Subscriber by the goroutine that publishes it, so two messages of one publisher arrive in their order.
// Finding the subscribers of a channel costs the same however many channels there are; patterns are tried one
// after the other.
//
// Order. Set.Remove returns after the last message of that name was handed over, and Set.Add before the first
// one is: a subscriber that says so in between says the truth.
//
// Locks. Set.mu, then one shard of the Hub; inside the latter whatever Subscriber.Deliver takes. Deliver must
// not block and not call back.
//
// Errors. There are none. The caller limits what a subscriber may hold: Set.Bytes.
//
// Not here: sockets, queues, replies to the commands; which slots are served (server).
package pubsub

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"cairn/internal/glob"
	"cairn/internal/slot"
)

// Kind is what a name stands for.
type Kind uint8

// The kinds, each with names of its own.
const (
	Channel Kind = iota
	Pattern
	Shard
	kinds
)

// Subscriber gets messages.
type Subscriber interface {
	// Deliver takes a message, at once. The frame is the publisher's: what Bytes gives may be kept, the frame
	// itself may not.
	Deliver(*Frame)
}

const shardCount = 64 // a power of two

// Hub knows all subscriptions of a node.
type Hub struct {
	seed     maphash.Seed
	channels [shardCount]shard
	shards   [shardCount]shard // by slot, so that one slot's are found together
	patterns shard
	names    [kinds]atomic.Int64 // distinct names with subscribers
}

// shard is a part of the names of one kind.
type shard struct {
	mu     sync.RWMutex
	topics map[string]*topic
}

// topic is one name and who listens to it.
type topic struct {
	name string
	subs []*subscription
}

// subscription is one subscriber's of one topic. at is its place in topic.subs, under the shard's lock.
type subscription struct {
	set   *Set
	topic *topic
	at    int
}

// NewHub returns a hub without subscribers.
func NewHub() *Hub {
	h := &Hub{seed: maphash.MakeSeed()}
	for i := range shardCount {
		h.channels[i].topics = make(map[string]*topic)
		h.shards[i].topics = make(map[string]*topic)
	}
	h.patterns.topics = make(map[string]*topic)
	return h
}

func (h *Hub) shard(k Kind, name []byte) *shard {
	switch k {
	case Pattern:
		return &h.patterns
	case Shard:
		return &h.shards[slot.Of(name)%shardCount]
	}
	return &h.channels[maphash.Bytes(h.seed, name)%shardCount]
}

func (h *Hub) add(k Kind, name string, set *Set) *subscription {
	sh := h.shard(k, []byte(name))
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t := sh.topics[name]
	if t == nil {
		t = &topic{name: name}
		sh.topics[name] = t
		h.names[k].Add(1)
	}
	sub := &subscription{set, t, len(t.subs)}
	t.subs = append(t.subs, sub)
	return sub
}

func (h *Hub) remove(k Kind, sub *subscription) {
	t := sub.topic
	sh := h.shard(k, []byte(t.name))
	sh.mu.Lock()
	defer sh.mu.Unlock()
	last := len(t.subs) - 1
	t.subs[sub.at] = t.subs[last]
	t.subs[sub.at].at = sub.at
	t.subs[last] = nil
	t.subs = t.subs[:last]
	if last == 0 {
		delete(sh.topics, t.name)
		h.names[k].Add(-1)
	}
}

// Publish hands a message to the subscribers of a channel and of the patterns that match it, and says how many
// there were; one that listens in two ways counts and gets it twice. from is the publisher where it may be a
// subscriber too, or nil.
func (h *Hub) Publish(channel, payload []byte, from Subscriber) (receivers int) {
	receivers = h.channel(Channel, channel, payload, from)
	if h.names[Pattern].Load() == 0 {
		return receivers
	}
	sh := &h.patterns
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	for name, t := range sh.topics {
		pattern := []byte(name)
		if glob.Match(pattern, channel, false) {
			f := Frame{From: from, kind: Pattern, pattern: pattern, channel: channel, payload: payload}
			receivers += t.deliver(&f)
		}
	}
	return receivers
}

// PublishShard is Publish for a shard channel. Patterns do not count.
func (h *Hub) PublishShard(channel, payload []byte, from Subscriber) (receivers int) {
	return h.channel(Shard, channel, payload, from)
}

func (h *Hub) channel(k Kind, channel, payload []byte, from Subscriber) int {
	if h.names[k].Load() == 0 {
		return 0
	}
	sh := h.shard(k, channel)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	t := sh.topics[string(channel)]
	if t == nil {
		return 0
	}
	f := Frame{From: from, kind: k, channel: channel, payload: payload}
	return t.deliver(&f)
}

func (t *topic) deliver(f *Frame) int {
	f.receivers = len(t.subs)
	for _, sub := range t.subs {
		sub.set.who.Deliver(f)
	}
	return len(t.subs)
}

// Names lists the names of a kind that somebody listens to, in no order: those that match the pattern, all with
// nil.
func (h *Hub) Names(k Kind, pattern []byte) (names []string) {
	for _, sh := range h.all(k) {
		sh.mu.RLock()
		for name := range sh.topics {
			if pattern == nil || glob.Match(pattern, []byte(name), false) {
				names = append(names, name)
			}
		}
		sh.mu.RUnlock()
	}
	return names
}

func (h *Hub) all(k Kind) (list []*shard) {
	if k == Pattern {
		return []*shard{&h.patterns}
	}
	of := &h.channels
	if k == Shard {
		of = &h.shards
	}
	for i := range of {
		list = append(list, &of[i])
	}
	return list
}

// Count is the number of distinct names of a kind that somebody listens to.
func (h *Hub) Count(k Kind) int64 { return h.names[k].Load() }

// Subscribers counts who listens to a name.
func (h *Hub) Subscribers(k Kind, name []byte) int {
	sh := h.shard(k, name)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	if t := sh.topics[string(name)]; t != nil {
		return len(t.subs)
	}
	return 0
}

// Revoke ends all subscriptions to shard channels of one slot, which is served elsewhere from now on. tell is
// called after each end, with what the subscriber still has of shard channels.
func (h *Hub) Revoke(s uint16, tell func(who Subscriber, channel string, left int)) {
	type end struct {
		set  *Set
		name string
	}
	var ends []end
	sh := &h.shards[s%shardCount]
	sh.mu.RLock()
	for name, t := range sh.topics {
		if slot.Of([]byte(name)) == s {
			for _, sub := range t.subs {
				ends = append(ends, end{sub.set, name})
			}
		}
	}
	sh.mu.RUnlock()
	for _, e := range ends { // outside the shard's lock, which comes after that of a set
		e.set.mu.Lock()
		if e.set.remove(h, Shard, e.name) {
			tell(e.set.who, e.name, len(e.set.by[Shard]))
		}
		e.set.mu.Unlock()
	}
}

// Set is what one subscriber listens to. Its counts and Bytes may be read by anybody at any time; the rest is for the
// subscriber's own goroutine.
type Set struct {
	who   Subscriber
	mu    sync.Mutex // Hub.Revoke comes from elsewhere
	by    [kinds]map[string]*subscription
	n     [kinds]atomic.Int32
	bytes atomic.Int64
}

// Init makes the set ready, empty.
func (s *Set) Init(who Subscriber) { s.who = who }

// overhead is about what a subscription costs beside its name, twice: in the set and in the hub.
const overhead = 250

// Add begins to listen. false: the subscriber does so already.
func (s *Set) Add(h *Hub, k Kind, name []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.by[k][string(name)]; ok {
		return false
	}
	if s.by[k] == nil {
		s.by[k] = make(map[string]*subscription)
	}
	own := string(name)
	s.by[k][own] = h.add(k, own, s)
	s.n[k].Add(1)
	s.bytes.Add(int64(len(own)) + overhead)
	return true
}

// Remove ends listening. false: the subscriber did not.
func (s *Set) Remove(h *Hub, k Kind, name []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(h, k, string(name))
}

func (s *Set) remove(h *Hub, k Kind, name string) bool {
	sub := s.by[k][name]
	if sub == nil {
		return false
	}
	h.remove(k, sub)
	delete(s.by[k], name)
	s.n[k].Add(-1)
	s.bytes.Add(-int64(len(name)) - overhead)
	return true
}

// Clear ends everything.
func (s *Set) Clear(h *Hub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range kinds {
		for name := range s.by[k] {
			s.remove(h, k, name)
		}
	}
}

// Names lists the names of a kind, sorted.
func (s *Set) Names(k Kind) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.by[k]))
	for name := range s.by[k] {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Count is the number of names of a kind.
func (s *Set) Count(k Kind) int { return int(s.n[k].Load()) }

// Bytes is about the memory that the subscriptions take.
func (s *Set) Bytes() int64 { return s.bytes.Load() }
