package bench

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"cairn/tools/node"
)

// A run, from its beginning to its end: the client warms up, processor time and bytes written are read, the client measures,
// and then cairn applies its log to the store. Processor time and bytes written are read again only after that, because
// what a server puts off is work all the same. Both servers are idle before the next run begins.

const (
	loadConns = 8
	loadDepth = 64
	warmPart  = 8 // of the time measured: an eighth before it
	calibrate = 3 * time.Second
)

// place is a bed with its servers.
type place struct {
	lab     *Lab
	bed     bed
	data    dataSet
	sides   [2]*Side           // cairn, the other
	seed    uint64             // of both runs of a pair
	highest map[string]float64 // closed-loop rate of a workload on cairn
}

// measureBed measures rows that share servers, adds them to the report and returns how many have no figure.
func (l *Lab) measureBed(rows []Row, rep *Report) (failed int) {
	var p *place
	err := l.ctx.Err()
	if err == nil {
		p, err = l.prepare(rows[0].bed())
	}
	if p != nil {
		defer p.remove()
	}
	for i := range rows {
		if i > 0 {
			l.done++
		}
		result := &RowResult{Row: &rows[i]}
		if err == nil {
			err = l.ctx.Err()
		}
		if err != nil {
			if l.ctx.Err() == nil {
				result.Notes = append(result.Notes, err.Error())
				rep.Rows = append(rep.Rows, result)
				failed++
			}
			continue
		}
		rowErr := p.measureRow(&rows[i], result)
		if rowErr != nil && l.ctx.Err() == nil {
			result.Notes = append(result.Notes, rowErr.Error())
			failed++
		}
		if len(result.Runs) > 0 || len(result.Notes) > 0 {
			result.summarize()
			rep.Rows = append(rep.Rows, result)
			l.say("%s", result.line())
		}
	}
	l.done++
	return failed
}

// prepare starts both servers and fills them.
func (l *Lab) prepare(b bed) (*place, error) {
	p := &place{lab: l, bed: b, data: dataSets()[b.data], highest: map[string]float64{}}
	p.data.keys = max(10, uint64(float64(p.data.keys)*l.opts.Scale))
	if p.data.fields == fieldsBig {
		p.data.keys = dataSets()[b.data].keys // fewer fields instead
		p.data.fields = max(hloadStep, uint64(fieldsBig*l.opts.Scale)/hloadStep*hloadStep)
		p.data.each = p.data.fields / hloadStep
	}
	var err error
	if p.sides[0], err = l.Cairn("--appendfsync", string(b.sync)); err != nil {
		return p, err
	}
	peer := []string{"--appendonly", "no"}
	if b.peer != Volatile {
		peer = []string{"--appendonly", "yes", "--appendfsync", string(b.peer)}
	}
	if p.sides[1], err = l.Peer(peer...); err != nil {
		return p, err
	}
	for _, s := range p.sides {
		if err := p.fill(s); err != nil {
			return p, err
		}
	}
	return p, l.quiet(p.sides[:]...)
}

func (p *place) remove() {
	for _, s := range p.sides {
		if s != nil {
			s.Remove()
		}
	}
}

// shape is what workloads are made for on this bed.
func (p *place) shape(r *Row, next *atomic.Uint64) Shape {
	return Shape{Keys: p.data.keys, Size: p.data.size, Fields: p.data.fields, Dist: r.Dist, Next: next}
}

// fill loads the data set into a server.
func (p *place) fill(s *Side) error {
	if err := s.empty(); err != nil {
		return err
	}
	if p.data.loader == "" {
		return nil
	}
	shape := p.shape(&Row{Dist: Uniform}, new(atomic.Uint64))
	return p.lab.fill(s, p.data.loader, shape, int64(p.data.keys*max(1, p.data.each)))
}

// fill sends count commands of a workload that makes data, and waits until the server has dealt with them.
func (l *Lab) fill(s *Side, work string, shape Shape, count int64) error {
	w := workloads()[work]
	load := Load{
		Addr: s.Addr, Conns: loadConns, Pipeline: loadDepth, Threads: 1, Seed: 1, Count: count,
		Source:   func(rng *rand.Rand) Source { return w.source(shape, rng) },
		Progress: func(n int64) { l.progress("%s: loading: %d of %d commands", s.Name, n, count) },
	}
	out, err := load.Run(l.ctx)
	if err != nil {
		return fmt.Errorf("%s: load: %w", s.Name, err)
	}
	if out.Errors > 0 {
		return fmt.Errorf("%s: load: %d of %d commands failed: %s", s.Name, out.Errors, count, out.FirstError)
	}
	_, err = l.settle(s, readyLimit)
	return err
}

// measureRow measures a row, pair after pair.
func (p *place) measureRow(r *Row, result *RowResult) error {
	rate, err := p.offered(r)
	if err != nil {
		return err
	}
	turns := 2 * p.lab.opts.Pairs
	for turn := range turns {
		s := p.sides[turn%2]
		if turn%2 == 0 {
			p.seed = p.lab.nextSeed()
		}
		what := fmt.Sprintf("%s: %s, turn %d of %d, %s", p.lab.left(), r.Name, turn+1, turns, s.Name)
		p.lab.progress("%s", what)
		run, err := p.run(r, s, rate, what)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		run.Pair, run.Side = turn/2, turn%2
		result.Runs = append(result.Runs, run)
		if err := p.lab.quiet(p.sides[:]...); err != nil {
			return err
		}
	}
	return nil
}

// offered is the rate of an open row: a part of the highest that cairn reaches in a closed loop.
func (p *place) offered(r *Row) (float64, error) {
	if r.Share == 0 {
		return 0, nil
	}
	if p.highest[r.Work] == 0 {
		p.lab.progress("%s: the highest rate of %s", ours, r.Work)
		closed := *r
		closed.Share = 0
		l := p.load(&closed, p.sides[0], 0)
		l.Measure, l.AtLeast = min(calibrate, p.lab.opts.Measure), 0
		out, err := l.Run(p.lab.ctx)
		if err != nil {
			return 0, err
		}
		p.highest[r.Work] = out.Rate()
		if err := p.lab.quiet(p.sides[:]...); err != nil {
			return 0, err
		}
	}
	return p.highest[r.Work] * r.Share, nil
}

// load is the load of one run.
func (p *place) load(r *Row, s *Side, rate float64) Load {
	o, w := p.lab.opts, workloads()[r.Work]
	next := &s.made // so that what rows insert goes on being new
	if p.data.loader == "" {
		next = new(atomic.Uint64)
	}
	l := Load{
		Addr: s.Addr, Conns: o.Conns, Pipeline: r.Pipeline, Threads: o.Threads, Seed: p.seed, Rate: rate,
		Source: func(rng *rand.Rand) Source { return w.source(p.shape(r, next), rng) },
	}
	if p.data.loader == "" {
		l.Count = int64(p.data.keys)
		return l
	}
	l.Measure = o.Measure
	if r.Longer > 0 {
		l.Measure = time.Duration(float64(o.Measure) * r.Longer)
	}
	l.Warmup = l.Measure / warmPart
	if l.Warmup > time.Second {
		l.Warmup = time.Second
	}
	if w.writes && rate == 0 {
		l.AtLeast = o.Sustained
	}
	return l
}

// run measures one side once.
func (p *place) run(r *Row, s *Side, rate float64, what string) (*Run, error) {
	if p.data.loader == "" {
		if err := s.empty(); err != nil {
			return nil, err
		}
		if _, err := p.lab.settle(s, time.Minute); err != nil {
			return nil, err
		}
		if err := p.lab.quiet(s); err != nil {
			return nil, err
		}
	}
	w := workloads()[r.Work]
	run := &Run{Started: time.Now(), Offered: rate}
	m := meter{side: s}
	m.resetPeak()
	var ops int64
	if r.Tool {
		m.begin()
		var err error
		if ops, err = p.runTool(r, s, run); err != nil {
			return nil, err
		}
	} else {
		l := p.load(r, s, rate)
		l.Began = m.begin
		began := time.Now()
		l.Progress = func(n int64) { p.lab.progress("%s: %.0f/s", what, float64(n)/time.Since(began).Seconds()) }
		out, err := l.Run(p.lab.ctx)
		if err != nil {
			return nil, err
		}
		ops = out.Ops
		run.take(out)
	}
	client, err := m.clientTime()
	if err != nil {
		return nil, err
	}
	run.ClientMicros = perOp(client, ops)
	if err := p.lab.finishWrites(w, s, run, &m, ops); err != nil {
		return nil, err
	}
	run.PayloadBytes = int64(float64(ops) * w.payload(p.shape(r, nil)))
	return run, nil
}

// finishWrites waits for what the server has put off, says in the run whether it came in time, and adds what all of it has cost.
func (l *Lab) finishWrites(w workload, s *Side, run *Run, m *meter, ops int64) error {
	run.Settled = true
	if w.writes {
		took, err := l.settle(s, settleLimit)
		run.SettleMs = milliseconds(took)
		if err != nil && l.ctx.Err() == nil {
			run.Settled = false
			run.Note = err.Error()
			_, err = l.settle(s, readyLimit)
		}
		if err != nil {
			return err
		}
	}
	return m.end(run, ops)
}

// meter reads what a run costs.
type meter struct {
	side   *Side
	server usage // when measuring began
	client usage
	err    error
}

// resetPeak lets the memory's highest point be that of the run. Where the kernel has no such thing, it is that of the process.
func (m *meter) resetPeak() {
	if pid := m.side.pid(); pid != 0 {
		_ = node.ResetPeak(pid)
	}
}

func (m *meter) begin() {
	if pid := m.side.pid(); pid != 0 {
		m.server, m.err = processUsage(pid)
	}
	if m.err == nil {
		m.client, m.err = processUsage(os.Getpid())
	}
}

func (m *meter) clientTime() (time.Duration, error) {
	if m.err != nil {
		return 0, m.err
	}
	u, err := processUsage(os.Getpid())
	return u.sub(m.client).cpu, err
}

// end writes the server's costs into the run.
func (m *meter) end(run *Run, ops int64) error {
	pid := m.side.pid()
	if pid == 0 {
		return nil
	}
	u, err := processUsage(pid)
	if err != nil {
		return err
	}
	used := u.sub(m.server)
	run.ServerMicros, run.WrittenBytes = perOp(used.cpu, ops), used.written
	if run.PeakBytes, err = node.Peak(pid); err != nil {
		return err
	}
	run.DiskBytes, err = node.FolderBytes(m.side.proc.Dir)
	return err
}

func perOp(d time.Duration, ops int64) float64 {
	if ops == 0 {
		return 0
	}
	return float64(d.Nanoseconds()) / 1000 / float64(ops)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
