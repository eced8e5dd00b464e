package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestServers(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server")
	}
	program := os.Getenv("TEST_CAIRN_BINARY") // one that is built already
	if program == "" {
		program = filepath.Join(t.TempDir(), "cairn")
		if out, err := exec.Command("go", "build", "-o", program, "cairn/cmd/cairn").CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
	}
	t.Run("compare", func(t *testing.T) { t.Parallel(); testCompare(t, program) })
	t.Run("interrupted", func(t *testing.T) { t.Parallel(); testInterrupted(t, program) })
}

// testCompare runs small rows against real servers and reads the report back.
func testCompare(t *testing.T, program string) {
	dir := t.TempDir()
	out, data := filepath.Join(dir, "out"), filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	err := Compare(t.Context(), Options{
		Program: []string{program, "server"}, Budget: "64mb", Args: []string{"--apply-interval", "20"}, Rows: []string{"mixed-p16", "load-p64", "open-get-50", "open-get-25"},
		Pairs: 1, Measure: 200 * time.Millisecond, Sustained: 1, Conns: 5, Scale: 0.001, Dir: data, Out: out, Stdout: &table,
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, table.String())
	}
	raw, err := os.ReadFile(filepath.Join(out, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	var rep Report
	if err := json.Unmarshal(raw, &rep); err != nil {
		t.Fatal(err)
	}
	if len(rep.Rows) != 4 || len(rep.Versions) != 2 {
		t.Fatalf("%d rows, versions %v; want 4 rows of 2 servers", len(rep.Rows), rep.Versions)
	}
	for _, r := range rep.Rows {
		for _, run := range r.Runs {
			if run.Ops == 0 || run.Rate <= 0 || run.P50Ms <= 0 || run.PeakBytes == 0 || run.Errors > 0 || run.Nulls > 0 {
				t.Errorf("%s: %+v", r.Row.Name, run)
			}
		}
		if !strings.Contains(table.String(), r.Row.Name) {
			t.Errorf("the table lacks %s:\n%s", r.Row.Name, table.String())
		}
	}
	for _, name := range []string{"throughput-hot", "cpu-hot", "memory-load", "disk-load", "latency-mixed-p16", "load-get"} {
		checkPicture(t, filepath.Join(out, name))
	}
	if page, err := os.ReadFile(filepath.Join(out, "report.md")); err != nil || !strings.Contains(string(page), "| mixed-p16 |") {
		t.Errorf("report.md: %v\n%s", err, page)
	}
	if left, err := os.ReadDir(data); err != nil || len(left) > 0 {
		t.Errorf("left in the data folder: %v, %v", left, err)
	}
}

// testInterrupted: when the user has had enough, nothing is left running or lying about, and there is a report.
func testInterrupted(t *testing.T, program string) {
	dir := t.TempDir()
	out, data := filepath.Join(dir, "out"), filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := &canceler{cancel: cancel}
	err := Compare(ctx, Options{
		Program: []string{program, "server"}, Budget: "64mb", Rows: []string{"get-p1"},
		Pairs: 1, Measure: time.Hour, Conns: 2, Scale: 0.001, Dir: data, Out: out, Stderr: watch, Terminal: true,
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v; progress: %s", err, context.Canceled, watch.said.String())
	}
	if left, err := os.ReadDir(data); err != nil || len(left) > 0 {
		t.Errorf("left in the data folder: %v, %v", left, err)
	}
	if page, err := os.ReadFile(filepath.Join(out, "report.md")); err != nil || !strings.Contains(string(page), "interrupted") {
		t.Errorf("report.md: %v\n%s", err, page)
	}
}

// canceler cancels once a side is measured.
type canceler struct {
	said   bytes.Buffer
	cancel func()
}

func (c *canceler) Write(p []byte) (int, error) {
	c.said.Write(p)
	if strings.Contains(string(p), "turn 1 of 2") {
		c.cancel()
	}
	return len(p), nil
}

func checkPicture(t *testing.T, name string) {
	t.Helper()
	f, err := os.Open(name + ".png")
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	if _, err := png.Decode(f); err != nil {
		t.Errorf("%s.png: %v", name, err)
	}
	raw, err := os.ReadFile(name + ".svg")
	if err != nil {
		t.Error(err)
		return
	}
	d := xml.NewDecoder(bytes.NewReader(raw))
	for err == nil {
		_, err = d.Token()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("%s.svg: %v", name, err)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	List(&b)
	for _, r := range Rows() {
		if !strings.Contains(b.String(), "  "+r.Name+" ") {
			t.Errorf("the list lacks %s", r.Name)
		}
	}
}
