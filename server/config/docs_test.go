package config

import (
	"bytes"
	goflag "flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

const (
	docsFile   = "../../docs/configuration.md"
	sampleFile = "../../cairn.conf"
)

// docsTable is the list of all directives, from the table.
func docsTable() string {
	rows := newDirectory().rows
	slices.SortFunc(rows, func(a, b param) int { return strings.Compare(a.name, b.name) })
	var b strings.Builder
	b.WriteString("\n| directive | default | values | set | effect |\n|---|---|---|---|---|\n")
	for i := range rows {
		p := &rows[i]
		name := "`" + p.name + "`"
		if p.alias != "" {
			name += ", `" + p.alias + "`"
		}
		def := p.def
		switch {
		case p.name == "dir":
			def = "where the process starts"
		case def == "":
			def = "empty"
		default:
			def = "`" + def + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, def, valueText(p), setText(p), effectText(p))
	}
	return b.String()
}

func valueText(p *param) string {
	switch p.kind {
	case kindBool:
		return "yes, no"
	case kindEnum:
		return strings.ReplaceAll(strings.Join(p.choices, ", "), "=", ", ")
	case kindBits:
		return "any of " + strings.Join(p.choices, ", ")
	case kindString:
		return "text"
	case kindSpecial:
		return "see redis.conf"
	}
	text := fmt.Sprintf("%d to %d", p.min, p.max)
	switch {
	case p.max >= math.MaxInt64:
		text = fmt.Sprintf("%d and more", p.min)
	case p.kind == kindOctal:
		text = fmt.Sprintf("%o to %o, octal", p.min, p.max)
	}
	if p.unit != "" {
		text += " [" + p.unit + "]"
	}
	return text
}

func setText(p *param) string {
	switch {
	case p.is(immutable):
		return "no"
	case p.is(protected):
		return "protected"
	}
	return "yes"
}

func effectText(p *param) string {
	switch {
	case p.is(ignored):
		return "none: " + p.why
	case p.is(refused):
		return "refused: " + p.why
	case p.is(fixed):
		return "fixed: " + p.why
	case p.is(noted) && p.is(own):
		return "cairn's own, none yet: " + p.why
	case p.is(noted):
		return "none: " + p.why
	case p.is(own):
		return "cairn's own"
	case p.is(hidden):
		return "as in Redis, hidden"
	}
	return "as in Redis"
}

var update = goflag.Bool("update", false, "write generated parts of documents")

func TestDocs(t *testing.T) {
	data, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(data), "-update -->\n")
	_, tail, closed := strings.Cut(rest, "<!-- end -->")
	if !found || !closed {
		t.Fatalf("%s has lost its marks", docsFile)
	}
	want := head + "-update -->\n" + docsTable() + "\n<!-- end -->" + tail
	if *update {
		if err := os.WriteFile(docsFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(data) {
		t.Errorf("%s is not what the table says: go test ./server/config -run TestDocs -update", docsFile)
	}
	for i, rows := 0, newDirectory().rows; i < len(rows); i++ {
		if rows[i].is(own) && !strings.Contains(head, "| `"+rows[i].name+"` |") {
			t.Errorf("%s is not explained in %s", rows[i].name, docsFile)
		}
	}
}

// The sample file loads as it is, and each line that is commented out (a # with
// no blank behind it) would load, too.
func TestSampleFile(t *testing.T) {
	data, err := os.ReadFile(sampleFile)
	if err != nil {
		t.Fatal(err)
	}
	c, notes, err := Load([]string{sampleFile}, nil, nil)
	if err != nil || len(notes) != 0 {
		t.Fatalf("notes %v, error %v", notes, err)
	}
	d := newDirectory()
	examples := 0
	for line := range bytes.Lines(data) {
		text := string(bytes.TrimSpace(line))
		if len(text) < 2 || text[0] != '#' || text[1] == ' ' {
			continue
		}
		examples++
		if r := readText(d, text[1:]); len(r.errs)+len(r.notes) > 0 {
			t.Errorf("%s: %v %v", text, r.errs, r.notes)
		}
	}
	if examples < 20 {
		t.Errorf("only %d examples", examples)
	}
	for i := range d.rows {
		if p := &d.rows[i]; p.is(own) && !bytes.Contains(data, []byte("\n"+p.name+" ")) && !bytes.Contains(data, []byte("\n#"+p.name+" ")) {
			t.Errorf("%s does not mention %s", sampleFile, p.name)
		}
	}
	wantValue(t, c, "protected-mode", "yes")
}
