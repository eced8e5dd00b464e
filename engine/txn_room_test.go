package engine

import (
	"bytes"
	"testing"
)

// What a command makes in the transaction's memory is no garbage, stays as it is while more is made, and is bounded.
func TestRoom(t *testing.T) {
	s := openTest(t)
	txn := s.NewTxn()
	if n := testing.AllocsPerRun(100, func() {
		txn.Begin([]uint16{7}, true, Forever)
		_ = append(txn.Room(1000), "body"...)
		txn.End()
	}); n > 0 {
		t.Errorf("room for 1000 bytes allocates %.2f times", n)
	}
	txn.Begin([]uint16{7}, true, Forever)
	defer txn.End()
	var made [][]byte
	for i := range 1000 {
		made = append(made, append(txn.Room(1000), bytes.Repeat([]byte{byte(i)}, 1200)...))
	}
	for i, b := range made {
		if !bytes.Equal(b, bytes.Repeat([]byte{byte(i)}, 1200)) {
			t.Fatalf("what was made %dth has changed", i)
		}
	}
	if cap(txn.arena) > 2*arenaKept {
		t.Errorf("a transaction that made 1 MB keeps %d bytes", cap(txn.arena))
	}
}
