package bench

import (
	"fmt"
	"path"
	"time"
)

// Scenario is a question that no row asks: it starts servers of its own, and brings figures of its own kinds.
type Scenario struct {
	Name, Help string
	// Run measures. What it has when an error ends it is reported, too.
	Run func(l *Lab) ([]Figure, error)
}

// Figure is one figure of a scenario, of both sides where both have it.
type Figure struct {
	Scenario string    `json:"scenario"`
	Name     string    `json:"name"`
	Unit     string    `json:"unit"`
	Ours     []float64 `json:"cairn"`           // one value for each time it was measured
	Other    []float64 `json:"other,omitempty"` // none: it is not asked of the other side
	// LessIsBetter turns the ratio round, so that above 1 is always better than the other side.
	LessIsBetter bool   `json:"less_is_better"`
	Note         string `json:"note,omitempty"`
}

// add appends a value of a side, 0 for cairn.
func (f *Figure) add(side int, v float64) {
	if side == 0 {
		f.Ours = append(f.Ours, v)
	} else {
		f.Other = append(f.Other, v)
	}
}

// Ratio is the spread of pairwise ratios, above 1 where cairn does better.
func (f *Figure) Ratio() Spread {
	var ratios []float64
	for i := range min(len(f.Ours), len(f.Other)) {
		a, b := f.Ours[i], f.Other[i]
		if f.LessIsBetter {
			a, b = b, a
		}
		if b != 0 {
			ratios = append(ratios, a/b)
		}
	}
	return spreadOf(ratios)
}

// Scenarios returns all of them.
func Scenarios() []Scenario {
	return []Scenario{
		{"restart", "time to the first right reply after kill -9, with --gb of data", restart},
		{"fullsync", "time in which an empty replica gets --gb of data", fullSync},
		{"lag", "how far behind a replica is while values are overwritten as fast as they can be, data four times its memory", lag},
		{"failover", "time without writes after kill -9 of a primary", failover},
		{"reshard", "how fast redis-cli moves a thousand slots full of keys", reshard},
		{"memory", "peak memory at several budgets, and memory for each further million keys", memory},
		{"stalls-compaction", "tails of latency and longest gap while values are overwritten", stallsCompaction},
		{"stalls-expiry", "the same while many keys expire", stallsExpiry},
		{"beside", "tails of latency beside a scan, a busy disk, replicas that attach, full syncs", beside},
		{"larger-4x", "a node held to a quarter of --gb of memory, and four times that of data", larger(4)},
		{"larger-10x", "the same with ten times the memory", larger(10)},
	}
}

// SelectScenarios returns those that the patterns name: names, globs, "all". No pattern is none of them.
func SelectScenarios(all []Scenario, patterns []string) ([]Scenario, error) {
	var picked []Scenario
	taken := map[string]bool{}
	for _, pattern := range patterns {
		found := false
		for _, s := range all {
			same, err := path.Match(pattern, s.Name)
			if err != nil {
				return nil, fmt.Errorf("scenarios: %q: %w", pattern, err)
			}
			if !same && pattern != "all" {
				continue
			}
			found = true
			if !taken[s.Name] {
				taken[s.Name] = true
				picked = append(picked, s)
			}
		}
		if !found {
			return nil, fmt.Errorf("scenarios: %q names none; --list shows them", pattern)
		}
	}
	return picked, nil
}

// runScenario runs one and adds its figures to the report. Its servers end with it.
func (l *Lab) runScenario(s Scenario, rep *Report) (failed int) {
	if l.ctx.Err() != nil {
		return 0
	}
	own := &Lab{ctx: l.ctx, opts: l.opts, dir: l.dir, versions: l.versions, serial: l.serial, seed: l.seed, mine: l.mine}
	began := time.Now()
	figures, err := s.Run(own)
	own.close()
	own.endProgress()
	l.serial, l.seed, l.mine = own.serial, own.seed, own.mine
	for i := range figures {
		figures[i].Scenario = s.Name
	}
	rep.Figures = append(rep.Figures, figures...)
	for _, f := range figures {
		l.say("%s", f.line())
	}
	if err != nil && l.ctx.Err() == nil {
		rep.Faults = append(rep.Faults, fmt.Sprintf("%s: %v", s.Name, err))
		l.say("%s: %v", s.Name, err)
		return 1
	}
	l.say("%s took %v", s.Name, time.Since(began).Round(time.Second))
	return 0
}

func (f *Figure) line() string {
	s := fmt.Sprintf("%s: %s: %.4g %s", f.Scenario, f.Name, median(f.Ours), f.Unit)
	if len(f.Other) > 0 {
		s += fmt.Sprintf(", the other %.4g, ratio %s", median(f.Other), f.Ratio())
	}
	if f.Note != "" {
		s += " (" + f.Note + ")"
	}
	return s
}
