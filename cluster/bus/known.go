package bus

import (
	"fmt"

	"cairn/cluster"
	"cairn/internal/invariant"
)

// Known is View as of the last change of slots, roles, addresses or flags: offsets, times and counters may be older. It is
// made once for each change and shared, so nobody may change it.
func (d *Driver) Known() *cluster.View {
	d.mu.Lock()
	defer d.mu.Unlock()
	// This node's own health depends on an offset that nobody reports.
	if d.known == nil || d.known.Version != d.machine.Version() || d.known.Nodes[d.known.Myself].Health != d.machine.MyHealth() {
		d.known = d.machine.View()
		return d.known
	}
	if invariant.Enabled {
		now := d.machine.View()
		now.Nodes[now.Myself].Health = d.known.Nodes[d.known.Myself].Health // the offset may have moved since the look above
		if essence(now) != essence(d.known) {
			invariant.Fail("view %d is\n%s\nand was\n%s", now.Version, essence(now), essence(d.known))
		}
	}
	return d.known
}

// essence is what Known promises to be of today, as a text.
func essence(v *cluster.View) string {
	text := fmt.Sprintf("ok %v, myself %d, moving %v %v", v.OK, v.Myself, v.Migrating, v.Importing)
	for i := range v.Nodes {
		n := &v.Nodes[i]
		text += fmt.Sprintf("\n%s %s %d %d %d %q %q %x %d %v %s %v", n.ID, n.IP, n.Port, n.TLSPort, n.BusPort, n.Hostname, n.ShardID, n.Flags,
			n.Primary, n.Replicas, n.Health, n.Slots)
	}
	return text
}
