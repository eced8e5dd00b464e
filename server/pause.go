package server

import (
	"sync"
	"sync/atomic"
	"time"
)

// pauseState is CLIENT PAUSE: until a moment, commands wait, all of them or those that write.
type pauseState struct {
	mu    sync.Mutex
	until time.Time
	all   bool
	on    bool
	any   atomic.Bool   // on, for those who look without the lock: nearly every command of a node finds no pause
	ended chan struct{} // closed when the pause ends
}

func (p *pauseState) init() { p.ended = make(chan struct{}) }

// set begins a pause, or makes one longer and wider; it never makes one shorter.
func (p *pauseState) set(d time.Duration, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	until := time.Now().Add(d)
	if !p.on || time.Now().After(p.until) {
		p.on, p.all, p.until = true, all, until
		p.any.Store(true)
		return
	}
	p.all = p.all || all
	if until.After(p.until) {
		p.until = until
	}
}

// clear ends the pause.
func (p *pauseState) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on {
		p.on = false
		p.any.Store(false)
		close(p.ended)
		p.ended = make(chan struct{})
	}
}

// paused says whether writes, and whether all commands, wait now.
func (p *pauseState) paused() (writes, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	on := p.on && time.Now().Before(p.until)
	return on, on && p.all
}

// wake lets those look again who wait for writes to go on.
func (p *pauseState) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.ended)
	p.ended = make(chan struct{})
}

// wait holds a command back while it is paused. A killed connection and a node that ends are let through.
func (p *pauseState) wait(c *client, write bool) {
	for p.any.Load() {
		p.mu.Lock()
		left := time.Until(p.until)
		if !p.on || left <= 0 || !write && !p.all {
			p.mu.Unlock()
			return
		}
		ended := p.ended
		p.mu.Unlock()
		c.s.stats.blocked.Add(1)
		c.waiting.Store(true)
		c.wakeSubscribers()
		timer := time.NewTimer(min(left, 100*time.Millisecond))
		select {
		case <-ended:
		case <-timer.C:
		case <-c.s.stop:
		}
		timer.Stop()
		c.s.stats.blocked.Add(-1)
		c.waiting.Store(false)
		if c.killed.Load() || c.s.draining.Load() {
			return
		}
	}
}
