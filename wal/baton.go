package wal

// baton is a right held by one goroutine at a time (to write, to sync) and the queue behind it. It
// works in rounds. The holder's round serves everybody who wanted what it is doing; those whose bytes
// came too late wait for the next round, one of them is handed the baton when the present round ends,
// and does the work for all of them. The rest sleep until it is done: nobody is woken to find
// nothing to do. All methods are called with Log.mu held.
type baton struct {
	held bool
	// A round's channel is closed when the round is over; one value sent before that hands the baton
	// to the goroutine that receives it. Channels are made when the first one waits.
	now  chan struct{} // for what the holder is doing
	next chan struct{} // for what came too late for it
}

// take takes the baton if nobody holds it.
func (b *baton) take() bool {
	if b.held {
		return false
	}
	b.held = true
	return true
}

// queue is the channel of the round to wait for: the one under way if it serves the caller.
func (b *baton) queue(servedNow bool) chan struct{} {
	ch := &b.next
	if servedNow {
		ch = &b.now
	}
	if *ch == nil {
		*ch = make(chan struct{}, 1)
	}
	return *ch
}

// received notes that the caller was handed the baton: the next round is now.
func (b *baton) received() {
	b.now, b.next = b.next, nil
}

// done ends the holder's round and hands the baton on.
func (b *baton) done() {
	if b.now != nil {
		close(b.now)
		b.now = nil
	}
	if b.next == nil {
		b.held = false
		return
	}
	b.next <- struct{}{} // room for one, sent once per round: never blocks
}

// acquire waits until the caller holds the baton. Log.mu is held before and after, not meanwhile.
func (l *Log) acquire(b *baton) {
	for !b.take() {
		ch := b.queue(false)
		l.mu.Unlock()
		_, handed := <-ch
		l.mu.Lock()
		if handed {
			b.received()
			return
		}
	}
}

// exclusive runs f while nobody else writes or syncs.
func (l *Log) exclusive(f func() error) error {
	l.mu.Lock()
	l.acquire(&l.syncing)
	l.syncingTo = -1
	l.acquire(&l.writing)
	l.writingTo = -1
	l.mu.Unlock()
	err := f()
	l.mu.Lock()
	l.writing.done()
	l.syncing.done()
	l.mu.Unlock()
	return err
}
