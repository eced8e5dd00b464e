package bench

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cairn/internal/testkit"
)

func TestSelectScenarios(t *testing.T) {
	t.Parallel()
	for patterns, want := range map[string]string{
		"larger-*,restart,larger-4x": "larger-4x larger-10x restart",
		"restart":                    "restart",
	} {
		all, err := SelectScenarios(Scenarios(), strings.Split(patterns, ","))
		var names []string
		for _, s := range all {
			names = append(names, s.Name)
		}
		if got := strings.Join(names, " "); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", patterns, got, err, want)
		}
	}
	if all, err := SelectScenarios(Scenarios(), []string{"all"}); err != nil || len(all) != len(Scenarios()) {
		t.Errorf("all: %d, %v", len(all), err)
	}
	if all, err := SelectScenarios(Scenarios(), nil); err != nil || len(all) > 0 {
		t.Errorf("no pattern: %d, %v", len(all), err)
	}
	for _, bad := range []string{"nothing", "["} {
		if _, err := SelectScenarios(Scenarios(), []string{bad}); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

func TestFigureRatio(t *testing.T) {
	t.Parallel()
	f := Figure{Ours: []float64{1, 2, 6}, Other: []float64{2, 2, 2}}
	if r := f.Ratio(); r != (Spread{1, 0.5, 3, 3}) {
		t.Errorf("%+v", r)
	}
	f.LessIsBetter = true
	if r := f.Ratio(); r != (Spread{1, 1.0 / 3, 2, 3}) {
		t.Errorf("less is better: %+v", r)
	}
	f.Other = nil
	if r := f.Ratio(); r.N != 0 {
		t.Errorf("nothing to compare with: %+v", r)
	}
}

func TestDiskReads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := diskReads(t.Context(), dir, 2, time.Millisecond); err == nil {
		t.Error("an empty folder: no error")
	}
	name := filepath.Join(dir, "data")
	if err := os.WriteFile(name, make([]byte, 3*diskBlock+100), 0o644); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Skipf("this file system has no reads around the page cache: %v", err)
	}
	unix.Close(fd)
	if rate, err := diskReads(t.Context(), dir, 2, 10*time.Millisecond); err != nil || rate <= 0 {
		t.Errorf("%v reads a second, %v", rate, err)
	}
}

func TestDiskWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fd, err := unix.Open(filepath.Join(dir, "try"), unix.O_CREAT|unix.O_WRONLY|unix.O_DIRECT, 0o600)
	if err != nil {
		t.Skipf("this file system has no writes around the page cache: %v", err)
	}
	unix.Close(fd)
	ctx, cancel := context.WithCancel(t.Context())
	fault := make(chan error, 1)
	go func() { fault <- diskWrites(ctx, dir) }()
	testkit.Eventually(t, 10*time.Second, func() bool {
		files, _ := filepath.Glob(filepath.Join(dir, "busy-*"))
		full := 0
		for _, name := range files {
			if info, err := os.Stat(name); err == nil && info.Size() > 0 {
				full++
			}
		}
		return full == busyWriters
	}, "all writers write")
	cancel()
	if err := <-fault; err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "busy-*")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}
