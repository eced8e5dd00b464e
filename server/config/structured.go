package config

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/viper"
)

// structured is the kind of file that is not in redis.conf syntax, by the end of
// its name, or "".
func structured(path string) string {
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".toml", ".yaml", ".json":
		return ext[1:]
	case ".yml":
		return "yaml"
	}
	return ""
}

// structured reads a TOML, YAML or JSON file: a key is a directive, a section is
// the first part of its name ([cluster] enabled = true), a list is several words,
// or for directives that add up several lines.
func (r *reader) structured(path, kind string) {
	data, err := readLimited(path)
	if err != nil {
		r.fail(place{where: path}, "", "", err.Error())
		return
	}
	r.decoded(path, kind, data)
}

// decoded is structured for what has been read.
func (r *reader) decoded(path, kind string, data []byte) {
	v := viper.NewWithOptions(viper.KeyDelimiter("\x00"))
	v.SetConfigType(kind)
	if err := v.ReadConfig(bytes.NewReader(data)); err != nil {
		r.fail(place{where: path}, "", "", err.Error())
		return
	}
	r.section(path, data, "", v.AllSettings(), 0)
}

func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	_ = f.Close() // read only
	if err == nil && len(data) > maxFileBytes {
		err = fmt.Errorf("more than %d bytes of settings", maxFileBytes)
	}
	return data, err
}

// section takes the keys of one level, in order of their names.
func (r *reader) section(path string, data []byte, prefix string, keys map[string]any, depth int) {
	names := make([]string, 0, len(keys))
	for name := range keys {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, key := range names {
		name := prefix + key
		if p := r.t.byKey(name); p != nil {
			name = p.name
		}
		at := place{where: path, line: lineOf(data, key)}
		if inner, ok := keys[key].(map[string]any); ok {
			if depth >= maxIncludeDepth {
				r.fail(at, name, "", fmt.Sprintf("sections nest deeper than %d", maxIncludeDepth))
				continue
			}
			r.section(path, data, name+"-", inner, depth+1)
			continue
		}
		r.entry(at, name, keys[key])
	}
}

// byKey finds a row by a key, in which _ may stand for -.
func (t *directory) byKey(name string) *param {
	if p, _ := t.find(name); p != nil {
		return p
	}
	p, _ := t.find(strings.ReplaceAll(name, "_", "-"))
	return p
}

// entry takes one key with its value.
func (r *reader) entry(at place, name string, value any) {
	list, isList := value.([]any)
	p, _ := r.t.find(name)
	switch {
	case !isList:
		r.set(at, name, []string{scalar(value)})
	case p != nil && p.is(cumulative):
		for _, item := range list {
			r.entry(at, name, unlist(item))
		}
	default:
		words := make([]string, len(list))
		for i, item := range list {
			words[i] = scalar(item)
		}
		r.set(at, name, words)
	}
}

// unlist makes a list within a list one text, which is cut up again later.
func unlist(item any) any {
	list, ok := item.([]any)
	if !ok {
		return item
	}
	words := make([]string, len(list))
	for i := range list {
		words[i] = scalar(list[i])
	}
	return strings.Join(words, " ")
}

// scalar writes a value as redis.conf would.
func scalar(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case float64: // JSON has no other numbers
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

// lineOf finds the line on which a key is set, so that an error can name it: the
// decoders do not tell. 0 when it is not seen. Of several sections with the same
// key it may be the wrong one.
func lineOf(data []byte, key string) int {
	n := 0
	for text := range strings.Lines(string(data)) {
		n++
		text = strings.TrimLeft(text, " \t\"'{")
		if len(text) <= len(key) || !strings.EqualFold(text[:len(key)], key) {
			continue
		}
		rest := strings.TrimLeft(text[len(key):], " \t\"'")
		if rest != "" && (rest[0] == '=' || rest[0] == ':') {
			return n
		}
	}
	return 0
}
