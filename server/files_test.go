package server

import "testing"

// Whatever the limit, clients and the node's own files fit into it together, and the node's come first.
func TestShareFiles(t *testing.T) {
	var before fileShares
	for _, limit := range []uint64{0, 32, 153, 154, 200, 1024, 4096, 14160, 65536, 1 << 20, 1<<64 - 1} {
		got, err := shareFiles(limit)
		if limit < 154 {
			if err == nil {
				t.Errorf("limit %d: no error", limit)
			}
			continue
		}
		if err != nil {
			t.Errorf("limit %d: %v", limit, err)
			continue
		}
		if got.tables < tablesLeast || got.tables > tablesMost || got.clients < clientsLow {
			t.Errorf("limit %d: %+v is out of range", limit, got)
		}
		if uint64(got.clients)+uint64(got.tables)+ownFiles > limit {
			t.Errorf("limit %d: %+v is more than there is", limit, got)
		}
		if got.clients < before.clients || got.tables < before.tables {
			t.Errorf("limit %d: %+v, with fewer files %+v", limit, got, before)
		}
		before = got
	}
	if got, err := shareFiles(1 << 20); err != nil || got.tables != tablesMost || got.clients < 10000 {
		t.Errorf("a usual limit: %+v, %v", got, err)
	}
}
