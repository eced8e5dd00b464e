package bench

import (
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"cairn/internal/resp"
)

func sourceOf(t *testing.T, name string, s Shape) Source {
	t.Helper()
	w, ok := workloads()[name]
	if !ok {
		t.Fatalf("no workload %s", name)
	}
	return w.source(s, rand.New(rand.NewPCG(7, 8)))
}

func testShape() Shape {
	return Shape{Keys: 50, Size: 100, Dist: Uniform, Fields: 20, Next: new(atomic.Uint64)}
}

// TestCommandsAreWhole: what a source appends is exactly one command, and templates counted their bytes right.
func TestCommandsAreWhole(t *testing.T) {
	t.Parallel()
	for name := range workloads() {
		source := sourceOf(t, name, testShape())
		var buf []byte
		var args [][]byte
		for range 500 {
			buf = source(buf[:0])
			var n int
			var err error
			if args, n, err = resp.NextCommand(buf, args[:0]); err != nil || n != len(buf) {
				t.Fatalf("%s: %.80q: %d of %d bytes are a command, %v", name, buf, n, len(buf), err)
			}
			if len(args) < 2 {
				t.Fatalf("%s: %q", name, args)
			}
		}
	}
}

func TestFirstCommands(t *testing.T) {
	t.Parallel()
	s := testShape()
	for name, want := range map[string]string{
		"get":   "GET key:0000000000",
		"set":   "SET key:0000000000",
		"incr":  "INCR ctr:0000000000",
		"load":  "SET key:000000000000",
		"count": "SET ctr:000000000000 10000",
		"hget":  "HGET key:0000000000",
		"hload": "HSET key:000000000000 f:000000",
	} {
		args, _, err := resp.NextCommand(sourceOf(t, name, s)(nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		var words []string
		for _, a := range args {
			words = append(words, string(a))
		}
		s.Next.Store(0)
		if got := strings.Join(words, " "); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %.60q, want %q first", name, got, want)
		}
	}
}

// TestLoadsReachAll: a loader makes each key and field of its data set once, also from several sources at once.
func TestLoadsReachAll(t *testing.T) {
	t.Parallel()
	s := testShape()
	sources := []Source{sourceOf(t, "hload", s), sourceOf(t, "hload", s)}
	seen := map[string]int{}
	for i := range int(s.Keys * s.Fields / hloadStep) {
		args, _, err := resp.NextCommand(sources[i%2](nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		for j := 2; j < len(args); j += 2 {
			seen[string(args[1])+" "+string(args[j])]++
		}
	}
	if len(seen) != int(s.Keys*s.Fields) {
		t.Errorf("%d fields made, want %d", len(seen), s.Keys*s.Fields)
	}
}

func TestMixedShare(t *testing.T) {
	t.Parallel()
	source := sourceOf(t, "mixed", testShape())
	reads := 0
	const all = 20_000
	for range all {
		if strings.HasPrefix(string(source(nil)), "*2\r\n$3\r\nGET") {
			reads++
		}
	}
	if share := float64(reads) / all; share < 0.78 || share > 0.82 {
		t.Errorf("%.3f of the commands read, want 0.80", share)
	}
}

func TestRowsAreWhole(t *testing.T) {
	t.Parallel()
	works, data, names := workloads(), dataSets(), map[string]bool{}
	groups := map[string]bool{}
	for _, g := range groupHelp() {
		groups[g[0]] = true
	}
	for _, r := range Rows() {
		if names[r.Name] {
			t.Errorf("two rows %s", r.Name)
		}
		names[r.Name] = true
		if _, ok := works[r.Work]; !ok {
			t.Errorf("%s: no workload %s", r.Name, r.Work)
		}
		d, ok := data[r.Data]
		if !ok {
			t.Errorf("%s: no data set %s", r.Name, r.Data)
		}
		if _, ok := works[d.loader]; !ok && d.loader != "" {
			t.Errorf("%s: no loader %s", r.Data, d.loader)
		}
		if !groups[r.Group] || groups[r.Name] {
			t.Errorf("%s: group %s", r.Name, r.Group)
		}
	}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ patterns, want string }{
		{"get-p1,set-p64", "get-p1 set-p64"},
		{"always", "set-always-p1 set-always-p16 set-always-p64"},
		{"get-p*,-get-p16", "get-p1 get-p64"},
		{"-hot,-always,-load,-sizes,-hashes,-zipf,-ycsb,-open,-rb-set-*", "rb-get-p1 rb-get-p16 rb-get-p64"},
	} {
		rows, err := Select(Rows(), strings.Split(c.patterns, ","))
		var names []string
		for _, r := range rows {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, " "); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.patterns, got, err, c.want)
		}
	}
	if all, err := Select(Rows(), []string{"all"}); err != nil || len(all) != len(Rows()) {
		t.Errorf("all: %d rows, %v", len(all), err)
	}
	for _, bad := range []string{"nothing", "[", "-nothing"} {
		if rows, err := Select(Rows(), []string{bad}); err == nil {
			t.Errorf("%s: %d rows, want an error", bad, len(rows))
		}
	}
}

func TestByBed(t *testing.T) {
	t.Parallel()
	rows := []Row{{Name: "a", Data: "x"}, {Name: "b", Data: "y"}, {Name: "c", Data: "x"}, {Name: "d", Data: "x", Sync: Always}}
	var got []string
	for _, b := range byBed(rows) {
		names := ""
		for _, r := range b {
			names += r.Name
		}
		got = append(got, names)
	}
	if text := strings.Join(got, " "); text != "ac b d" {
		t.Errorf("%s, want ac b d", text)
	}
}
