package replication

import (
	"fmt"
	"sync"
	"time"
)

// Full syncs take turns, since each reads the whole store. A turn is for who takes what is sent: a replica that hangs, or
// somebody who only poses as one, must not keep the others waiting. One that has a turn while others wait, and takes
// turnBytes more slowly than in turnPatience, loses its link, and may ask anew.
//
// Only the time counts in which the connection took nothing more: not how long the store is read.

const (
	// syncsMost is how many replicas receive the data set at the same time.
	syncsMost = 3

	turnPatience = 10 * time.Second
	turnBytes    = 1 << 20
)

// pace is how a replica takes what is written to it, in pieces of turnBytes.
type pace struct {
	mu      sync.Mutex
	since   time.Time     // when the write under way began; zero: there is none
	blocked time.Duration // in writes, of this piece
	taken   int64         // bytes of this piece
}

func (p *pace) begin(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = now
}

func (p *pace) end(now time.Time, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked += now.Sub(p.since)
	p.since = time.Time{}
	if p.taken += int64(n); p.taken >= turnBytes {
		p.taken, p.blocked = 0, 0
	}
}

// waited is how long the present piece has been waited for.
func (p *pace) waited(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		return p.blocked
	}
	return p.blocked + now.Sub(p.since)
}

// takeTurn waits for a turn.
func (r *Attached) takeTurn() error {
	r.p.waiting.Add(1)
	defer r.p.waiting.Add(-1)
	mine := false
	err := r.keepAlive(func() error {
		select {
		case r.p.syncs <- struct{}{}:
			mine = true
			return nil
		case <-r.gone:
			return r.why
		}
	})
	if err != nil && mine {
		<-r.p.syncs
	}
	if err == nil {
		r.turn.Store(true)
	}
	return err
}

func (r *Attached) endTurn() {
	r.turn.Store(false)
	<-r.p.syncs
}

// reclaimTurns ends the links of those who waste a turn that others wait for. The clock calls it.
func (p *Primary) reclaimTurns(now time.Time, all []*Attached) {
	waiting := p.waiting.Load()
	for _, r := range all {
		if waiting <= 0 {
			return
		}
		if r.turn.Load() && r.pace.waited(now) >= turnPatience {
			r.drop(fmt.Errorf("it took less than %d bytes in %d s, and others wait for a full sync", turnBytes, int(turnPatience.Seconds())))
			waiting--
		}
	}
}
