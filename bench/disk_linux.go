package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const diskBlock = 4 << 10

// diskReads returns how many blocks of 4 KiB the disk gives in a second, from random places in the files below dir, with so many
// readers at once. It goes around the page cache, so it is what a store without any memory could reach.
func diskReads(ctx context.Context, dir string, depth int, length time.Duration) (float64, error) {
	files, err := openDirect(dir)
	defer func() {
		for _, f := range files {
			unix.Close(f.fd)
		}
	}()
	if err != nil {
		return 0, err
	}
	var total int64
	for _, f := range files {
		total += f.blocks
	}
	if total == 0 {
		return 0, fmt.Errorf("disk reads: no file of a block below %s", dir)
	}
	var reads atomic.Int64
	var wg sync.WaitGroup
	faults := make([]error, depth)
	began := time.Now()
	for i := range depth {
		wg.Go(func() { // ends with the time or with ctx
			rng := rand.New(rand.NewPCG(uint64(i), uint64(began.UnixNano())))
			buf := alignedBlocks(diskBlock)
			for time.Since(began) < length && ctx.Err() == nil {
				if faults[i] = readBlock(files, rng.Int64N(total), buf); faults[i] != nil {
					return
				}
				reads.Add(1)
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	return float64(reads.Load()) / took.Seconds(), errors.Join(errors.Join(faults...), ctx.Err())
}

const (
	busyWriters = 4
	busyBlock   = 1 << 20   // bytes of a write
	busyFile    = 128 << 20 // bytes of a writer's file
	busySync    = 8         // writes between two syncs
)

// diskWrites writes around the page cache to files of its own in dir, as fast as the disk takes it, until ctx ends. The
// files are removed.
func diskWrites(ctx context.Context, dir string) error {
	var wg sync.WaitGroup
	faults := make([]error, busyWriters)
	for i := range faults {
		wg.Go(func() { // ends with ctx
			faults[i] = busyWriter(ctx, filepath.Join(dir, fmt.Sprintf("busy-%d", i)))
		})
	}
	wg.Wait()
	return errors.Join(faults...)
}

func busyWriter(ctx context.Context, path string) (err error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_DIRECT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("disk writes: %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd), unix.Unlink(path)) }()
	buf := alignedBlocks(busyBlock)
	for n := int64(0); ctx.Err() == nil; n++ {
		if _, err := unix.Pwrite(fd, buf, n*busyBlock%busyFile); err != nil {
			return fmt.Errorf("disk writes: %s: %w", path, err)
		}
		if n%busySync == 0 {
			if err := unix.Fdatasync(fd); err != nil {
				return fmt.Errorf("disk writes: %s: %w", path, err)
			}
		}
	}
	return nil
}

// directFile is a file opened around the page cache.
type directFile struct {
	fd     int
	blocks int64
}

func openDirect(dir string) (files []directFile, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var f directFile
			if f, err = openBlocks(path, d); err == nil && f.blocks > 0 {
				files = append(files, f)
			}
		}
		if path != dir && errors.Is(err, fs.ErrNotExist) {
			return nil // a compaction has ended meanwhile
		}
		return err
	})
	return files, err
}

// openBlocks opens a file that has whole blocks.
func openBlocks(path string, d fs.DirEntry) (directFile, error) {
	info, err := d.Info()
	if err != nil || info.Size() < diskBlock {
		return directFile{}, err
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return directFile{}, fmt.Errorf("disk reads: %s: %w", path, err)
	}
	return directFile{fd, info.Size() / diskBlock}, nil
}

// readBlock reads the block with that number, counted through all files.
func readBlock(files []directFile, number int64, buf []byte) error {
	for _, f := range files {
		if number < f.blocks {
			_, err := unix.Pread(f.fd, buf, number*diskBlock)
			return err
		}
		number -= f.blocks
	}
	return nil
}

// alignedBlocks is memory of so many bytes, whole blocks, that reads and writes around the page cache may use.
func alignedBlocks(bytes int) []byte {
	raw := make([]byte, bytes+diskBlock)
	skip := diskBlock - int(uintptr(unsafe.Pointer(&raw[0]))%diskBlock)
	return raw[skip : skip+bytes]
}
