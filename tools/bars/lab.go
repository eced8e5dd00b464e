package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"cairn/tools/node"
)

// errMachine says that this machine lacks what a measurement needs.
var errMachine = errors.New("this machine")

const readyLimit = 5 * time.Minute // a start that takes longer has failed, whatever its bar is

// lab is one measurement: its servers, its folder, its verdicts.
type lab struct {
	ctx     context.Context
	program []string
	dir     string

	mu     sync.Mutex
	undo   []func() // run backwards at the end
	closed bool

	failed  int  // figures beyond their bars
	untimed bool // figures that depend on the machine have no bars
	shown   bool // a progress line stands on the terminal
	isTerm  bool
	last    time.Time // of the last progress line
}

func newLab(ctx context.Context, program []string, parent string) (*lab, error) {
	if len(program) == 0 {
		return nil, errors.New("program: empty")
	}
	dir, err := os.MkdirTemp(parent, "cairn-bars-")
	if err != nil {
		return nil, err
	}
	l := &lab{ctx: ctx, program: program, dir: dir}
	if info, err := os.Stderr.Stat(); err == nil {
		l.isTerm = info.Mode()&os.ModeCharDevice != 0
	}
	l.atEnd(func() { _ = os.RemoveAll(dir) }) // what is left of a temporary folder harms nobody
	return l, nil
}

// atEnd has f done by close, or now if that has been.
func (l *lab) atEnd(f func()) {
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.undo = append(l.undo, f)
	}
	l.mu.Unlock()
	if closed {
		f()
	}
}

// close ends everything that was started, latest first. A measurement that does not heed a signal may still be running.
func (l *lab) close() {
	l.mu.Lock()
	l.closed = true
	undo := l.undo
	l.undo = nil
	l.mu.Unlock()
	for _, f := range slices.Backward(undo) {
		f()
	}
}

// server is a running server under measurement.
type server struct {
	*node.Process
	spec node.Spec
}

// cairn starts the node in a folder of its own.
func (l *lab) cairn(name string, args ...string) (*server, *node.Conn, error) {
	return l.serve(l.program, filepath.Join(l.dir, name), args)
}

// redis starts a redis-server that keeps nothing, unless args say otherwise.
func (l *lab) redis(name string, args ...string) (*server, *node.Conn, error) {
	own := []string{"--save", "", "--appendonly", "no", "--daemonize", "no"}
	return l.serve([]string{"redis-server"}, filepath.Join(l.dir, name), append(own, args...))
}

func (l *lab) serve(program []string, dir string, args []string) (*server, *node.Conn, error) {
	port, err := node.FreePort()
	if err != nil {
		return nil, nil, err
	}
	s := &server{spec: node.Spec{Program: program, Args: args, Port: port, Dir: dir}}
	if s.Process, err = node.Start(s.spec); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errMachine, err)
	}
	l.atEnd(func() { s.Kill() })
	c, err := s.Ready(readyLimit)
	return s, c, err
}

// killAndStart kills a server and starts it again; took is from the start of the
// process to the reply to a command that right accepts.
func (l *lab) killAndStart(s *server, question []string, right func(text string) bool) (took time.Duration, err error) {
	s.Kill()
	began := time.Now()
	if s.Process, err = node.Start(s.spec); err != nil {
		return 0, err
	}
	c, err := s.Ready(readyLimit, question...)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	took = time.Since(began)
	text, err := c.Text(question...)
	if err == nil && !right(text) {
		err = fmt.Errorf("%q after kill -9: wrong reply %.60q (%d bytes)", question, text, len(text))
	}
	return took, err
}

// verdict prints a figure beside its bar.
func (l *lab) verdict(what, measured, bar string, ok bool) {
	l.endProgress()
	word := "PASS"
	if !ok {
		word = "FAIL"
		l.failed++
	}
	fmt.Printf("%-58s %14s   bar %-16s %s\n", what, measured, bar, word)
}

// timed is verdict for a figure that a busy machine makes worse.
func (l *lab) timed(what, measured, bar string, ok bool) {
	if l.untimed {
		l.figure(what, measured)
		return
	}
	l.verdict(what, measured, bar, ok)
}

// figure prints one without a bar.
func (l *lab) figure(what, measured string) {
	l.endProgress()
	fmt.Printf("%-58s %14s\n", what, measured)
}

// progress says what goes on: on a terminal a line that changes, elsewhere a line every ten seconds.
func (l *lab) progress(format string, args ...any) {
	every := 10 * time.Second
	if l.isTerm {
		every = 200 * time.Millisecond
	}
	if time.Since(l.last) < every {
		return
	}
	l.last = time.Now()
	if !l.isTerm {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
		return
	}
	fmt.Fprintf(os.Stderr, "\r\x1b[K"+format, args...)
	l.shown = true
}

func (l *lab) endProgress() {
	if l.shown {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
		l.shown = false
	}
}

// pause waits, and returns an error when the user has had enough.
func (l *lab) pause(d time.Duration) error {
	select {
	case <-l.ctx.Done():
		return l.ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// wantFree asks for disk space.
func (l *lab) wantFree(bytes int64) error {
	if err := node.WantFree(l.dir, bytes); err != nil {
		return fmt.Errorf("%w: %w", errMachine, err)
	}
	return nil
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

func mb(n int64) string { return fmt.Sprintf("%d MB", n>>20) }
