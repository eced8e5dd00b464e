package main

import (
	"errors"
	"fmt"
	"time"

	"cairn/tools/node"
)

// interrupted is a cluster between whose nodes slots move, under load, each time with an accident.
type interrupted struct {
	*moveLab
	load   *load
	length time.Duration // of a move without one
	ended  int           // moves that were over before the accident
	moved  int           // moves that reached their end in spite of it
	rounds int
}

// interrupt starts the cluster, fills it, and moves the slots there and back once.
func (l *moveLab) interrupt(wait bool) (*interrupted, error) {
	if err := l.start("nodes", l.command, l.directives); err != nil {
		return nil, err
	}
	s := &interrupted{moveLab: l, load: newLoad(l.cluster, newItems(l.tags, l.keys), wait)}
	if err := s.load.fill(); err != nil {
		return s, err
	}
	for range 2 {
		began := time.Now()
		s.load.begin()
		tool, _, _, err := l.startMove()
		if err == nil {
			err = tool.Wait(toolLimit)
		}
		s.length = time.Since(began)
		if err := errors.Join(err, s.load.end(), s.settled()); err != nil {
			return s, fmt.Errorf("a move without an accident: %w", err)
		}
	}
	l.say("a move of %d slots and %d keys under load takes %v", l.slots, l.keys, s.length.Round(time.Millisecond))
	return s, nil
}

// settled looks at everything, while nobody writes.
func (s *interrupted) settled() error {
	if err := s.sound(s.keys); err != nil {
		return err
	}
	return s.load.verify()
}

// round is a move with an accident at some moment, and what brings all back: "redis-cli --cluster fix", once.
func (s *interrupted) round(name string, accident func(tool *node.Tool, from, to *node.Member) error) error {
	s.rounds++
	s.load.begin()
	tool, from, to, err := s.startMove()
	if err != nil {
		return err
	}
	defer tool.Kill()
	after := sometime(s.length)
	if err := s.wait(after, tool.Done()); err != nil {
		return err
	}
	over := false
	select {
	case <-tool.Done():
		over = true
		s.ended++
	default:
	}
	if err := accident(tool, from, to); err != nil {
		return err
	}
	failed := tool.Wait(toolLimit)
	if failed == nil && !over {
		s.moved++
	}
	if err := s.calm(); err != nil {
		return fmt.Errorf("%s to %s, %v after the start, before the fix: %w", from.Name, to.Name, after, err)
	}
	fixed, err := node.RunTool(toolLimit, "fix", to.Addr)
	if err = errors.Join(err, s.load.end()); err == nil {
		err = s.settled()
	}
	if err != nil {
		return fmt.Errorf("%s to %s, %v after the start: %w\nthe tool said: %v\nthe fix said:\n%s", from.Name, to.Name, after, err, failed, tail(fixed))
	}
	s.say("%-12s %s to %s, %v after the start: all is well; %d writes acknowledged so far", name, from.Name, to.Name, after.Round(time.Millisecond), s.load.acked())
	return s.ctx.Err()
}

func tail(text string) string { return text[max(0, len(text)-3<<10):] }

// accident is a kind of it.
type accident struct {
	name string
	run  func(s *interrupted, tool *node.Tool, from, to *node.Member) error
}

// kills is the scene of that name.
func (l *moveLab) kills() error {
	return l.accidents(false, []accident{
		{"source", func(s *interrupted, _ *node.Tool, from, _ *node.Member) error { return s.killAndRestart(from) }},
		{"target", func(s *interrupted, _ *node.Tool, _, to *node.Member) error { return s.killAndRestart(to) }},
		{"tool", func(_ *interrupted, tool *node.Tool, _, _ *node.Member) error { tool.Kill(); return nil }},
		{"both", func(s *interrupted, _ *node.Tool, from, to *node.Member) error { return s.killAndRestart(from, to) }},
	})
}

// failovers is the scene of that name.
func (l *moveLab) failovers() error {
	return l.accidents(true, []accident{
		{"kill-source", func(s *interrupted, tool *node.Tool, from, _ *node.Member) error { return s.killAndReplace(tool, from) }},
		{"kill-target", func(s *interrupted, tool *node.Tool, _, to *node.Member) error { return s.killAndReplace(tool, to) }},
		{"ask-source", func(s *interrupted, _ *node.Tool, from, _ *node.Member) error { return s.handOver(from) }},
		{"ask-target", func(s *interrupted, _ *node.Tool, _, to *node.Member) error { return s.handOver(to) }},
	})
}

func (l *moveLab) accidents(wait bool, all []accident) error {
	known := l.victim == ""
	for _, a := range all {
		known = known || a.name == l.victim
	}
	if !known {
		return fmt.Errorf("victim %q: there is none of that name", l.victim)
	}
	s, err := l.interrupt(wait)
	if s != nil {
		defer s.load.close()
	}
	if err != nil {
		return err
	}
	for n := range l.moveOptions.rounds {
		for _, a := range all {
			if l.victim != "" && l.victim != a.name {
				continue
			}
			err := s.round(a.name, func(tool *node.Tool, from, to *node.Member) error { return a.run(s, tool, from, to) })
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", n+1, a.name, err)
			}
		}
	}
	l.say("%d accidents; %d came after the end of the move, %d moves went on to their end all the same", s.rounds, s.ended, s.moved)
	return nil
}

// killAndRestart kills nodes and starts them again at once, before anybody can miss them.
func (l *moveLab) killAndRestart(members ...*node.Member) error {
	for _, m := range members {
		m.Kill()
	}
	for _, m := range members {
		if err := l.cluster.Restart(m, settle); err != nil {
			return err
		}
	}
	return nil
}

// shardOf is the shard of a node.
func (l *moveLab) shardOf(m *node.Member) int {
	for i, other := range l.cluster.Members {
		if other == m {
			return i % shards
		}
	}
	return -1
}

// replaced waits until another node serves the shard.
func (l *moveLab) replaced(shard int, old *node.Member) error {
	return l.cluster.Await(settle, func() error {
		p, _, err := l.cluster.Primary(shard)
		if err == nil && p == old {
			err = fmt.Errorf("%s still serves", old.Name)
		}
		return err
	})
}

// killAndReplace kills a primary, and starts it again when another node is in its place.
func (l *moveLab) killAndReplace(tool *node.Tool, m *node.Member) error {
	m.Kill()
	_ = tool.Wait(toolLimit) // it lost one of the nodes that it speaks to, or has ended; round asks it again
	if err := l.replaced(l.shardOf(m), m); err != nil {
		return err
	}
	return l.cluster.Restart(m, settle)
}

// askAgain is how long a node tries to take over when asked, and a little more.
const askAgain = 6 * time.Second

// handOver asks a replica to take the primary's place, as soon as it follows, and again when it has given up.
func (l *moveLab) handOver(m *node.Member) error {
	shard := l.shardOf(m)
	_, replicas, err := l.cluster.Primary(shard)
	if err != nil {
		return err
	}
	r, asked := replicas[0], time.Time{}
	return l.cluster.Await(settle, func() error {
		p, _, err := l.cluster.Primary(shard)
		if err != nil || p != m {
			return err
		}
		if link, err := r.Info("replication", "master_link_status"); err != nil || link != "up" {
			return fmt.Errorf("%s follows with link %q, %w", r.Name, link, err)
		}
		if time.Since(asked) > askAgain {
			if err := r.OK("CLUSTER", "FAILOVER"); err != nil {
				return err
			}
			asked = time.Now()
		}
		return fmt.Errorf("%s still serves", m.Name)
	})
}
