package server

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"
	"sync"

	"cairn/engine"
	"cairn/internal/slot"
)

// The list of slots whose keys are to go, in a file beside log and store:
//
//	DIR/cairn/slot-drops    one line: ranges of slots in rising order, each with a blank behind it, then the
//	                        CRC-32C of all that, eight hexadecimal digits
//
//	0-99 5461 b26a734f
//
// It is replaced as a whole, and is not there while there is nothing to drop. One that does not read drops nothing: the
// keys stay, hidden, as those do that an interrupted move has left.

const (
	dropsName = "slot-drops"
	dropsMost = 128 << 10 // bytes; every second slot by itself takes half of it
)

// dropFile is what the file holds.
type dropFile struct {
	mu     sync.Mutex // one save at a time; comes before slotDrops.mu
	now    sync.Mutex // of slots: a leaf
	slots  slot.Bitmap
	faulty bool // it did not read: the next save writes it, whatever it says
}

// holds says whether one of the slots on file is wanted.
func (f *dropFile) holds(wanted func(uint16) bool) bool {
	f.now.Lock()
	defer f.now.Unlock()
	for _, r := range f.slots.Ranges() {
		for sl := int(r.First); sl <= int(r.Last); sl++ {
			if wanted(uint16(sl)) {
				return true
			}
		}
	}
	return false
}

func (f *dropFile) set(b *slot.Bitmap) {
	f.now.Lock()
	f.slots = *b
	f.now.Unlock()
}

// load reads the file in the folder dir; none if there is no such file.
func (f *dropFile) load(fs engine.FS, dir string) (slots []uint16, err error) {
	path := fs.PathJoin(dir, dropsName)
	b, err := readDrops(fs, path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		f.faulty = true
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.set(&b)
	for _, r := range b.Ranges() {
		for sl := int(r.First); sl <= int(r.Last); sl++ {
			slots = append(slots, uint16(sl))
		}
	}
	return slots, nil
}

func readDrops(fs engine.FS, path string) (b slot.Bitmap, err error) {
	in, err := fs.Open(path)
	if err != nil {
		return b, err
	}
	text, err := io.ReadAll(io.LimitReader(in, dropsMost))
	if err = errors.Join(err, in.Close()); err != nil {
		return b, err
	}
	return parseDrops(text)
}

// save makes what list gives durable, if the file says something else.
func (f *dropFile) save(fs engine.FS, dir string, list func() []uint16) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b slot.Bitmap
	for _, sl := range list() {
		b.Set(sl)
	}
	if b == f.slots && !f.faulty { // only saves change them
		return nil
	}
	if err := writeDrops(fs, dir, &b); err != nil {
		return fmt.Errorf("write %s: %w", fs.PathJoin(dir, dropsName), err)
	}
	f.faulty = false
	f.set(&b)
	return nil
}

func writeDrops(fs engine.FS, dir string, b *slot.Bitmap) error {
	path := fs.PathJoin(dir, dropsName)
	if b.Count() > 0 {
		return engine.WriteFile(fs, dir, path, appendDrops(nil, b))
	}
	if err := fs.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return engine.SyncDir(fs, dir)
}

// appendDrops appends the file's text.
func appendDrops(dst []byte, b *slot.Bitmap) []byte {
	from := len(dst)
	for _, r := range b.Ranges() {
		dst = append(r.Append(dst), ' ')
	}
	return fmt.Appendf(dst, "%08x\n", dropsSum(dst[from:]))
}

func dropsSum(text []byte) uint32 { return crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)) }

// parseDrops reads the file's text. Any fault is an error: a slot that was not meant must not lose its keys.
func parseDrops(text []byte) (b slot.Bitmap, err error) {
	const sum = 8 + 1
	if len(text) < sum {
		return b, fmt.Errorf("%d bytes, less than a checksum", len(text))
	}
	ranges := text[:len(text)-sum]
	if got, want := string(text[len(ranges):]), fmt.Sprintf("%08x\n", dropsSum(ranges)); got != want {
		return b, fmt.Errorf("its checksum is %q, %q would be right", got, want)
	}
	for word := range strings.FieldsSeq(string(ranges)) {
		r, err := slot.ParseRange(word)
		if err != nil {
			return slot.Bitmap{}, err
		}
		b.SetRange(r)
	}
	return b, nil
}
