package server

import "testing"

// Whatever the limit, clients and the node's own files fit into it together, and the node's come first.
func TestShareFiles(t *testing.T) {
	for _, clients := range []int64{1, 100, 10000, 4294967295} {
		var before fileShares
		for _, limit := range []uint64{0, 32, 153, 154, 200, 1024, 4096, 14160, 65536, 1 << 20, 1<<64 - 1} {
			got, err := shareFiles(limit, clients)
			if limit < 154 {
				if err == nil {
					t.Errorf("limit %d: no error", limit)
				}
				continue
			}
			if err != nil {
				t.Errorf("limit %d, %d clients: %v", limit, clients, err)
				continue
			}
			if got.tables < tablesLeast || got.tables > tablesMost || got.clients < clientsLow {
				t.Errorf("limit %d, %d clients: %+v is out of range", limit, clients, got)
			}
			if uint64(got.clients)+uint64(got.tables)+ownFiles > limit {
				t.Errorf("limit %d, %d clients: %+v is more than there is", limit, clients, got)
			}
			if got.clients < before.clients && got.clients < clients {
				t.Errorf("limit %d, %d clients: %+v, with fewer files %+v", limit, clients, got, before)
			}
			before = got
		}
	}
	if got, err := shareFiles(1<<20, 10000); err != nil || got.tables != tablesMost || got.clients < 10000 {
		t.Errorf("a usual limit: %+v, %v", got, err)
	}
}
