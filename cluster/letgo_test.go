package cluster

import (
	"testing"

	"cairn/internal/slot"
)

// Headers of the old owner may come between all the commands with which redis-cli --cluster fix gives its slot to another node.
func TestSlotTakenByHand(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		oldEpoch   uint64 // of the old owner
		bump, back bool   // BUMPEPOCH follows; the old owner has the slot at the end
	}{
		{"lower epoch", 1, false, false},
		{"higher epoch, bumped", 7, true, false},
		{"higher epoch, not bumped", 7, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newLab(t, text("a %d 0-5460", tc.oldEpoch), "b 2 5461-10922", "c 3 10923-16383")
			b := w.nodes["b"]
			a := b.byID[w.nodes["a"].me.ID]
			var five slot.Bitmap
			five.Set(5)
			all := b.collect(a, true)
			header := func() { b.claim(w.now, a, tc.oldEpoch, all) }
			w.must("b", CmdDelSlots{five})
			header()
			if p := b.owner(5); p != nil {
				t.Fatalf("slot 5 is with %s again before ADDSLOTS", p.ID)
			}
			w.must("b", CmdAddSlots{five})
			header()
			if b.owner(5) != b.me {
				t.Fatal("slot 5 was taken back before BUMPEPOCH")
			}
			if tc.bump {
				w.must("b", CmdBumpEpoch{})
			}
			w.now += letGoMs
			header()
			if back := b.owner(5) == a; back != tc.back {
				t.Errorf("slot 5 is back with its old owner: %v, want %v", back, tc.back)
			}
		})
	}
}

// Nobody adds the slot: its owner's headers bring it back soon.
func TestSlotLetGoComesBack(t *testing.T) {
	t.Parallel()
	w := newLab(t, "a 1 0-5460", "b 2 5461-10922", "c 3 10923-16383")
	var five slot.Bitmap
	five.Set(5)
	w.must("b", CmdDelSlots{five})
	w.wantOwner(5, "a")
}
