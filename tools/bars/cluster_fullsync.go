package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"cairn/tools/node"
)

const fullsyncHelp = `
First, 1 GB goes to a replica on a line of 60 MB/s while 20 MB/s are written and repl-backlog-size is 1 MB. Bars:
one full sync and no other after it, and the primary's memory rises by less than 64 MB above what the same writes
cost without a replica. Then 100 MB go to a replica that has an older set, and it is killed with SIGKILL at 50 points of that
time. Bars: started alone it has the old or the new set, whole, and its folder is no bigger than before, or than after a full
sync that nobody disturbed.

  go run ./tools/bars fullsync
  go run ./tools/bars fullsync --quick             100 MB, 10 MB, 10 kills`

const (
	syncValue  = 4096 // bytes
	memoryBar  = 64 << 20
	spaceSlack = 8 << 20 // of files that hold nothing yet
	syncLine   = 60 << 20
)

type fullsyncOptions struct {
	big, small int // MB
	rate       int // MB/s written meanwhile
	kills      int
	alone      time.Duration
}

func prepareFullsync(f *flag.FlagSet) func(l *lab) error {
	var o fullsyncOptions
	f.IntVar(&o.big, "mb", 1024, "`MB` of the slow full sync")
	f.IntVar(&o.small, "small", 100, "`MB` of the one that is killed")
	f.IntVar(&o.rate, "rate", 20, "`MB` written each second of the slow one")
	f.IntVar(&o.kills, "kills", 50, "points of a sync to kill at")
	f.DurationVar(&o.alone, "alone", 10*time.Second, "how long writes go on before the slow replica comes")
	quick := f.Bool("quick", false, "100 MB, 10 MB, 10 kills")
	return func(l *lab) error {
		if *quick {
			o.big, o.small, o.kills = 100, 10, 10
		}
		if err := l.wantFree(int64(o.big)*6<<20 + 8<<30); err != nil {
			return err
		}
		if err := o.slow(l); err != nil {
			return fmt.Errorf("slow replica: %w", err)
		}
		return o.killed(l)
	}
}

// slow is the full sync to a slow replica.
func (o *fullsyncOptions) slow(l *lab) error {
	s, conn, err := l.serve(l.program, filepath.Join(l.dir, "primary"), []string{
		"--repl-backlog-size", "1mb", "--memory-budget", "256mb", "--enable-debug-command", "yes",
	})
	if err != nil {
		return err
	}
	conn.Close()
	p := &chainNode{server: s, name: "primary"}
	v := newValues()
	keys := o.big << 20 / syncValue
	if err := l.fill(s.Addr, "load", keys, func(c *node.Conn, i int) { c.Append("SET", keyName(i), v.at(i, syncValue)) }); err != nil {
		return err
	}
	w := &steadyWriter{addr: s.Addr, rate: o.rate << 20, keys: keys, values: v, stop: make(chan struct{}), done: make(chan error, 1)}
	go func() { w.done <- w.run() }() // ends when stop is closed
	defer w.end()
	m := watchMemory(s.Pid())
	defer m.end()
	if err := l.pause(o.alone); err != nil { // what the writes cost by themselves
		return err
	}
	alone := m.reset()
	began := time.Now()
	line, err := newSlowLine(s.Addr, syncLine)
	if err != nil {
		return err
	}
	defer line.close()
	rs, conn, err := l.serve(l.program, filepath.Join(l.dir, "replica"), []string{
		"--repl-backlog-size", "1mb", "--memory-budget", "256mb", "--enable-debug-command", "yes", "--replicaof", "127.0.0.1", line.portText(),
	})
	if err != nil {
		return err
	}
	conn.Close()
	r := &chainNode{server: rs, name: "replica"}
	if err := o.follow(l, r, w); err != nil {
		return err
	}
	took := time.Since(began)
	if err := w.end(); err != nil {
		return err
	}
	c := &chain{lab: l, nodes: []*chainNode{p, r}}
	if err := errors.Join(c.inStep(), c.equal()); err != nil {
		return err
	}
	fulls, err := p.fullSyncs()
	if err != nil {
		return err
	}
	during := m.reset()
	l.figure(fmt.Sprintf("full sync of %d MB beside %.1f MB/s of writes", o.big, w.perSecond()/(1<<20)), took.Round(time.Millisecond).String())
	l.verdict("full syncs", fmt.Sprint(fulls), "1", fulls == 1)
	l.timed(fmt.Sprintf("primary's memory above %s without a replica", mb(alone)), mb(during-alone), "< 64 MB", during-alone < memoryBar)
	return nil
}

// follow waits until the replica is near its primary, while the writes go on.
func (o *fullsyncOptions) follow(l *lab, r *chainNode, w *steadyWriter) error {
	for end := time.Now().Add(2 * readyLimit); time.Now().Before(end); {
		info, err := r.info("replication")
		if err != nil {
			return err
		}
		at, _ := strconv.ParseInt(node.Field(info, "slave_repl_offset"), 10, 64) // 0 while there is none
		if node.Field(info, "master_link_status") == "up" {
			return l.pause(2 * time.Second)
		}
		l.progress("full sync: %s of the data, replica at %d; %s", node.Field(info, "master_sync_read_bytes"), at, mb(w.sent.Load()))
		if err := errors.Join(l.pause(50*time.Millisecond), w.fault()); err != nil {
			return err
		}
	}
	return fmt.Errorf("the replica is not up in %v; it says:\n%s", 2*readyLimit, r.Output(2<<10))
}

// steadyWriter overwrites keys at a rate.
type steadyWriter struct {
	addr   string
	rate   int // bytes a second
	keys   int
	values values
	sent   atomic.Int64 // bytes

	stop  chan struct{}
	done  chan error
	ended bool
	err   error
	took  time.Duration
}

func (w *steadyWriter) run() error {
	c, err := node.Dial(w.addr, 5*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	defer func() { w.took = time.Since(began) }()
	for i := 0; ; {
		select {
		case <-w.stop:
			return nil
		case <-tick.C:
		}
		n := 0
		for float64(w.sent.Load()) < float64(w.rate)*time.Since(began).Seconds() && n < 256 {
			k := i * 7919 % w.keys
			c.Append("SET", keyName(k), w.values.at(k+i, syncValue))
			w.sent.Add(syncValue)
			i++
			n++
		}
		if err := c.Flush(); err != nil {
			return err
		}
		for range n {
			reply, err := c.Receive()
			if err != nil {
				return err
			}
			if text := reply.Err(); text != "" {
				return errors.New(text)
			}
		}
	}
}

// fault says why it ended by itself.
func (w *steadyWriter) fault() error {
	select {
	case err := <-w.done:
		w.ended, w.err = true, err
		if err == nil {
			err = errors.New("the writer ended")
		}
		return err
	default:
		return nil
	}
}

func (w *steadyWriter) end() error {
	if !w.ended {
		w.ended = true
		close(w.stop)
		w.err = <-w.done
	}
	return w.err
}

func (w *steadyWriter) perSecond() float64 { return float64(w.sent.Load()) / w.took.Seconds() }

// memoryWatch remembers the most memory that a process had.
type memoryWatch struct {
	pid  int
	most atomic.Int64
	stop chan struct{}
	done chan struct{}
}

func watchMemory(pid int) *memoryWatch {
	m := &memoryWatch{pid: pid, stop: make(chan struct{}), done: make(chan struct{})}
	go func() { // ends when stop is closed
		defer close(m.done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-m.stop:
				return
			case <-tick.C:
				if n, err := node.RSS(pid); err == nil && n > m.most.Load() { // no process: no memory
					m.most.Store(n)
				}
			}
		}
	}()
	return m
}

// reset returns the most since the last reset.
func (m *memoryWatch) reset() int64 { return m.most.Swap(0) }

func (m *memoryWatch) end() {
	close(m.stop)
	<-m.done
}

// copyFolder copies files and folders.
func copyFolder(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(from))
}
