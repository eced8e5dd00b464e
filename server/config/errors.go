package config

import (
	"fmt"
	"strings"
)

// Error is one mistake in what the settings were read from.
type Error struct {
	Where     string // a file, "command line", "environment" or "standard input"
	Line      int    // counted from 1; 0 where there are no lines
	Directive string // "" when the line could not be read at all
	Value     string // as it was written; of passwords "(hidden)"
	Rule      string // what the value breaks
}

func (e *Error) Error() string {
	what := strings.TrimSpace(e.Directive + " " + e.Value)
	if what == "" {
		return e.place() + ": " + e.Rule
	}
	return e.place() + ": " + what + ": " + e.Rule
}

func (e *Error) place() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d", e.Where, e.Line)
	}
	return e.Where
}

// Errors are all mistakes of one start, in the order in which they were met.
type Errors []*Error

func (list Errors) Error() string {
	lines := make([]string, len(list))
	for i, e := range list {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives errors.As the single mistakes.
func (list Errors) Unwrap() []error {
	out := make([]error, len(list))
	for i, e := range list {
		out[i] = e
	}
	return out
}

// Note is something to log: a directive that was accepted and has no effect, or
// another one than it says.
type Note struct {
	Where     string // as in Error
	Line      int
	Directive string
	Text      string
}

func (n Note) String() string {
	return (&Error{Where: n.Where, Line: n.Line, Directive: n.Directive, Rule: n.Text}).Error()
}
