package config

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/viper"
)

// Config is every setting of a node, from its start to its end.
type Config struct {
	V Values

	t       *directory
	file    string          // absolute; "": none
	late    map[string]bool // directives that an included file sets, by name
	holders []holder        // by row; nil where Values has no field
	hooks   map[int][]func(old, new string) error

	setting sync.Mutex // held by one CONFIG SET or REWRITE at a time, hooks included

	mu    sync.RWMutex // held for moments only; after setting
	texts []string     // canonical, by row
	autos []string     // what 0 stands for, by row; "": unknown
}

// New returns the defaults, with the working directory as dir.
func New() (*Config, error) {
	c, _, err := Load(nil, nil, nil)
	return c, err
}

// Load reads the settings of a node. args are those after the program's name (or
// after "server"): [FILE] [-] [--name value ...], where - reads more from stdin.
// env is the environment as os.Environ gives it; of its variables those that
// begin with CAIRN_ count.
//
// The error, if any, is an Errors with all mistakes. The notes are to be logged.
func Load(args, env []string, stdin io.Reader) (*Config, []Note, error) {
	l := &loader{t: newDirectory(), v: viper.NewWithOptions(viper.KeyDelimiter("\x00")), said: map[string]string{}, from: map[string]place{}}
	for i := range l.t.rows {
		l.v.SetDefault(l.t.rows[i].name, l.t.rows[i].def)
	}
	line := parseArgs(args)
	path := line.file
	if path != "" {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, nil, Errors{{Where: path, Rule: err.Error()}}
		}
		path = abs
	}
	l.readFiles(path, line.stdin, stdin)
	l.readEnv(env)
	l.readOptions(line)
	c := l.build(path)
	if len(l.errs) > 0 {
		return nil, l.notes, l.errs
	}
	return c, l.notes, nil
}

// loader lays the sources over one another. viper holds the layers: defaults
// lowest, then what MergeConfigMap adds in turn, then what Set adds. Its values
// are canonical texts, checked before they come in, since viper itself would
// lose repeated lines and misread yes and 1g.
type loader struct {
	t     *directory
	v     *viper.Viper
	said  map[string]string // all that was said so far, by name
	from  map[string]place
	errs  Errors
	notes []Note
}

// reader starts reading one source.
func (l *loader) reader() *reader { return newReader(l.t, l.said) }

// take moves what a source said into the layers.
func (l *loader) take(r *reader, set func(map[string]any) error) {
	l.errs = append(l.errs, r.errs...)
	l.notes = append(l.notes, r.notes...)
	layer := make(map[string]any, len(r.cur))
	for name, text := range r.cur {
		layer[name], l.said[name], l.from[name] = text, text, r.from[name]
	}
	if err := set(layer); err != nil {
		l.errs = append(l.errs, &Error{Where: "settings", Rule: err.Error()})
	}
}

func (l *loader) readFiles(path string, fromStdin bool, stdin io.Reader) {
	r := l.reader()
	switch kind := structured(path); {
	case path == "":
	case kind != "":
		r.structured(path, kind)
	default:
		r.file(path, place{where: path})
	}
	if fromStdin && stdin != nil {
		r.lines(stdin, "standard input", false)
	}
	l.take(r, l.v.MergeConfigMap)
}

// readEnv takes CAIRN_PORT for port. A name that is no directive is left alone
// with a note: variables of that prefix may belong to something else.
func (l *loader) readEnv(env []string) {
	r := l.reader()
	r.anew = true
	for _, e := range slices.Sorted(slices.Values(env)) {
		name, value, _ := strings.Cut(e, "=")
		rest, ours := strings.CutPrefix(name, "CAIRN_")
		if !ours || serviceLink(rest, value) {
			continue
		}
		at := place{where: "environment"}
		if p := l.t.byVariable(rest); p != nil {
			r.set(place{where: "environment " + name}, p.name, []string{value})
		} else {
			r.notes = append(r.notes, Note{Where: at.where, Directive: name, Text: "no directive has this name, so it is ignored"})
		}
	}
	l.take(r, l.v.MergeConfigMap)
}

// serviceLink knows the variables that container platforms set for a service
// that happens to be called cairn, such as CAIRN_PORT=tcp://10.0.0.1:6379.
func serviceLink(name, value string) bool {
	return strings.HasPrefix(value, "tcp://") || strings.HasPrefix(value, "udp://") ||
		strings.HasPrefix(name, "SERVICE_") || strings.HasPrefix(name, "PORT_")
}

// byVariable finds a row by the end of an environment variable's name.
func (t *directory) byVariable(name string) *param {
	name = strings.ToLower(name)
	if p, _ := t.find(strings.ReplaceAll(name, "_", "-")); p != nil {
		return p
	}
	p, _ := t.find(name) // some of Redis's names have underscores
	return p
}

func (l *loader) readOptions(line commandLine) {
	const where = "command line"
	r := l.reader()
	if len(line.stray) > 0 {
		// only the first is shown: what follows it may be a password
		r.stray(place{where: where}, line.stray)
	}
	for _, o := range line.options {
		if o.whole != "" {
			r.line(o.whole, place{where: where})
			continue
		}
		if p, _ := l.t.find(o.name); p != nil && len(o.args) == 0 && !p.is(multi) {
			r.fail(place{where: where}, o.name, "", "needs a value")
			continue
		}
		r.set(place{where: where}, o.name, o.args)
	}
	l.take(r, func(layer map[string]any) error {
		for name, text := range layer {
			l.v.Set(name, text)
		}
		return nil
	})
}

// build makes the Config that the layers describe.
func (l *loader) build(path string) *Config {
	c := &Config{
		t: l.t, file: path, late: map[string]bool{}, hooks: map[int][]func(old, new string) error{},
		texts: make([]string, len(l.t.rows)), autos: make([]string, len(l.t.rows)),
	}
	c.holders = bindFields(&c.V, l.t)
	for i := range l.t.rows {
		c.texts[i] = l.v.GetString(l.t.rows[i].name)
	}
	for name, at := range l.from {
		c.late[name] = at.included
	}
	if _, i := l.t.find("dir"); c.texts[i] == "" {
		dir, err := os.Getwd()
		if err != nil {
			l.errs = append(l.errs, &Error{Where: "settings", Directive: "dir", Rule: err.Error()})
		}
		c.texts[i] = dir
	}
	c.findAutos()
	for i := range c.texts {
		c.publish(i)
	}
	return c
}

// findAutos computes what 0 stands for, where the machine decides.
func (c *Config) findAutos() {
	_, i := c.t.find("memory-budget")
	c.autos[i] = strconv.FormatInt(defaultBudget("/"), 10)
	_, i = c.t.find("repl-backlog-size")
	_, dir := c.t.find("dir")
	c.autos[i] = strconv.FormatInt(defaultBacklog(c.texts[dir]), 10)
}
