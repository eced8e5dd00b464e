package server

import (
	"strconv"
	"testing"

	"cairn/internal/slot"
	"cairn/internal/testkit"
)

// What a slot costs that moves from one node to another, in the words of redis-cli --cluster reshard, a hundred keys in a
// call: most of a small slot's time is in what is not its keys.
func BenchmarkSlotMove(b *testing.B) {
	for _, keys := range []int{0, 200} {
		b.Run("keys="+strconv.Itoa(keys), func(b *testing.B) { benchSlotMove(b, keys) })
	}
}

func benchSlotMove(b *testing.B, keys int) {
	const slots = 256
	nodes, conns := startNodes(b, 2, "memory-budget 256mb")
	join(b, nodes, conns, 2)
	ids := make([]string, len(conns))
	for i, c := range conns {
		ids[i] = c.Do("CLUSTER", "MYID").Value.(string)
	}
	for sl := range slots {
		set := []string{"MSET"}
		for k := range keys {
			set = append(set, "{"+tagOf(uint16(sl))+"}"+strconv.Itoa(k), "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz")
		}
		if keys > 0 {
			mustOK(b, conns[0], set...)
		}
	}
	from, to := 0, 1
	for n := 0; b.Loop(); n++ {
		if n > 0 && n%slots == 0 {
			from, to = to, from
		}
		moveSlot(b, strconv.Itoa(n%slots), conns[from], conns[to], ids[from], ids[to], nodes[to].Port)
	}
}

// moveSlot moves a slot as redis-cli does.
func moveSlot(tb testing.TB, sl string, from, to *testkit.Conn, fromID, toID string, port int) {
	mustOK(tb, to, "CLUSTER", "SETSLOT", sl, "IMPORTING", fromID)
	mustOK(tb, from, "CLUSTER", "SETSLOT", sl, "MIGRATING", toID)
	for {
		names := from.Do("CLUSTER", "GETKEYSINSLOT", sl, "100").Value.([]any)
		if len(names) == 0 {
			break
		}
		words := []string{"MIGRATE", "127.0.0.1", strconv.Itoa(port), "", "0", "10000", "KEYS"}
		for _, name := range names {
			words = append(words, name.(string))
		}
		mustOK(tb, from, words...)
	}
	mustOK(tb, to, "CLUSTER", "SETSLOT", sl, "NODE", toID)
	mustOK(tb, from, "CLUSTER", "SETSLOT", sl, "NODE", toID)
}

// tagOf is a hash tag of a slot.
func tagOf(sl uint16) string {
	for i := 0; ; i++ {
		if tag := strconv.Itoa(i); slot.Of([]byte(tag)) == sl {
			return tag
		}
	}
}
