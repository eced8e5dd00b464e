//go:build linux && (amd64 || arm64)

package coldread

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// checkIdle says that a queue that nobody uses has nothing left of those who did.
func checkIdle(t *testing.T, q *Queue) {
	t.Helper()
	if q.first != nil || q.length != 0 || q.leading != 0 {
		t.Errorf("%d reads wait, %d lead", q.length, q.leading)
	}
}

// Whether leaders bring the others their bytes or everybody waits for himself: each gets his own.
func TestLeadersServeAll(t *testing.T) {
	for _, doubts := range []int{0, trust - 1, trust} {
		const size, readers = 8 << 20, 64
		file, content := newFile(t, t.TempDir(), size)
		if err := file.Sync(); err != nil {
			t.Fatal(err)
		}
		q := &Queue{doubts: doubts}
		f := New(q, file, file.Name())
		var wg sync.WaitGroup
		for id := range readers {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(id), 4))
				got := make([]byte, 16<<10)
				for i := range 100 {
					if i%20 == 0 {
						forget(t, file)
					}
					p := got[:1+rnd.IntN(len(got))]
					pos := rnd.IntN(size)
					n, err := f.ReadAt(p, int64(pos))
					if want := content[pos:min(pos+len(p), size)]; !bytes.Equal(p[:n], want) || (err == nil) != (n == len(p)) {
						t.Errorf("%d bytes at %d: %d, %v", len(p), pos, n, err)
						return
					}
				}
			})
		}
		wg.Wait()
		checkIdle(t, q)
	}
}

// Reads that can never be served are told so, each of them, however many wait.
func TestAllHearOfAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "written")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	q := &Queue{}
	f := New(q, file, path)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range 50 {
				if n, err := f.ReadAt(make([]byte, 10), 0); n != 0 || !errors.Is(err, syscall.EBADF) {
					t.Errorf("%d bytes, %v", n, err)
				}
			}
		})
	}
	wg.Wait()
	checkIdle(t, q)
}

// A leader that finds nothing in a long queue loses trust, one that finds something regains it; without trust all lead.
func TestTrust(t *testing.T) {
	file, content := newFile(t, t.TempDir(), 1000)
	bad, err := os.OpenFile(filepath.Join(t.TempDir(), "written"), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close()
	q := &Queue{leading: leaders} // the test is one of them
	good, never := New(q, file, "good"), New(q, bad, "never")
	if _, err := good.ReadAt(make([]byte, 1000), 0); err != nil { // it is in the page cache now
		t.Fatal(err)
	}
	wait := func(f *File, n int) (all []*read) {
		for range n {
			r := &read{f: f, p: make([]byte, 100), pos: 50, wake: make(chan struct{}, 1)}
			q.append(r)
			all = append(all, r)
		}
		return all
	}
	all := wait(never, 10)
	if _, err := q.lead(good, make([]byte, 10), 0, true); err != nil || q.doubts != 1 || q.length != 9 || !all[0].lead {
		t.Errorf("nothing ready: %v, %d doubts, %d wait, the first leads: %v", err, q.doubts, q.length, all[0].lead)
	}
	q.doubts = trust - 1
	if _, err := q.lead(good, make([]byte, 10), 0, true); err != nil || q.length != 0 {
		t.Errorf("without trust %d still wait, %v", q.length, err)
	}
	for i, r := range all {
		if len(r.wake) != 1 || !r.lead {
			t.Errorf("read %d was not told to lead", i)
		}
	}
	q.leading, q.doubts = leaders, trust-1
	all = append(wait(never, 1), wait(good, 3)...)
	at := all[1].p
	if _, err := q.lead(good, make([]byte, 10), 0, true); err != nil || q.doubts != 0 || q.length != 0 || !bytes.Equal(at, content[50:150]) {
		t.Errorf("some ready: %v, %d doubts, %d wait", err, q.doubts, q.length)
	}
	for i, r := range all {
		if len(r.wake) != 1 || r.lead != (i == 0) {
			t.Errorf("read %d: woken %v, leads %v", i, len(r.wake) == 1, r.lead)
		}
	}
}
