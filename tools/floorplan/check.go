package floorplan

import (
	"fmt"
	"slices"
	"strings"
)

// Source is what the go command says about one package of the tree.
type Source struct {
	ImportPath   string
	Imports      []string
	TestImports  []string // of _test.go files in the package
	XTestImports []string // of _test.go files in the package beside it
}

// Check returns a sentence for each rule that the packages break, in the order of
// the packages. None is broken when it returns nil.
func Check(sources []Source) []string {
	c := newChecker()
	for _, s := range sources {
		c.source(s)
	}
	return c.faults
}

type checker struct {
	floor  map[string]int      // package to index in Plan
	may    map[string][]string // package to its expanded May
	faults []string
}

func newChecker() *checker {
	c := &checker{floor: map[string]int{}, may: map[string][]string{}}
	for i, f := range Plan {
		for _, p := range f.Packages {
			c.floor[p.Path] = i
			for _, name := range p.May {
				if group, ok := groups[name]; ok {
					c.may[p.Path] = append(c.may[p.Path], group...)
				} else {
					c.may[p.Path] = append(c.may[p.Path], name)
				}
			}
		}
	}
	return c
}

func (c *checker) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

func (c *checker) source(s Source) {
	path := own(s.ImportPath)
	if _, ok := c.floor[path]; !ok {
		c.fault("%s is on no floor: give it a line in Plan, tools/floorplan/plan.go, and say why in the commit", path)
		return
	}
	for _, imported := range s.Imports {
		switch {
		case isOwn(imported):
			c.ownImport(path, own(imported))
		case isLibrary(imported):
			c.libraryImport(path, imported, false)
		}
		c.bans(path, imported)
	}
	for _, imported := range slices.Concat(s.TestImports, s.XTestImports) {
		if isLibrary(imported) {
			c.libraryImport(path, imported, true)
		}
	}
}

// ownImport checks the import of one of our packages by another's ordinary files.
func (c *checker) ownImport(path, imported string) {
	from, to := c.floor[path], -1
	if floor, ok := c.floor[imported]; ok {
		to = floor
	}
	switch {
	case imported == Testkit:
		c.fault("%s imports %s: it starts processes for tests; only _test.go files import it", path, imported)
	case to < 0:
		// Its own line says that it is on no floor.
	case to >= from:
		c.fault("%s (floor %q) imports %s (floor %q): a package imports lower floors only; declare the interface you need and let a higher floor pass it in",
			path, Plan[from].Name, imported, Plan[to].Name)
	case !slices.Contains(c.may[path], imported) && !slices.Contains(c.may[path], "below"):
		c.fault("%s imports %s, which its line in Plan does not allow: it may import %s",
			path, imported, orNothing(c.may[path]))
	}
}

// libraryImport checks the door of a library.
func (c *checker) libraryImport(path, imported string, test bool) {
	door, ok := doorOf(imported)
	if !ok {
		c.fault("%s imports %s, a library with no door: give it a line in Doors, tools/floorplan/plan.go, and say why in the commit", path, imported)
		return
	}
	allowed := door.Doors
	if test {
		allowed = slices.Concat(door.Doors, door.Tests)
	}
	if !slices.ContainsFunc(allowed, func(pattern string) bool { return covers(pattern, path) }) {
		where := "files"
		if test {
			where = "tests"
		}
		c.fault("%s imports %s in its %s: the door of %s is %s; use what that package offers",
			path, imported, where, door.Library, orNothing(allowed))
	}
}

func (c *checker) bans(path, imported string) {
	for _, ban := range Bans[path] {
		if !harmless[imported] && within(ban.Import, imported) {
			c.fault("%s imports %s, which is banned there: %s", path, imported, ban.Why)
		}
	}
}

// doorOf returns the line with the longest path that the import is within.
func doorOf(imported string) (best Door, ok bool) {
	for _, d := range Doors {
		if within(d.Library, imported) && len(d.Library) > len(best.Library) {
			best, ok = d, true
		}
	}
	return best, ok
}

// covers reports whether path is what pattern names.
func covers(pattern, path string) bool {
	if pattern == "..." {
		return true
	}
	if root, ok := strings.CutSuffix(pattern, "/..."); ok {
		return within(root, path)
	}
	return pattern == path
}

// within reports whether path is root or below it.
func within(root, path string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}

func isOwn(imported string) bool { return within(Module, imported) }

// isLibrary reports whether the import is neither ours nor the standard library's,
// whose first element has no dot.
func isLibrary(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return strings.Contains(first, ".")
}

// own takes the module's name off an import path of ours.
func own(path string) string { return strings.TrimPrefix(path, Module+"/") }

func orNothing(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}
