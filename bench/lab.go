package bench

import (
	"context"
	"fmt"
	"os"
	"time"

	"cairn/tools/node"
)

// Lab is where servers are started and ended: rows and scenarios get it. One goroutine uses it.
type Lab struct {
	ctx      context.Context
	opts     *Options
	dir      string
	undo     []func() // run backwards at the end
	versions map[string]string
	serial   int    // of data folders
	mine     bool   // what is in the server at PeerAddr was put there by the benchmark
	seed     uint64 // of the last random numbers

	rows, done int // of the plan; for progress
	began      time.Time

	shown bool      // a progress line stands on the terminal
	last  time.Time // of the last one
}

func newLab(ctx context.Context, o *Options) (*Lab, error) {
	dir, err := os.MkdirTemp(o.Dir, "cairn-bench-")
	if err != nil {
		return nil, err
	}
	l := &Lab{ctx: ctx, opts: o, dir: dir, versions: map[string]string{}, began: time.Now()}
	l.atEnd(func() { _ = os.RemoveAll(dir) }) // what is left of a temporary folder harms nobody
	return l, nil
}

func (l *Lab) atEnd(f func()) { l.undo = append(l.undo, f) }

// close ends everything that was started, latest first. It may be called more than once.
func (l *Lab) close() {
	for i := len(l.undo) - 1; i >= 0; i-- {
		l.undo[i]()
	}
	l.undo = nil
}

// progress says what goes on, as far as somebody watches.
func (l *Lab) progress(format string, args ...any) {
	const every = 200 * time.Millisecond
	if !l.opts.Terminal || time.Since(l.last) < every {
		return
	}
	l.last = time.Now()
	fmt.Fprintf(l.opts.Stderr, "\r\x1b[K"+format, args...)
	l.shown = true
}

// left is how much of the rows is done, and how long the rest takes when it goes on like this.
func (l *Lab) left() string {
	if l.done == 0 {
		return fmt.Sprintf("row 1 of %d", l.rows)
	}
	rest := time.Since(l.began) / time.Duration(l.done) * time.Duration(l.rows-l.done)
	return fmt.Sprintf("row %d of %d, about %v left", l.done+1, l.rows, rest.Round(time.Second))
}

func (l *Lab) endProgress() {
	if l.shown {
		fmt.Fprint(l.opts.Stderr, "\r\x1b[K")
		l.shown = false
	}
}

// say prints a line for somebody who reads along, terminal or not.
func (l *Lab) say(format string, args ...any) {
	l.endProgress()
	fmt.Fprintf(l.opts.Stderr, format+"\n", args...)
}

// pause waits, and returns an error when the user has had enough.
func (l *Lab) pause(d time.Duration) error {
	select {
	case <-l.ctx.Done():
		return l.ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// nextSeed gives each run other keys, since what was asked for once is in memory, and every benchmark the same.
func (l *Lab) nextSeed() uint64 {
	l.seed++
	return l.seed
}

// wantFree asks for disk space where the data folders are.
func (l *Lab) wantFree(bytes int64) error { return node.WantFree(l.dir, bytes) }
