package replication

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// inbox holds what of the stream was received and not yet applied. Whole entries only are applied, so a transaction of
// any size may have to wait here for its end: small ones in memory, from spillBytes on in a file without a name, which
// is mapped so that the rest of the link need not know.
type inbox struct {
	buf  []byte // all the room there is
	from int    // bytes before it are done with
	to   int    // bytes before it were received

	dir    string
	watch  func(data []byte) (unwatch func()) // see Options.Mapped; may be nil
	passed func(part []byte)                  // not nil where watch is not
	file   *os.File                           // buf is a mapping of it; nil in memory
	leave  func()                             // what watch gave
}

const (
	inboxLeast = 256 << 10 // room in memory when little is waiting
	inboxReads = 64 << 10  // room that a read finds
	// spillBytes is how much of one entry waits in memory.
	spillBytes = 8 << 20
)

// unread is what was received and not taken.
func (b *inbox) unread() []byte { return b.buf[b.from:b.to] }

// take marks n bytes as done with. They stay where they are until the next room.
func (b *inbox) take(n int) { b.from += n }

// room makes space to read into. Nobody may use earlier slices afterwards.
func (b *inbox) room() ([]byte, error) {
	have := b.to - b.from
	if have == 0 {
		b.from, b.to = 0, 0
		if len(b.buf) > inboxLeast {
			b.close() // it was for one long entry
		}
	}
	switch {
	case len(b.buf)-b.to >= inboxReads:
	case b.file == nil && len(b.buf) >= 2*have+inboxReads:
		b.to = copy(b.buf, b.buf[b.from:b.to])
		b.from = 0
	default:
		if err := b.grow(max(2*have+inboxReads, inboxLeast)); err != nil {
			return nil, err
		}
	}
	return b.buf[b.to:], nil
}

// received says that n bytes of room were filled.
func (b *inbox) received(n int) {
	if b.leave != nil {
		b.passed(b.buf[b.to : b.to+n])
	}
	b.to += n
}

func (b *inbox) grow(size int) error {
	have := b.unread()
	if size <= spillBytes {
		buf := make([]byte, size)
		b.to = copy(buf, have)
		b.from, b.buf = 0, buf
		return nil
	}
	f, err := os.CreateTemp(b.dir, "stream-*.tmp")
	if err != nil {
		return fmt.Errorf("make a file for a long entry: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return errors.Join(fmt.Errorf("unlink the file of a long entry: %w", err), f.Close())
	}
	// The file's bytes must exist before they are written through the mapping: there a full disk has no error.
	if err := b.fillFile(f, have, size); err != nil {
		return errors.Join(fmt.Errorf("write a long entry to a file of %d bytes: %w", size, err), f.Close())
	}
	buf, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return errors.Join(fmt.Errorf("map a file of %d bytes: %w", size, err), f.Close())
	}
	n := len(have)
	b.close()
	b.buf, b.from, b.to, b.file = buf, 0, n, f
	if b.watch != nil {
		b.leave = b.watch(buf)
	}
	return nil
}

// fillFile writes have, which may lie in the mapping so far, and then zeros up to size.
func (b *inbox) fillFile(f *os.File, have []byte, size int) error {
	const step = 1 << 20
	left := size - len(have)
	for len(have) > 0 {
		n, err := f.Write(have[:min(len(have), step)])
		if err != nil {
			return err
		}
		if b.leave != nil {
			b.passed(have[:n])
		}
		have = have[n:]
	}
	for zeros := make([]byte, step); left > 0; left -= len(zeros) {
		zeros = zeros[:min(left, len(zeros))]
		if _, err := f.Write(zeros); err != nil {
			return err
		}
	}
	return nil
}

// close gives the room back.
func (b *inbox) close() {
	if b.leave != nil {
		b.leave()
		b.leave = nil
	}
	if b.file != nil {
		_ = syscall.Munmap(b.buf) // fails only for what is no mapping
		_ = b.file.Close()        // nothing in it is needed any more
	}
	b.buf, b.file, b.from, b.to = nil, nil, 0, 0
}
