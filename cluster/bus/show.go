package bus

import (
	"slices"

	"cairn/cluster"
	"cairn/cluster/wire"
)

// LinkStatus is one link, for CLUSTER LINKS.
type LinkStatus struct {
	Out       bool
	Node      string // id
	Created   int64  // Unix ms
	Connected bool
	Queued    int64 // bytes that wait to be sent
	Memory    int64 // bytes that the link takes, about
}

// Links lists the links whose nodes are known.
func (d *Driver) Links() []LinkStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := make([]cluster.LinkID, 0, len(d.links))
	for id := range d.links {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var out []LinkStatus
	for _, id := range ids {
		l := d.links[id]
		peer, ok := d.machine.LinkPeer(id)
		if !ok {
			continue
		}
		l.mu.Lock()
		out = append(out, LinkStatus{Out: l.out, Node: peer.String(), Created: l.created, Connected: l.conn != nil, Queued: l.queued, Memory: l.queued + readBuffer})
		l.mu.Unlock()
	}
	return out
}

// OverLimit is how many links were ended because too much waited on them.
func (d *Driver) OverLimit() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.overLimit
}

// KillLinks ends the links with a node: those to it, those from it. None of them is there any more when it returns. For
// tests of clients of this node.
func (d *Driver) KillLinks(id string, to, from bool) {
	d.with(func(now int64) (effects []cluster.Effect) {
		for at, l := range d.links {
			if peer, ok := d.machine.LinkPeer(at); ok && peer.String() == id && (l.out && to || !l.out && from) {
				d.forget(at)
				effects = append(effects, d.machine.Closed(now, at)...)
			}
		}
		return effects
	})
}

// dropFilter is a type of message that is to be ignored, for tests.
type dropFilter struct {
	on   bool
	kind wire.Type
	all  bool
}

func (f *dropFilter) has(t wire.Type) bool { return f.on && (f.all || f.kind == t) }

// DropPackets makes the node deaf for one type of message; -1 for none, -2 for all.
func (d *Driver) DropPackets(kind int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop = dropFilter{on: kind != -1, all: kind == -2, kind: wire.Type(max(kind, 0))}
}
