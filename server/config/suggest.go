package config

import "strings"

// Bounds of the search for what was meant: longer names are no slips of the
// keyboard, and a file full of unknown names is no redis.conf.
const (
	maxSuggestLen = 64
	maxSuggested  = 32
)

// suggestion names the directive that an unknown name may be a misspelling of,
// or is empty.
func (r *reader) suggestion(name string) string {
	if len(r.errs) >= maxSuggested {
		return ""
	}
	if best := r.t.nearest(name); best != "" {
		return "; did you mean " + best + "?"
	}
	return ""
}

// nearest is the directive whose name differs from name in the fewest letters,
// at most two and at most a third of them, or "".
func (t *directory) nearest(name string) string {
	if len(name) > maxSuggestLen {
		return ""
	}
	best, least := "", min(2, len(name)/3)+1
	for i := range t.rows {
		p := &t.rows[i]
		if p.is(hidden) {
			continue
		}
		for _, known := range []string{p.name, p.alias} {
			if known == "" || len(known) > len(name)+2 || len(name) > len(known)+2 {
				continue
			}
			if d := distance(name, known); d < least {
				best, least = known, d
			}
		}
	}
	return best
}

// distance counts the letters to put in, take out or replace to make b of a, and
// neighbours that changed places.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// stray reports words of the command line that belong to no option.
func (r *reader) stray(at place, words []string) {
	first := words[0]
	name := strings.TrimLeft(first, "-")
	if name == "" || name == first {
		r.fail(at, "", shownFirst(words), "belongs to no option; options begin with two dashes")
		return
	}
	rule := "unknown option " + quoteValue(first) + "; options begin with two dashes"
	p, _ := r.t.find(name)
	switch {
	case name == "p":
		rule += ": --port"
	case p != nil:
		rule += ": --" + p.name
	}
	r.fail(at, "", "", rule)
}
