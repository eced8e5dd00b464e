package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"cairn/internal/glob"
	"cairn/internal/invariant"
)

// Reply is an error whose text is what the client is answered, without the
// leading minus.
type Reply string

func (r Reply) Error() string { return string(r) }

// What CONFIG SET and REWRITE answer, apart from refused values.
const (
	ErrSyntax  Reply = "ERR syntax error"
	ErrLoading Reply = "LOADING Redis is loading the dataset in memory"
	ErrNoFile  Reply = "ERR The server is running without a config file"
)

// Caller says who sends CONFIG SET, and when.
type Caller struct {
	Local   bool // from this machine, which enable-protected-configs local asks for
	Loading bool // while the data is being loaded
}

// A Pair is a directive with its value.
type Pair struct{ Name, Value string }

// File is the absolute path of the file that was read, or "".
func (c *Config) File() string { return c.file }

// Path makes a path that a setting gives absolute: relative ones start at dir.
func (c *Config) Path(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(c.V.Dir.Load(), path)
}

// Secret says whether a directive's value must stay out of logs, SLOWLOG and
// MONITOR.
func (c *Config) Secret(name string) bool {
	p, _ := c.t.find(name)
	return p != nil && p.is(secret)
}

// OnChange registers f to run when CONFIG SET has changed a directive, to put
// the new value to use. All values of the command are in V by then. If f returns
// an error, the command fails with its text, everything is set back, and those
// functions that had run are called again the other way round; f itself must
// then have left things as they were. f must not call Set, Store or Rewrite.
//
// OnChange panics if there is no such directive. It is to be called before
// clients are served.
func (c *Config) OnChange(name string, f func(old, new string) error) {
	_, i := c.t.find(name)
	if i < 0 {
		invariant.Fail("no directive %q", name)
	}
	c.hooks[i] = append(c.hooks[i], f)
}

// publish moves the text of a row into V.
func (c *Config) publish(i int) {
	if h := c.holders[i]; h != nil {
		h.store(&c.t.rows[i], c.shown(i))
	}
}

// shown is what CONFIG GET says of a row. The caller holds mu, or is alone.
func (c *Config) shown(i int) string {
	if c.t.rows[i].is(auto) && c.texts[i] == "0" && c.autos[i] != "" {
		return c.autos[i]
	}
	return c.texts[i]
}

// Value returns what CONFIG GET says of one directive.
func (c *Config) Value(name string) (string, bool) {
	_, i := c.t.find(name)
	if i < 0 {
		return "", false
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.shown(i), true
}

// SetAuto says what 0 stands for in a directive whose default is found while the
// node runs, in bytes. It panics if the directive has no such default.
func (c *Config) SetAuto(name string, bytes int64) {
	p, i := c.t.find(name)
	if p == nil || !p.is(auto) {
		invariant.Fail("directive %q has no automatic value", name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.autos[i] = strconv.FormatInt(bytes, 10)
	c.publish(i)
}

// Get answers CONFIG GET: all directives whose name matches one of the patterns,
// each once, in the order of the table. A pattern without wildcards is echoed as
// it was written; hidden directives answer to nothing else.
func (c *Config) Get(patterns ...string) []Pair {
	exact := map[string]string{} // lower-case name to name as asked
	var globs []string
	for _, p := range patterns {
		if strings.ContainsAny(p, "[*?") {
			globs = append(globs, p)
		} else if name := strings.ToLower(p); exact[name] == "" {
			exact[name] = p
		}
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []Pair
	for i := range c.t.rows {
		p := &c.t.rows[i]
		for _, name := range []string{p.name, p.alias} {
			switch asked, ok := exact[name]; {
			case name == "":
			case ok:
				out = append(out, Pair{asked, c.shown(i)})
			case !p.is(hidden) && matchAny(globs, name):
				out = append(out, Pair{name, c.shown(i)})
			}
		}
	}
	return out
}

func matchAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if glob.Match([]byte(p), []byte(name), true) {
			return true
		}
	}
	return false
}

// change is one directive that a CONFIG SET is about to change.
type change struct {
	row      int
	name     string // as Redis names it in errors
	old, new string // texts
	was, now string // as shown
}

// Set answers CONFIG SET with names and values in turn. All are set or none. The
// error is a Reply. Values are replaced one after the other, so that a reader of
// V may see some old and some new for a moment.
func (c *Config) Set(pairs []string, from Caller) error {
	if len(pairs)%2 != 0 || len(pairs) == 0 {
		return ErrSyntax
	}
	c.setting.Lock()
	defer c.setting.Unlock()
	if err := c.maySet(pairs, from); err != nil {
		return err
	}
	changes, err := c.readChanges(pairs)
	if err != nil {
		return err
	}
	c.apply(changes, false)
	for i := range changes {
		ch := &changes[i]
		if err := c.runHooks(ch.row, ch.was, ch.now); err != nil {
			c.apply(changes, true)
			for j := i - 1; j >= 0; j-- {
				// Going back to what was there cannot be refused any more.
				_ = c.runHooks(changes[j].row, changes[j].now, changes[j].was)
			}
			return setFailed(ch.name, err)
		}
	}
	return nil
}

// WithoutEffect says why a directive that differs from its default changes nothing, "" when it has its effect.
func (c *Config) WithoutEffect(name string) string {
	p, _ := c.t.find(name)
	if p == nil || !p.is(ignored) && !p.is(noted) {
		return ""
	}
	if now, _ := c.Value(p.name); now == p.def {
		return ""
	}
	return p.why
}

func setFailed(name string, err error) Reply {
	return Reply(fmt.Sprintf("ERR CONFIG SET failed (possibly related to argument '%s') - %s", cleanText(name), cleanText(err.Error())))
}

// cleanText keeps what a client or the system wrote within one line of reply.
func cleanText(s string) string {
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(s)
}

// maySet checks the names of a CONFIG SET before any value is looked at.
func (c *Config) maySet(pairs []string, from Caller) error {
	seen := map[string]bool{}
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i]
		p, _ := c.t.find(name)
		lower := strings.ToLower(name)
		switch {
		case p == nil:
			return Reply(fmt.Sprintf("ERR Unknown option or number of arguments for CONFIG SET - '%s'", cleanText(cut(name))))
		case p.is(immutable):
			return setFailed(name, errors.New("can't set immutable config"))
		case p.is(protected) && !c.V.EnableProtectedConfigs.Load().Allows(from.Local):
			return setFailed(name, errors.New("can't set protected config"))
		case p.is(notLoading) && from.Loading:
			return ErrLoading
		case seen[lower]:
			return setFailed(name, errors.New("duplicate parameter"))
		}
		seen[lower] = true
	}
	return nil
}

// cut keeps an error from repeating what may be megabytes.
func cut(name string) string {
	const most = 128
	if len(name) > most {
		return name[:most] + "..."
	}
	return name
}

// readChanges reads the values. An older and a newer spelling of one directive
// may both be there: the later one counts.
func (c *Config) readChanges(pairs []string) ([]change, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	next := map[int]string{}
	var changes []change
	for i := 0; i < len(pairs); i += 2 {
		p, row := c.t.find(pairs[i])
		old, ok := next[row]
		if !ok {
			old = c.texts[row]
		}
		text, err := p.parse(setWords(p, pairs[i+1]), beforeSet(p, old))
		if err == nil && p.is(refused) && text != p.def {
			err = errors.New(p.why)
		}
		if err != nil {
			return nil, setFailed(strings.ToLower(pairs[i]), err)
		}
		next[row] = text
		if text != old {
			changes = append(changes, change{row: row, name: strings.ToLower(pairs[i]), old: old, new: text})
		}
	}
	return changes, nil
}

// setWords cuts the one argument of CONFIG SET into words, at single blanks: two
// of them in a row have an empty word between, which most directives refuse.
func setWords(p *param, value string) []string {
	switch {
	case !p.is(multi):
		return []string{value}
	case value == "":
		return nil
	}
	return strings.Split(value, " ")
}

// beforeSet is what a new value adds to.
func beforeSet(p *param, old string) string {
	if p.name == saveName {
		return ""
	}
	return old
}

// apply puts all changes in place, or all of them back.
func (c *Config) apply(changes []change, back bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if back {
		for i := len(changes) - 1; i >= 0; i-- {
			c.texts[changes[i].row] = changes[i].old
			c.publish(changes[i].row)
		}
		return
	}
	for i := range changes {
		ch := &changes[i]
		ch.was = c.shown(ch.row)
		c.texts[ch.row] = ch.new
		ch.now = c.shown(ch.row)
		c.publish(ch.row)
	}
}

// runHooks runs the functions of a row; if one fails, those before it go back.
func (c *Config) runHooks(row int, was, now string) error {
	for i, f := range c.hooks[row] {
		if err := f(was, now); err != nil {
			for j := i - 1; j >= 0; j-- {
				_ = c.hooks[row][j](now, was) // as in Set
			}
			return err
		}
	}
	return nil
}

// Store records a change that the server itself made, such as REPLICAOF: nothing
// is immutable, no hook runs. CONFIG GET shows it and REWRITE writes it.
func (c *Config) Store(name string, args ...string) error {
	p, i := c.t.find(name)
	if p == nil {
		return fmt.Errorf("%s: unknown directive", name)
	}
	c.setting.Lock()
	defer c.setting.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := p.parse(args, beforeSet(p, c.texts[i]))
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	c.texts[i] = text
	c.publish(i)
	return nil
}
