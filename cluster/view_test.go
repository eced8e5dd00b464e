package cluster

import (
	"slices"
	"testing"
)

// Each node hears of a primary's replicas in an order of its own, and clients compare what nodes say of them.
func TestReplicasAreShownInOneOrder(t *testing.T) {
	w := threeShards(t)
	w.run(3000)
	for name, n := range w.nodes {
		a := n.lookup(nameID("a"))
		first := a.Replicas[0]
		n.setPrimary(first, a) // as if it had been heard of last
		n.settle(w.now)
		v := n.View()
		if got := v.Nodes[v.Find(nameID("a"))].Replicas; len(got) != 2 || !slices.IsSorted(got) {
			t.Errorf("%s shows %v", name, got)
		}
	}
}
