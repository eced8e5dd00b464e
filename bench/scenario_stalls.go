package bench

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Does anybody notice what a server does in the background? Clients arrive at half of cairn's highest rate, one command each, and
// latencies count from the arrival.

// stallsCompaction overwrites values of a kilobyte, so that tables are compacted all the time.
func stallsCompaction(l *Lab) ([]Figure, error) {
	keys := l.scenarioKeys()
	return l.stalls("overwriting", func(s *Side, rate float64, length time.Duration) (*Outcome, error) {
		shape := Shape{Keys: keys, Size: scenarioValue, Dist: Uniform}
		return l.openLoop(s, "set", shape, rate, length)
	}, func(s *Side) error { return l.fillStrings(s, keys) })
}

// stallsExpiry asks for keys of a kilobyte while others, a hundred bytes each, expire all the time.
func stallsExpiry(l *Lab) ([]Figure, error) {
	const perSecond = 20_000
	keys := min(l.scenarioKeys(), 100_000)
	return l.stalls(fmt.Sprintf("%d keys expire a second,", perSecond), func(s *Side, rate float64, length time.Duration) (*Outcome, error) {
		mortal := Shape{Keys: uint64(perSecond * length.Seconds()), Size: 100, Next: new(atomic.Uint64), Lifetime: length}
		if rate > 0 {
			if err := l.fill(s, "mortal", mortal, int64(mortal.Keys)); err != nil {
				return nil, err
			}
		}
		return l.openLoop(s, "set", Shape{Keys: keys, Size: scenarioValue, Dist: Uniform}, rate, length)
	}, func(s *Side) error { return l.fillStrings(s, keys) })
}

// stalls runs a load on both sides in turns. run with rate 0 is a closed loop.
func (l *Lab) stalls(what string, run func(s *Side, rate float64, length time.Duration) (*Outcome, error), prepare func(s *Side) error) ([]Figure, error) {
	a, err := l.Cairn()
	if err != nil {
		return nil, err
	}
	b, err := l.Peer("--appendonly", "no")
	if err != nil {
		return nil, err
	}
	for _, s := range []*Side{a, b} {
		if err := prepare(s); err != nil {
			return nil, err
		}
	}
	highest, err := run(a, 0, min(calibrate, l.opts.Measure))
	if err != nil {
		return nil, err
	}
	rate := highest.Rate() / 2
	note := fmt.Sprintf("%s SET of 1 KB at %.0f/s, %v", what, rate, 4*l.opts.Measure)
	figures := tailFigures(what+" ", note)
	for n := range l.opts.Pairs {
		for i, s := range []*Side{a, b} {
			l.progress("%s: %s, %d of %d", what, s.Name, n+1, l.opts.Pairs)
			if err := l.quiet(a, b); err != nil {
				return figures, err
			}
			out, err := run(s, rate, 4*l.opts.Measure)
			if err != nil {
				return figures, fmt.Errorf("%s: %w", s.Name, err)
			}
			addTails(figures, i, out)
		}
	}
	return figures, nil
}

// openLoop runs a workload with single commands at a rate, or as fast as they go for rate 0, and wants no error.
func (l *Lab) openLoop(s *Side, work string, shape Shape, rate float64, length time.Duration) (*Outcome, error) {
	w := workloads()[work]
	load := Load{
		Addr: s.Addr, Conns: l.opts.Conns, Pipeline: 1, Threads: l.opts.Threads, Seed: l.nextSeed(), Rate: rate,
		Warmup: length / warmPart, Measure: length,
		Source: func(rng *rand.Rand) Source { return w.source(shape, rng) },
	}
	out, err := load.Run(l.ctx)
	if err == nil && out.Errors > 0 {
		err = fmt.Errorf("%d of %d commands failed: %s", out.Errors, out.Ops, out.FirstError)
	}
	return out, err
}
