package config

import "strings"

// directory finds rows by name. It never changes after newDirectory.
type directory struct {
	rows   []param
	byName map[string]int
}

func newDirectory() *directory {
	t := &directory{rows: table(), byName: map[string]int{}}
	for i := range t.rows {
		p := &t.rows[i]
		t.byName[p.name] = i
		if p.alias != "" {
			t.byName[p.alias] = i
		}
	}
	return t
}

// Known says whether there is a directive of that name.
func Known(name string) bool {
	p, _ := newDirectory().find(name)
	return p != nil
}

// find returns a row and its place, or nil. Case does not count.
func (t *directory) find(name string) (*param, int) {
	i, ok := t.byName[name]
	if !ok {
		i, ok = t.byName[strings.ToLower(name)]
	}
	if !ok {
		return nil, -1
	}
	return &t.rows[i], i
}
