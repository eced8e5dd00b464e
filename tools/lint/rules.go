package lint

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	maxFuncLines = 70  // a function fits a screen
	maxFileLines = 800 // a file has one subject; 600 are a reason to look for two
)

// longFuncs may be longer than maxFuncLines: folder and function, and why.
var longFuncs = map[string]string{
	"replication/rdb writeStream": "one statement a type of value, in the order of the file",
}

// panics may stand outside internal/invariant: folder and function, and why.
var panics = map[string]string{
	"internal/invariant Fail":      "the one place where a broken belief ends the process",
	"internal/resp Framer.Advance": "a belief about our own caller, on the ground floor, where invariant is a neighbour",
}

// Rule is one house rule.
type Rule struct {
	Name  string
	Check func(Tree) []Fault
}

// Rules are all house rules.
var Rules = []Rule{
	{"package comment", packageComments},
	{"package name", packageNames},
	{"function size", functionSizes},
	{"file size", fileSizes},
	{"init", initFunctions},
	{"sleep", sleeps},
	{"print", prints},
	{"panic", panicCalls},
	{"words", identifierWords},
	{"fuzz", fuzzTargets},
	{"paths", machinePaths},
}

func packageComments(t Tree) (faults []Fault) {
	folders, files := t.packages()
	for _, folder := range folders {
		var with []File
		for _, f := range files[folder] {
			if f.Go.Doc != nil {
				with = append(with, f)
			}
		}
		switch {
		case len(with) == 0:
			faults = append(faults, Fault{
				folder, 0,
				"no package comment: write one in the main file, with shape, units, errors, source and what is not here",
			})
		case len(with) > 1:
			faults = append(faults, Fault{with[1].Path, 1, fmt.Sprintf(
				"a second package comment, %s has the first: keep one, and leave an empty line between a file's comment and its package clause", with[0].Path)})
		default:
			name := with[0].Go.Name.Name
			if text := with[0].Go.Doc.Text(); name != "main" && !strings.HasPrefix(text, "Package "+name+" ") {
				faults = append(faults, t.fault(with[0], with[0].Go.Doc, "the package comment begins %.30q: begin with %q", text, "Package "+name+" "))
			}
		}
	}
	return faults
}

// vague are names that say nothing about what is in a package.
var vague = []string{"util", "utils", "common", "base", "types", "helpers", "misc", "shared"}

func packageNames(t Tree) (faults []Fault) {
	for _, f := range t.goFiles() {
		if name := f.Go.Name.Name; slices.Contains(vague, name) {
			faults = append(faults, t.fault(f, f.Go.Name, "package %s: name it after what it holds", name))
		}
	}
	return faults
}

func functionSizes(t Tree) (faults []Fault) {
	for _, f := range t.goFiles() {
		for _, d := range functions(f) {
			size := t.Fset.Position(d.End()).Line - t.line(d) + 1
			if f.isTest() {
				size -= t.tableLines(d) // rows of a table are data
			}
			if longFuncs[key(f, d)] == "" && size > maxFuncLines {
				faults = append(faults, t.fault(f, d,
					"function %s has %d lines, at most %d: split it, or give it a line in longFuncs, tools/lint/rules.go, with the reason", funcName(d), size, maxFuncLines))
			}
		}
	}
	return faults
}

// tableLines counts the lines of the outermost literals in a function.
func (t Tree) tableLines(d *ast.FuncDecl) (lines int) {
	ast.Inspect(d, func(n ast.Node) bool {
		if l, ok := n.(*ast.CompositeLit); ok {
			lines += t.Fset.Position(l.End()).Line - t.line(l)
			return false
		}
		return true
	})
	return lines
}

func fileSizes(t Tree) (faults []Fault) {
	for _, f := range t.goFiles() {
		if n := f.lines(); n > maxFileLines {
			faults = append(faults, Fault{f.Path, 0, fmt.Sprintf("%d lines, at most %d: a file has one subject, find the second", n, maxFileLines)})
		}
	}
	return faults
}

func initFunctions(t Tree) (faults []Fault) {
	for _, f := range t.goFiles() {
		for _, d := range functions(f) {
			if d.Recv == nil && d.Name.Name == "init" {
				faults = append(faults, t.fault(f, d, "an init function: let main or a constructor call it, so that a reader sees the order"))
			}
		}
	}
	return faults
}

func sleeps(t Tree) (faults []Fault) {
	for _, f := range t.goFiles() {
		if !f.isTest() {
			continue
		}
		f.selectors("time", func(n ast.Node, name string) {
			if name == "Sleep" {
				faults = append(faults, t.fault(f, n, "time.Sleep in a test: wait for the thing itself, with testkit.Eventually, a channel or testing/synctest"))
			}
		})
	}
	return faults
}

func prints(t Tree) (faults []Fault) {
	for _, f := range t.goFiles() {
		if f.isTest() || f.Go.Name.Name == "main" {
			continue
		}
		f.selectors("fmt", func(n ast.Node, name string) {
			if strings.HasPrefix(name, "Print") {
				faults = append(faults, t.fault(f, n, "fmt.%s in a package: take an io.Writer, or log through the slog.Logger you are given", name))
			}
		})
		f.selectors("log", func(n ast.Node, name string) {
			faults = append(faults, t.fault(f, n, "log.%s in a package: return an error, or log through the slog.Logger you are given", name))
		})
	}
	return faults
}

func panicCalls(t Tree) (faults []Fault) {
	for _, f := range t.goFiles() {
		if f.isTest() {
			continue
		}
		for _, decl := range f.Go.Decls {
			name := ""
			if d, ok := decl.(*ast.FuncDecl); ok {
				name = key(f, d)
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "panic" && panics[name] == "" {
					faults = append(faults, t.fault(f, call,
						"panic: return an error for what comes from outside; invariant.Check for a broken belief about our own state"))
				}
				return true
			})
		}
	}
	return faults
}

// identifierWords holds only for names: text on the wire stays Redis's.
func identifierWords(t Tree) (faults []Fault) {
	for _, f := range t.goFiles() {
		ast.Inspect(f.Go, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && strings.Contains(strings.ToLower(id.Name), "slave") {
				faults = append(faults, t.fault(f, id, "%s: names say primary and replica", id.Name))
			}
			return true
		})
	}
	return faults
}

// fuzzTargets asks for one target in each package with an exported decoder; which
// decoders it reaches is for the reader to judge.
func fuzzTargets(t Tree) (faults []Fault) {
	fuzzed := map[string]bool{}
	for _, f := range t.goFiles() {
		for _, d := range functions(f) {
			if f.isTest() && strings.HasPrefix(d.Name.Name, "Fuzz") {
				fuzzed[path.Dir(f.Path)] = true
			}
		}
	}
	asked := map[string]bool{} // once a package
	for _, f := range t.goFiles() {
		folder := path.Dir(f.Path)
		for _, d := range functions(f) {
			decodes := strings.HasPrefix(d.Name.Name, "Decode") || strings.HasPrefix(d.Name.Name, "Parse")
			if f.isTest() || !decodes || fuzzed[folder] || asked[folder] {
				continue
			}
			asked[folder] = true
			faults = append(faults, t.fault(f, d, "%s, and no fuzz target in the package: bytes from outside must not panic, show it", funcName(d)))
		}
	}
	return faults
}

// homes are the first elements of absolute paths that exist on one machine only.
var homes = regexp.MustCompile("(^|[^A-Za-z0-9_.$}/-])/(" + strings.Join([]string{"home", "root", "Users", "work"}, "|") + ")/")

func machinePaths(t Tree) (faults []Fault) {
	for _, f := range t.Files {
		for i, line := range strings.Split(string(f.Text), "\n") {
			if homes.MatchString(line) {
				faults = append(faults, Fault{f.Path, i + 1, "a path of somebody's machine: take it as an argument, or use a temporary folder"})
			}
		}
	}
	return faults
}

func functions(f File) (found []*ast.FuncDecl) {
	for _, decl := range f.Go.Decls {
		if d, ok := decl.(*ast.FuncDecl); ok {
			found = append(found, d)
		}
	}
	return found
}

// key names a function in the tables of exceptions.
func key(f File, d *ast.FuncDecl) string { return path.Dir(f.Path) + " " + funcName(d) }
