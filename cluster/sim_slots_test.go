package cluster

import (
	"maps"
	"slices"
)

// SETSLOT as a server does it, around the machine: it is looked at first, logged, one replica has it, and then it is done.
// A start does again what the log says. See server/openslots.go.

// setSlot is what a tool asks a node. quick: the answer does not wait for the disk.
func (n *simNode) setSlot(c CmdSetSlot, quick bool) Answer {
	w := n.w
	a := n.command(CmdCheckSlot(c))
	if a.Err != nil {
		return a
	}
	if a.Replicas {
		n.words[c.Slot] = c
		told := false
		for _, r := range w.nodes {
			if !r.up() || !r.data.up || r.data.source() != n {
				continue
			}
			if told && w.load.IntN(2) == 0 {
				continue // it comes with the rest of the stream
			}
			told = true
			r.heed(c)
		}
	}
	if c.Action == SlotNode {
		n.hotOwner = nil // a person's word is above epochs
	}
	if quick {
		a = n.command(CmdQuickSlot(c))
	} else {
		a = n.command(c)
	}
	if w.stale != nil && n.m != nil {
		w.inspectOwners(n)
	}
	return a
}

// heed has a replica take its primary's word.
func (n *simNode) heed(c CmdSetSlot) {
	n.words[c.Slot] = c
	n.command(CmdHeedSlot(c))
	if c.Action == SlotNode {
		n.hotOwner = nil // a person's word is above epochs
	}
}

// recall does again what the log has, after a start.
func (n *simNode) recall() {
	for _, s := range slices.Sorted(maps.Keys(n.words)) {
		c := n.words[s]
		switch {
		case c.Action == SlotNode:
		case n.m.me.replica():
			n.command(CmdHeedSlot(c))
		default:
			n.command(CmdQuickSlot(c))
		}
	}
}

// marks gives the open slots that a node has.
func (n *simNode) marks() map[uint16]CmdSetSlot {
	open := make(map[uint16]CmdSetSlot)
	for s, p := range n.m.slots.migrating {
		open[s] = CmdSetSlot{Slot: s, Action: SlotMigrating, ID: p.ID.String()}
	}
	for s, p := range n.m.slots.importing {
		open[s] = CmdSetSlot{Slot: s, Action: SlotImporting, ID: p.ID.String()}
	}
	return open
}

// followMarks gives a replica what its primary's log says of open slots; whole: after a full synchronization.
func (n *simNode) followMarks(p *simNode, whole bool) {
	if whole && len(n.m.slots.migrating)+len(n.m.slots.importing) > 0 {
		n.command(CmdCloseSlots{})
	}
	if !p.m.me.primary() || len(n.m.slots.migrating)+len(n.m.slots.importing)+len(p.m.slots.migrating)+len(p.m.slots.importing) == 0 {
		return
	}
	mine, its := n.marks(), p.marks()
	for _, s := range slices.Sorted(maps.Keys(mine)) {
		if _, open := its[s]; !open {
			n.heed(CmdSetSlot{Slot: s, Action: SlotStable})
		}
	}
	for _, s := range slices.Sorted(maps.Keys(its)) {
		if mine[s] != its[s] {
			n.heed(its[s])
		}
	}
}
