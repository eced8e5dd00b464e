package bench

import (
	"strings"
	"testing"

	"cairn/internal/resp"
)

func TestScanner(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, in               string
		replies, errors, nulls int64
	}{
		{"simple", "+OK\r\n:12\r\n", 2, 0, 0},
		{"bulk", "$3\r\nabc\r\n$0\r\n\r\n", 2, 0, 0},
		{"value that looks like replies", "$10\r\n+OK\r\n-E\r\n*\r\n", 1, 0, 0},
		{"nulls", "$-1\r\n*-1\r\n", 2, 0, 2},
		{"array", "*2\r\n$1\r\na\r\n:1\r\n+OK\r\n", 2, 0, 0},
		{"empty array", "*0\r\n", 1, 0, 0},
		{"nested", "*2\r\n*1\r\n+a\r\n*0\r\n", 1, 0, 0},
		{"null inside is no missing key", "*1\r\n$-1\r\n", 1, 0, 0},
		{"error", "-ERR no\r\n+OK\r\n", 2, 1, 0},
		{"unfinished", "+OK\r\n$5\r\nab", 1, 0, 0},
		{"long error", "-ERR " + strings.Repeat("x", 5000) + "\r\n+OK\r\n", 2, 1, 0},
	} {
		for _, step := range []int{1, 2, 3, 7, 1 << 20} {
			counts, err := scanBy(c.in, step)
			if err != nil || counts.replies != c.replies || counts.errors != c.errors || counts.nulls != c.nulls {
				t.Errorf("%s by %d: %d replies, %d errors, %d nulls, %v; want %d, %d, %d", c.name, step,
					counts.replies, counts.errors, counts.nulls, err, c.replies, c.errors, c.nulls)
			}
		}
	}
}

func TestScannerRefuses(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"what\r\n", "$x\r\n", "$-2\r\n", "$99999999999\r\n", "+OK\n", "\r\n", "%1\r\n", "*1000000000\r\n*1000000000\r\n*1000000000\r\n*1000000000\r\n*1000000000\r\n"} {
		if c, err := scanBy(bad, 1<<20); err == nil {
			t.Errorf("%q: %d replies, want an error", bad, c.replies)
		}
	}
}

func scanBy(in string, step int) (c replyCounts, err error) {
	var s replyScanner
	for b := []byte(in); len(b) > 0 && err == nil; {
		n := min(step, len(b))
		err = s.scan(b[:n], &c)
		b = b[n:]
	}
	return c, err
}

// FuzzScanner compares with the parser that the tree's other clients use, and cuts the input everywhere.
func FuzzScanner(f *testing.F) {
	f.Add([]byte("+OK\r\n$3\r\nabc\r\n*2\r\n:1\r\n$-1\r\n-ERR\r\n"), uint8(3))
	f.Add([]byte("*-1\r\n*0\r\n*1\r\n*1\r\n+\r\n"), uint8(1))
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		whole, err := scanBy(string(in), len(in)+1)
		parts, partsErr := scanBy(string(in), int(step)+1)
		if (err == nil) != (partsErr == nil) || whole.replies != parts.replies || whole.errors != parts.errors || whole.nulls != parts.nulls {
			t.Fatalf("whole %+v %v, in steps of %d %+v %v", whole, err, int(step)+1, parts, partsErr)
		}
		var replies int64
		for rest := in; ; replies++ {
			_, n, parseErr := resp.ParseReply(rest)
			if parseErr != nil || n == 0 {
				break
			}
			rest = rest[n:]
		}
		if err == nil && replies < whole.replies && onlyPlain(in) {
			t.Fatalf("%d replies counted, %d parsed", whole.replies, replies)
		}
	})
}

// onlyPlain says that the bytes hold nothing that the parser refuses and the scanner, which does not look at texts, lets pass.
func onlyPlain(in []byte) bool {
	for _, line := range strings.SplitAfter(string(in), "\r\n") {
		if line != "" && line != "+OK\r\n" && line != "$-1\r\n" && line != "*0\r\n" && line != "*1\r\n" {
			return false
		}
	}
	return true
}

func FuzzParseTool(f *testing.F) {
	f.Add("\"test\",\"rps\"\n\"SET\",\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\"\n")
	f.Fuzz(func(t *testing.T, out string) {
		if r, err := parseTool(out, "set"); err == nil && !(r.rate > 0) {
			t.Fatalf("rate %v", r.rate)
		}
	})
}

func TestParseTool(t *testing.T) {
	t.Parallel()
	out := "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n" +
		"\"SET\",\"52356.02\",\"0.5\",\"0.1\",\"0.4\",\"0.9\",\"1.2\",\"7.5\"\n"
	if r, err := parseTool(out, "set"); err != nil || r != (toolResult{52356.02, 0.4, 1.2, 7.5}) {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{"", "\"SET\"\n", "\"SET\",\"fast\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\"\n", "\"SET\",\"NaN\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\"\n", "\"SET\",\"0\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\"\n", "\"open"} {
		if r, err := parseTool(bad, "set"); err == nil {
			t.Errorf("%q: %+v, want an error", bad, r)
		}
	}
}
