package server

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"cairn/server/command"
)

// monitorList is the connections that see every command: MONITOR.
type monitorList struct {
	n   atomic.Int32
	mu  sync.Mutex
	all map[*client]struct{}
}

func (l *monitorList) add(c *client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = make(map[*client]struct{})
	}
	l.all[c] = struct{}{}
	l.n.Store(int32(len(l.all)))
}

func (l *monitorList) remove(c *client) {
	if l.n.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, c)
	l.n.Store(int32(len(l.all)))
}

// has says whether the connection is one of them.
func (l *monitorList) has(c *client) bool {
	if l.n.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.all[c]
	return ok
}

// send queues a line for all of them. Who reads too slowly is closed, as a subscriber is.
func (l *monitorList) send(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.all {
		c.push.message(c, line, len(l.all), false)
	}
}

// Monitor is MONITOR.
func (s *Server) Monitor(x *command.Ctx) error {
	if x.InMulti {
		return command.Reply("ERR MONITOR isn't allowed for DENY BLOCKING client")
	}
	c := clientOf(x)
	c.push.hold(c) // no command may be seen before the reply
	s.admin.monitors.add(c)
	x.W.OK()
	return nil
}

// feedMonitors shows a command that was executed. Those that could hold secrets or do harm are not shown, as in
// Redis: what is for administrators, and what its row excepts.
func (s *Server) feedMonitors(c *client, cmd *command.Command, args [][]byte) {
	if s.admin.monitors.n.Load() == 0 || cmd.Is(command.Admin) || cmd.Is(command.SkipMonitor) {
		return
	}
	now := time.Now()
	line := fmt.Appendf(nil, "+%d.%06d [0 ", now.Unix(), now.Nanosecond()/1000)
	if c.unix {
		line = append(line, "unix:"...)
		line = append(line, s.cfg.V.UnixSocket.Load()...)
	} else {
		line = append(line, c.addr...)
	}
	line = append(line, ']')
	secret := s.secretsOf(cmd, args)
	for i, a := range args {
		line = append(line, ' ')
		if secret(i) {
			a = []byte("(redacted)")
		}
		if len(a) > longArgFrom { // nobody reads it, and it may be longer than all memory there is
			line = appendQuoted(line, fmt.Appendf(nil, "%s... (%d more bytes)", a[:slowArgBytes], len(a)-slowArgBytes))
			continue
		}
		line = appendQuoted(line, a)
	}
	s.admin.monitors.send(append(line, '\r', '\n'))
}

// appendQuoted writes a word as Redis shows it to people: quoted, with what is not printable escaped.
func appendQuoted(dst, word []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range word {
		switch c {
		case '\\', '"':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\a':
			dst = append(dst, `\a`...)
		case '\b':
			dst = append(dst, `\b`...)
		default:
			if c >= ' ' && c < 0x7f {
				dst = append(dst, c)
			} else {
				dst = append(dst, '\\', 'x', hex[c>>4], hex[c&15])
			}
		}
	}
	return append(dst, '"')
}
