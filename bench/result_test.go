package bench

import (
	"strings"
	"testing"
	"time"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	if s := spreadOf([]float64{3, 1, 2, 10}); s != (Spread{2.5, 1, 10, 4}) {
		t.Errorf("%+v", s)
	}
	if s := spreadOf(nil); s.String() != "-" {
		t.Errorf("%q for nothing", s)
	}
}

// TestSummarize: a pair in which one run does not count has no ratio, and the row says why.
func TestSummarize(t *testing.T) {
	t.Parallel()
	run := func(pair, side int, rate float64) *Run {
		return &Run{Pair: pair, Side: side, Ops: 1, Rate: rate, ServerMicros: 1, Settled: true}
	}
	r := &RowResult{Row: &Row{Name: "row"}, Runs: []*Run{
		run(0, 0, 100), run(0, 1, 100), run(1, 0, 300), run(1, 1, 100), run(2, 0, 1000), run(2, 1, 100), run(3, 0, 50),
	}}
	r.Runs[4].Settled = false
	r.summarize()
	if r.Ratio != (Spread{2, 1, 3, 2}) {
		t.Errorf("ratio %+v, want median 2 of 1 and 3", r.Ratio)
	}
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "cairn: 1 runs do not count") || len(r.Notes) != 1 {
		t.Errorf("notes %q", notes)
	}
	r = &RowResult{Row: &Row{Name: "row"}, Runs: []*Run{run(0, 0, 10), run(0, 1, 10)}}
	r.Runs[1].Errors, r.Runs[1].FirstError, r.Runs[0].Nulls = 3, "ERR no", 2
	r.Runs[0].Offered, r.Runs[0].Seconds = 11, 100
	r.summarize()
	if notes := strings.Join(r.Notes, "\n"); r.Ratio.N != 0 || !strings.Contains(notes, `"ERR no"`) || !strings.Contains(notes, "not there") ||
		!strings.Contains(notes, "offered") {
		t.Errorf("ratio %+v, notes %q", r.Ratio, notes)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	row := &RowResult{Row: &Row{Name: "set-p1", Group: "hot", Data: "100b", Work: "set", Dist: Uniform, Pipeline: 1, Sync: EverySec, Peer: Volatile}}
	row.Runs = []*Run{
		{Side: 0, Ops: 10, Rate: 80_000, ServerMicros: 9, ClientMicros: 7, P99Ms: 2, P999Ms: 3, PeakBytes: 1 << 30, WrittenBytes: 300, PayloadBytes: 100, Settled: true},
		{Side: 1, Ops: 10, Rate: 100_000, ServerMicros: 7, ClientMicros: 7, P99Ms: 1, P999Ms: 1.5, PeakBytes: 1 << 27, Settled: true},
	}
	row.summarize()
	rep := &Report{
		Began: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), Took: time.Minute, Versions: map[string]string{"cairn": "1", "redis-server": "7"},
		Machine: machine{Kernel: "6.1", Processor: "one", Processors: 2, MemoryMB: 100, LoadAverage: "0"}, Options: "1 pair",
		Rows:    []*RowResult{row},
		Figures: []Figure{{Scenario: "restart", Name: "first reply", Unit: "s", Ours: []float64{0.5}, Other: []float64{2}, LessIsBetter: true}},
	}
	text, want := rep.Text(), `row     cairn/s  other/s  ratio  cairn us/op  other us/op  cpu ratio  client us/op  cairn p99 ms  other p99 ms  cairn p99.9  other p99.9
set-p1    80000   100000   0.80         9.00         7.00       1.29          7.00          2.00          1.00         3.00         1.50

scenario       figure  unit  cairn  other  ratio  note
restart   first reply     s    0.5      2   4.00
`
	if text != want {
		t.Errorf("table:\n%s\nwant:\n%s", text, want)
	}
	page := rep.Markdown()
	for _, part := range []string{
		"- redis-server 7\n", "2 processors (one), 100 MB, Linux 6.1", "1 pair; it took 1m0s", "| set-p1 | 1024 | 128 | 0 | 0 | 3.00 | - |",
		"| set-p1 | SET over a key that is there | 1 M keys, values of 100 bytes | uniform | 1 | everysec | none |", "(throughput-hot.svg)",
	} {
		if !strings.Contains(page, part) {
			t.Errorf("report.md lacks %q:\n%s", part, page)
		}
	}
}

// TestPicturesOfLittle: rows without latencies, with one, and with zeros are drawn, too.
func TestPicturesOfLittle(t *testing.T) {
	t.Parallel()
	for _, ms := range []float64{0, 1} {
		row := &RowResult{Row: &Row{Name: "row", Work: "get"}, Runs: []*Run{{Ops: 1, Curve: []Point{{50, ms}}}}}
		row.summarize()
		rep := &Report{Rows: []*RowResult{row}}
		if err := rep.draw(t.TempDir()); err != nil {
			t.Errorf("latency %v: %v", ms, err)
		}
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	o := Options{Pairs: -1, Scale: 1e9}
	o.applyDefaults()
	err := o.validate()
	if err == nil || !strings.Contains(err.Error(), "pairs: -1") || !strings.Contains(err.Error(), "scale: 1e+09") {
		t.Errorf("%v", err)
	}
	o = Options{}
	o.applyDefaults()
	if err := o.validate(); err != nil {
		t.Error(err)
	}
}
