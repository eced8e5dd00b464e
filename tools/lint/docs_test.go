package lint_test

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cairn/tools/lint"
)

// What the pages name is there: files, headings, tests, make targets. What they show is there
// too: see sessions_test.go.

// page is one Markdown file.
type page struct {
	path string // from the root, with forward slashes
	text string
}

func pages(t *testing.T) (found []page) {
	t.Helper()
	tree, err := lint.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range tree.Files {
		if path.Ext(f.Path) == ".md" {
			found = append(found, page{f.Path, string(f.Text)})
		}
	}
	if len(found) < 5 {
		t.Fatalf("%d pages found below %s", len(found), root)
	}
	return found
}

var (
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
)

// faultyLinks lists the links of a page that lead nowhere. read gives the text of a page, and
// whether there is such a file.
func faultyLinks(p page, read func(name string) (text string, ok bool)) (faults []string) {
	for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(p.text, ""), -1) {
		if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
			continue
		}
		name, anchor, _ := strings.Cut(m[1], "#")
		target := p.path
		if name != "" {
			target = path.Join(path.Dir(p.path), name)
		}
		text, ok := read(target)
		switch {
		case !ok:
			faults = append(faults, m[1]+": no such file")
		case anchor != "" && !slices.Contains(anchors(text), anchor):
			faults = append(faults, m[1]+": no such heading")
		}
	}
	return faults
}

// anchors are the names that a page's headings have on the sites that show Markdown.
func anchors(text string) (names []string) {
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		name := drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(m[1])), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

func TestLinks(t *testing.T) {
	read := func(name string) (string, bool) {
		name = filepath.Join(root, filepath.FromSlash(name))
		if info, err := os.Stat(name); err != nil || info.IsDir() {
			return "", err == nil
		}
		text, err := os.ReadFile(name)
		return string(text), err == nil
	}
	for _, p := range pages(t) {
		for _, fault := range faultyLinks(p, read) {
			t.Errorf("%s: link to %s", p.path, fault)
		}
	}
}

func TestLinksFind(t *testing.T) {
	p := page{"docs/a.md", "# Top: *one* thing\n[a](b.md) [b](../README.md#now) [c](gone.md) [d](#top-one-thing) [e](#no)\n" +
		"[f](https://example.org/x)\n```\n[g](fenced.md)\n```\n"}
	files := map[string]string{"docs/a.md": p.text, "docs/b.md": "", "README.md": "## Now\n"}
	got := faultyLinks(p, func(name string) (string, bool) { text, ok := files[name]; return text, ok })
	if want := []string{"gone.md: no such file", "#no: no such heading"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

var (
	namedTest = regexp.MustCompile("`(?:([a-z][a-z/]*) )?((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)`")
	namedPath = regexp.MustCompile("`((?:cmd|server|engine|wal|cluster|replication|internal|tools|docs|packaging)/[a-zA-Z0-9_./-]+)`")
	namedMake = regexp.MustCompile("`make ([a-z-]+)")
)

// TestNamedTests: a test that a page names is in the folder it gives, or anywhere when it gives none.
func TestNamedTests(t *testing.T) {
	tree, err := lint.Load(root)
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, f := range tree.Files {
		if f.Go == nil || !strings.HasSuffix(f.Path, "_test.go") {
			continue
		}
		for _, decl := range f.Go.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && d.Recv == nil {
				there[d.Name.Name] = true
				there[path.Dir(f.Path)+" "+d.Name.Name] = true
			}
		}
	}
	count := 0
	for _, p := range pages(t) {
		for _, m := range namedTest.FindAllStringSubmatch(p.text, -1) {
			count++
			if name := strings.TrimSpace(m[1] + " " + m[2]); !there[name] {
				t.Errorf("%s: names the test %s, which is not there", p.path, name)
			}
		}
	}
	if count == 0 {
		t.Error("no page names a test")
	}
}

func TestNamedPaths(t *testing.T) {
	name := regexp.MustCompile(`\.[A-Z]\w*$`) // of a type or a function in the package
	for _, p := range pages(t) {
		for _, m := range namedPath.FindAllStringSubmatch(p.text, -1) {
			file := name.ReplaceAllString(m[1], "")
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(file))); err != nil {
				t.Errorf("%s: names %s, which is not there", p.path, file)
			}
		}
	}
}

func TestNamedTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages(t) {
		for _, m := range namedMake.FindAllStringSubmatch(p.text, -1) {
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).Match(makefile) {
				t.Errorf("%s: names make %s, which is no target", p.path, m[1])
			}
		}
	}
}
