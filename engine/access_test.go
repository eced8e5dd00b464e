package engine

import (
	"testing"

	"cairn/engine/layout"
	"cairn/internal/slot"
)

// Asking about a key without touching it leaves its idle time alone.
func TestKeyNoTouch(t *testing.T) {
	s := openTest(t)
	defer closeTest(t, s)
	name := []byte("k")
	sl := slot.Of(name)
	s.SetClock(1000)
	inTxn(t, s, "k", func(txn *Txn, k *Key) {
		k.Rec = layout.Record{Type: layout.String, Body: []byte("v")}
		txn.Put(k)
	})
	s.SetClock(1100)
	txn := s.NewTxn()
	for _, c := range []struct {
		lookup func([]byte) (*Key, error)
		idle   uint32
	}{{txn.KeyNoTouch, 100}, {txn.Key, 0}} {
		txn.Begin([]uint16{sl}, false, 1000)
		k, err := c.lookup(name)
		if err != nil || !k.Exists() {
			t.Fatalf("key exists: %v, %v", k.Exists(), err)
		}
		txn.End()
		if idle, _, ok := s.Access(sl, name); !ok || idle != c.idle {
			t.Errorf("idle for %d s, known %v, want %d", idle, ok, c.idle)
		}
	}
}
