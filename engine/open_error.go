package engine

import "strings"

// OpenError says which store could not be opened, and why.
type OpenError struct {
	Dir   string
	Cause error
}

// Error leaves out what Pebble adds for its own machinery.
func (e *OpenError) Error() string {
	text := strings.ReplaceAll(e.Cause.Error(), "\n<corruption detail carrier>", "")
	return "open store in " + e.Dir + ": " + text
}

// Unwrap gives the cause.
func (e *OpenError) Unwrap() error { return e.Cause }
