package lint_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn/internal/testkit"
)

// The sessions that the pages show are held with real servers. A session is a fenced block whose
// first line is ```session:
//
//	> SET n 5                     a command, as one types it into redis-cli, behind any prompt
//	redis: OK                     what redis-server answers, in the form of redis-cli
//	cairn: OK                     what cairn answers; without a name before it, cairn's
//	> GET n
//	"5" ...                       "..." at the end stands for anything
//	new connection
//	send "PING\r\n"              bytes as they are, of which one reply is expected of those who are told to have one
//
// "closed" is the answer of a server that closes the connection. <70000 y> is a word of 70000 y. Every
// session begins on empty servers; what CONFIG SET changes stays until the page ends.

// step is one command of a session, or bytes, or a new connection when it has neither.
type step struct {
	line         int
	words        []string
	raw          string
	redis, cairn *string // nil: not told
}

var (
	prompt   = regexp.MustCompile(`^[a-zA-Z0-9.:]*> (.*)$`)
	wordText = regexp.MustCompile(`<(\d+) (\S)>|"(?:[^"\\]|\\.)*"|[^\s"]+`)
)

// sessions reads the sessions of a page.
func sessions(text string) (all [][]step, err error) {
	inside := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "```") {
			if inside = line == "```session"; inside {
				all = append(all, nil)
			}
			continue
		}
		if !inside || strings.TrimSpace(line) == "" {
			continue
		}
		cur := &all[len(all)-1]
		if line == "new connection" {
			*cur = append(*cur, step{line: i + 1})
			continue
		}
		if bytes, ok := strings.CutPrefix(line, "send "); ok {
			raw, err := strconv.Unquote(bytes)
			if err != nil {
				return nil, fmt.Errorf("line %d: %s: %w", i+1, bytes, err)
			}
			*cur = append(*cur, step{line: i + 1, raw: raw})
			continue
		}
		if m := prompt.FindStringSubmatch(line); m != nil {
			words, err := splitWords(m[1])
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			*cur = append(*cur, step{line: i + 1, words: words})
			continue
		}
		if len(*cur) == 0 {
			return nil, fmt.Errorf("line %d: a reply before any command", i+1)
		}
		last := &(*cur)[len(*cur)-1]
		if reply, ok := strings.CutPrefix(line, "redis: "); ok {
			addLine(&last.redis, reply)
		} else {
			addLine(&last.cairn, strings.TrimPrefix(line, "cairn: "))
		}
	}
	return all, nil
}

func addLine(to **string, line string) {
	if *to != nil {
		line = **to + "\n" + line
	}
	*to = &line
}

func splitWords(line string) (words []string, err error) {
	for _, m := range wordText.FindAllStringSubmatch(line, -1) {
		word := m[0]
		switch {
		case m[2] != "":
			n, err := strconv.Atoi(m[1])
			if err != nil {
				return nil, err
			}
			word = strings.Repeat(m[2], n)
		case word[0] == '"':
			if word, err = strconv.Unquote(word); err != nil {
				return nil, fmt.Errorf("word %s: %w", m[0], err)
			}
		}
		words = append(words, word)
	}
	return words, nil
}

// asCLI is a reply as redis-cli shows it.
func asCLI(v any) string {
	switch v := v.(type) {
	case nil:
		return "(nil)"
	case testkit.Error:
		return "(error) " + string(v)
	case int64:
		return fmt.Sprintf("(integer) %d", v)
	case string:
		return strconv.Quote(v)
	case []any:
		if len(v) == 0 {
			return "(empty array)"
		}
		lines := make([]string, len(v))
		for i, e := range v {
			lines[i] = fmt.Sprintf("%d) %s", i+1, strings.ReplaceAll(asCLI(e), "\n", "\n   "))
		}
		return strings.Join(lines, "\n")
	}
	return fmt.Sprint(v)
}

// talker holds sessions with one server.
type talker struct {
	t    *testing.T
	addr string
	c    *testkit.Conn
}

func (k *talker) ask(words []string) string {
	reply, err := k.c.Try(words...)
	return k.shown(words, reply, err)
}

// send writes bytes as they are.
func (k *talker) send(raw string) string {
	if _, err := io.WriteString(k.c.Net(), raw); err != nil {
		k.t.Fatalf("%.100q: %v", raw, err)
	}
	reply, err := k.c.Receive()
	return k.shown([]string{raw}, reply, err)
}

func (k *talker) shown(words []string, reply testkit.Reply, err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return "closed"
	}
	if err != nil {
		k.t.Fatalf("%.100q: %v", words, err)
	}
	if strings.HasPrefix(reply.Raw, "+") {
		return strings.TrimSuffix(reply.Raw[1:], "\r\n")
	}
	return asCLI(reply.Value)
}

// hold runs a session and checks the replies that want tells.
func (k *talker) hold(where string, all []step, want func(*step) *string) {
	k.c = testkit.Dial(k.t, k.addr)
	k.ask([]string{"FLUSHALL"})
	for i := range all {
		s := &all[i]
		got, w := "", want(s)
		switch {
		case s.words != nil:
			got = k.ask(s.words)
		case s.raw == "":
			k.c = testkit.Dial(k.t, k.addr)
		case w != nil:
			got = k.send(s.raw)
		}
		if w == nil {
			continue
		}
		if head, open := strings.CutSuffix(*w, "..."); got != *w && (!open || !strings.HasPrefix(got, strings.TrimRight(head, " "))) {
			k.t.Errorf("%s:%d: %.60q: got\n%.300s\nwant\n%s", where, s.line, s.words, got, *w)
		}
	}
}

func TestSessions(t *testing.T) {
	program := os.Getenv("TEST_CAIRN_BINARY") // one that is built already
	if program == "" {
		program = filepath.Join(t.TempDir(), "cairn")
		if _, messages, err := command("go", "build", "-o", program, "./cmd/cairn"); err != nil {
			t.Fatalf("build: %v\n%s", err, messages)
		}
	}
	for _, p := range pages(t) {
		all, err := sessions(p.text)
		if err != nil {
			t.Errorf("%s: %v", p.path, err)
		}
		if len(all) == 0 {
			continue
		}
		t.Run(strings.ReplaceAll(p.path, "/", "_"), func(t *testing.T) {
			addr := fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t))
			_, port, _ := strings.Cut(addr, ":")
			testkit.StartProgram(t, program, "server", "--port", port, "--dir", t.TempDir(), "--memory-budget", "64mb")
			testkit.WaitPing(t, addr, 30*time.Second)
			node := &talker{t: t, addr: addr}
			for _, s := range all {
				node.hold(p.path, s, func(s *step) *string { return s.cairn })
			}
			if !strings.Contains(p.text, "\nredis: ") {
				return
			}
			redis := &talker{t: t, addr: testkit.StartRedis(t).Addr}
			for _, s := range all {
				redis.hold(p.path, s, func(s *step) *string { return s.redis })
			}
		})
	}
}

func TestSessionsRead(t *testing.T) {
	text := "```session\n127.0.0.1:6379> SET a \"x\\x00\" <3 y>\nredis: OK\ncairn: (error) no\nnew connection\n> GET a\n1) \"b\"\n2) (nil)\n```\n> not one\n"
	all, err := sessions(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 || len(all[0]) != 3 {
		t.Fatalf("got %v, want one session of 3 steps", all)
	}
	s := all[0]
	if got := fmt.Sprintf("%q", s[0].words); got != `["SET" "a" "x\x00" "yyy"]` || *s[0].redis != "OK" || *s[0].cairn != "(error) no" {
		t.Errorf("first step %s, redis %q, cairn %q", got, *s[0].redis, *s[0].cairn)
	}
	if s[1].words != nil || s[2].redis != nil || *s[2].cairn != "1) \"b\"\n2) (nil)" {
		t.Errorf("steps %v", s[1:])
	}
	if got := asCLI([]any{"b", nil, []any{int64(1)}}); got != "1) \"b\"\n2) (nil)\n3) 1) (integer) 1" {
		t.Errorf("shown as %q", got)
	}
}
