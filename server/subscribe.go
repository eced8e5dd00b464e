package server

import (
	"cairn/internal/resp"
	"cairn/server/command"
	"cairn/server/pubsub"
)

// The commands of publish and subscribe. Who listens to what is in package pubsub; how messages reach a socket
// is in push.go.
//
// In Redis 7.2 a message that a client sends to itself follows the reply to the command that sent it. The same
// is done here: such a message joins the connection's own replies.

// Deliver is part of pubsub.Subscriber.
func (c *client) Deliver(f *pubsub.Frame) {
	m := f.Bytes(int(c.proto.Load()))
	from, _ := f.From.(*client)
	if from != c {
		if c.push.message(c, m, f.Receivers(), from != nil) {
			from.wakes = append(from.wakes, c)
		}
		return
	}
	// This is c's own goroutine, within one of its commands.
	c.ownMessages = append(c.ownMessages, m...)
	if hard := c.outputLimit().HardBytes; hard > 0 && uint64(len(c.ownMessages)) >= hard {
		c.s.stats.outputOverruns.Add(1)
		c.ownMessages = nil
		c.kill()
	}
}

// subscribed says whether the client listens to anything.
func (c *client) subscribed() bool {
	return c.subs.Count(pubsub.Channel)+c.subs.Count(pubsub.Pattern)+c.subs.Count(pubsub.Shard) > 0
}

// subscriptions is the count that confirmations tell: shard channels have one of their own.
func (c *client) subscriptions(k pubsub.Kind) int64 {
	if k == pubsub.Shard {
		return int64(c.subs.Count(k))
	}
	return int64(c.subs.Count(pubsub.Channel) + c.subs.Count(pubsub.Pattern))
}

// Subscribe and the next five are part of command.PubSubHost.
func (s *Server) Subscribe(x *command.Ctx) error {
	return s.subscribe(x, pubsub.Channel, "subscribe")
}

// PSubscribe is explained at Subscribe.
func (s *Server) PSubscribe(x *command.Ctx) error {
	return s.subscribe(x, pubsub.Pattern, "psubscribe")
}

// SSubscribe is explained at Subscribe. The slot of the channels is locked, so it does not leave meanwhile.
func (s *Server) SSubscribe(x *command.Ctx) error {
	if x.InMulti {
		return command.Reply("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client")
	}
	return s.subscribe(x, pubsub.Shard, "ssubscribe")
}

// Unsubscribe is explained at Subscribe.
func (s *Server) Unsubscribe(x *command.Ctx) error {
	return s.unsubscribe(x, pubsub.Channel, "unsubscribe")
}

// PUnsubscribe is explained at Subscribe.
func (s *Server) PUnsubscribe(x *command.Ctx) error {
	return s.unsubscribe(x, pubsub.Pattern, "punsubscribe")
}

// SUnsubscribe is explained at Subscribe.
func (s *Server) SUnsubscribe(x *command.Ctx) error {
	return s.unsubscribe(x, pubsub.Shard, "sunsubscribe")
}

func (s *Server) subscribe(x *command.Ctx, k pubsub.Kind, word string) error {
	c := clientOf(x)
	if c.subs.Bytes()+int64(argBytes(x.Args)) > s.cfg.V.ClientQueryBuffer.Load() {
		return command.Reply("ERR too many subscriptions: their names exceed client-query-buffer-limit")
	}
	c.push.hold(c) // no message may overtake its confirmation
	c.confirm(x)
	for i, name := range x.Args[1:] {
		c.subs.Add(s.hub, k, name)
		appendConfirmation(x.W, word, name, c.subscriptions(k))
		if i%keptLook == keptLook-1 && !c.accountKept() {
			return nil
		}
	}
	return nil
}

func (s *Server) unsubscribe(x *command.Ctx, k pubsub.Kind, word string) error {
	c := clientOf(x)
	c.confirm(x)
	names := x.Args[1:]
	if len(names) == 0 {
		for _, name := range c.subs.Names(k) {
			names = append(names, []byte(name))
		}
	}
	for _, name := range names {
		c.subs.Remove(s.hub, k, name)
		appendConfirmation(x.W, word, name, c.subscriptions(k))
	}
	if len(names) == 0 {
		appendConfirmation(x.W, word, nil, c.subscriptions(k))
	}
	if !c.subscribed() && !s.admin.monitors.has(c) {
		c.push.unwanted()
	}
	return nil
}

// confirm says that the reply is a confirmation, which CLIENT REPLY OFF does not silence.
func (c *client) confirm(x *command.Ctx) { c.keepReply = !x.InMulti }

func appendConfirmation(w *resp.Writer, word string, name []byte, count int64) {
	w.Push(3)
	w.BulkString(word)
	if name == nil {
		w.Null()
	} else {
		w.Bulk(name)
	}
	w.Int(count)
}

// forgetSubscriptions ends all of a client's subscriptions without a word to it.
func (s *Server) forgetSubscriptions(c *client) {
	s.admin.monitors.remove(c)
	c.subs.Clear(s.hub)
	c.push.unwanted()
}

// Publish is part of command.PubSubHost, as are the methods below.
func (s *Server) Publish(x *command.Ctx) error {
	n := s.hub.Publish(x.Args[1], x.Args[2], publisher(x))
	s.forwardMessage(false, x.Args[1], x.Args[2])
	s.keepPublished(x)
	x.W.Int(int64(n))
	return nil
}

// SPublish is Publish for a shard channel.
func (s *Server) SPublish(x *command.Ctx) error {
	n := s.hub.PublishShard(x.Args[1], x.Args[2], publisher(x))
	s.forwardMessage(true, x.Args[1], x.Args[2])
	s.keepPublished(x)
	x.W.Int(int64(n))
	return nil
}

// keepPublished keeps what was published for the stream, by which those who listen at replicas hear of it. In a cluster
// its bus tells them. It goes there when the command or the transaction has let go of its slots: to wait for room in the
// log while others wait for the slots is not allowed.
func (s *Server) keepPublished(x *command.Ctx) {
	c := clientOf(x)
	if s.bus != nil || c == nil || c.txn == nil || s.loading.Load() || s.primary.Len() == 0 {
		return
	}
	c.published = append(c.published, [3]string{string(x.Args[0]), string(x.Args[1]), string(x.Args[2])})
}

// streamPublished appends it. While this node is a replica, or writes are held back, nothing is told.
func (s *Server) streamPublished(c *client) {
	for _, words := range c.published {
		if end, err := s.appendControl(words[:]...); err == nil {
			c.waitFor(end)
			c.wrote(end)
		}
	}
	c.published = nil
}

// publisher is the client that a handler runs for, nil when there is none.
func publisher(x *command.Ctx) pubsub.Subscriber {
	if c := clientOf(x); c != nil {
		return c
	}
	return nil
}

// publish sends a message of the node itself.
func (s *Server) publish(channel, message []byte) int { return s.hub.Publish(channel, message, nil) }

// revokeShardChannels ends the subscriptions to shard channels of a slot that this node serves no more, and
// says so to the subscribers.
func (s *Server) revokeShardChannels(slot uint16) {
	s.hub.Revoke(slot, func(who pubsub.Subscriber, channel string, left int) {
		c, ok := who.(*client)
		if !ok {
			return
		}
		w := resp.Writer{Proto: int(c.proto.Load())}
		appendConfirmation(&w, "sunsubscribe", []byte(channel), int64(left))
		c.push.message(c, w.Buf, 1, false)
	})
}

// PubSubChannels lists the channels that somebody listens to.
func (s *Server) PubSubChannels(x *command.Ctx) error { return s.listChannels(x, pubsub.Channel) }

// PubSubShardChannels lists the shard channels that somebody listens to.
func (s *Server) PubSubShardChannels(x *command.Ctx) error { return s.listChannels(x, pubsub.Shard) }

func (s *Server) listChannels(x *command.Ctx, k pubsub.Kind) error {
	if len(x.Args) > 3 {
		return x.ErrSubcommand()
	}
	var pattern []byte
	if len(x.Args) == 3 {
		pattern = x.Args[2]
	}
	names := s.hub.Names(k, pattern)
	x.W.Array(len(names))
	for _, name := range names {
		x.W.BulkString(name)
	}
	return nil
}

// PubSubNumSub counts who listens to channels.
func (s *Server) PubSubNumSub(x *command.Ctx) error { return s.countSubscribers(x, pubsub.Channel) }

// PubSubShardNumSub counts who listens to shard channels.
func (s *Server) PubSubShardNumSub(x *command.Ctx) error { return s.countSubscribers(x, pubsub.Shard) }

func (s *Server) countSubscribers(x *command.Ctx, k pubsub.Kind) error {
	x.W.Array(2 * len(x.Args[2:]))
	for _, name := range x.Args[2:] {
		x.W.Bulk(name)
		x.W.Int(int64(s.hub.Subscribers(k, name)))
	}
	return nil
}

// PubSubNumPat counts the patterns that somebody listens to.
func (s *Server) PubSubNumPat(x *command.Ctx) error {
	x.W.Int(s.hub.Count(pubsub.Pattern))
	return nil
}
