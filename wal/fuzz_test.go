package wal

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/wal/record"
)

// Whatever lies in the directory, Open refuses or opens, and what it opened can be read and added to.
func FuzzOpen(f *testing.F) {
	fs := newFS(f, vfs.NewMem())
	l, _ := mustOpen(f, testOptions(fs), fresh('a'))
	rng := rand.New(rand.NewPCG(41, 41))
	for range 10 {
		l.Append(entry(rng, 30))
		must(f, l.SyncAll())
	}
	file := copyFiles(f, fs)[segmentName(1)]
	abandon(l)
	hdr := record.Header{Sequence: 2, Start: 300, Seed: 7, Prev: 1, History: history('a', nil, 0)}
	second := hdr.Append(nil)
	second = record.Block{Start: 300, Synced: 300, Flags: record.EndsEntry}.Append(second, 7, []byte("entry"))
	f.Add(file[:record.DataAt+1000], second, int64(0), int64(-1))
	hdr.Laid = true
	laid := record.Block{}.Append(hdr.Append(nil), 7, []byte("entry"))
	f.Add(file[:record.DataAt+1000], laid, int64(0), int64(-1))
	f.Add(file[:record.DataAt+1000], record.Block{Flags: record.EndsEntry}.Append(hdr.Append(nil), 7, []byte("entry")), int64(0), int64(-1))
	f.Add(file[:record.DataAt+200], []byte{}, int64(60), int64(90))
	f.Add([]byte("x"), second, int64(300), int64(300))
	f.Add([]byte{}, []byte{}, int64(0), int64(0))
	f.Fuzz(func(t *testing.T, first, second []byte, applied, floor int64) {
		fs := writeFiles(t, map[string][]byte{segmentName(1): first, segmentName(2): second, "other": first})
		o := testOptions(fs)
		o.SegmentBytes = minSegmentBytes
		l, rep, err := Open(o, OpenPoint{History: history('a', nil, 0), Applied: applied, Floor: floor})
		if err != nil {
			return
		}
		if rep.End < applied || rep.End < floor || rep.First > applied {
			t.Fatalf("opened from %d with floor %d: %+v", applied, floor, rep)
		}
		if b, err := readFrom(l, applied); err != nil || applied+int64(len(b)) != rep.End {
			t.Fatalf("read %d bytes from %d, the log ends at %d: %v", len(b), applied, rep.End, err)
		}
		if rep.End < 1<<60 {
			must(t, l.WaitDurable(l.Append([]byte("more"))))
		}
		abandon(l)
	})
}
