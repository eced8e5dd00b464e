package cluster

import "fmt"

// note adds a line for the node's log. Texts that Redis has are kept as they are: tools and tests look for them.
func (m *Machine) note(level Level, format string, args ...any) {
	if level < m.cfg.NoteLevel {
		return
	}
	m.emit(Note{Level: level, Text: fmt.Sprintf(format, args...)})
}
