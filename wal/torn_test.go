package wal

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/wal/record"
)

// tornLog writes a log of one segment, whose blocks declare what was synced, and abandons it. acked is
// what was promised as synced.
func tornLog(t *testing.T, bytesOfStream int) (files map[string][]byte, m *model, acked int64) {
	t.Helper()
	fs := newFS(t, vfs.NewMem())
	o := testOptions(fs)
	o.SegmentBytes = 128 << 10
	l, _ := mustOpen(t, o, fresh('a'))
	m = &model{}
	rng := rand.New(rand.NewPCG(6, 6))
	for len(m.bytes) < bytesOfStream {
		end := m.append(t, l, entry(rng, 1+rng.IntN(400)))
		must(t, l.Wait(end, LevelKernel))
		if len(m.ends)%20 == 0 && len(m.bytes) < bytesOfStream*9/10 {
			must(t, l.SyncAll())
			acked = l.Synced()
		}
	}
	abandon(l) // whose background writes, too
	files = copyFiles(t, fs)
	return files, m, acked
}

// The log is cut at every byte of its last 64 KiB, once by ending the file there and once by zeros. It
// opens and reports where the cut lies beyond what is proven synced, and refuses otherwise.
func TestTornTailAtEveryByte(t *testing.T) {
	files, m, acked := tornLog(t, 66<<10)
	name := segmentName(1)
	whole := files[name]
	var hdr record.Header
	must(t, hdr.Decode(whole))
	sc, err := scanSegment(newWindow(memFile(t, whole), windowBytes), &hdr, noLimit, 0)
	must(t, err)
	last := int(sc.pos)
	from := OpenPoint{History: history('a', nil, 0), Floor: acked}
	refused, cut := 0, 0
	for at := last - 64<<10; at <= last; at++ {
		torn := whole[:at]
		if at%2 == 0 {
			torn = append(slices.Clone(whole[:at]), make([]byte, min(record.BlockLen*2, last-at+record.BlockLen))...)
		}
		fs := writeFiles(t, map[string][]byte{name: torn})
		o := testOptions(fs)
		o.SegmentBytes = minSegmentBytes
		l, rep, err := Open(o, from)
		var damage *DamageError
		if errors.As(err, &damage) {
			if damage.Offset >= acked || damage.Proven != acked {
				t.Fatalf("cut at byte %d: refused at offset %d, proven %d, synced %d", at, damage.Offset, damage.Proven, acked)
			}
			refused++
			continue
		}
		must(t, err)
		if rep.End < acked {
			t.Fatalf("cut at byte %d: opened at %d, %d was synced", at, rep.End, acked)
		}
		if rep.End > m.end() || !bytes.Equal(mustRead(t, l), m.bytes[:rep.End]) || !m.isEnd(rep.End) {
			t.Fatalf("cut at byte %d: wrong contents up to %d", at, rep.End)
		}
		if at%2 == 1 && !rep.TailLost {
			t.Fatalf("cut at byte %d: not reported", at)
		}
		cut++
		abandon(l)
	}
	if refused < 10_000 || cut < 5000 {
		t.Fatalf("refused %d, cut %d: the test no longer tests both", refused, cut)
	}
	t.Logf("refused %d, cut %d", refused, cut)
}

func memFile(t *testing.T, b []byte) vfs.File {
	t.Helper()
	fs := writeFiles(t, map[string][]byte{"f": b})
	f, err := fs.Open(fs.PathJoin(testDir, "f"))
	must(t, err)
	return f
}

func mustRead(t *testing.T, l *Log) []byte {
	t.Helper()
	b, err := readFrom(l, l.First())
	must(t, err)
	return b
}

// The cut must hold: what was appended after it is found, what was cut is not, however often the log is
// opened.
func TestCutTailStaysCut(t *testing.T) {
	files, m, _ := tornLog(t, 40<<10)
	b := files[segmentName(1)]
	var hdr record.Header
	must(t, hdr.Decode(b))
	sc, err := scanSegment(newWindow(memFile(t, b), windowBytes), &hdr, noLimit, 0)
	must(t, err)
	b[sc.pos-700] ^= 1 // one of the last blocks, after which others are good
	fs := writeFiles(t, files)
	from := OpenPoint{History: history('a', nil, 0), Floor: -1}
	l, rep := mustOpen(t, testOptions(fs), from)
	if !rep.TailLost || rep.Dropped != m.end()-rep.End || rep.File != segmentName(1) {
		t.Fatalf("report %+v, the model ends at %d", rep, m.end())
	}
	m.bytes = m.bytes[:rep.End]
	i, _ := slices.BinarySearch(m.ends, rep.End)
	m.ends = m.ends[:i+1]
	rng := rand.New(rand.NewPCG(9, 9))
	for range 3 {
		for range 10 {
			must(t, l.WaitDurable(m.append(t, l, entry(rng, 50))))
		}
		abandon(l)
		l, rep = mustOpen(t, testOptions(fs), from)
		if rep.TailLost || rep.End != m.end() {
			t.Fatalf("report %+v, want a clean end at %d", rep, m.end())
		}
		must(t, m.check(l))
	}
	must(t, l.Close())
}

// flipLog is the files of a log of several segments and two histories, all of it synced up to floor.
func flipLog(t *testing.T, rng *rand.Rand) (files map[string][]byte, m *model, floor int64) {
	t.Helper()
	fs := newFS(t, vfs.NewMem())
	l, _ := mustOpen(t, testOptions(fs), fresh('a'))
	m = &model{}
	for i := range 500 {
		end := m.append(t, l, entry(rng, 1+rng.IntN(500)))
		if i%50 == 25 {
			end = m.appendLaid(t, l, rng, entry(rng, 20_000)).end
		}
		must(t, l.Wait(end, LevelKernel))
		if i%10 == 0 {
			must(t, l.SyncAll())
		}
		if i == 250 {
			a := l.History()
			must(t, l.SetHistory(history('b', &a, l.End())))
		}
	}
	must(t, l.SyncAll())
	floor = l.Synced()
	abandon(l) // whose background writes, too
	files = copyFiles(t, fs)
	delete(files, spareName)
	return files, m, floor
}

// flip returns the files with one bit changed, and where.
func flip(files map[string][]byte, rng *rand.Rand) (damaged map[string][]byte, where string) {
	names := slices.Sorted(maps.Keys(files))
	name := names[rng.IntN(len(names))]
	at, bit := rng.IntN(len(files[name])), rng.IntN(8)
	damaged = maps.Clone(files)
	damaged[name] = slices.Clone(files[name])
	damaged[name][at] ^= 1 << bit
	return damaged, fmt.Sprintf("flip of bit %d in %s byte %d", bit, name, at)
}

// Flipped bits anywhere are refused, reported, or without effect; never does a log open short or with
// other bytes in silence.
func TestBitFlips(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	files, m, floor := flipLog(t, rng)
	for _, withFloor := range []bool{true, false} {
		from := OpenPoint{History: history('a', nil, 0), Floor: -1}
		if withFloor {
			from.Floor = floor
		}
		var refused, reported, none int
		for range 3000 {
			damaged, where := flip(files, rng)
			o := testOptions(writeFiles(t, damaged))
			o.SegmentBytes = minSegmentBytes
			l, rep, err := Open(o, from)
			if err != nil {
				var d *DamageError
				if !errors.As(err, &d) {
					t.Fatalf("%s: %v", where, err)
				}
				refused++
				continue
			}
			if err := m.check(l); err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			switch {
			case rep.TailLost && withFloor && rep.End < floor:
				t.Fatalf("%s: cut at %d below the floor %d", where, rep.End, floor)
			case rep.TailLost:
				reported++
			case rep.End != m.end() || rep.First != 0:
				t.Fatalf("%s: quietly holds %d to %d, want 0 to %d", where, rep.First, rep.End, m.end())
			default:
				none++
			}
			abandon(l)
		}
		if refused < 100 {
			t.Errorf("floor %v: only %d refused", withFloor, refused)
		}
		t.Logf("floor %v: refused %d, reported %d, no effect %d", withFloor, refused, reported, none)
	}
}

// What the store has applied is not read at the start. Damage there stops no start; whoever reads it
// gets an error and never other bytes.
func TestBitFlipsBelowApplied(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	files, m, floor := flipLog(t, rng)
	from := OpenPoint{History: history('b', nil, 0), Applied: m.end(), Floor: floor}
	var whole, found, refused int
	for range 1500 {
		damaged, where := flip(files, rng)
		o := testOptions(writeFiles(t, damaged))
		o.SegmentBytes = minSegmentBytes
		l, rep, err := Open(o, from)
		var d *DamageError
		if errors.As(err, &d) {
			refused++ // in the segment that the log ends in
			continue
		}
		must(t, err)
		if rep.End != m.end() {
			t.Fatalf("%s: ends at %d, want %d", where, rep.End, m.end())
		}
		got, err := readFrom(l, rep.First)
		if !bytes.HasPrefix(m.bytes[rep.First:], got) {
			t.Fatalf("%s: other bytes than were appended", where)
		}
		switch {
		case errors.As(err, &d):
			found++
		case err != nil || int64(len(got)) != m.end()-rep.First:
			t.Fatalf("%s: read %d bytes from %d to %d: %v", where, len(got), rep.First, rep.End, err)
		default:
			whole++
		}
		abandon(l)
	}
	if found < 100 || whole < 10 {
		t.Errorf("whole %d, found %d, refused %d: the test no longer tests both", whole, found, refused)
	}
	t.Logf("whole %d, found when read %d, refused %d", whole, found, refused)
}

// A segment that is missing from the middle is refused, and so is one with neither header readable.
func TestMissingSegment(t *testing.T) {
	fs := newFS(t, vfs.NewMem())
	l, _ := mustOpen(t, testOptions(fs), fresh('a'))
	m := &model{}
	rng := rand.New(rand.NewPCG(8, 8))
	for range 300 {
		must(t, l.Wait(m.append(t, l, entry(rng, 500)), LevelSynced))
	}
	abandon(l)
	files := copyFiles(t, fs)
	for n := range files {
		if n == spareName {
			continue
		}
		for _, how := range []string{"removed", "overwritten"} {
			left := map[string][]byte{}
			for o, b := range files {
				if o != n {
					left[o] = b
				} else if how == "overwritten" {
					left[o] = bytes.Repeat([]byte{0xaa}, len(b))
				}
			}
			from := OpenPoint{History: history('a', nil, 0), Floor: m.end()}
			l, rep, err := Open(testOptions(writeFiles(t, left)), from)
			if err == nil {
				abandon(l)
				t.Errorf("%s %s: opened: %+v", n, how, rep)
			}
		}
	}
}
