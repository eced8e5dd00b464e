package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// What clients notice of somebody else who does something large. They SET values of a kilobyte at half of cairn's highest rate, with
// latencies from the arrival, while the other one goes on and on.

// neighbour does something large until ctx ends, which is no error. It says when it has begun.
type neighbour struct {
	name string
	do   func(ctx context.Context, l *Lab, s *Side, begun func()) error
}

func neighbours() []neighbour {
	return []neighbour{
		{"nobody", func(context.Context, *Lab, *Side, func()) error { return nil }},
		{"SCAN of all keys", scanAll},
		{"somebody who writes to the disk", writeToDisk},
		{"replicas that attach", attachReplicas},
		{"full syncs of replicas", syncReplicas},
	}
}

func beside(l *Lab) (figures []Figure, err error) {
	keys := l.scenarioKeys()
	if err := l.wantFree(2 * int64(keys) * scenarioValue * diskFactor); err != nil {
		return nil, err
	}
	a, err := l.Cairn("--cluster-enabled", "no")
	if err != nil {
		return nil, err
	}
	b, err := l.Peer(disklessPeer()...)
	if err != nil {
		return nil, err
	}
	for _, s := range []*Side{a, b} {
		if err := l.fillStrings(s, keys); err != nil {
			return nil, err
		}
	}
	shape := Shape{Keys: keys, Size: scenarioValue, Dist: Uniform}
	highest, err := l.openLoop(a, "set", shape, 0, min(calibrate, l.opts.Measure))
	if err != nil {
		return nil, err
	}
	rate := highest.Rate() / 2
	for _, who := range neighbours() {
		three := tailFigures(fmt.Sprintf("beside %s: ", who.name), fmt.Sprintf("SET of 1 KB at %.0f/s for %v, %d keys", rate, 2*l.opts.Measure, keys))
		for n := range l.opts.Pairs {
			for i, s := range []*Side{a, b} {
				l.progress("beside %s: %s, %d of %d", who.name, s.Name, n+1, l.opts.Pairs)
				if err := l.quiet(a, b); err != nil {
					return figures, err
				}
				out, err := l.besideOne(s, who, shape, rate)
				if err != nil {
					return figures, fmt.Errorf("%s beside %s: %w", s.Name, who.name, err)
				}
				addTails(three, i, out)
			}
		}
		figures = append(figures, three...)
	}
	return figures, nil
}

// besideOne measures while the neighbour is busy.
func (l *Lab) besideOne(s *Side, who neighbour, shape Shape, rate float64) (*Outcome, error) {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	begun, fault := make(chan struct{}), make(chan error, 1)
	begin := sync.OnceFunc(func() { close(begun) })
	go func() { // ends with ctx, and is waited for; nobody else uses the lab meanwhile
		err := who.do(ctx, l, s, begin)
		begin()
		fault <- err
	}()
	<-begun
	out, err := l.openLoop(s, "set", shape, rate, 2*l.opts.Measure)
	cancel()
	return out, errors.Join(err, <-fault)
}

// scanAll reads all names, over and over, a thousand at a time.
func scanAll(ctx context.Context, _ *Lab, s *Side, begun func()) error {
	conn, err := s.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	begun()
	for cursor := "0"; ctx.Err() == nil; {
		reply, err := conn.Do("SCAN", cursor, "COUNT", "1000")
		if err != nil {
			return err
		}
		if text := reply.Err(); text != "" || len(reply.Elems) != 2 {
			return fmt.Errorf("SCAN: %q, %d elements, want 2", text, len(reply.Elems))
		}
		cursor = string(reply.Elems[0].Str)
	}
	return nil
}

// syncReplicas lets one empty replica after the other become a copy.
func syncReplicas(ctx context.Context, l *Lab, primary *Side, begun func()) error {
	begun()
	for ctx.Err() == nil {
		replica, err := l.replicaOf(ctx, primary)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if replica != nil {
			replica.Remove()
		}
	}
	return nil
}

// replicaOf starts a replica of the same program and waits until it is a copy. What was started comes with an error, too.
func (l *Lab) replicaOf(ctx context.Context, primary *Side) (replica *Side, err error) {
	switch {
	case primary.proc == nil:
		return nil, errors.New("replicas need a server that was started here")
	case primary.owes:
		replica, err = l.Cairn("--cluster-enabled", "no")
	default:
		replica, err = l.Peer(disklessPeer()...)
	}
	if err != nil {
		return nil, err
	}
	return replica, l.linked(ctx, replica, primary)
}

// attachReplicas has a replica that is a copy lose its link and go on where it was, again and again.
func attachReplicas(ctx context.Context, l *Lab, primary *Side, begun func()) error {
	replica, err := l.replicaOf(l.ctx, primary) // before the measurement
	if replica != nil {
		defer replica.Remove()
	}
	if err != nil {
		return err
	}
	conn, err := primary.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	begun()
	for ctx.Err() == nil {
		if _, err := conn.Int("CLIENT", "KILL", "TYPE", "replica"); err != nil {
			return err
		}
		if err := l.relinked(ctx, replica); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// writeToDisk keeps the disk busy with writes that are none of the server's.
func writeToDisk(ctx context.Context, l *Lab, _ *Side, begun func()) error {
	begun()
	return diskWrites(ctx, l.dir)
}

// tailFigures are those of a latency: p99, p99.9 and the longest gap.
func tailFigures(what, note string) []Figure {
	return []Figure{
		{Name: what + "p99", Unit: "ms", LessIsBetter: true, Note: note},
		{Name: what + "p99.9", Unit: "ms", LessIsBetter: true},
		{Name: what + "longest gap", Unit: "ms", LessIsBetter: true},
	}
}

// addTails adds a run of one side to them.
func addTails(figures []Figure, side int, out *Outcome) {
	values := []time.Duration{
		time.Duration(out.Latency.ValueAtPercentile(99)) * time.Microsecond,
		time.Duration(out.Latency.ValueAtPercentile(99.9)) * time.Microsecond,
		out.LongestGap,
	}
	for i, v := range values {
		figures[i].add(side, milliseconds(v))
	}
}
