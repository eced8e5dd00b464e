//go:build !linux

package bench

import (
	"errors"
	"time"
)

// poller needs Linux, and so do the figures that are read beside it.
type poller struct{}

type readiness struct {
	lane               int
	readable, writable bool
}

var errLinux = errors.New("the benchmark runs on Linux only")

func newPoller(string, int) (*poller, error)              { return nil, errLinux }
func (p *poller) close()                                  {}
func (p *poller) sharpen()                                {}
func (p *poller) wait(time.Duration) ([]readiness, error) { return nil, errLinux }
func (p *poller) read(int, []byte) (int, error)           { return 0, errLinux }
func (p *poller) write(int, []byte) (int, error)          { return 0, errLinux }
func (p *poller) wantWrite(int, bool) error               { return errLinux }
