package command

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"cairn/engine/layout"
)

// scanOnce runs one SCAN and gives the names and the next cursor.
func scanOnce(t *testing.T, n *node, cursor string, args ...string) (next string, names []string) {
	t.Helper()
	words := bulkValues(t, n.do(append([]string{"SCAN", cursor}, args...)...))
	return words[0], words[1:]
}

// scanKeys walks with COUNT count, calls between after each step, and gives all names, sorted.
func scanKeys(t *testing.T, n *node, count int, between func()) (names []string) {
	t.Helper()
	for cursor, calls := "0", 0; ; calls++ {
		next, some := scanOnce(t, n, cursor, "COUNT", strconv.Itoa(count))
		if len(some) > count+2 { // more only where the cursor would be a large number
			t.Fatalf("SCAN with COUNT %d gives %d names", count, len(some))
		}
		names = append(names, some...)
		if next == "0" {
			break
		}
		if cursor = next; calls > 100_000 {
			t.Fatalf("SCAN does not end, its cursor is %s", cursor)
		}
		if between != nil {
			between()
		}
	}
	slices.Sort(names)
	return names
}

// TestScanKeepsItsPromise: what is there all the time is listed, once, while other keys come and go and rows go
// from memory to the store below.
func TestScanKeepsItsPromise(t *testing.T) {
	n := newNode(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	var stay []string
	for i := range 600 {
		name := fmt.Sprint("stay", i)
		if i%3 == 0 {
			name = "{t}" + name
		}
		n.do("SET", name, "v")
		stay = append(stay, name)
		if i == 300 {
			applyPending(t, n.store)
		}
	}
	slices.Sort(stay)
	for _, count := range []int{1, 2, 10, 1000} {
		steps := 0
		got := scanKeys(t, n, count, func() {
			n.do("SET", fmt.Sprint("{t}churn", rnd.IntN(100)), "v")
			n.do("DEL", fmt.Sprint("{t}churn", rnd.IntN(100)))
			n.do("SET", stay[rnd.IntN(len(stay))], "w")
			if steps++; steps%150 == 0 {
				applyPending(t, n.store)
			}
		})
		got = slices.DeleteFunc(got, func(s string) bool { _, ok := slices.BinarySearch(stay, s); return !ok })
		if !slices.Equal(got, stay) {
			t.Fatalf("COUNT %d lists %d of %d keys that stayed", count, len(got), len(stay))
		}
	}
}

// TestScanCursorsAreSmall: there are tools that keep a cursor in 32 bits, and clients that keep it in a double.
func TestScanCursorsAreSmall(t *testing.T) {
	n := newNode(t)
	for i := range 20_000 {
		n.do("SET", fmt.Sprint("{t}", i), "v")
	}
	for i := range 2000 {
		n.do("SET", fmt.Sprint("k", i), "v")
	}
	for _, count := range []string{"1", "10", "1000"} {
		names := 0
		for cursor := "0"; ; {
			next, some := scanOnce(t, n, cursor, "COUNT", count)
			if names += len(some); next == "0" {
				break
			}
			if cursor = next; len(cursor) > 10 || len(cursor) == 10 && cursor > "2147483647" {
				t.Fatalf("COUNT %s: cursor %s", count, cursor)
			}
		}
		if names != 22_000 {
			t.Errorf("COUNT %s lists %d keys", count, names)
		}
	}
}

func TestCursorsAndPlaces(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		s, last, next := rnd.Uint64N(slotCount), rnd.Uint64N(1<<cursorBits), rnd.Uint64N(1<<cursorBits)>>rnd.IntN(cursorBits)
		if last == next {
			continue
		}
		last, next = min(last, next), max(last, next)
		at, n := placeBetween(last, next)
		if at <= last || at > next || at<<n&(1<<cursorBits-1) != 0 {
			t.Fatalf("between %x and %x: %x, of %d bits", last, next, at, n)
		}
		cursor := cursorOf(s, at)
		if gotSlot, got := placeOf(cursor); gotSlot != s || got != at || cursor>>(slotBits+n) != 0 {
			t.Fatalf("slot %d, hash %x of %d bits: cursor %d is slot %d, hash %x", s, at, n, cursor, gotSlot, got)
		}
	}
}

// TestScanSameHash: two keys whose 48 bits are equal come in one call, or a cursor between them would lose one.
func TestScanSameHash(t *testing.T) {
	const a, b = "{t}22274114", "{t}45960932"
	if layout.Hash48(layout.Hash([]byte(a))) != layout.Hash48(layout.Hash([]byte(b))) {
		t.Fatal("the two keys have different hashes; the hash is part of the format")
	}
	n := newNode(t)
	for i := range 20 {
		n.do("SET", fmt.Sprint("{t}", i), "v")
	}
	n.do("SET", a, "v")
	n.do("SET", b, "v")
	for cursor, met := "0", 0; ; {
		next, names := scanOnce(t, n, cursor, "COUNT", "1")
		if slices.Contains(names, a) != slices.Contains(names, b) {
			t.Fatalf("one call lists %q", names)
		}
		if met += len(names); next == "0" {
			if met != 22 {
				t.Fatalf("%d keys listed, want 22", met)
			}
			return
		}
		cursor = next
	}
}

// TestScanPattern: a pattern that names a hash tag is looked for in one slot only, any other everywhere.
func TestScanPattern(t *testing.T) {
	for pattern, want := range map[string]bool{
		"{tag}*": true, "a{tag}b?": true, "plain": true, "{tag}": true,
		"*{tag}": false, "{ta*g}": false, "{tag*": false, "{}*": false, "[{]tag}*": false, `\{tag}*`: false, "*": false, "a*": false,
	} {
		if got := patternSlot([]byte(pattern)) >= 0; got != want {
			t.Errorf("pattern %q is in one slot: %v, want %v", pattern, got, want)
		}
	}
	n := newNode(t)
	for i := range 50 {
		n.do("SET", fmt.Sprint("{tag}", i), "v")
		n.do("SET", fmt.Sprint("other", i), "v")
	}
	var names []string
	for cursor, calls := "0", 0; ; calls++ {
		next, some := scanOnce(t, n, cursor, "MATCH", "{tag}*", "COUNT", "10")
		if names = append(names, some...); next == "0" {
			if calls > 5 {
				t.Errorf("%d calls for 50 keys of one slot", calls)
			}
			break
		}
		cursor = next
	}
	if slices.Sort(names); len(slices.Compact(names)) != 50 {
		t.Errorf("%d keys listed, want 50", len(names))
	}
	// A cursor behind the slot, or behind all slots, is at the end.
	for _, cursor := range []string{"18446744073709551615", "4611686018427387904", "-1"} {
		if next, some := scanOnce(t, n, cursor); next != "0" || len(some) != 0 {
			t.Errorf("cursor %s gives %s and %q", cursor, next, some)
		}
	}
}

// TestScanCountsExpired: a call does no more than it was asked to, whatever it shows of it.
func TestScanCountsExpired(t *testing.T) {
	n := newNode(t)
	for i := range 500 {
		n.do("SET", fmt.Sprint("{t}", i), "v", "PX", "1")
	}
	n.now += 10
	calls := 0
	for cursor := "0"; ; calls++ {
		next, some := scanOnce(t, n, cursor, "COUNT", "10")
		if len(some) != 0 {
			t.Fatalf("SCAN shows dead keys %q", some)
		}
		if next == "0" {
			break
		}
		cursor = next
	}
	if calls != 49 {
		t.Errorf("%d calls for 500 keys with COUNT 10", calls+1)
	}
}

// TestKeysStreams: a long list of names is sent in parts.
func TestKeysStreams(t *testing.T) {
	n := newNode(t)
	const keys = 12_000
	for i := range keys {
		n.do("SET", fmt.Sprint("{t}some name that takes its room ", i), "v")
	}
	for _, cmd := range [][]string{{"KEYS", "*"}, {"SCAN", "0", "COUNT", "1000000"}} {
		words := bulkValues(t, n.do(cmd...))
		if cmd[0] == "SCAN" {
			words = words[1:]
		}
		if slices.Sort(words); len(slices.Compact(words)) != keys {
			t.Errorf("%s lists %d keys, want %d", cmd[0], len(words), keys)
		}
	}
}

// TestRandomKeyIsFair: keys come up equally often, alone in their slot or among many. The bounds are over seven
// standard deviations away.
func TestRandomKeyIsFair(t *testing.T) {
	n := newNode(t)
	const crowd, alone, draws = 150, 30, 18_000
	for i := range crowd {
		n.do("SET", fmt.Sprint("{t}", i), "v")
	}
	for i := range alone {
		n.do("SET", fmt.Sprint("k", i), "v")
	}
	applyPending(t, n.store)
	seen := make(map[string]int)
	for range draws {
		seen[n.do("RANDOMKEY")]++
	}
	const mean = draws / (crowd + alone)
	if len(seen) != crowd+alone {
		t.Errorf("%d of %d keys came up", len(seen), crowd+alone)
	}
	for name, times := range seen {
		if times < mean-75 || times > mean+90 {
			t.Errorf("%q came up %d times, about %d are fair", name, times, mean)
		}
	}
}
