package floorplan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"cairn/tools/floorplan"
)

func TestTree(t *testing.T) {
	sources := list(t)
	if len(sources) == 0 {
		t.Fatal("the go command lists no package")
	}
	for _, fault := range floorplan.Check(sources) {
		t.Error(fault)
	}
}

// list asks the go command for every package, without and with the build tags in
// use. A package that does not compile is listed all the same: its imports count.
func list(t *testing.T) []floorplan.Source {
	t.Helper()
	var order []string
	merged := map[string]floorplan.Source{}
	for _, tags := range []string{"", "invariants,e2e"} {
		cmd := exec.Command("go", "list", "-e", "-tags", tags,
			"-json=ImportPath,Imports,TestImports,XTestImports", "./...")
		cmd.Dir = "../.."
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, &stderr)
		}
		decoder := json.NewDecoder(bytes.NewReader(out))
		for {
			var s floorplan.Source
			err := decoder.Decode(&s)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("output of go list: %v", err)
			}
			before, seen := merged[s.ImportPath]
			if !seen {
				order = append(order, s.ImportPath)
			}
			merged[s.ImportPath] = floorplan.Source{
				ImportPath:   s.ImportPath,
				Imports:      union(before.Imports, s.Imports),
				TestImports:  union(before.TestImports, s.TestImports),
				XTestImports: union(before.XTestImports, s.XTestImports),
			}
		}
	}
	var sources []floorplan.Source
	for _, path := range order {
		sources = append(sources, merged[path])
	}
	return sources
}

func union(a, b []string) []string {
	both := slices.Concat(a, b)
	slices.Sort(both)
	return slices.Compact(both)
}

// Each broken rule is found, and what is allowed is not.
func TestCheckFinds(t *testing.T) {
	for _, c := range []struct {
		path, imported string
		test           bool
		want           string // part of the sentence; "" if the import is allowed
	}{
		{"engine", "cairn/engine/layout", false, ""},
		{"engine", "github.com/cockroachdb/pebble/v2", false, ""},
		{"engine", "github.com/cockroachdb/pebble/v2/sstable", true, ""},
		{"wal", "github.com/cockroachdb/pebble/v2/vfs", false, ""},
		{"wal", "github.com/cockroachdb/pebble/v2/vfs/errorfs", true, ""},
		{"server", "cairn/engine", false, ""},
		{"cluster", "net/netip", false, ""},
		{"cluster", "time", true, ""},
		{"cluster", "cairn/server", true, ""},
		{"cluster", "cairn/internal/testkit", true, ""},
		{"cluster", "pgregory.net/rapid", true, ""},
		{"engine/pending", "github.com/tidwall/btree", false, ""},
		{"engine/cache", "cairn/engine/layout", false, ""},
		{"cmd/cairn", "cairn/tools/admin", false, ""},

		{"surprise", "fmt", false, "surprise is on no floor"},
		{"engine", "cairn/server", false, "lower floors only"},
		{"engine", "cairn/wal", false, "lower floors only"},
		{"cluster/bus", "cairn/engine", false, "does not allow"},
		{"cmd/cairn", "cairn/engine", false, "does not allow"},
		{"internal/slot", "cairn/internal/resp", false, "lower floors only"},
		{"server", "cairn/tools/admin", false, "lower floors only"},
		{"server", "cairn/internal/testkit", false, "only _test.go files"},
		{"wal", "github.com/cockroachdb/pebble/v2", false, "the door of github.com/cockroachdb/pebble/v2 is engine"},
		{"wal", "github.com/cockroachdb/pebble/v2", true, "in its tests"},
		{"engine", "github.com/tidwall/redcon", false, "the door of github.com/tidwall/redcon is server, internal/resp"},
		{"server", "github.com/klauspost/compress/zstd", false, "the door of github.com/klauspost/compress"},
		{"server", "github.com/spf13/viper", false, "the door of github.com/spf13/viper"},
		{"server", "github.com/tidwall/btree", false, "the door of github.com/tidwall/btree"},
		{"engine", "pgregory.net/rapid", false, "is nothing"},
		{"engine", "example.org/new", false, "a library with no door"},
		{"cluster", "time", false, "banned"},
		{"cluster", "sync/atomic", false, "banned"},
		{"cluster", "math/rand/v2", false, "banned"},
		{"cluster/wire", "io", false, "banned"},
		{"server/command", "net", false, "banned"},
	} {
		s := floorplan.Source{ImportPath: "cairn/" + c.path}
		if c.test {
			s.XTestImports = []string{c.imported}
		} else {
			s.Imports = []string{c.imported}
		}
		got := strings.Join(floorplan.Check([]floorplan.Source{s}), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s imports %s, in a test %v: got %q, want %q", c.path, c.imported, c.test, got, c.want)
		}
	}
}

// The tables themselves hold what they promise: a name in one of them is a
// package of the plan, and no line allows a floor that is not lower.
func TestTables(t *testing.T) {
	floor := map[string]int{}
	for i, f := range floorplan.Plan {
		for _, p := range f.Packages {
			if _, twice := floor[p.Path]; twice {
				t.Errorf("%s has two lines in Plan", p.Path)
			}
			floor[p.Path] = i
		}
	}
	for i, f := range floorplan.Plan {
		for _, p := range f.Packages {
			for _, imported := range p.May {
				if to, ok := floor[imported]; ok && to >= i {
					t.Errorf("%s may import %s, which is on no lower floor", p.Path, imported)
				}
			}
		}
	}
	for path := range floorplan.Bans {
		if _, ok := floor[path]; !ok {
			t.Errorf("Bans names %s, which is not in Plan", path)
		}
	}
	for _, d := range floorplan.Doors {
		for _, pattern := range slices.Concat(d.Doors, d.Tests) {
			path, open := strings.CutSuffix(pattern, "...")
			if _, ok := floor[path]; !ok && !open {
				t.Errorf("the door of %s names %s, which is not in Plan", d.Library, pattern)
			}
		}
	}
}
