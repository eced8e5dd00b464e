package bench

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"cairn/tools/node"
)

// memory takes the peak of a node's memory under load at several budgets, and how memory grows with the number of keys.
func memory(l *Lab) (figures []Figure, err error) {
	million := uint64(1_000_000 * l.opts.Scale)
	for _, budget := range []string{"64mb", "128mb", "256mb"} {
		peak, _, err := l.peakUnderLoad(budget, million)
		if err != nil {
			return figures, err
		}
		figures = append(figures, Figure{
			Name: fmt.Sprintf("peak with memory-budget %s, %.3g M keys of 100 bytes", budget, float64(million)/1e6), Unit: "MB",
			Ours: []float64{peak}, LessIsBetter: true, Note: "load, GET and SET, pipelines of 16",
		})
	}
	const bigger = 5
	var ours, other [2]float64
	for i, keys := range []uint64{million, bigger * million} {
		if _, ours[i], err = l.peakUnderLoad("128mb", keys); err != nil {
			return figures, err
		}
		if l.opts.PeerAddr != "" {
			continue
		}
		s, err := l.Peer("--appendonly", "no")
		if err != nil {
			return figures, err
		}
		_, other[i], err = l.loadAndMeasure(s, keys)
		s.Remove()
		if err != nil {
			return figures, err
		}
	}
	perMillion := func(rss [2]float64) []float64 { return []float64{(rss[1] - rss[0]) / (bigger - 1) / l.opts.Scale} }
	grows := Figure{
		Name: "memory for each further million keys of 100 bytes", Unit: "MB", Ours: perMillion(ours), LessIsBetter: true,
		Note: fmt.Sprintf("memory-budget 128mb; from %.3g to %.3g M keys", float64(million)/1e6, bigger*float64(million)/1e6),
	}
	if other[1] > 0 {
		grows.Other = perMillion(other)
	}
	return append(figures, grows), nil
}

// peakUnderLoad returns MB of a node with that budget: the highest while it is loaded and used, and what it has in the end.
func (l *Lab) peakUnderLoad(budget string, keys uint64) (peak, end float64, err error) {
	s, err := l.Cairn("--memory-budget", budget)
	if err != nil {
		return 0, 0, err
	}
	defer s.Remove()
	return l.loadAndMeasure(s, keys)
}

func (l *Lab) loadAndMeasure(s *Side, keys uint64) (peak, end float64, err error) {
	shape := Shape{Keys: keys, Size: 100, Dist: Uniform, Next: new(atomic.Uint64)}
	if err := l.fill(s, "load", shape, int64(keys)); err != nil {
		return 0, 0, err
	}
	for _, work := range []string{"get", "set"} {
		l.progress("%s: %s of %d keys", s.Name, work, keys)
		load := Load{
			Addr: s.Addr, Conns: l.opts.Conns, Pipeline: 16, Threads: l.opts.Threads, Seed: 1, Measure: l.opts.Measure,
			Source: func(rng *rand.Rand) Source { return workloads()[work].source(shape, rng) },
		}
		if _, err := load.Run(l.ctx); err != nil {
			return 0, 0, err
		}
	}
	top, err := node.Peak(s.pid())
	if err != nil {
		return 0, 0, err
	}
	now, err := node.RSS(s.pid())
	return float64(top) / (1 << 20), float64(now) / (1 << 20), err
}
