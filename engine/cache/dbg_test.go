package cache

import "testing"

func TestDbg(t *testing.T) {
	c := New(8 << 20)
	const hot = 5000
	val := make([]byte, 100)
	var key []byte
	last := int64(0)
	misses := 0
	for n := range uint64(200000) {
		key = numKey(key, n%hot)
		h := spread(n % hot)
		if _, s := c.Get(KindRecord, slotOf(n%hot), h, key, nil); s == Miss {
			misses++
			c.Fill(KindRecord, slotOf(n%hot), h, key, val)
		}
		key = numKey(key, n+1<<40)
		c.Fill(KindRecord, slotOf(n), spread(n+1<<40), key, val)
		if n%20000 == 0 {
			st := c.Stats()
			mn, mx, hotn := 1<<30, 0, 0
			for i := range c.shards {
				s := &c.shards[i]
				mn = min(mn, s.rows)
				mx = max(mx, s.rows)
				hotn += len(s.index)
			}
			t.Log(n, misses, c.Bytes(), st, st.Evictions-last, mn, mx, hotn*8)
			last = st.Evictions
		}
	}
}
