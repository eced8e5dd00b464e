package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"cairn/tools/node"
)

const diskFullHelp = `
Mounts a small file system in memory (tmpfs), for which it needs root, and puts a node's data there.
  1. Writes some data, then lets another file take the rest of the space. Writes must get one clear error;
     reads must go on without any; the process must live.
  2. Removes that file: the node must take writes again by itself within 10 s.
  3. Writes until the node refuses by itself; reads and deletes go on; kill -9 and start on the full disk: every
     acknowledged key must be there.
  4. Removes most keys: the node must take writes again.

  go build -o bin/ ./cmd/... && sudo go run ./tools/bars diskfull`

const (
	diskValue   = 10 << 10 // bytes
	gateLimit   = 10 * time.Second
	reopenAfter = 10 * time.Second // the bar
	deleteLimit = 60 * time.Second // space comes back by compaction, which has no bar of its own
)

// disk is the state of the measurement.
type disk struct {
	l     *lab
	s     *server
	c     *node.Conn
	v     values
	mount string
	acked int // keys 0 to acked-1 were acknowledged
	texts map[string]int

	reads, readErrors atomic.Int64
	firstReadError    atomic.Pointer[string]
}

func prepareDiskFull(f *flag.FlagSet) func(l *lab) error {
	size := f.Int("size-mb", 768, "of the file system, in `MB` of memory")
	return func(l *lab) error {
		if os.Geteuid() != 0 {
			return fmt.Errorf("%w: user %d is not root, who alone may mount a tmpfs", errMachine, os.Geteuid())
		}
		d := &disk{l: l, v: newValues(), mount: filepath.Join(l.dir, "disk"), texts: map[string]int{}}
		if err := d.mountTmpfs(*size); err != nil {
			return err
		}
		return d.measure()
	}
}

func (d *disk) mountTmpfs(sizeMB int) error {
	if err := os.Mkdir(d.mount, 0o755); err != nil {
		return err
	}
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm", sizeMB), "none", d.mount).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: mount: %w: %s", errMachine, err, out)
	}
	d.l.atEnd(func() {
		if out, err := exec.Command("umount", d.mount).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "umount %s: %v: %s\n", d.mount, err, out)
		}
	})
	return nil
}

func (d *disk) measure() (err error) {
	d.s, d.c, err = d.l.serve(d.l.program, filepath.Join(d.mount, "node"), []string{
		"--memory-budget", "64mb", "--repl-backlog-size", "16mb", "--recovery-log-size", "16mb", "--appendfsync", "always",
	})
	if err != nil {
		return err
	}
	defer func() { d.c.Close() }()
	if err := d.write(2000); err != nil {
		return fmt.Errorf("first writes: %w", err)
	}
	ctx, stop := context.WithCancel(d.l.ctx)
	defer stop()
	go d.readOn(ctx) // ends with ctx, or with the process
	if err := d.foreignFile(); err != nil {
		return err
	}
	if err := d.ownData(); err != nil {
		return err
	}
	stop()
	text := ""
	if p := d.firstReadError.Load(); p != nil {
		text = ": " + *p
	}
	d.l.verdict(fmt.Sprintf("errors in %d reads meanwhile%s", d.reads.Load(), text), fmt.Sprint(d.readErrors.Load()), "0", d.readErrors.Load() == 0)
	if err := d.restartFull(); err != nil {
		return err
	}
	return d.deleteMost()
}

// readOn reads acknowledged keys all the time.
func (d *disk) readOn(ctx context.Context) {
	c, err := node.Dial(d.s.Addr, 5*time.Second)
	if err != nil {
		d.noteRead(err)
		return
	}
	defer c.Close()
	for i := 0; ctx.Err() == nil; i = (i + 1) % 2000 {
		text, err := c.Text("GET", keyName(i))
		if err == nil && text != d.v.at(i, diskValue) {
			err = fmt.Errorf("GET %s: %d bytes, not what was written", keyName(i), len(text))
		}
		if ctx.Err() == nil {
			d.noteRead(err)
		}
		if err != nil && !strings.Contains(err.Error(), "GET") {
			return // the connection
		}
	}
}

func (d *disk) noteRead(err error) {
	d.reads.Add(1)
	if err != nil {
		d.readErrors.Add(1)
		text := err.Error()
		d.firstReadError.CompareAndSwap(nil, &text)
	}
}

// errRefused is an error reply to a write.
var errRefused = errors.New("refused")

// write writes n more keys, one after the other, and stops at the first error.
func (d *disk) write(n int) error {
	for range n {
		reply, err := d.c.Do("SET", keyName(d.acked), d.v.at(d.acked, diskValue))
		if err != nil {
			return fmt.Errorf("%w; output: %s", err, d.s.Output(2<<10))
		}
		if text := reply.Err(); text != "" {
			d.texts[text]++
			return fmt.Errorf("%w: %s", errRefused, text)
		}
		d.acked++
	}
	return nil
}

// until writes until it is refused, or until it is taken, and returns how long that took.
func (d *disk) until(refused bool, limit time.Duration) (time.Duration, error) {
	began := time.Now()
	for time.Since(began) < limit && d.l.ctx.Err() == nil {
		err := d.write(1)
		if err != nil && !errors.Is(err, errRefused) {
			return 0, err
		}
		if (err != nil) == refused {
			return time.Since(began), nil
		}
		d.l.progress("%d keys written, disk full: %v", d.acked, err != nil)
		if err != nil {
			_ = d.l.pause(20 * time.Millisecond) // the loop asks
		}
	}
	if d.l.ctx.Err() != nil {
		return 0, d.l.ctx.Err()
	}
	return limit, fmt.Errorf("writes refused: %v for %v, want %v", !refused, limit, refused)
}

// foreignFile lets something else fill the disk.
func (d *disk) foreignFile() error {
	path := filepath.Join(d.mount, "somebody-elses")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	zeros := make([]byte, 1<<20)
	for {
		if _, err := f.Write(zeros); err != nil {
			break // the disk is full now
		}
	}
	took, err := d.until(true, gateLimit)
	if err != nil {
		return err
	}
	d.l.figure("writes refused after another file filled the disk", ms(took))
	if err := d.l.pause(2 * time.Second); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	f.Close()
	if took, err = d.until(false, reopenAfter); err != nil {
		return err
	}
	d.l.verdict("writes taken again after it went", ms(took), "<= 10 s", took <= reopenAfter)
	return nil
}

// ownData fills the disk with keys.
func (d *disk) ownData() error {
	if _, err := d.until(true, 5*time.Minute); err != nil {
		return err
	}
	free, err := node.FreeBytes(d.mount)
	if err != nil {
		return err
	}
	d.l.figure(fmt.Sprintf("writes refused after %d keys of %d KB; free then", d.acked, diskValue>>10), mb(free))
	reply, err := d.c.Do("DEL", "no-such-key", keyName(d.acked-1))
	if err != nil {
		return err
	}
	d.l.verdict("DEL on a full disk", fmt.Sprintf("%c%d%s", reply.Kind, reply.Int, reply.Err()), ":1", reply.Kind == ':' && reply.Int == 1)
	d.acked--
	one, text := len(d.texts) == 1, ""
	for t := range d.texts {
		text = t
	}
	d.l.verdict("different error texts of writes", fmt.Sprint(len(d.texts)), "1", one)
	fmt.Printf("  -%s\n", text)
	return nil
}

func (d *disk) restartFull() error {
	d.c.Close()
	took, err := d.l.killAndStart(d.s, []string{"GET", keyName(0)}, func(text string) bool { return text == d.v.at(0, diskValue) })
	if err != nil {
		return fmt.Errorf("kill -9 and start on a full disk: %w", err)
	}
	d.l.figure("kill -9 and start on a full disk", ms(took))
	if d.c, err = node.Dial(d.s.Addr, 5*time.Second); err != nil {
		return err
	}
	lost := 0
	for i := range d.acked {
		text, err := d.c.Text("GET", keyName(i))
		if err != nil {
			return err
		}
		if text != d.v.at(i, diskValue) {
			lost++
		}
	}
	d.l.verdict(fmt.Sprintf("of %d acknowledged keys lost", d.acked), fmt.Sprint(lost), "0", lost == 0)
	return nil
}

func (d *disk) deleteMost() error {
	for i := d.acked / 5; i < d.acked; i++ {
		n, err := d.c.Int("DEL", keyName(i))
		if err == nil && n != 1 {
			err = fmt.Errorf("%d keys removed, want 1", n)
		}
		if err != nil {
			return fmt.Errorf("DEL %s on a full disk: %w", keyName(i), err)
		}
	}
	d.acked /= 5
	took, err := d.until(false, deleteLimit)
	if err != nil {
		return fmt.Errorf("after four keys of five were removed: %w", err)
	}
	d.l.verdict("writes taken again after four keys of five were removed", ms(took), "<= 10 s", took <= reopenAfter)
	return nil
}
