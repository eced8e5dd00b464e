//go:build linux && (amd64 || arm64)

package coldread

import "sync"

// A read that finds something missing in the page cache has the system fetch it, and does not wait. So of many reads under way
// only a few have to wait in a system call, each of which costs a thread that sleeps and wakes. These lead: a leader waits for
// its own bytes, then looks which others have come meanwhile, gives them to their owners, and has the longest waiting of the
// rest lead. Several lead at a time, so that one slow answer of the disk does not hold up the others.
const (
	leaders = 4
	// inVain is how many reads in a row a leader finds not ready before it ends looking: they come in about the order in which
	// they were asked for.
	inVain = 2
	// served is how many a leader looks after at most, since its own bytes are waiting.
	served = 32
)

// An older system does not fetch what is missing for who does not wait. There each has to wait for himself. It shows: leaders
// find nothing ready in a long queue that was there before they began to wait.
const (
	ample = 8  // a queue of which something can be expected
	trust = 64 // how often in a row a leader may find nothing in one
)

// Queue is the reads of some files that wait for the disk. The zero value is ready; it is safe for concurrent use.
type Queue struct {
	mu          sync.Mutex
	first, last *read // in the order of arrival
	length      int
	leading     int
	doubts      int // up to trust: then nobody is led any more

	used sync.Pool // of *read
}

// read is what one goroutine waits for.
type read struct {
	next  *read
	f     *File
	p     []byte // what is missing
	pos   int64
	lead  bool // whoever is woken has to lead
	ample bool // and leaves a long queue behind
	wake  chan struct{}
}

// read fills p, of which the page cache had nothing.
func (q *Queue) read(f *File, p []byte, pos int64) (n int, err error) {
	q.mu.Lock()
	if q.leading < leaders || q.doubts >= trust {
		q.leading++
		q.mu.Unlock()
		return q.lead(f, p, pos, false)
	}
	r, _ := q.used.Get().(*read)
	if r == nil {
		r = &read{wake: make(chan struct{}, 1)}
	}
	r.f, r.p, r.pos = f, p, pos
	q.append(r)
	q.mu.Unlock()
	<-r.wake
	rest, lead, ample := len(r.p), r.lead, r.ample
	*r = read{wake: r.wake}
	q.used.Put(r)
	if !lead {
		return len(p), nil
	}
	had := len(p) - rest
	n, err = q.lead(f, p[had:], pos+int64(had), ample)
	return had + n, err
}

// lead waits for p, and looks after the others.
func (q *Queue) lead(f *File, p []byte, pos int64, ample bool) (n int, err error) {
	n, err = f.wait(p, pos)
	found := 0
	var missed [inVain]*read
	missing := 0
	for missing < inVain && found < served {
		r := q.pop()
		if r == nil {
			break
		}
		got := r.f.cached(r.p, r.pos)
		r.p, r.pos = r.p[got:], r.pos+int64(got)
		if len(r.p) > 0 {
			missed[missing] = r
			missing++
			continue
		}
		found++
		r.wake <- struct{}{}
	}
	q.mu.Lock()
	switch {
	case found > 0:
		q.doubts = 0
	case ample:
		q.doubts++
	}
	for missing--; missing >= 0; missing-- {
		q.prepend(missed[missing])
	}
	q.leading--
	for q.first != nil && (q.leading < leaders || q.doubts >= trust) {
		q.promote()
	}
	q.mu.Unlock()
	return n, err
}

// promote has the longest waiting read lead. mu is held.
func (q *Queue) promote() {
	r := q.take()
	q.leading++
	r.lead, r.ample = true, q.length >= ample
	r.wake <- struct{}{}
}

func (q *Queue) pop() *read {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.take()
}

func (q *Queue) take() *read {
	r := q.first
	if r != nil {
		q.first = r.next
		q.length--
	}
	return r
}

func (q *Queue) append(r *read) {
	if q.first == nil {
		q.first = r
	} else {
		q.last.next = r
	}
	q.last = r
	q.length++
}

func (q *Queue) prepend(r *read) {
	if q.first == nil {
		q.last = r
	}
	r.next = q.first
	q.first = r
	q.length++
}
