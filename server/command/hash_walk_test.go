package command

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"cairn/engine"
	"cairn/internal/resp"
	"cairn/internal/slot"
)

// hscanAll walks a hash with HSCAN to the end and counts how often each field came. between runs after each call.
func hscanAll(t *testing.T, n *node, key string, between func(), options ...string) (met map[string]int, calls int) {
	t.Helper()
	met = make(map[string]int)
	for cursor := "0"; ; {
		got := bulkValues(t, n.do(append([]string{"HSCAN", key, cursor}, options...)...))
		for i := 1; i < len(got); i += 2 {
			met[got[i]]++
			if got[i][1:] != got[i+1][1:] {
				t.Fatalf("HSCAN has %q for %q", got[i+1], got[i])
			}
		}
		calls++
		if cursor = got[0]; cursor == "0" {
			return met, calls
		}
		if between != nil {
			between()
		}
	}
}

func TestHashScan(t *testing.T) {
	const fields = 3000
	n := newNode(t)
	fillHash(t, n, "h", fields)
	for _, c := range []struct {
		options []string
		fields  int
		calls   int // at least
	}{
		{nil, fields, fields / 10},
		{[]string{"COUNT", "1"}, fields, fields},
		{[]string{"COUNT", "1000"}, fields, 3},
		{[]string{"COUNT", "1001"}, fields, 3},
		{[]string{"COUNT", "2999"}, fields, 2},
		{[]string{"COUNT", "3000"}, fields, 1},
		{[]string{"COUNT", "9223372036854775807"}, fields, 1},
		{[]string{"COUNT", "500", "MATCH", "f12*"}, 111, 6},
		{[]string{"COUNT", "5000", "MATCH", "f12*"}, 111, 1},
		{[]string{"COUNT", "5000", "MATCH", ""}, 0, 1},
		{[]string{"COUNT", "5000", "MATCH", "*"}, fields, 1},
	} {
		met, calls := hscanAll(t, n, "h", nil, c.options...)
		if len(met) != c.fields || calls != c.calls {
			t.Errorf("HSCAN %q gives %d fields in %d calls, want %d in %d", c.options, len(met), calls, c.fields, c.calls)
		}
		for field, times := range met {
			if times != 1 {
				t.Errorf("HSCAN %q gives %q %d times", c.options, field, times)
			}
		}
		applyPending(t, n.store)
	}
}

// Fields that are there from the first call to the last are listed once, whatever comes and goes around them.
func TestHashScanWhileChanging(t *testing.T) {
	const stay = 1000
	n := newNode(t)
	fillHash(t, n, "h", stay)
	rnd := rand.New(rand.NewPCG(5, 6))
	step := 0
	met, _ := hscanAll(t, n, "h", func() {
		for range 5 {
			other := fmt.Sprint(stay + rnd.IntN(300))
			n.do("HSET", "h", "f"+other, "v"+other)
			n.do("HDEL", "h", fmt.Sprint("f", stay+rnd.IntN(300)))
		}
		// A field that is set again stays where it is.
		again := fmt.Sprint(rnd.IntN(stay))
		n.do("HSET", "h", "f"+again, "v"+again)
		if step++; step%50 == 0 {
			applyPending(t, n.store)
		}
	}, "COUNT", "7")
	for i := range stay {
		if met[fmt.Sprint("f", i)] != 1 {
			t.Errorf("f%d came %d times", i, met[fmt.Sprint("f", i)])
		}
	}
}

// A call of HSCAN does not gather long values without end.
func TestHashScanLongValues(t *testing.T) {
	n := newNode(t)
	for i := range 40 {
		n.do("HSET", "h", fmt.Sprint("f", i), strings.Repeat("x", 100_000))
	}
	got := n.do("HSCAN", "h", "0", "COUNT", "1000")
	if len(got) < scanReplyMax || len(got) > scanReplyMax+200_000 {
		t.Errorf("one call gives %d bytes", len(got))
	}
}

func TestHashCursor(t *testing.T) {
	for _, text := range []string{"0", "1", "18446744073709551615", "-1", "+7", "007", "", "-0"} {
		got, ok := parseHashCursor([]byte(text))
		want, _ := strconv.ParseUint(strings.TrimLeft(text, "+-"), 10, 64)
		if strings.HasPrefix(text, "-") {
			want = -want
		}
		if !ok || got != want {
			t.Errorf("cursor %q is %d, %v", text, got, ok)
		}
	}
	for _, text := range []string{" 0", "0 ", "x", "-", "+", "+-1", "18446744073709551616", "99999999999999999999999"} {
		if got, ok := parseHashCursor([]byte(text)); ok {
			t.Errorf("cursor %q is taken for %d", text, got)
		}
	}
}

// chiSquare fails the test when counts are not evenly spread: with many classes the sum is about normal, and
// seven deviations happen once in 10^11 runs.
func chiSquare(t *testing.T, what string, counts map[string]int, classes, draws int) {
	t.Helper()
	want, sum := float64(draws)/float64(classes), 0.0
	for _, n := range counts {
		sum += (float64(n) - want) * (float64(n) - want) / want
	}
	sum += float64(classes-len(counts)) * want
	degrees := float64(classes - 1)
	if limit := degrees + 7*math.Sqrt(2*degrees) + 30; sum > limit || len(counts) > classes {
		t.Errorf("%s: %d of %d fields, chi-square %.0f, at most %.0f", what, len(counts), classes, sum, limit)
	}
}

func TestHashRandomIsFair(t *testing.T) {
	for _, c := range []struct {
		fields, rounds int
		count          string
		picks          int
	}{
		{10, 4000, "", 1},         // packed
		{10, 2000, "3", 3},        // packed, different ones
		{100, 40, "-1500", 1500},  // packed, many
		{200, 40, "-500", 500},    // rows, under the lock
		{200, 4, "-20000", 20000}, // rows, while sending
		{1000, 2000, "10", 10},    // rows, few different ones
		{300, 300, "100", 100},    // rows, many different ones
	} {
		n := newNode(t)
		fillHash(t, n, "h", c.fields)
		counts := make(map[string]int)
		for range c.rounds {
			cmd := []string{"HRANDFIELD", "h"}
			if c.count != "" {
				cmd = append(cmd, c.count)
			}
			got := bulkValues(t, n.do(cmd...))
			if len(got) != c.picks {
				t.Fatalf("%q of %d fields gives %d", cmd, c.fields, len(got))
			}
			once := make(map[string]bool)
			for _, f := range got {
				counts[f]++
				once[f] = true
			}
			if !strings.HasPrefix(c.count, "-") && len(once) != c.picks {
				t.Fatalf("%q of %d fields gives %d different ones", cmd, c.fields, len(once))
			}
		}
		chiSquare(t, fmt.Sprintf("HRANDFIELD %s of %d", c.count, c.fields), counts, c.fields, c.rounds*c.picks)
	}
}

// Picks from rows are fair where neighbours are not evenly spread either, and need few tries.
func TestHashPickTries(t *testing.T) {
	n := newNode(t)
	fillHash(t, n, "h", 5000)
	applyPending(t, n.store)
	n.txn.Begin([]uint16{slot.Of([]byte("h"))}, false, engine.Forever)
	defer n.txn.End()
	k, err := n.txn.Key([]byte("h"))
	if err != nil {
		t.Fatal(err)
	}
	it, err := n.txn.Elements(k, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	const picks = 2000
	tried := 0
	for range picks {
		_, tries, err := pickRow(it, k.Rec.Count, false)
		if err != nil {
			t.Fatal(err)
		}
		tried += tries
	}
	// Four on average, with a deviation of sqrt(12/picks).
	if mean := float64(tried) / picks; math.Abs(mean-4) > 8*math.Sqrt(12.0/picks)+0.1 {
		t.Errorf("a pick needs %.2f tries", mean)
	}
}

func TestHashRandomReplies(t *testing.T) {
	n := newNode(t)
	n.proto = 3
	fillHash(t, n, "h", 2000)
	for _, c := range []struct {
		count, head string
		strings     int
	}{
		{"5000", "*2000\r\n*2\r\n", 4000},
		{"1999", "*1999\r\n*2\r\n", 3998},
		{"3", "*3\r\n*2\r\n", 6},
		{"-3", "*3\r\n*2\r\n", 6},
		{"-5000", "*5000\r\n*2\r\n", 10000},
	} {
		raw := n.do("HRANDFIELD", "h", c.count, "WITHVALUES")
		got := bulkValues(t, raw)
		if !strings.HasPrefix(raw, c.head) || len(got) != c.strings {
			t.Errorf("count %s: %d strings, begins %.20q, want %d and %q", c.count, len(got), raw, c.strings, c.head)
		}
		for i := 0; i+1 < len(got); i += 2 {
			if got[i][1:] != got[i+1][1:] {
				t.Fatalf("count %s: %q has value %q", c.count, got[i], got[i+1])
			}
		}
	}
}

// A count without bounds ends with the connection: nothing is gathered in memory.
func TestHashRandomEndless(t *testing.T) {
	for _, fields := range []int{3, 1000} {
		n := newNode(t)
		fillHash(t, n, "h", fields)
		c := &Ctx{Txn: n.txn, Host: n, W: &resp.Writer{Proto: 2}}
		args := [][]byte{[]byte("HRANDFIELD"), []byte("h"), []byte("-9223372036854775807")}
		cmd, _ := n.table.Lookup(args)
		c.Reset(cmd, args)
		n.txn.Begin([]uint16{slot.Of([]byte("h"))}, false, n.now)
		if err := c.Execute(); err != nil {
			t.Fatal(err)
		}
		n.txn.End()
		streams := c.TakeStreams()
		if len(streams) != 1 || string(c.W.Buf) != "*9223372036854775807\r\n" {
			t.Fatalf("%d streams behind %q", len(streams), c.W.Buf)
		}
		gone, most, flushed := errors.New("gone"), 0, 0
		w := &resp.Writer{Proto: 2}
		err := streams[0].Run(w, func() error {
			most = max(most, len(w.Buf))
			w.Buf = w.Buf[:0]
			if flushed++; flushed == 20 {
				return gone
			}
			return nil
		})
		if !errors.Is(err, gone) || most > StreamFrom+1024 {
			t.Errorf("the stream ends with %v and gathers %d bytes", err, most)
		}
		if err := streams[0].Close(); err != nil {
			t.Error(err)
		}
	}
}

// One transaction sees its own rows, and the replies it streams show the hash as it was at their command.
func TestHashInOneTransaction(t *testing.T) {
	n := newNode(t)
	fillHash(t, n, "h", 200)
	long := strings.Repeat("x", 70_000)
	script := [][]string{
		{"HSET", "h", "long", long},
		{"HGETALL", "h"},
		{"HDEL", "h", "long", "f0"},
		{"HGETALL", "h"},
		{"HLEN", "h"},
		{"HGET", "h", "f0"},
		{"HSET", "new", "f", long},
		{"HINCRBY", "new", "n", "5"},
		{"HGETALL", "new"},
		{"HDEL", "new", "f", "n"},
		{"HSET", "new", "f", "small"},
		{"HGETALL", "new"},
	}
	c := &Ctx{Txn: n.txn, Host: n, NowMs: n.now, W: &resp.Writer{Proto: 2}, InMulti: true}
	n.txn.Begin(SortSlots([]uint16{slot.Of([]byte("h")), slot.Of([]byte("new"))}), true, n.now)
	c.W.Array(len(script))
	for _, words := range script {
		args := make([][]byte, len(words))
		for i := range words {
			args[i] = []byte(words[i])
		}
		cmd, _ := n.table.Lookup(args)
		c.Reset(cmd, args)
		if err := c.Execute(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.txn.Commit(); err != nil {
		t.Fatal(err)
	}
	n.do("HSET", "h", "later", "x")
	n.finish(c.W, c)
	r, _, err := resp.ParseReply(c.W.Buf)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := len(r.Elems[1].Elems), len(r.Elems[3].Elems); a != 402 || b != 398 {
		t.Errorf("HGETALL before and after HDEL: %d and %d strings", a, b)
	}
	if r.Elems[4].Int != 199 || !r.Elems[5].IsNull() || len(r.Elems[8].Elems) != 4 || len(r.Elems[11].Elems) != 2 {
		t.Errorf("HLEN %d, HGET %q, HGETALL %d and %d strings", r.Elems[4].Int, r.Elems[5].Str, len(r.Elems[8].Elems), len(r.Elems[11].Elems))
	}
	checkReplay(t, n)
}

// A hash whose time has passed is gone for HSET too, and a living one keeps its time.
func TestHashExpired(t *testing.T) {
	n := newNode(t)
	fillHash(t, n, "h", 300)
	n.do("PEXPIRE", "h", "100")
	n.do("HSET", "h", "f0", "v0")
	n.now += 101
	if got := n.do("HGET", "h", "f0"); got != "$-1\r\n" {
		t.Errorf("HGET of an expired hash gives %q", got)
	}
	if got := n.do("HSET", "h", "a", "1"); got != ":1\r\n" {
		t.Errorf("HSET of an expired hash gives %q", got)
	}
	if got := n.do("HGETALL", "h") + n.do("PTTL", "h"); got != "*2\r\n$1\r\na\r\n$1\r\n1\r\n:-1\r\n" {
		t.Errorf("the new hash and its time: %q", got)
	}
	checkReplay(t, n)
}
