package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
)

// FolderBytes returns the bytes that the files below dir have by their lengths. Files that go away
// meanwhile do not count; a folder that does not exist holds 0.
func FolderBytes(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("size of %s: %w", dir, err)
	}
	return sum, nil
}

// FreeBytes returns what a process without privileges may still write where dir is.
func FreeBytes(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// WantFree returns an error when less than want bytes are free where dir is.
func WantFree(dir string, want int64) error {
	free, err := FreeBytes(dir)
	if err == nil && free < want {
		err = fmt.Errorf("%s: %d MB free, this needs %d MB", dir, free>>20, want>>20)
	}
	return err
}
