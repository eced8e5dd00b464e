package psync

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

const idA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// talk gives the handshake lines, and the last effect with all that was written.
func talk(h Hello, lines ...string) (Effect, string) {
	if h.TimeoutMs == 0 {
		h.TimeoutMs = 60000
	}
	hs := New(h)
	e := hs.Connected(0)
	written := string(e.Write)
	for i, l := range lines {
		if e.Next != Wait {
			return Effect{Reason: fmt.Sprintf("ended before line %d", i)}, written
		}
		e = hs.Line(int64(i), []byte(l))
		written += string(e.Write)
	}
	return e, written
}

// words gives what was written as words, a command a line.
func words(written string) string {
	var out []string
	for _, c := range strings.Split(written, "*")[1:] {
		var w []string
		for _, part := range strings.Split(c, "$")[1:] {
			_, text, _ := strings.Cut(part, "\r\n")
			w = append(w, strings.SplitN(text, "\r\n", 2)[0])
		}
		out = append(out, strings.Join(w, " "))
	}
	return strings.Join(out, "|")
}

// Redis 7.0.15 sends these bytes in this order.
func TestWhatIsSaid(t *testing.T) {
	hello := Hello{Password: "sekret", Port: 27916, IP: "10.1.2.3", ID: idA, Offset: 1087}
	_, w := talk(hello, "+PONG", "+OK", "+OK", "+OK", "+OK")
	want := "PING|AUTH sekret|REPLCONF listening-port 27916|REPLCONF ip-address 10.1.2.3|REPLCONF capa eof capa psync2|PSYNC " + idA + " 1088"
	if got := words(w); got != want {
		t.Errorf("said %q,\nwant %q", got, want)
	}
	_, w = talk(Hello{User: "u", Password: "p", Port: 1, Fork: true, Failover: true}, "-NOAUTH x", "+OK", "+OK", "-ERR Unrecognized REPLCONF option: capa")
	want = "PING|AUTH u p|REPLCONF listening-port 1|REPLCONF capa eof capa psync2 capa fork|PSYNC ? -1 FAILOVER"
	if got := words(w); got != want {
		t.Errorf("said %q,\nwant %q", got, want)
	}
}

func TestAnswers(t *testing.T) {
	mark := strings.Repeat("m", MarkLen)
	plain, ahead := Hello{Port: 1}, Hello{Port: 1, ID: idA, Offset: 100, Fork: true}
	idB := strings.Repeat("b", idLen)
	for _, c := range []struct {
		name  string
		hello Hello
		lines string // after the greetings, separated by |
		want  Effect // Reason: a part of it
	}{
		{"full, length", plain, "+FULLRESYNC " + idA + " 1000||$77", Effect{Next: Payload, ID: idA, Offset: 1000, Length: 77}},
		{"full, mark", plain, "||+FULLRESYNC " + idA + " 0|$EOF:" + mark, Effect{Next: Payload, ID: idA, Length: -1, Mark: []byte(mark)}},
		{"full, bad id", plain, "+FULLRESYNC abc 5|$1", Effect{Next: Payload, Offset: 5, Length: 1}},
		{"full, no offset", plain, "+FULLRESYNC|$1", Effect{Next: Payload, Offset: -1, Length: 1}},
		{"full, bad length", plain, "+FULLRESYNC " + idA + " 5|$x", Effect{Next: Retry, Reason: "no number"}},
		{"full, negative length", plain, "+FULLRESYNC " + idA + " 5|$-1", Effect{Next: Retry, Reason: "no number"}},
		{"full, short mark", plain, "+FULLRESYNC " + idA + " 5|$EOF:abc", Effect{Next: Retry, Reason: "too short"}},
		{"full, given up", plain, "+FULLRESYNC " + idA + " 5|-ERR no", Effect{Next: Retry, Reason: "gives the sync up"}},
		{"full, something else", plain, "+FULLRESYNC " + idA + " 5|hello", Effect{Next: Retry, Reason: "announced no data"}},
		{"continue", ahead, "+CONTINUE", Effect{Next: Continue, Offset: 100}},
		{"continue, same id", ahead, "+CONTINUE " + idA, Effect{Next: Continue, Offset: 100}},
		{"continue, other id", ahead, "|+CONTINUE " + idB, Effect{Next: Continue, Offset: 100, ID: idB}},
		{"continue, bad id", ahead, "+CONTINUE abc", Effect{Next: Retry, Reason: "an id that is none"}},
		{"continue, nothing here", plain, "+CONTINUE", Effect{Next: Retry, Reason: "never begun"}},
		{"fork", ahead, "+FORK " + idB + " 90", Effect{Next: Forked, ID: idB, Offset: 90}},
		{"fork ahead of us", ahead, "+FORK " + idB + " 100", Effect{Next: Retry, Reason: "not below"}},
		{"fork of nonsense", ahead, "+FORK b", Effect{Next: Retry, Reason: "answered PSYNC"}},
		{"fork that was not offered", plain, "+FORK " + idB + " 0|$3", Effect{Next: Payload, Offset: -1, Length: 3}},
		{"no link", plain, "-NOMASTERLINK Can't SYNC while not connected with my master", Effect{Next: Retry, Reason: "cannot serve now"}},
		{"loading", plain, "-LOADING x", Effect{Next: Retry, Reason: "cannot serve now"}},
		{"no login", plain, "-NOAUTH Authentication required.", Effect{Next: Retry, Reason: "masterauth"}},
		{"old primary", plain, "-ERR unknown command 'PSYNC'|$3", Effect{Next: Payload, Offset: -1, Length: 3}},
		{"old primary, login", plain, "-ERR unknown command|-NOAUTH x", Effect{Next: Retry, Reason: "gives the sync up"}},
		{"unexpected", plain, "+WHAT|$3", Effect{Next: Payload, Offset: -1, Length: 3}},
		{"no handing over", Hello{Port: 1, ID: idA, Failover: true}, "-ERR no", Effect{Next: Retry, Reason: "did not hand over"}},
		{"too long", plain, strings.Repeat("x", MaxLine+1), Effect{Next: Retry, Reason: "more than 1024"}},
	} {
		lines := append([]string{"+PONG", "+OK", "+OK"}, strings.Split(c.lines, "|")...)
		got, _ := talk(c.hello, lines...)
		if got.Next != c.want.Next || got.ID != c.want.ID || got.Offset != c.want.Offset || got.Length != c.want.Length ||
			!bytes.Equal(got.Mark, c.want.Mark) || !strings.Contains(got.Reason, c.want.Reason) {
			t.Errorf("%s: %+v,\nwant %+v", c.name, got, c.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		hello Hello
		lines []string
		part  string
	}{
		{Hello{}, []string{"-ERR go away"}, "answered PING"},
		{Hello{}, []string{""}, "answered PING"},
		{Hello{Password: "p"}, []string{"+PONG", "-WRONGPASS invalid"}, "answered AUTH"},
	} {
		if e, _ := talk(c.hello, c.lines...); e.Next != Retry || !strings.Contains(e.Reason, c.part) {
			t.Errorf("%q: %+v", c.lines, e)
		}
	}
	for _, ping := range []string{"+PONG", "-NOAUTH x", "-NOPERM x", "-ERR operation not permitted"} {
		if e, _ := talk(Hello{}, ping); e.Next != Wait || len(e.Write) == 0 {
			t.Errorf("%q: %+v", ping, e)
		}
	}
}

// An old primary is asked with SYNC on the same connection, as a line.
func TestFallback(t *testing.T) {
	hs := New(Hello{TimeoutMs: 1000})
	hs.Connected(0)
	for _, l := range []string{"+PONG", "+OK", "+OK"} {
		hs.Line(0, []byte(l))
	}
	if e := hs.Line(0, []byte("-ERR unknown command")); string(e.Write) != "SYNC\r\n" || !hs.Old() || !hs.Receiving() {
		t.Errorf("%+v, old %t, receiving %t", e, hs.Old(), hs.Receiving())
	}
}

func TestTimeouts(t *testing.T) {
	hs := New(Hello{Password: "p", TimeoutMs: 60000})
	at := func(want int64, part string) {
		t.Helper()
		if hs.Deadline() != want {
			t.Fatalf("deadline %d, want %d", hs.Deadline(), want)
		}
		if e := hs.Tick(want - 1); e.Next != Wait {
			t.Fatalf("ended early: %+v", e)
		}
		again := *hs
		if e := again.Tick(want); e.Next != Retry || !strings.Contains(e.Reason, part) {
			t.Fatalf("%+v, want %q", e, part)
		}
	}
	hs.Connected(100)
	at(5100, "PING")
	hs.Line(200, []byte("+PONG"))
	at(5200, "AUTH")
	hs.Line(300, []byte("+OK"))
	at(5300, "listening-port")
	hs.Line(400, []byte("+OK"))
	at(5400, "capa")
	hs.Line(500, []byte("+OK"))
	at(60500, "PSYNC")
	hs.Line(50000, nil) // alive
	at(110000, "PSYNC")
	hs.Line(60000, []byte("+FULLRESYNC "+idA+" 1"))
	at(120000, "data")
	hs.Line(70000, nil)
	at(130000, "data")
	hs.Line(80000, []byte("$5"))
	if e := hs.Tick(1 << 40); e.Next != Wait {
		t.Errorf("a handshake that is over timed out: %+v", e)
	}
}

// Whatever a primary says, the handshake ends or goes on, and says nothing that is no command.
func FuzzLines(f *testing.F) {
	f.Add("+PONG\n+OK\n+OK\n+FULLRESYNC " + idA + " 1000\n\n$EOF:" + idA)
	f.Add("+PONG\n+OK\n+OK\n+CONTINUE " + idA)
	f.Add("+PONG\n+OK\n+OK\n-ERR x\n$12")
	f.Add("+PONG\n+OK\n+OK\n+FORK " + idA + " 5")
	f.Add("+FULLRESYNC")
	f.Fuzz(func(t *testing.T, text string) {
		hs := New(Hello{Port: 6379, ID: idA, Offset: 10, Fork: true, TimeoutMs: 1000})
		e := hs.Connected(0)
		for i, line := range strings.Split(text, "\n") {
			if e.Next != Wait {
				break
			}
			e = hs.Line(int64(i), []byte(line))
			if e.Next == Retry && e.Reason == "" {
				t.Fatalf("%q ends without a reason", line)
			}
			if e.Next == Payload && e.Length < -1 || e.Next == Payload && e.Length == -1 && len(e.Mark) != MarkLen {
				t.Fatalf("%q gives %+v", line, e)
			}
			if e.Next == Forked && (e.Offset < 0 || e.Offset > 10) {
				t.Fatalf("%q gives %+v", line, e)
			}
			if n := len(e.Write); n > 0 && string(e.Write[n-2:]) != "\r\n" {
				t.Fatalf("%q is answered %q", line, e.Write)
			}
		}
	})
}
