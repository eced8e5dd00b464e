package bench

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"cairn/tools/node"
)

// Data larger than memory. The node is held to a quarter of --gb, and to no less than 128 MB, and has four times and ten times that. Half of what it may use is its
// memory-budget, the rest is page cache. The other server keeps everything in memory, without a limit: the ratio says what somebody
// loses who buys disk instead. Beside it stands what the disk itself gives at the same depth.

// larger is the scenario of one size: so many times the memory.
func larger(times float64) func(l *Lab) ([]Figure, error) {
	return func(l *Lab) ([]Figure, error) {
		limit := l.memoryLimit()
		keys := max(100, uint64(times*float64(limit)/scenarioValue))
		r := &largerRun{lab: l, keys: keys, what: fmt.Sprintf("data %.0f x memory: ", times)}
		defer r.close()
		if err := r.start(limit); err != nil {
			return nil, err
		}
		return r.figures, r.measure()
	}
}

// leastMemory is twice the smallest memory-budget.
const leastMemory = 128 << 20

// memoryLimit is what a node is held to.
func (l *Lab) memoryLimit() int64 { return max(leastMemory, int64(l.opts.GB*gigabyte/4)) }

type largerRun struct {
	lab     *Lab
	keys    uint64
	what    string
	fence   *fence
	node    *Side
	other   *Side // nil when there is none
	figures []Figure
}

// start starts the node, holds it to the limit, and fills both servers.
func (r *largerRun) start(limit int64) (err error) {
	l := r.lab
	if err := l.wantFree(int64(r.keys) * scenarioValue * diskFactor); err != nil {
		return err
	}
	// The log would be kept for replicas; here it only takes disk.
	if r.node, err = l.Cairn("--memory-budget", strconv.FormatInt(limit/2, 10), "--repl-backlog-size", "32mb"); err != nil {
		return err
	}
	r.fence = newFence("larger", limit)
	if err := r.fence.add(r.node.pid()); err != nil {
		return err
	}
	if err := l.fillStrings(r.node, r.keys); err != nil {
		return err
	}
	if r.other, err = l.Peer("--appendonly", "no"); err != nil {
		return err
	}
	if err := l.fillStrings(r.other, r.keys); err != nil {
		return err
	}
	if r.fence.dir == "" {
		if err := dropCaches(); err != nil {
			return err
		}
	}
	l.progress("%swaiting until what the load has left to do is done", r.what)
	return l.quietFor(loadDebtLimit, r.node, r.other)
}

// loadDebtLimit is how long a node may compact what it was filled with. Longer than that would be what it always does.
const loadDebtLimit = 3 * time.Minute

func (r *largerRun) close() {
	for _, s := range []*Side{r.node, r.other} {
		if s != nil {
			s.Remove()
		}
	}
	if r.fence != nil {
		r.fence.remove()
	}
}

func (r *largerRun) measure() error {
	l := r.lab
	disk, err := diskReads(l.ctx, filepath.Join(r.node.proc.Dir, ours, "store"), l.opts.Conns, min(l.opts.Measure, calibrate))
	if err != nil {
		return err
	}
	r.figures = append(r.figures, Figure{
		Name: fmt.Sprintf("%sthe disk's own random reads of 4 KiB, %d at once", r.what, l.opts.Conns), Unit: "1/s", Ours: []float64{disk}, Note: r.fence.Label,
	})
	parts := Figure{Name: r.what + "uniform GET as a part of the disk's reads", Unit: "", Ours: nil}
	for _, one := range []struct {
		name, work string
		dist       Dist
	}{
		{"uniform GET", "get", Uniform}, {"Zipf GET", "get", Zipf}, {"uniform SET", "set", Uniform}, {"Zipf SET", "set", Zipf},
	} {
		rates, written, err := r.workload(one.name, one.work, one.dist)
		if err != nil {
			return err
		}
		r.figures = append(r.figures, rates)
		if one.work == "get" && one.dist == Uniform {
			for _, rate := range rates.Ours {
				parts.Ours = append(parts.Ours, rate/disk)
			}
			r.figures = append(r.figures, parts)
		}
		if one.work == "set" {
			r.figures = append(r.figures, written)
		}
	}
	peak, err := node.Peak(r.node.pid())
	r.figures = append(r.figures, Figure{Name: r.what + "peak memory", Unit: "MB", Ours: []float64{float64(peak) / (1 << 20)}, LessIsBetter: true, Note: r.fence.Label})
	return err
}

// workload measures both sides in turns, single commands on all connections.
func (r *largerRun) workload(name, work string, dist Dist) (rates, written Figure, err error) {
	l := r.lab
	rates = Figure{Name: r.what + name + " of 1 KB", Unit: "1/s", Note: "the other has all in memory"}
	written = Figure{Name: r.what + name + ", bytes written for each byte of payload", Unit: "", LessIsBetter: true}
	shape := Shape{Keys: r.keys, Size: scenarioValue, Dist: dist, Next: new(atomic.Uint64)}
	w := workloads()[work]
	for n := range l.opts.Pairs {
		for i, s := range []*Side{r.node, r.other} {
			if err := l.quiet(r.node, r.other); err != nil {
				return rates, written, err
			}
			l.progress("%s%s: %s, %d of %d", r.what, name, s.Name, n+1, l.opts.Pairs)
			m := meter{side: s}
			load := Load{
				Addr: s.Addr, Conns: l.opts.Conns, Pipeline: 1, Threads: l.opts.Threads, Seed: l.nextSeed(),
				Warmup: l.opts.Measure / warmPart, Measure: l.opts.Measure, Began: m.begin,
				Source: func(rng *rand.Rand) Source { return w.source(shape, rng) },
			}
			out, err := load.Run(l.ctx)
			if err != nil {
				return rates, written, fmt.Errorf("%s: %w", s.Name, err)
			}
			if out.Errors > 0 || out.Nulls > 0 {
				return rates, written, fmt.Errorf("%s: %s: %d errors such as %q, %d keys missing", s.Name, name, out.Errors, out.FirstError, out.Nulls)
			}
			if i == 1 {
				rates.Other = append(rates.Other, out.Rate())
				continue
			}
			rates.Ours = append(rates.Ours, out.Rate())
			if w.writes {
				run := &Run{}
				if err := r.lab.finishWrites(w, s, run, &m, out.Ops); err != nil {
					return rates, written, err
				}
				written.Ours = append(written.Ours, float64(run.WrittenBytes)/(float64(out.Ops)*w.payload(shape)))
			}
		}
	}
	return rates, written, nil
}
