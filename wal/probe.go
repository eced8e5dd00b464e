package wal

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/wal/record"
)

// HoldsData says whether the directory has a segment with anything in it. It is for an owner that has lost, or
// never had, what says where to read on: such a log must not be taken for an empty one.
func HoldsData(fs vfs.FS, dir string) (bool, error) {
	if fs == nil {
		fs = vfs.Default
	}
	if _, err := fs.Stat(dir); err != nil {
		return false, nil //nolint:nilerr // no directory, no data
	}
	d, err := readDirectory(fs, dir)
	if err != nil {
		return false, err
	}
	if len(d.damaged) > 0 {
		return true, nil
	}
	for _, s := range d.segments {
		held, err := holdsBlock(fs, fs.PathJoin(dir, s.name), &s.hdr)
		if held || err != nil {
			return held, err
		}
	}
	return false, nil
}

// holdsBlock says whether a segment's first block has a payload.
func holdsBlock(fs vfs.FS, path string, hdr *record.Header) (bool, error) {
	f, err := fs.Open(path)
	if err != nil {
		return false, fmt.Errorf("open log segment %s: %w", path, err)
	}
	defer closeAll(f)
	head := make([]byte, record.BlockLen)
	n, err := f.ReadAt(head, record.DataAt)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read log segment %s: %w", path, err)
	}
	b, err := hdr.DecodeBlock(head[:n])
	if errors.Is(err, record.ErrEmpty) || n < record.BlockLen {
		return false, nil
	}
	return err != nil || b.Length > 0, nil
}
