package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
)

// The families of keys a writer owns. A family has one kind of value, so that no
// command gets WRONGTYPE. Its size is small, so that commands meet.
const (
	strKeys   = 48 // strings, long deadlines, never due within a run
	cntKeys   = 16 // counters
	hashKeys  = 16 // hashes of up to 20 fields
	bigKeys   = 4  // hashes of up to 300 fields: beyond any packed form
	shortKeys = 32 // strings with deadlines that come within the run
	pairs     = 16 // two keys of one slot, set to the same text by one MULTI

	bigFields   = 300
	smallFields = 20
	appendLimit = 150 << 10 // an APPEND beyond becomes a SET
	longMs      = 3_600_000
)

// filler is random text that values are cut from.
type filler string

func newFiller(seed uint64) filler {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, 256<<10)
	for i := range b {
		b[i] = byte(rng.Uint32()) // any byte: CR, LF and NUL are values, too
	}
	return filler(b)
}

// ops makes the commands of one writer.
type ops struct {
	rng    *rand.Rand
	filler filler
	writer int
	count  int // values made, so that no two are the same
}

func (g *ops) key(family string, n int) string {
	return fmt.Sprintf("%s:%d:%d", family, g.writer, g.rng.IntN(n))
}

// allKeys lists every key of a writer, by family.
func allKeys(writer int) (keys []string, isHash map[string]bool) {
	isHash = map[string]bool{}
	for _, f := range []struct {
		name string
		n    int
	}{{"str", strKeys}, {"cnt", cntKeys}, {"hash", hashKeys}, {"big", bigKeys}, {"short", shortKeys}} {
		for i := range f.n {
			k := fmt.Sprintf("%s:%d:%d", f.name, writer, i)
			keys = append(keys, k)
			isHash[k] = f.name == "hash" || f.name == "big"
		}
	}
	for i := range pairs {
		a, b := pairKeys(writer, i)
		keys = append(keys, a, b)
	}
	return keys, isHash
}

func pairKeys(writer, i int) (a, b string) {
	return fmt.Sprintf("{pair:%d:%d}a", writer, i), fmt.Sprintf("{pair:%d:%d}b", writer, i)
}

// text returns a value that was never there before, 100 bytes to 100 KB, mostly small.
func (g *ops) text() string {
	g.count++
	size := 100 + g.rng.IntN(900)
	switch p := g.rng.IntN(100); {
	case p < 3:
		size = 10_000 + g.rng.IntN(90_000)
	case p < 20:
		size = 1_000 + g.rng.IntN(9_000)
	}
	head := fmt.Sprintf("%d.%d.", g.writer, g.count)
	at := g.rng.IntN(len(g.filler) - size)
	return head + string(g.filler[at:at+size-len(head)])
}

// next returns the next command. have is the writer's model.
func (g *ops) next(have map[string]value) op {
	switch p := g.rng.IntN(100); {
	case p < 35:
		return g.onString(have)
	case p < 50:
		return g.onCounter()
	case p < 63:
		return g.onHash(g.key("hash", hashKeys), smallFields, 3, 3)
	case p < 70:
		return g.onHash(g.key("big", bigKeys), bigFields, 100, 20)
	case p < 88:
		return g.onShort()
	}
	g.count++
	a, b := pairKeys(g.writer, g.rng.IntN(pairs))
	return op{verb: vPair, key: a, second: b, arg: strconv.Itoa(g.count)}
}

func (g *ops) onString(have map[string]value) op {
	o := op{verb: vSet, key: g.key("str", strKeys)}
	switch p := g.rng.IntN(100); {
	case p < 50:
		o.arg = g.text()
	case p < 65:
		o.arg = g.text()
		if len(have[o.key].str) < appendLimit {
			o.verb = vAppend
		}
	case p < 75:
		o.verb = vDel
	case p < 85:
		o.verb, o.arg, o.ms = vSetPX, g.text(), longMs
	case p < 90:
		o.verb, o.ms = vExpire, longMs+int64(g.rng.IntN(999))
	case p < 93:
		o.verb = vPersist
	default:
		o.verb = vGet
	}
	return o
}

func (g *ops) onCounter() op {
	o := op{verb: vIncr, key: g.key("cnt", cntKeys)}
	switch p := g.rng.IntN(100); {
	case p < 4:
		o.verb = vDel
	case p < 8:
		o.verb, o.ms = vExpire, longMs
	case p < 12:
		o.verb = vGet
	}
	return o
}

// onHash sets up to sets fields, or removes up to dels, of a hash whose fields have numbers below space.
func (g *ops) onHash(key string, space, sets, dels int) op {
	o := op{verb: vHSet, key: key}
	switch p := g.rng.IntN(100); {
	case p < 4:
		o.verb = vDel
		return o
	case p < 7:
		o.verb, o.ms = vExpire, longMs
		return o
	case p < 35:
		o.verb = vHDel
		from := g.rng.IntN(space)
		for i := range 1 + g.rng.IntN(dels) { // each field once: the reply counts it once
			o.fields = append(o.fields, fmt.Sprintf("f%d", (from+i)%space))
		}
		return o
	}
	from := g.rng.IntN(space)
	for i := range 1 + g.rng.IntN(sets) {
		g.count++
		o.fields = append(o.fields, fmt.Sprintf("f%d", (from+i)%space), fmt.Sprintf("%d.%d", g.writer, g.count))
	}
	if g.rng.IntN(20) == 0 {
		o.fields[1] = g.text() // too long for a packed hash
	}
	return o
}

// onShort uses only commands whose effect does not depend on whether the deadline had come.
func (g *ops) onShort() op {
	o := op{verb: vSetPX, key: g.key("short", shortKeys), ms: int64(1 + g.rng.IntN(3000))}
	switch p := g.rng.IntN(100); {
	case p < 50:
		o.arg = g.text()
	case p < 60:
		o.verb, o.arg = vSet, g.text()
	case p < 90:
		o.verb = vExpire
	case p < 93:
		o.verb, o.ms = vExpire, -1
	default:
		o.verb = vDel
	}
	return o
}
