package server

import (
	"cairn/cluster"
	"cairn/engine"
	"cairn/internal/slot"
)

// clusterNode carries out what the cluster decided about this node. But for Deliver and Note, its methods are called by
// one goroutine, in the order of the decisions.
type clusterNode struct {
	s    *Server
	view *cluster.View // the last one published; nil at first
}

// Route is part of bus.Node, as are the methods below.
func (n *clusterNode) Route(v *cluster.View) {
	before := n.s.store.Routing()
	n.s.publishView(v)
	n.revokeChannels(before, n.s.store.Routing())
	n.s.keepRegained(n.s.store.Routing())
	n.s.openChanged()
	n.view = v
}

// revokeChannels ends the subscriptions to shard channels of slots whose data is not here any more.
func (n *clusterNode) revokeChannels(before, now *engine.Routing) {
	const part = 64 // most of them are the same, and compared at once
	for at := 0; at < slot.Count; at += part {
		was, is := (*[part]engine.SlotState)(before.Slots[at:]), (*[part]engine.SlotState)(now.Slots[at:])
		if *was == *is {
			continue
		}
		for i := range was {
			if was[i]&^is[i]&engine.SlotOwned != 0 {
				n.s.revokeShardChannels(uint16(at + i))
			}
		}
	}
}

// Follow makes the node a replica.
func (n *clusterNode) Follow(id, ip string, port int) {
	n.s.log.Notice("Connecting to MASTER", "node", id)
	n.s.follow(ip, port)
}

// Unfollow ends replication; the node stays a replica.
func (n *clusterNode) Unfollow() { n.s.unfollow() }

// Promote makes the node a primary.
func (n *clusterNode) Promote() {
	if err := n.s.promote(); err != nil {
		n.s.fail(err) // the log cannot begin its own history: no write may be taken
	}
}

// Pause stops writes: when it returns, nothing enters the log any more.
func (n *clusterNode) Pause(int64) {
	n.s.pauseWrites(pauseFailover, true)
	n.s.releaseTail()
}

// Resume ends Pause.
func (n *clusterNode) Resume() {
	n.s.pauseWrites(pauseFailover, false)
	n.s.openChanged() // what could not be logged meanwhile
}

// DropSlots lets go of the keys of slots that another node has now.
func (n *clusterNode) DropSlots(slots []uint16) { n.s.dropSlots(slots) }

// Flush lets go of all data.
func (n *clusterNode) Flush() {
	if err := n.s.flushAll(); err != nil {
		n.s.log.Warning("the data of the cluster that was left cannot be dropped", "err", err)
	}
}

// Deliver hands a publication of another node to the subscribers here.
func (n *clusterNode) Deliver(shard bool, channel, payload []byte) {
	if shard {
		n.s.hub.PublishShard(channel, payload, nil)
		return
	}
	n.s.hub.Publish(channel, payload, nil)
}

// Note writes a line to the log.
func (n *clusterNode) Note(level cluster.Level, text string) {
	switch level {
	case cluster.Warning:
		n.s.log.Warning(text)
	case cluster.Notice:
		n.s.log.Notice(text)
	case cluster.Verbose:
		n.s.log.Verbose(text)
	default:
		n.s.log.Debug(text)
	}
}
