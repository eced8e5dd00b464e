package local

import (
	"fmt"
	"io"
	"strings"
)

// screen shows what Up and Down are doing: a line for each phase. On a terminal the line of the present phase is written
// over while it goes on; elsewhere it appears once the phase is over.
type screen struct {
	out    io.Writer // nil: nobody looks
	colour bool
	open   bool // a line without its end is on the terminal
}

const (
	bold  = "\x1b[1m"
	green = "\x1b[32m"
	dim   = "\x1b[2m"
	plain = "\x1b[0m"
	erase = "\r\x1b[K"
)

func newScreen(out io.Writer, colour bool) *screen { return &screen{out: out, colour: colour} }

func (s *screen) write(text string) {
	if s.out != nil {
		_, _ = io.WriteString(s.out, text) // who looks away misses something
	}
}

func (s *screen) paint(colour, text string) string {
	if !s.colour {
		return text
	}
	return colour + text + plain
}

// closeLine ends the line of a phase that did not come to its end.
func (s *screen) closeLine() {
	if s.open {
		s.write("\n")
		s.open = false
	}
}

func (s *screen) title(format string, args ...any) {
	s.closeLine()
	s.write(s.paint(bold, fmt.Sprintf(format, args...)) + "\n")
}

// step shows how far a phase has come.
func (s *screen) step(name, format string, args ...any) {
	if s.colour {
		s.write(erase + s.paint(dim, fmt.Sprintf("  %-9s ", name)+fmt.Sprintf(format, args...)))
		s.open = true
	}
}

// phase shows that one is over.
func (s *screen) phase(name, format string, args ...any) {
	if s.open {
		s.write(erase)
		s.open = false
	}
	s.write("  " + s.paint(green, fmt.Sprintf("%-9s", name)) + " " + fmt.Sprintf(format, args...) + "\n")
}

// hint shows commands to type, each with what it does.
func (s *screen) hint(title string, commands [][2]string) {
	s.closeLine()
	width := 0
	for _, c := range commands {
		width = max(width, len(c[0]))
	}
	var b strings.Builder
	b.WriteString(title + "\n")
	for _, c := range commands {
		b.WriteString("  " + s.paint(bold, fmt.Sprintf("%-*s", width, c[0])) + "  " + c[1] + "\n")
	}
	s.write(b.String())
}

// tellResult shows the nodes, and what to type next.
func (c *localCluster) tellResult(o *UpOptions) {
	for _, n := range c.nodes {
		c.say.write(fmt.Sprintf("  %-9d pid %-8d %s\n", n.port, n.pid, n.role))
	}
	port := fmt.Sprint(c.rec.Port)
	login := ""
	if c.rec.directive("requirepass") != "" {
		login = " --askpass"
	}
	next := [][2]string{
		{"redis-cli -c -p " + port + login, "talk to it; -c follows redirections"},
		{"redis-cli -c -p " + port + login + " SET greeting hello", "one command"},
		{"redis-cli --cluster check " + address(c.rec.Port) + login, "who has which slots"},
	}
	for _, n := range c.nodes {
		if c.rec.Replicas > 0 && strings.HasPrefix(n.role, "primary") {
			next = append(next, [2]string{"kill -9 " + fmt.Sprint(n.pid), "a failure; a replica takes over, up brings the node back"})
			break
		}
	}
	c.say.hint("The cluster is up. Next:", append(next,
		[2]string{c.hint(o.Self, "up", ""), "start what does not run"},
		[2]string{c.hint(o.Self, "down", ""), "stop all; --wipe removes the data, too"},
	))
}
