package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Limits of what is read: bytes of a file with all it includes, and how deep
// files may include each other. Redis has none; a file that includes itself
// makes it recurse until it dies.
const (
	maxFileBytes    = 16 << 20
	maxIncludeDepth = 16
)

// A place is where a setting came from.
type place struct {
	where    string
	line     int
	included bool // by an include, not in the main file itself
}

// reader collects settings line by line. It keeps the canonical text of each
// directive named so far, and all mistakes and notes.
type reader struct {
	t       *directory
	base    map[string]string // what earlier sources said, by directive name
	anew    bool              // save does not add to what earlier sources said
	cur     map[string]string // by directive name
	from    map[string]place  // where its last line was
	errs    Errors
	notes   []Note
	left    int      // bytes that may still be read
	opening []string // files being read, outermost first
}

func newReader(t *directory, base map[string]string) *reader {
	return &reader{t: t, base: base, cur: map[string]string{}, from: map[string]place{}, left: maxFileBytes}
}

func (r *reader) fail(at place, directive, value, rule string) {
	r.errs = append(r.errs, &Error{at.where, at.line, directive, value, rule})
}

// file reads a file in redis.conf syntax. A pattern reads every file it matches,
// which may be none.
func (r *reader) file(path string, at place) {
	paths := []string{path}
	if strings.ContainsAny(path, "*?[") {
		found, err := filepath.Glob(path)
		if err != nil {
			r.fail(at, "include", quoteValue(path), err.Error())
			return
		}
		paths = found
	}
	for _, p := range paths {
		if len(r.opening) >= maxIncludeDepth || slices.Contains(r.opening, p) {
			r.fail(at, "include", quoteValue(p), fmt.Sprintf("files include each other, or more than %d deep", maxIncludeDepth))
			return
		}
		f, err := os.Open(p)
		if err != nil {
			r.fail(at, "", "", err.Error())
			continue
		}
		r.opening = append(r.opening, p)
		r.lines(f, p, len(r.opening) > 1)
		r.opening = r.opening[:len(r.opening)-1]
		_ = f.Close() // read only
	}
}

// lines reads settings, one a line.
func (r *reader) lines(src io.Reader, where string, included bool) {
	data, err := io.ReadAll(io.LimitReader(src, int64(r.left)+1))
	if err != nil {
		r.fail(place{where: where}, "", "", err.Error())
		return
	}
	if len(data) > r.left {
		r.fail(place{where: where}, "", "", fmt.Sprintf("more than %d bytes of settings", maxFileBytes))
		return
	}
	r.left -= len(data)
	n := 0
	for text := range strings.Lines(string(data)) {
		n++
		r.line(text, place{where, n, included})
	}
}

// line reads one setting from a line; blank lines and comments are none.
func (r *reader) line(text string, at place) {
	text = strings.Trim(text, " \t\r\n")
	if text == "" || text[0] == '#' {
		return
	}
	words, err := splitWords(text)
	if err != nil {
		r.fail(at, "", "", err.Error()+" in the line that starts with "+quoteValue(firstWord(text)))
		return
	}
	if len(words) > 0 {
		r.set(at, words[0], words[1:])
	}
}

// firstWord is what of an unreadable line can be shown: the rest may be a
// password.
func firstWord(text string) string {
	if i := strings.IndexAny(text, " \t\"'"); i > 0 {
		return text[:i]
	}
	return ""
}

// set takes one setting, given as words.
func (r *reader) set(at place, name string, args []string) {
	name = strings.ToLower(name)
	p, _ := r.t.find(name)
	if p == nil {
		r.state(at, name, args)
		return
	}
	args, err := splitArgs(p, args)
	if err != nil {
		r.fail(at, name, shown(p, args), err.Error())
		return
	}
	value, err := p.parse(args, r.old(p))
	if err == nil && p.is(refused) && value != p.def {
		err = refusal(p)
	}
	if err != nil {
		r.fail(at, name, shown(p, args), err.Error())
		return
	}
	if (p.is(ignored) || p.is(noted)) && value != p.def || p.is(fixed) && value != strings.Join(args, " ") {
		r.note(at, name, p.why)
	}
	r.cur[p.name], r.from[p.name] = value, at
}

// refusal says why a refused directive takes its default only.
func refusal(p *param) error {
	if p.def == "" {
		return errors.New(p.why)
	}
	return fmt.Errorf("only the default %q is accepted: %s", p.def, p.why)
}

// old is what a directive has before its next line.
func (r *reader) old(p *param) string {
	if cur, ok := r.cur[p.name]; ok {
		return cur
	}
	said, ok := r.base[p.name]
	switch {
	case p.name == saveName && (!ok || r.anew):
		return "" // the first line replaces the default points, the next ones add to it
	case ok:
		return said
	}
	return p.def
}

// note adds a note, one for each directive and file.
func (r *reader) note(at place, name, why string) {
	for _, n := range r.notes {
		if n.Where == at.where && n.Directive == name {
			return
		}
	}
	r.notes = append(r.notes, Note{at.where, at.line, name, "accepted without effect: " + why})
}

// splitArgs gives a directive the words it asks for: one that takes many and was
// given one gets that one cut up, so that "900 1" is as good as 900 1.
func splitArgs(p *param, args []string) ([]string, error) {
	if !p.is(multi) {
		if len(args) != 1 {
			return args, errArgCount
		}
		return args, nil
	}
	if len(args) == 1 && args[0] != "" {
		words, err := splitWords(args[0])
		if err != nil {
			return args, err
		}
		return words, nil
	}
	return args, nil // none at all is for the directive to judge: bind and save mean nothing by it
}

// state takes a line that is no setting.
func (r *reader) state(at place, name string, args []string) {
	for _, s := range statements() {
		if s.name != name {
			continue
		}
		switch {
		case len(args) < s.minArgs || len(args) > s.maxArgs:
			r.fail(at, name, "", errArgCount.Error())
		case s.refusal != "":
			// user lines hold passwords, so only the first word is shown
			r.fail(at, name, shownFirst(args), s.refusal)
		default:
			r.file(args[0], at)
		}
		return
	}
	if former(name) && len(args) == 1 {
		r.note(at, name, "Redis dropped it, too")
		return
	}
	r.fail(at, name, "", "unknown directive"+r.suggestion(name))
}

// shown is a value as an error may repeat it.
func shown(p *param, args []string) string {
	if p.is(secret) {
		return "(hidden)"
	}
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = quoteValue(a)
	}
	return strings.Join(words, " ")
}

func shownFirst(args []string) string {
	switch len(args) {
	case 0:
		return ""
	case 1:
		return quoteValue(args[0])
	}
	return quoteValue(args[0]) + " ..."
}

// quoteValue quotes a word and cuts it to what a line of a log can bear.
func quoteValue(s string) string {
	const most = 128
	if len(s) > most {
		return string(appendQuoted(nil, s[:most])) + "..."
	}
	return string(appendQuoted(nil, s))
}
