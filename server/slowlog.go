package server

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"cairn/internal/resp"
	"cairn/server/command"
)

// slowLog keeps the newest of those commands that took long, in memory.
type slowLog struct {
	mu      sync.Mutex
	entries []slowEntry // oldest first
	nextID  int64
}

type slowEntry struct {
	id   int64
	at   int64 // Unix seconds
	took time.Duration
	args []string
	addr string
	name string // of the connection
}

// Redis's limits of what is kept of a command.
const (
	slowArgs     = 32
	slowArgBytes = 128
)

func (l *slowLog) add(e slowEntry, most int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.id = l.nextID
	l.nextID++
	l.entries = append(l.entries, e)
	l.cut(most)
}

func (l *slowLog) trim(most int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut(most)
}

// cut lets the oldest go. The caller holds mu.
func (l *slowLog) cut(most int64) {
	if over := int64(len(l.entries)) - most; over > 0 {
		l.entries = append(l.entries[:0:0], l.entries[over:]...)
	}
}

// newest lists up to n entries, the newest first; n below 0: all.
func (l *slowLog) newest(n int64) []slowEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 || n > int64(len(l.entries)) {
		n = int64(len(l.entries))
	}
	out := make([]slowEntry, n)
	for i := range out {
		out[i] = l.entries[len(l.entries)-1-i]
	}
	return out
}

// noteSlow puts a command into the slow log.
func (s *Server) noteSlow(c *client, cmd *command.Command, args [][]byte, took time.Duration) {
	c.mu.Lock()
	name := c.name
	c.mu.Unlock()
	s.admin.slow.add(slowEntry{
		at: time.Now().Unix(), took: took, args: shortened(args, s.secretsOf(cmd, args)), addr: c.addr, name: name,
	}, s.cfg.V.SlowlogMaxLen.Load())
}

// shortened copies what is kept of a command's words: secret says which of them nobody may read.
func shortened(args [][]byte, secret func(i int) bool) []string {
	out := make([]string, 0, min(len(args), slowArgs))
	for i, a := range args {
		switch {
		case i == slowArgs-1 && len(args) > slowArgs:
			return append(out, fmt.Sprintf("... (%d more arguments)", len(args)-i))
		case secret(i):
			out = append(out, "(redacted)")
		case len(a) > slowArgBytes:
			out = append(out, fmt.Sprintf("%s... (%d more bytes)", a[:slowArgBytes], len(a)-slowArgBytes))
		default:
			out = append(out, string(a))
		}
	}
	return out
}

// secretsOf says which words of a command are passwords.
func (s *Server) secretsOf(cmd *command.Command, args [][]byte) func(i int) bool {
	switch cmd.FullName() {
	case "auth":
		return func(i int) bool { return i > 0 }
	case "hello":
		// HELLO 3 AUTH user password: both words, as in Redis.
		for at := 2; at < len(args); at++ {
			if strings.EqualFold(string(args[at]), "auth") {
				return func(i int) bool { return i == at+1 || i == at+2 }
			}
		}
	case "config|set":
		return func(i int) bool { return i >= 3 && i%2 == 1 && s.cfg.Secret(string(args[i-1])) }
	case "acl|setuser", "acl|deluser":
		return func(i int) bool { return i > 1 }
	case "migrate":
		for at := 6; at < len(args); at++ {
			word := strings.ToLower(string(args[at]))
			if word == "auth" || word == "auth2" {
				return func(i int) bool { return i == at+1 || word == "auth2" && i == at+2 }
			}
		}
	}
	return func(int) bool { return false }
}

// SlowlogGet is SLOWLOG GET.
func (s *Server) SlowlogGet(x *command.Ctx) error {
	n := int64(10)
	if len(x.Args) > 3 {
		return command.Reply("ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.")
	}
	if len(x.Args) == 3 {
		var ok bool
		if n, ok = resp.ParseInt(x.Args[2]); !ok || n < -1 {
			return command.Reply("ERR count should be greater than or equal to -1")
		}
	}
	entries := s.admin.slow.newest(n)
	x.W.Array(len(entries))
	for _, e := range entries {
		x.W.Array(6)
		x.W.Int(e.id)
		x.W.Int(e.at)
		x.W.Int(e.took.Microseconds())
		x.W.Array(len(e.args))
		for _, a := range e.args {
			x.W.BulkString(a)
		}
		x.W.BulkString(e.addr)
		x.W.BulkString(e.name)
	}
	return nil
}

// SlowlogLen is SLOWLOG LEN.
func (s *Server) SlowlogLen(x *command.Ctx) error {
	s.admin.slow.mu.Lock()
	defer s.admin.slow.mu.Unlock()
	x.W.Int(int64(len(s.admin.slow.entries)))
	return nil
}

// SlowlogReset is SLOWLOG RESET.
func (s *Server) SlowlogReset(x *command.Ctx) error {
	s.admin.slow.trim(0)
	x.W.OK()
	return nil
}
