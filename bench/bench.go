// Package bench compares cairn with another server on this machine, with the same client, in turns, and reports
// ratios.
//
// Shape. A Row is a workload on a data set. Both sides are started and filled once for all rows that share the data
// and the durability (a bed, side.go); each row is then measured A B A B..., and its figure is the median of the ratios
// of neighbouring runs (result.go). What a run is, from the warm-up to the server's last debt, is in measure.go. The client is a
// loop over sockets (load.go, loop.go, poll_linux.go) that writes commands from templates (workload.go, keys.go) and counts
// replies without parsing them (scan.go). A Scenario is a question that no row can ask: a restart, memory, a data set larger than
// memory (scenario_*.go). At the end there is a table, and a folder with report.md, results.json and pictures (report.go, plots.go).
//
// Units. Rates are operations per second, a command each. Latencies are milliseconds in reports and microseconds in
// histograms. Processor time is microseconds per operation, user and system, of all threads of the server. Sizes are
// bytes; MB is 2^20.
//
// Errors. Setup names the option, the program or the address. A row that fails is noted in the table, and
// the others go on; Compare returns an error at its end if any did.
//
// What the ratios mean. The client runs on the processors of the servers, and a server that uses two of them pays for it here. Noise
// of a row on a shared machine is easily 15 %: the spread beside each ratio shows it, and processor time per operation is steadier.
//
// Not here: flags, which are in cmd/cairn-bench; micro benchmarks, which are beside what they measure.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// Options says what to compare, and how long.
type Options struct {
	// Program is cairn with its leading arguments. Default: bin/cairn server.
	Program []string
	// Args are more directives for cairn. They win over those that rows set.
	Args []string
	// Budget is cairn's memory-budget. Default 1gb.
	Budget string
	// Peer is the other server with its leading arguments; it takes the flags of redis-server. Default: redis-server.
	Peer []string
	// PeerArgs are more directives for the other server.
	PeerArgs []string
	// PeerAddr is a server that runs already, host:port, instead. It must be empty, and is emptied again and again.
	PeerAddr string

	// Rows and Scenarios are patterns for Select and SelectScenarios.
	Rows      []string
	Scenarios []string
	Quick     bool // the rows marked so, and short: 2 s a side, 1 pair, unless Measure or Pairs say otherwise

	Pairs   int           // of runs for a row; default 5
	Measure time.Duration // a side is measured, at least; default 8 s
	// Sustained is how many operations a write run has at least. Default 2 million; 0 with Quick.
	Sustained int64
	Conns     int     // default 50
	Threads   int     // of the client; default 1
	Scale     float64 // of all data sets; default 1
	GB        float64 // of the data of scenarios that ask for it; default 1

	Dir string // data folders are made here; default the system's for temporary files
	Out string // folder of the report, created; default bench-results and the time

	Stdout, Stderr io.Writer // the table; progress
	Terminal       bool      // Stderr is one: progress is a line that changes
}

func (o *Options) applyDefaults() {
	if len(o.Program) == 0 {
		o.Program = []string{"bin/cairn", "server"}
	}
	if len(o.Peer) == 0 {
		o.Peer = []string{"redis-server"}
	}
	if o.Budget == "" {
		o.Budget = "1gb"
	}
	pairs, seconds, sustained := 5, 8*time.Second, int64(2_000_000)
	if o.Quick {
		pairs, seconds, sustained = 1, 2*time.Second, 0
	}
	if o.Pairs == 0 {
		o.Pairs = pairs
	}
	if o.Measure == 0 {
		o.Measure = seconds
	}
	if o.Sustained == 0 {
		o.Sustained = sustained
	}
	if o.Conns == 0 {
		o.Conns = 50
	}
	if o.Threads == 0 {
		o.Threads = 1
	}
	if o.Scale == 0 {
		o.Scale = 1
	}
	if o.GB == 0 {
		o.GB = 1
	}
	if o.Out == "" {
		o.Out = filepath.Join("bench-results", time.Now().Format("2006-01-02_150405"))
	}
	if o.Stdout == nil {
		o.Stdout = io.Discard
	}
	if o.Stderr == nil {
		o.Stderr = io.Discard
	}
}

const (
	maxConns   = 10_000
	maxPairs   = 1000
	maxThreads = 64
)

// validate reports all mistakes at once.
func (o *Options) validate() error {
	var faults []error
	within := func(name string, value, low, high float64) {
		if !(value >= low && value <= high) {
			faults = append(faults, fmt.Errorf("%s: %v is not in %v to %v", name, value, low, high))
		}
	}
	within("pairs", float64(o.Pairs), 1, maxPairs)
	within("time", o.Measure.Seconds(), 0.01, 24*3600)
	within("conns", float64(o.Conns), 1, maxConns)
	within("threads", float64(o.Threads), 1, maxThreads)
	within("scale", o.Scale, 1e-4, 1000)
	within("gb", o.GB, 1e-3, 10_000)
	return errors.Join(faults...)
}

// errFailed says that a row has no figure; the table says why.
var errFailed = errors.New("rows without a figure")

// Compare measures, prints the table and writes the report. When ctx ends first, what is done until then is reported, the
// servers end and their folders are removed.
func Compare(ctx context.Context, o Options) error {
	o.applyDefaults()
	if err := o.validate(); err != nil {
		return err
	}
	rows, scenarios, err := o.plan()
	if err != nil {
		return err
	}
	lab, err := newLab(ctx, &o)
	if err != nil {
		return err
	}
	defer lab.close()
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return fmt.Errorf("report folder: %w", err)
	}
	rep := &Report{Began: time.Now(), Machine: thisMachine(runtime.NumCPU()), Options: describe(&o)}
	lab.rows = len(rows)
	failed := 0
	for _, b := range byBed(rows) {
		failed += lab.measureBed(b, rep)
	}
	for _, s := range scenarios {
		failed += lab.runScenario(s, rep)
	}
	rep.Took = time.Since(rep.Began)
	rep.Interrupted = ctx.Err() != nil
	rep.Versions = lab.versions
	lab.close() // nothing measures any more, and pictures take their time
	lab.endProgress()
	if err := rep.write(o.Out); err != nil {
		return err
	}
	fmt.Fprint(o.Stdout, rep.Text())
	if err := rep.draw(o.Out); err != nil {
		return err
	}
	fmt.Fprintf(o.Stdout, "\nreport: %s\n", filepath.Join(o.Out, "report.md"))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case failed > 0:
		return fmt.Errorf("%w: %d", errFailed, failed)
	}
	return nil
}

// plan is what the options choose.
func (o *Options) plan() ([]Row, []Scenario, error) {
	if o.Quick && len(o.Rows) == 0 && len(o.Scenarios) == 0 {
		var rows []Row
		for _, r := range Rows() {
			if r.Quick {
				rows = append(rows, r)
			}
		}
		return rows, nil, nil
	}
	scenarios, err := SelectScenarios(Scenarios(), o.Scenarios)
	if err != nil || len(o.Rows) == 0 && len(scenarios) > 0 {
		return nil, scenarios, err
	}
	rows, err := Select(Rows(), o.Rows)
	return rows, scenarios, err
}

// describe is the line of the report that says how it was made.
func describe(o *Options) string {
	s := fmt.Sprintf("pairs: %d, each side at least %v; connections: %d; threads of the client: %d; memory-budget %s", o.Pairs, o.Measure, o.Conns, o.Threads, o.Budget)
	if o.Scale != 1 {
		s += fmt.Sprintf(", data sets times %g", o.Scale)
	}
	if len(o.Args) > 0 {
		s += fmt.Sprintf(", cairn with %q", o.Args)
	}
	if o.PeerAddr != "" {
		s += ", the other server ran already, with settings of its own"
	}
	if len(o.PeerArgs) > 0 {
		s += fmt.Sprintf(", the other server with %q", o.PeerArgs)
	}
	return s
}
