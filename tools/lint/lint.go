// Package lint holds the house rules of this tree as a test.
//
// Shape. A Tree is what Load read from a folder. Each of Rules looks at a Tree and
// returns its faults. The test adds what other programs check better: gofumpt and
// go vet.
//
// Errors. A Fault names the file, the line, what is there and what to do instead.
// An exception is a line in a table of this package, with its reason.
//
// Not here: who may import whom; that is tools/floorplan.
package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Tree is the source of a module.
type Tree struct {
	Fset  *token.FileSet
	Files []File // by rising path
}

// File is one file. Go is nil for what is not Go.
type File struct {
	Path string // from the root, with forward slashes
	Text []byte
	Go   *ast.File
}

// Fault is one broken rule.
type Fault struct {
	Path string
	Line int // 1 is the first; 0 if the fault has no line
	Text string
}

func (f Fault) String() string {
	if f.Line == 0 {
		return f.Path + ": " + f.Text
	}
	return fmt.Sprintf("%s:%d: %s", f.Path, f.Line, f.Text)
}

// textFiles are the files besides Go that people write.
var textFiles = []string{".md", ".sh", ".yml", ".yaml", ".toml", ".conf", ".service", ".txt", ".txtar", ".py", ".html"}

// skipped are folders with nothing written by people. Hidden folders other than
// those of continuous integration are skipped, too.
var skipped = []string{"bin", "data", "vendor", "node_modules"}

// Load reads the tree at root. It fails for Go that does not parse.
func Load(root string) (Tree, error) {
	tree := Tree{Fset: token.NewFileSet()}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		base := path.Base(relative)
		if d.IsDir() {
			hidden := strings.HasPrefix(base, ".") && !slices.Contains([]string{".", ".ci", ".github"}, base)
			// Only at the root: a package may well be called data.
			if hidden || slices.Contains(skipped, relative) {
				return fs.SkipDir
			}
			return nil
		}
		isText := base == "Makefile" || strings.HasPrefix(relative, ".ci/") || slices.Contains(textFiles, path.Ext(base))
		if !d.Type().IsRegular() || !isText && path.Ext(base) != ".go" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return tree.Add(relative, text)
	})
	return tree, err
}

// Add adds one file. It fails for Go that does not parse; what is below a folder
// testdata is text.
func (t *Tree) Add(relative string, text []byte) error {
	f := File{Path: relative, Text: text}
	if path.Ext(relative) == ".go" && !slices.Contains(strings.Split(relative, "/"), "testdata") {
		parsed, err := parser.ParseFile(t.Fset, relative, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse: %w", err)
		}
		f.Go = parsed
	}
	t.Files = append(t.Files, f)
	return nil
}

// goFiles returns the Go files that people write: all but generated ones.
func (t Tree) goFiles() []File {
	var files []File
	for _, f := range t.Files {
		if f.Go != nil && !ast.IsGenerated(f.Go) {
			files = append(files, f)
		}
	}
	return files
}

// packages returns the folders with Go files that are not tests, by rising path,
// and the files of each.
func (t Tree) packages() ([]string, map[string][]File) {
	var folders []string
	files := map[string][]File{}
	for _, f := range t.Files {
		if f.Go == nil || f.isTest() {
			continue
		}
		folder := path.Dir(f.Path)
		if len(files[folder]) == 0 {
			folders = append(folders, folder)
		}
		files[folder] = append(files[folder], f)
	}
	slices.Sort(folders)
	return folders, files
}

func (f File) isTest() bool { return strings.HasSuffix(f.Path, "_test.go") }

func (f File) lines() int { return bytes.Count(f.Text, []byte("\n")) }

func (t Tree) line(n ast.Node) int { return t.Fset.Position(n.Pos()).Line }

// fault makes a fault at the line of n.
func (t Tree) fault(f File, n ast.Node, format string, args ...any) Fault {
	return Fault{f.Path, t.line(n), fmt.Sprintf(format, args...)}
}

// importName returns the name under which the file sees a package, "" if it does
// not import it.
func (f File) importName(importPath string) string {
	for _, spec := range f.Go.Imports {
		if spec.Path.Value != `"`+importPath+`"` {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}

// selectors calls visit for each name of a package that the file uses: for
// fmt.Println, the node and "Println".
func (f File) selectors(importPath string, visit func(n ast.Node, name string)) {
	local := f.importName(importPath)
	if local == "" {
		return
	}
	ast.Inspect(f.Go, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == local {
				visit(s, s.Sel.Name)
			}
		}
		return true
	})
}

// funcName returns "Name" or "Type.Name".
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	kind := d.Recv.List[0].Type
	for {
		switch k := kind.(type) {
		case *ast.StarExpr:
			kind = k.X
		case *ast.IndexExpr:
			kind = k.X
		case *ast.IndexListExpr:
			kind = k.X
		case *ast.Ident:
			return k.Name + "." + d.Name.Name
		default:
			return d.Name.Name
		}
	}
}
