package server

import (
	"regexp"
	"testing"

	"cairn/internal/testkit"
)

func TestMonitorIsRedis(t *testing.T) {
	r := testkit.StartRedis(t)
	n := startServer(t)
	var lines [2][]string
	for i, addr := range []string{n.Addr, r.Addr} {
		m, c := testkit.Dial(t, addr), testkit.Dial(t, addr)
		if got := m.Do("MONITOR").Raw; got != "+OK\r\n" {
			t.Fatalf("got %q", got)
		}
		for _, args := range [][]string{
			{"SET", "k", "a\"b\\c\r\n\t\x00\xff\a\b"},
			{"GET", "k"},
			{"GET"},
			{"AUTH", "nobody", "secret"},
			{"HELLO", "2", "AUTH", "default", "secret"},
			{"CONFIG", "GET", "port"},
			{"MULTI"},
			{"SET", "k", ""},
			{"PING"},
			{"EXEC"},
			{"PING", "end"},
		} {
			c.Do(args...)
		}
		for {
			line, err := m.Receive()
			if err != nil {
				t.Fatal(err)
			}
			text := regexp.MustCompile(`^\+\d+\.\d{6} \[0 127\.0\.0\.1:\d+\]`).ReplaceAllString(line.Raw, "")
			lines[i] = append(lines[i], text)
			if text == " \"PING\" \"end\"\r\n" {
				break
			}
		}
	}
	for i := range max(len(lines[0]), len(lines[1])) {
		if i >= len(lines[0]) || i >= len(lines[1]) || lines[0][i] != lines[1][i] {
			t.Fatalf("got  %q\nwant %q", lines[0], lines[1])
		}
	}
}

// A connection that goes is forgotten, also by RESET.
func TestMonitorEnds(t *testing.T) {
	n := startServer(t)
	a, b := n.dial(t), n.dial(t)
	a.Do("MONITOR")
	b.Do("MONITOR")
	if err := a.Send("RESET"); err != nil {
		t.Fatal(err)
	}
	b.Close()
	testkit.Eventually(t, replyWait, func() bool { return n.admin.monitors.n.Load() == 0 }, "nobody monitors")
}
