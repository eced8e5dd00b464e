package bench

import (
	"math/rand/v2"
	"strconv"

	"cairn/internal/resp"
)

// YCSB's core workloads, laid out as its binding for Redis does: a record is a hash of ten fields of 100 bytes. A read takes
// the whole record, an update writes one field. Each command counts as an operation, so a read-modify-write is two.
//
// One difference. The binding scans by a sorted set that names all records, and then fetches what it was told: commands
// that depend on replies, which a client that pipelines cannot send. Here a scan fetches up to 100 records that follow
// one another, each with a command.

const (
	ycsbFields = 10
	ycsbBytes  = 100
	ycsbScan   = 100 // records of the longest scan
)

// ycsbMix is percent of operations.
type ycsbMix struct {
	help                               string
	read, update, insert, scan, modify uint32
	dist                               Dist
}

func addYCSB(all map[string]workload) {
	const recordBytes = ycsbFields * (ycsbBytes + len("field0"))
	const meanScan = (1 + ycsbScan) / 2.0
	mixes := map[string]ycsbMix{
		"ycsb-a": {"YCSB A: 50 % read, 50 % update", 50, 50, 0, 0, 0, YCSB},
		"ycsb-b": {"YCSB B: 95 % read, 5 % update", 95, 5, 0, 0, 0, YCSB},
		"ycsb-c": {"YCSB C: reads", 100, 0, 0, 0, 0, YCSB},
		"ycsb-d": {"YCSB D: 95 % read of the latest, 5 % insert", 95, 0, 5, 0, 0, Latest},
		"ycsb-e": {"YCSB E: 95 % scan of up to 100 records, 5 % insert", 0, 0, 5, 95, 0, YCSB},
		"ycsb-f": {"YCSB F: 50 % read, 50 % read and update", 50, 0, 0, 0, 50, YCSB},
	}
	for name, m := range mixes {
		writes := float64(m.update+m.modify)*ycsbBytes + float64(m.insert)*float64(recordBytes)
		commands := float64(m.read+m.update+m.insert+2*m.modify) + meanScan*float64(m.scan)
		all[name] = workload{
			help: m.help, writes: writes > 0,
			payload: func(Shape) float64 { return writes / commands },
			source:  func(s Shape, rng *rand.Rand) Source { return m.source(s, rng) },
		}
	}
	all["ycsb-load"] = workload{"records of YCSB", true, func(Shape) float64 { return float64(recordBytes) }, ycsbLoadSource}
}

// ycsbWriter appends the commands on records.
type ycsbWriter struct {
	rng    *rand.Rand
	values filler
	args   [2 + 2*ycsbFields][]byte
}

func newYCSBWriter(rng *rand.Rand) *ycsbWriter {
	w := &ycsbWriter{rng: rng, values: newFiller(ycsbBytes, rng)}
	for i := range ycsbFields {
		w.args[2+2*i] = []byte("field" + strconv.Itoa(i))
	}
	return w
}

func (w *ycsbWriter) key(n uint64) []byte {
	w.args[1] = appendPadded(append(w.args[1][:0], "user"...), n, keyDigits)
	return w.args[1]
}

func (w *ycsbWriter) read(dst []byte, n uint64) []byte {
	return resp.AppendCommand(dst, []byte("HGETALL"), w.key(n))
}

func (w *ycsbWriter) insert(dst []byte, n uint64) []byte {
	w.args[0] = []byte("HSET")
	w.key(n)
	for i := range ycsbFields {
		value := &w.args[3+2*i]
		*value = w.values.append((*value)[:0], ycsbBytes, w.rng)
	}
	return resp.AppendCommand(dst, w.args[:]...)
}

func (w *ycsbWriter) update(dst []byte, n uint64) []byte {
	name := w.args[2+2*w.rng.IntN(ycsbFields)]
	value := &w.args[3]
	*value = w.values.append((*value)[:0], ycsbBytes, w.rng)
	return resp.AppendCommand(dst, []byte("HSET"), w.key(n), name, *value)
}

func (m ycsbMix) source(s Shape, rng *rand.Rand) Source {
	w, pick := newYCSBWriter(rng), newPicker(m.dist, s.Keys, rng)
	record := func() uint64 {
		if m.dist != Latest {
			return pick()
		}
		newest := s.Keys + s.Next.Load() - 1
		return newest - pick()
	}
	var scanFrom, scanLeft uint64
	var modified uint64
	var modify bool // the second command of a read-modify-write comes next
	return func(dst []byte) []byte {
		switch {
		case modify:
			modify = false
			return w.update(dst, modified)
		case scanLeft > 0:
			scanLeft--
			scanFrom++
			return w.read(dst, scanFrom%s.Keys)
		}
		switch p := rng.Uint32N(100); {
		case p < m.read:
			return w.read(dst, record())
		case p < m.read+m.update:
			return w.update(dst, record())
		case p < m.read+m.update+m.scan:
			scanFrom, scanLeft = record(), rng.Uint64N(ycsbScan)
			return w.read(dst, scanFrom)
		case p < m.read+m.update+m.scan+m.modify:
			modified, modify = record(), true
			return w.read(dst, modified)
		default:
			return w.insert(dst, s.Keys+s.Next.Add(1)-1)
		}
	}
}

// ycsbLoadSource makes record after record.
func ycsbLoadSource(s Shape, rng *rand.Rand) Source {
	w := newYCSBWriter(rng)
	return func(dst []byte) []byte { return w.insert(dst, s.Next.Add(1)-1) }
}
