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
			buf := alignedBlock()
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

// directFile is a file opened around the page cache.
type directFile struct {
	fd     int
	blocks int64
}

func openDirect(dir string) (files []directFile, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil || info.Size() < diskBlock {
			return err
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("disk reads: %s: %w", path, err)
		}
		files = append(files, directFile{fd, info.Size() / diskBlock})
		return nil
	})
	return files, err
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

// alignedBlock is memory that reads around the page cache may go to.
func alignedBlock() []byte {
	raw := make([]byte, 2*diskBlock)
	skip := diskBlock - int(uintptr(unsafe.Pointer(&raw[0]))%diskBlock)
	return raw[skip : skip+diskBlock]
}
