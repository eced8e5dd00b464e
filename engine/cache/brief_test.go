package cache

import (
	"fmt"
	"testing"
)

// briefCache is a small cache whose records all leave briefs.
type briefCache struct {
	*Cache
	t *testing.T
}

func newBriefCache(t *testing.T) *briefCache {
	c := &briefCache{New(4 << 20), t}
	c.SetBriefs(func(record []byte) (uint16, bool) { return uint16(len(record)), true })
	return c
}

const briefSlot = 7

func briefKey(i int) (uint64, []byte) {
	key := fmt.Appendf(nil, "key-%d", i)
	return testHash(string(key)) ^ uint64(i)<<20, key
}

// set writes a key's record and value, as the store would, and says whether it was known before.
func (c *briefCache) set(i int) bool {
	h, key := briefKey(i)
	state := c.Has(KindRecord, briefSlot, h, key)
	known := state == Hit
	if state == Miss {
		_, known = c.Brief(briefSlot, h, key, true)
	}
	c.Put(KindRecord, briefSlot, h, key, []byte("record"))
	c.Put(KindValue, briefSlot, h, key, make([]byte, 1000))
	return known
}

// apply brings all rows into the store below.
func (c *briefCache) apply() {
	c.Cut()
	c.Applied()
}

// Keys that are overwritten evenly, many times as many as there is room for, are all known after the first time.
func TestBriefsKnowWhatIsOverwritten(t *testing.T) {
	const keys = 100000
	c := newBriefCache(t)
	for round := range 3 {
		known := 0
		for i := range keys {
			if c.set(i) {
				known++
			}
			if i%500 == 0 {
				c.apply()
			}
		}
		if want := keys * 95 / 100; round > 0 && known < want {
			t.Errorf("round %d: %d of %d keys were known, want %d", round, known, keys, want)
		}
	}
	if st := c.Stats(); st.Briefs < keys*9/10 {
		t.Errorf("%d briefs", st.Briefs)
	}
	if got := c.Bytes(); got > c.Limit()*5/4 {
		t.Errorf("%d bytes, limit %d", got, c.Limit())
	}
	checkCache(t, c.Cache)
}
