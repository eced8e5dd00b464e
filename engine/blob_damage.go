package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble v2.1.7 ends the process when a background rewrite, or the opening, of a file of separated values meets
// damage: it wants to report it and has nothing to report it about. So checksums of such files are looked at
// before Pebble does, and damage is an ordinary error of reading. Pebble reads one block with its trailer at a
// time, and the footer when it opens the file. All integers little endian:
//
//	block    data  kind(1) crc32c(4, masked, of data and kind)
//	footer   crc32c(4, masked, of what follows) index offset(8) index length(8) checksum type(1) format(1)
//	         file number(8) magic(8)
const (
	blobSuffix     = ".blob"
	blobFooterLen  = 38
	blobTrailerLen = 5
	blobIndexAt    = 4
	blobSumTypeAt  = 20
	blobSumCRC32C  = 1
	blobFormatAt   = 21
	blobFormat     = 1
	crcMask        = 0xa282ead8
)

// BlobError says that a file of separated values does not read back.
type BlobError struct {
	Path   string
	Pos    int64 // byte of the file
	Reason string
}

func (e *BlobError) Error() string {
	return fmt.Sprintf("value file %s damaged: byte %d: %s", e.Path, e.Pos, e.Reason)
}

// Open is vfs.FS's. *BlobError: the file's footer is damaged.
func (f *orderedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err != nil || !isBulk(name) {
		return file, err
	}
	plain := file
	file = f.openCold(file, name, opts)
	if filepath.Ext(name) != blobSuffix {
		return file, nil
	}
	b := &blobFile{File: file, path: name, damaged: f.damaged}
	if file != plain {
		b.stream = &stream{pool: &f.streams}
	}
	if err := b.checkFooter(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return b, nil
}

// blobFile checks what is read of a file of separated values.
type blobFile struct {
	vfs.File
	path    string
	damaged func(error)
	footer  int64 // where it begins
	index   int64 // and the index
	blocks  bool  // their checksums are known to be of the usual kind
	stream  *stream
}

// Close is vfs.File's.
func (f *blobFile) Close() error {
	if f.stream != nil {
		f.stream.close()
	}
	return f.File.Close()
}

// ReadAt is vfs.File's. *BlobError: the block that was asked for is damaged.
func (f *blobFile) ReadAt(p []byte, pos int64) (n int, err error) {
	switch {
	case f.stream == nil || f.index == 0:
		n, err = f.File.ReadAt(p, pos)
	case pos == f.index:
		n, err = f.stream.readIndex(f.File, p, pos)
	case f.stream.read(f.File, p, pos, f.index):
		n = len(p)
	default:
		n, err = f.File.ReadAt(p, pos)
	}
	if err != nil || !f.blocks || n <= blobTrailerLen || pos+int64(n) > f.footer {
		return n, err
	}
	return n, f.check(pos, maskedCRC(p[:n-4]), p[n-4:])
}

func (f *blobFile) checkFooter() error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	f.footer = info.Size() - blobFooterLen
	if f.footer < 0 {
		return f.damage(0, fmt.Sprintf("file has %d bytes, want at least %d", info.Size(), blobFooterLen))
	}
	var b [blobFooterLen]byte
	if _, err := f.File.ReadAt(b[:], f.footer); err != nil {
		return err
	}
	if err := f.check(f.footer, maskedCRC(b[4:]), b[:]); err != nil {
		return err
	}
	if b[blobFormatAt] != blobFormat {
		return f.damage(f.footer, fmt.Sprintf("format %d, this program knows %d only", b[blobFormatAt], blobFormat))
	}
	f.blocks = b[blobSumTypeAt] == blobSumCRC32C
	f.index = int64(binary.LittleEndian.Uint64(b[blobIndexAt:]))
	return nil
}

func (f *blobFile) check(pos int64, sum uint32, stored []byte) error {
	if want := binary.LittleEndian.Uint32(stored); sum != want {
		return f.damage(pos, fmt.Sprintf("checksum %08x, want %08x", sum, want))
	}
	return nil
}

func (f *blobFile) damage(pos int64, reason string) error {
	err := &BlobError{f.path, pos, reason}
	f.damaged(err)
	return err
}

// maskedCRC is the checksum as Pebble stores it.
func maskedCRC(b []byte) uint32 {
	sum := crc32.Checksum(b, castagnoli)
	return (sum>>15 | sum<<17) + crcMask
}
