package bench

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"cairn/tools/node"
)

// Values of scenarios are a kilobyte, so that gigabytes are not millions of keys.
const (
	scenarioValue = 1 << 10
	gigabyte      = 1 << 30
	diskFactor    = 4 // what the data may take on the disk while both sides have it, log and compactions included
)

func (l *Lab) scenarioKeys() uint64 { return max(100, uint64(l.opts.GB*gigabyte/scenarioValue)) }

// fillStrings loads keys of a kilobyte.
func (l *Lab) fillStrings(s *Side, keys uint64) error {
	return l.fill(s, "load", Shape{Keys: keys, Size: scenarioValue, Next: new(atomic.Uint64)}, int64(keys))
}

func keyName(n uint64) string { return string(appendPadded([]byte("key:"), n, keyDigits)) }

// restart takes the time from the start of a process after kill -9 to the first right reply. Both sides keep their data: the
// other has to write its append-only file, too, or there would be nothing to start with.
func restart(l *Lab) ([]Figure, error) {
	keys := l.scenarioKeys()
	figure := Figure{
		Name: fmt.Sprintf("first right reply after kill -9, %.3g GB", l.opts.GB), Unit: "s", LessIsBetter: true,
		Note: "appendonly, everysec on both sides",
	}
	a, b, err := l.durablePair(keys)
	if err != nil {
		return nil, err
	}
	for n := range l.opts.Pairs {
		for i, s := range []*Side{a, b} {
			if s == nil {
				continue
			}
			l.progress("restart: %s, %d of %d", s.Name, n+1, l.opts.Pairs)
			// Overwriting leaves something in the log that a start has to execute.
			if err := l.fillStrings(s, min(keys, 50_000)); err != nil {
				return nil, err
			}
			took, err := l.killAndStart(s, keyName(keys-1-uint64(n)%keys))
			if err != nil {
				return []Figure{figure}, fmt.Errorf("%s: %w", s.Name, err)
			}
			figure.add(i, took.Seconds())
		}
	}
	return []Figure{figure}, nil
}

// durablePair starts and fills both sides with everysec. The other is nil when it is not ours to kill.
func (l *Lab) durablePair(keys uint64) (a, b *Side, err error) {
	if err := l.wantFree(int64(keys) * scenarioValue * diskFactor); err != nil {
		return nil, nil, err
	}
	// Alone: a node of a cluster says CLUSTERDOWN for its first two seconds, whatever it has, since it could be cut off.
	if a, err = l.Cairn("--cluster-enabled", "no", "--appendfsync", "everysec"); err != nil {
		return nil, nil, err
	}
	if err := l.fillStrings(a, keys); err != nil {
		return nil, nil, err
	}
	if l.opts.PeerAddr != "" {
		return a, nil, nil
	}
	if b, err = l.Peer("--appendonly", "yes", "--appendfsync", "everysec"); err != nil {
		return nil, nil, err
	}
	return a, b, l.fillStrings(b, keys)
}

var errWrongReply = errors.New("wrong reply")

// killAndStart kills a server and starts it again; took is from the start of the process to the reply to GET, which must be what it
// was before.
func (l *Lab) killAndStart(s *Side, key string) (took time.Duration, err error) {
	before, err := s.conn.Text("GET", key)
	if err != nil {
		return 0, err
	}
	s.conn.Close()
	s.proc.Kill()
	began := time.Now()
	if s.proc, err = node.Start(s.spec); err != nil {
		return 0, err
	}
	if s.conn, err = s.proc.Ready(readyLimit, "GET", key); err != nil {
		return 0, err
	}
	after, err := s.conn.Text("GET", key)
	took = time.Since(began)
	if err == nil && after != before {
		err = fmt.Errorf("%w: GET %s gives %.40q after kill -9, %.40q before", errWrongReply, key, after, before)
	}
	return took, err
}
