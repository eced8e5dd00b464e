package bench

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"cairn/internal/resp"
)

// A workload is what a client sends. Commands are written into a buffer that is used again, from templates, since
// the client shares the processors with the server it measures.

// Source appends the next command to dst. Each command has exactly one reply.
type Source func(dst []byte) []byte

// Shape is what a workload is made for.
type Shape struct {
	Keys   uint64 // of the data set
	Size   int    // bytes of a value
	Dist   Dist
	Fields uint64 // of a hash
	// Next numbers new keys; all sources of a run share it.
	Next *atomic.Uint64
	// Lifetime is how long mortal keys live at most.
	Lifetime time.Duration
}

// workload is one mix of commands.
type workload struct {
	help   string
	writes bool
	// payload returns the bytes of key and value that the average command brings, for a shape.
	payload func(s Shape) float64
	// source makes the commands of one part of the client; what it sends depends on rng (and on Next) alone.
	source func(s Shape, rng *rand.Rand) Source
}

const (
	keyDigits   = 12
	readShare   = 80 // percent of mixed
	fieldsSmall = 10 // fields of a small hash: packed into the key's own record
	fieldsBig   = 100_000
	fieldBytes  = 16 // bytes of a field's value in both
)

func workloads() map[string]workload {
	none := func(Shape) float64 { return 0 }
	pair := func(s Shape) float64 { return float64(s.Size + len("key:") + keyDigits) }
	field := func(Shape) float64 { return float64(len("f:") + 6 + fieldBytes) }
	all := map[string]workload{
		"get":    {"GET of a key that is there", false, none, getSource},
		"set":    {"SET over a key that is there", true, pair, setSource},
		"mixed":  {"80 % GET, 20 % SET", true, func(s Shape) float64 { return pair(s) * (100 - readShare) / 100 }, mixedSource},
		"load":   {"SET of new keys", true, pair, loadSource},
		"mortal": {"SET of new keys that live for a random time", true, pair, mortalSource},
		"incr":   {"INCR of a counter that is there", true, func(Shape) float64 { return 8 }, incrSource},
		"count":  {"SET of new counters", true, func(Shape) float64 { return 8 }, countSource},
		"hget":   {"HGET of a field that is there", false, none, hgetSource},
		"hset":   {"HSET over a field that is there", true, field, hsetSource},
		"hload":  {"HSET that makes hashes, ten fields a command", true, func(s Shape) float64 { return hloadStep * field(s) }, hloadSource},
	}
	addYCSB(all)
	return all
}

// filler is where values are cut from: random bytes, which nothing compresses.
type filler []byte

func newFiller(size int, rng *rand.Rand) filler {
	b := make([]byte, 1<<20+size)
	for i := 0; i+8 <= len(b); i += 8 {
		x := rng.Uint64()
		for j := range 8 {
			b[i+j] = byte(x >> (8 * j))
		}
	}
	return b
}

func (f filler) append(dst []byte, size int, rng *rand.Rand) []byte {
	from := rng.Uint64N(uint64(len(f)-size)) | 1
	return append(dst, f[from:from+uint64(size)]...)
}

// appendPadded appends n in decimal with leading zeros, so that every name has the same length.
func appendPadded(dst []byte, n uint64, digits int) []byte {
	at := len(dst)
	for range digits {
		dst = append(dst, '0')
	}
	for i := at + digits - 1; n > 0 && i >= at; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
	return dst
}

// template is a command whose arguments have fixed lengths: text up to the place of the key's number.
func template(parts int, words ...string) []byte {
	head := "*" + strconv.Itoa(parts) + "\r\n"
	for _, w := range words {
		head += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
	}
	return []byte(head)
}

// keyHead begins an argument of prefix and number.
func keyHead(prefix string, digits int) string {
	return fmt.Sprintf("$%d\r\n%s", len(prefix)+digits, prefix)
}

func getSource(s Shape, rng *rand.Rand) Source {
	head := append(template(2, "GET"), keyHead("key:", keyDigits)...)
	pick := newPicker(s.Dist, s.Keys, rng)
	return func(dst []byte) []byte {
		dst = appendPadded(append(dst, head...), pick(), keyDigits)
		return append(dst, "\r\n"...)
	}
}

// setter returns a function that appends SET of a key by its number.
func setter(s Shape, rng *rand.Rand) func(dst []byte, n uint64) []byte {
	head := append(template(3, "SET"), keyHead("key:", keyDigits)...)
	middle := fmt.Sprintf("\r\n$%d\r\n", s.Size)
	values := newFiller(s.Size, rng)
	return func(dst []byte, n uint64) []byte {
		dst = appendPadded(append(dst, head...), n, keyDigits)
		dst = values.append(append(dst, middle...), s.Size, rng)
		return append(dst, "\r\n"...)
	}
}

func setSource(s Shape, rng *rand.Rand) Source {
	set, pick := setter(s, rng), newPicker(s.Dist, s.Keys, rng)
	return func(dst []byte) []byte { return set(dst, pick()) }
}

func mixedSource(s Shape, rng *rand.Rand) Source {
	get, set := getSource(s, rng), setSource(s, rng)
	return func(dst []byte) []byte {
		if rng.Uint32N(100) < readShare {
			return get(dst)
		}
		return set(dst)
	}
}

func loadSource(s Shape, rng *rand.Rand) Source {
	set := setter(s, rng)
	return func(dst []byte) []byte { return set(dst, s.Next.Add(1)-1) }
}

// mortalSource makes keys whose ends are spread evenly over the lifetime.
func mortalSource(s Shape, rng *rand.Rand) Source {
	values := newFiller(s.Size, rng)
	var key, value, end []byte
	return func(dst []byte) []byte {
		key = appendPadded(append(key[:0], "mortal:"...), s.Next.Add(1)-1, keyDigits)
		value = values.append(value[:0], s.Size, rng)
		end = strconv.AppendUint(end[:0], 1+rng.Uint64N(uint64(max(1, s.Lifetime.Milliseconds()))), 10)
		return resp.AppendCommand(dst, []byte("SET"), key, value, []byte("PX"), end)
	}
}

func incrSource(s Shape, rng *rand.Rand) Source {
	head := append(template(2, "INCR"), keyHead("ctr:", keyDigits)...)
	pick := newPicker(s.Dist, s.Keys, rng)
	return func(dst []byte) []byte {
		dst = appendPadded(append(dst, head...), pick(), keyDigits)
		return append(dst, "\r\n"...)
	}
}

func countSource(s Shape, _ *rand.Rand) Source {
	head := append(template(3, "SET"), keyHead("ctr:", keyDigits)...)
	return func(dst []byte) []byte {
		dst = appendPadded(append(dst, head...), s.Next.Add(1)-1, keyDigits)
		return append(dst, "\r\n$5\r\n10000\r\n"...)
	}
}

const fieldDigits = 6

func hgetSource(s Shape, rng *rand.Rand) Source {
	head := append(template(3, "HGET"), keyHead("key:", keyDigits)...)
	middle := "\r\n" + keyHead("f:", fieldDigits)
	pick := newPicker(s.Dist, s.Keys, rng)
	return func(dst []byte) []byte {
		dst = appendPadded(append(dst, head...), pick(), keyDigits)
		dst = appendPadded(append(dst, middle...), rng.Uint64N(s.Fields), fieldDigits)
		return append(dst, "\r\n"...)
	}
}

func hsetSource(s Shape, rng *rand.Rand) Source {
	head := append(template(4, "HSET"), keyHead("key:", keyDigits)...)
	middle := "\r\n" + keyHead("f:", fieldDigits)
	value := fmt.Sprintf("\r\n$%d\r\n", fieldBytes)
	values := newFiller(fieldBytes, rng)
	pick := newPicker(s.Dist, s.Keys, rng)
	return func(dst []byte) []byte {
		dst = appendPadded(append(dst, head...), pick(), keyDigits)
		dst = appendPadded(append(dst, middle...), rng.Uint64N(s.Fields), fieldDigits)
		dst = values.append(append(dst, value...), fieldBytes, rng)
		return append(dst, "\r\n"...)
	}
}

// hloadStep is how many fields one command of a load brings.
const hloadStep = 10

// hloadSource fills hashes one after the other: command i brings ten fields of hash i / (Fields/10).
func hloadSource(s Shape, rng *rand.Rand) Source {
	values := newFiller(fieldBytes, rng)
	steps := s.Fields / hloadStep
	var args [2 + 2*hloadStep][]byte
	args[0] = []byte("HSET")
	return func(dst []byte) []byte {
		i := s.Next.Add(1) - 1
		args[1] = appendPadded(append(args[1][:0], "key:"...), i/steps, keyDigits)
		for j := range hloadStep {
			name, value := &args[2+2*j], &args[3+2*j]
			*name = appendPadded(append((*name)[:0], "f:"...), i%steps*hloadStep+uint64(j), fieldDigits)
			*value = values.append((*value)[:0], fieldBytes, rng)
		}
		return resp.AppendCommand(dst, args[:]...)
	}
}
