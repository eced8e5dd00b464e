package config

import (
	"slices"
	"strings"
	"testing"
)

// FuzzSplit: no line makes the splitter fail badly, and what it reads can be
// written and read again.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{"a b", `"a\x41\n" 'b\'c'`, `a"b`, `"a"b`, "\v a\vb", `"\x4`, `''`, "a\x00b", `"\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words, err := splitWords(line)
		if err != nil {
			return
		}
		var again []byte
		total := 0
		for _, w := range words {
			total += len(w)
			again = append(appendQuoted(again, w), ' ')
		}
		if total > len(line) {
			t.Fatalf("%d bytes out of %d", total, len(line))
		}
		back, err := splitWords(string(again))
		if err != nil || !slices.Equal(back, words) {
			t.Fatalf("%q became %q, %v", words, back, err)
		}
	})
}

// FuzzParse: no file makes the reader panic; what it accepts is accepted again
// after CONFIG REWRITE has written it, with the same values.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"port 7000\nsave 1 1\nsave ''\n", "client-output-buffer-limit normal 1 2 3", "bind 'a b'", "latency-tracking-info-percentiles 1e1 100",
		"notify-keyspace-events AKE", "requirepass \"\\xff\"", "proc-title-template {{{title}", "maxmemory 1gb\nslave-priority 3", "hz 0",
		"replicaof h 1", "shutdown-on-sigterm now", "unixsocketperm 0777", "oom-score-adj-values 1 2 3", "memory-budget 0", "a.b c",
	} {
		f.Add(s)
	}
	d := newDirectory()
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(strings.ToLower(text), "include") {
			t.Skip() // other files are not part of this
		}
		first := readText(d, text)
		if len(first.errs) > 0 {
			return
		}
		c := &Config{t: d, texts: make([]string, len(d.rows)), late: map[string]bool{}}
		for i := range d.rows {
			c.texts[i] = d.rows[i].def
			if v, ok := first.cur[d.rows[i].name]; ok {
				c.texts[i] = v
			}
		}
		written := string(c.rewritten(text))
		second := readText(d, written)
		if len(second.errs) > 0 {
			t.Fatalf("%v in\n%s", second.errs, written)
		}
		for i := range d.rows {
			p := &d.rows[i]
			got, ok := second.cur[p.name]
			if !ok {
				got = p.def
			}
			if got != c.texts[i] {
				t.Fatalf("%s: %q became %q in\n%s", p.name, c.texts[i], got, written)
			}
		}
	})
}

func readText(d *directory, text string) *reader {
	r := newReader(d, nil)
	r.lines(strings.NewReader(text), "fuzz", false)
	return r
}

// FuzzStructured: no TOML, YAML or JSON file makes the reader panic.
func FuzzStructured(f *testing.F) {
	f.Add(uint8(0), []byte("port = 1\n[cluster]\nenabled = true\n"))
	f.Add(uint8(1), []byte("save: [[1, 2], '3 4', {a: b}]\nport: null\n"))
	f.Add(uint8(2), []byte(`{"a": {"b": {"c": [1.5, true, [1]]}}, "port": 1e9}`))
	d := newDirectory()
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		if strings.Contains(strings.ToLower(string(data)), "include") {
			t.Skip() // as in FuzzParse
		}
		kinds := []string{"toml", "yaml", "json"}
		newReader(d, nil).decoded("fuzz", kinds[int(which)%len(kinds)], data)
	})
}
