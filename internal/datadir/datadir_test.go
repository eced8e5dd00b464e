package datadir_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"cairn/internal/datadir"
)

func TestOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ dir, appendDir, want string }{
		{"/d", "", "/d/cairn"},
		{"/d", "appendonlydir", "/d/cairn"},
		{"/d", "appendonlydir-30001", "/d/appendonlydir-30001/cairn"},
		{"d", "a", "d/a/cairn"},
	} {
		if got := datadir.Of(c.dir, c.appendDir); got != c.want {
			t.Errorf("Of(%q, %q) = %q, want %q", c.dir, c.appendDir, got, c.want)
		}
	}
}

// TestLock: one holder at a time, known by its process id, whatever a file left behind says.
func TestLock(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "new", "cairn")
	if pid, held, err := datadir.Holder(folder); pid != 0 || held || err != nil {
		t.Fatalf("no folder: holder %d, %v, %v", pid, held, err)
	}
	lock, err := datadir.Take(folder)
	if err != nil {
		t.Fatal(err)
	}
	if pid, held, err := datadir.Holder(folder); pid != os.Getpid() || !held || err != nil {
		t.Errorf("held: holder %d, %v, %v; want %d", pid, held, err, os.Getpid())
	}
	_, err = datadir.Take(folder)
	var used *datadir.InUseError
	if !errors.As(err, &used) || used.Pid != os.Getpid() || used.Folder != folder {
		t.Errorf("second lock: %v, want one in use by %d", err, os.Getpid())
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if pid, held, err := datadir.Holder(folder); pid != 0 || held || err != nil {
		t.Errorf("released: holder %d, %v, %v", pid, held, err)
	}
	// What the last holder, or anybody, left in the file is not believed, and is written over.
	if err := os.WriteFile(filepath.Join(folder, "pid"), []byte("99999999999999999999999 and more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err = datadir.Take(folder)
	if err != nil {
		t.Fatal(err)
	}
	if pid, held, err := datadir.Holder(folder); pid != os.Getpid() || !held || err != nil {
		t.Errorf("held again: holder %d, %v, %v", pid, held, err)
	}
	if err := datadir.Forget(folder); err != nil {
		t.Error(err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}
