package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"cairn/tools/node"
)

// Side is one of the two servers that are compared.
type Side struct {
	Name string // cairn, redis-server
	Addr string

	proc *node.Process // nil for a server that was not started here
	spec node.Spec
	conn *node.Conn    // for questions
	made atomic.Uint64 // keys beyond the data set that rows have made
	owes bool          // it is a cairn: a log that is to be applied to a store
}

const (
	ours       = "cairn"
	readyLimit = 5 * time.Minute
	stopLimit  = 30 * time.Second
	slots      = 16384
)

// Cairn starts a cairn node that owns all slots. Directives come after, and win over, those that all nodes here have.
func (l *Lab) Cairn(args ...string) (*Side, error) {
	all := append([]string{"--cluster-enabled", "yes", "--memory-budget", l.opts.Budget}, args...)
	return l.start(ours, l.opts.Program, append(all, l.opts.Args...))
}

// Peer starts the other server, or connects to the one that runs already.
func (l *Lab) Peer(args ...string) (*Side, error) {
	if l.opts.PeerAddr != "" {
		s := &Side{Name: l.opts.PeerAddr, Addr: l.opts.PeerAddr}
		var err error
		if s.conn, err = s.dial(); err != nil {
			return nil, err
		}
		l.atEnd(s.conn.Close)
		if err := l.mayEmpty(s); err != nil {
			return nil, err
		}
		return s, l.note(s)
	}
	name := filepath.Base(l.opts.Peer[0])
	if name == ours {
		name = "other " + ours // two builds may be compared
	}
	all := append([]string{"--save", ""}, args...)
	return l.start(name, l.opts.Peer, append(all, l.opts.PeerArgs...))
}

// mayEmpty refuses a server that has somebody's keys.
func (l *Lab) mayEmpty(s *Side) error {
	if l.mine {
		return nil
	}
	n, err := s.conn.Int("DBSIZE")
	if err == nil && n > 0 {
		err = fmt.Errorf("%s has %d keys, all of which would be removed: FLUSHALL there first, if that is right", s.Addr, n)
	}
	l.mine = err == nil
	return err
}

func (l *Lab) start(name string, program, args []string) (*Side, error) {
	port, err := node.FreePort()
	if err != nil {
		return nil, err
	}
	l.serial++
	dir := filepath.Join(l.dir, fmt.Sprintf("%s-%d", name, l.serial))
	s := &Side{Name: name, spec: node.Spec{Program: program, Args: args, Port: port, Dir: dir}}
	if s.proc, err = node.Start(s.spec); err != nil {
		return nil, err
	}
	s.Addr = s.proc.Addr
	l.atEnd(func() { s.Remove() })
	if s.conn, err = s.proc.Ready(readyLimit); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := l.note(s); err != nil {
		return nil, err
	}
	return s, l.ownAllSlots(s)
}

// note remembers the server's version for the report.
func (l *Lab) note(s *Side) error {
	info, err := s.conn.Text("INFO", "server")
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	version := node.Field(info, "redis_version")
	if v := node.Field(info, "cairn_version"); v != "" {
		version, s.owes = v, true
	}
	l.versions[s.Name] = version
	return nil
}

// ownAllSlots makes a node of a cluster serve alone.
func (l *Lab) ownAllSlots(s *Side) error {
	info, err := s.conn.Text("INFO", "cluster")
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	if node.Field(info, "cluster_enabled") != "1" {
		return nil
	}
	if _, err := s.conn.Text("CLUSTER", "ADDSLOTSRANGE", "0", fmt.Sprint(slots-1)); err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	return l.clusterOK(s)
}

// clusterOK waits until a node of a cluster serves, which takes it two seconds.
func (l *Lab) clusterOK(s *Side) error {
	for end := time.Now().Add(stopLimit); time.Now().Before(end); {
		text, err := s.conn.Text("CLUSTER", "INFO")
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		if node.Field(text, "cluster_state") == "ok" {
			return nil
		}
		if err := l.pause(20 * time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: cluster_state is not ok after %v", s.Name, stopLimit)
}

// Remove ends the server at once and removes its data. It may be called more than once.
func (s *Side) Remove() {
	if s.conn != nil {
		s.conn.Close()
	}
	if s.proc != nil {
		s.proc.Kill()
		_ = os.RemoveAll(s.spec.Dir) // the folder above goes at the end anyhow
	}
}

// pid is 0 for a server that was not started here.
func (s *Side) pid() int {
	if s.proc == nil {
		return 0
	}
	return s.proc.Pid()
}

// dial opens one more connection.
func (s *Side) dial() (*node.Conn, error) { return node.Dial(s.Addr, 10*time.Second) }

// empty removes all keys.
func (s *Side) empty() error {
	_, err := s.conn.Text("FLUSHALL")
	return err
}

// settleLimit is how long a server may take after a run to be done with it.
const settleLimit = 5 * time.Second

var errNotSettled = errors.New("applied offset behind the log's end")

// settle waits until cairn has applied its whole log to the store. Other servers owe nothing that they tell of.
func (l *Lab) settle(s *Side, limit time.Duration) (took time.Duration, err error) {
	if !s.owes {
		return 0, nil
	}
	began := time.Now()
	for {
		info, err := s.conn.Text("INFO", ours)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", s.Name, err)
		}
		took = time.Since(began)
		end, endErr := offset(info, "log_end_offset")
		applied, appliedErr := offset(info, "applied_offset")
		if err := errors.Join(endErr, appliedErr); err != nil {
			return took, fmt.Errorf("%s: %w", s.Name, err)
		}
		behind := end - applied
		if behind <= 0 {
			return took, nil
		}
		if took > limit {
			return took, fmt.Errorf("%w: %d bytes after %v", errNotSettled, behind, limit)
		}
		if err := l.pause(10 * time.Millisecond); err != nil {
			return took, err
		}
	}
}

// quiet waits until no server works any more, so that one does not measure the other's debts. A busy one is not waited for
// longer than twice as long as a side is measured, nor longer than quietLimit.
func (l *Lab) quiet(sides ...*Side) error {
	return l.quietFor(min(quietLimit, max(time.Second, 2*l.opts.Measure)), sides...)
}

// quietFor is quiet with another limit.
func (l *Lab) quietFor(limit time.Duration, sides ...*Side) error {
	const look, idleShare = 100 * time.Millisecond, 10 // a tenth of a processor is idle
	began := time.Now()
	before, err := busyTime(sides)
	for at := began; err == nil && at.Sub(began) < limit; {
		if err := l.pause(look); err != nil {
			return err
		}
		var after time.Duration
		after, err = busyTime(sides)
		now := time.Now()
		if after-before <= node.CPUTick+now.Sub(at)/idleShare {
			return err
		}
		before, at = after, now
	}
	return err
}

const quietLimit = 20 * time.Second

// busyTime is the processor time that the servers have used, as far as they were started here.
func busyTime(sides []*Side) (sum time.Duration, err error) {
	for _, s := range sides {
		if s.pid() == 0 {
			continue
		}
		u, err := processUsage(s.pid())
		if err != nil {
			return 0, err
		}
		sum += u.cpu
	}
	return sum, nil
}

// offset reads a number of INFO.
func offset(info, field string) (int64, error) {
	n, err := strconv.ParseInt(node.Field(info, field), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("INFO: %s: %w", field, err)
	}
	return n, nil
}
