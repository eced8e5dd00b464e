package engine

// Metrics are numbers about the store for people who watch it. All sizes are bytes.
type Metrics struct {
	Keys, Bytes     int64 // as SlotCounters has them
	Applied         int64 // log offsets, see Store.Applied
	Durable         int64
	Pending         int64 // committed and not yet in Pebble
	PendingLimit    int64 // at which writers wait
	DiskBytes       int64 // Pebble's files
	BlobBytes       int64 // of these, files of separated values
	DiskFree        int64
	GateClosed      bool
	CompactionDebt  int64 // what compactions have yet to write
	Compactions     int64 // under way
	Flushes         int64 // since the start
	ReadAmp         int   // tables that a point read may have to look into
	L0Sublevels     int
	MemTableBytes   int64
	BlockCacheBytes int64
	CacheBytes      int64 // limit of the record cache at present
	CacheRows       int64 // rows in the record cache
	CacheHits       int64 // rows that were asked for and there, or known to be absent
	CacheMisses     int64
	Briefs          int64 // records that the cache knows by a brief only, see cache.SetBriefs; some may be of no use any more
	BriefHits       int64 // looks into Pebble that they spared
	FilterBytes     int64 // filters of keys, taken from the record cache's limit
	FilterLimit     int64
	FilterSlots     int64 // slots that have one
	FilterDenied    int64 // looks into Pebble for absent keys that filters spared
	FilterPassed    int64 // those that they did not
	FilterBuilt     int64
	Corruptions     int64
}

// Metrics reads the numbers. It costs some locks of Pebble, so it is not for every command.
func (s *Store) Metrics() Metrics {
	s.place.RLock()
	p := s.db.Metrics()
	s.place.RUnlock()
	m := Metrics{
		Keys: s.Keys(), Bytes: s.Bytes(), Applied: s.Applied(), Durable: s.Durable(),
		Pending: s.Pending(), PendingLimit: s.opts.pendingBytes(),
		DiskBytes: int64(p.DiskSpaceUsage()), BlobBytes: int64(p.BlobFiles.LiveSize), DiskFree: s.DiskFree(),
		GateClosed:     s.Gate() != nil,
		CompactionDebt: int64(p.Compact.EstimatedDebt), Compactions: p.Compact.NumInProgress,
		Flushes: p.Flush.Count, ReadAmp: p.ReadAmp(), L0Sublevels: int(p.Levels[0].Sublevels),
		MemTableBytes: int64(p.MemTable.Size), BlockCacheBytes: p.BlockCache.Size, CacheBytes: s.cache.Limit(),
		FilterBytes: s.filters.bytes.Load(), FilterLimit: s.filters.limit, FilterSlots: s.filters.known.Load(),
		FilterBuilt: s.filters.built.Load(),
		Corruptions: s.Corruptions(),
	}
	stats := s.cache.Stats()
	m.CacheRows, m.CacheHits, m.CacheMisses = stats.Rows, stats.Hits, stats.Misses
	m.Briefs, m.BriefHits = stats.Briefs, stats.BriefHits
	for i := range s.slots {
		m.FilterDenied += s.slots[i].filter.denied.Load()
		m.FilterPassed += s.slots[i].filter.passed.Load()
	}
	return m
}
