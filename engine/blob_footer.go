package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble v2.1.7 ends the process when the footer of a file of separated values is damaged: it wants to report
// the damage and has nothing to report it about. So such a file is looked at before Pebble opens it, and damage is
// an ordinary error of opening the file. The footer, little endian, is the last 38 bytes:
//
//	crc32c(4, masked, of what follows) index offset(8) index length(8) checksum type(1) format(1) file number(8) magic(8)

const (
	blobSuffix    = ".blob"
	blobFooterLen = 38
	blobFormatAt  = 21
	blobFormat    = 1
	crcMask       = 0xa282ead8
)

// BlobError says that a file of separated values cannot be opened.
type BlobError struct {
	Path   string
	Reason string
}

func (e *BlobError) Error() string { return fmt.Sprintf("value file %s damaged: %s", e.Path, e.Reason) }

// Open is vfs.FS's. *BlobError: the file's footer is damaged.
func (f *orderedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err != nil || filepath.Ext(name) != blobSuffix {
		return file, err
	}
	if err := checkBlobFooter(name, file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func checkBlobFooter(name string, file vfs.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < blobFooterLen {
		return &BlobError{name, fmt.Sprintf("%d bytes, want at least %d", info.Size(), blobFooterLen)}
	}
	var b [blobFooterLen]byte
	if _, err := file.ReadAt(b[:], info.Size()-blobFooterLen); err != nil {
		return err
	}
	sum := crc32.Checksum(b[4:], castagnoli)
	sum = (sum>>15 | sum<<17) + crcMask
	if want := binary.LittleEndian.Uint32(b[:]); sum != want {
		return &BlobError{name, fmt.Sprintf("footer checksum %08x, want %08x", sum, want)}
	}
	if b[blobFormatAt] != blobFormat {
		return &BlobError{name, fmt.Sprintf("format %d, this program knows %d only", b[blobFormatAt], blobFormat)}
	}
	return nil
}
