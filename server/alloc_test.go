package server

import "testing"

// The hot commands take nothing from the heap, log and reply included. The share of what works beside them, which
// is counted as well, is far below one for a command.
func TestHotCommandsDoNotAllocate(t *testing.T) {
	x := benchSession(t)
	val := make([]byte, 100)
	for _, args := range [][][]byte{
		{[]byte("SET"), []byte("k"), val},
		{[]byte("GET"), []byte("k")},
		{[]byte("GET"), []byte("missing")},
		{[]byte("SET"), []byte("k"), val[:50]},
	} {
		n := testing.AllocsPerRun(2000, func() {
			x.s.dispatch(x.client, args)
			if !x.flush() {
				t.Fatal("no reply")
			}
		})
		if n > 0 {
			t.Errorf("%s %s allocates %.0f times", args[0], args[1], n)
		}
	}
}

// What is known of a pipeline ahead is right when the commands are run, and gone afterwards.
func TestLookAhead(t *testing.T) {
	x := benchSession(t)
	stream := "*3\r\n$3\r\nSET\r\n$2\r\nk1\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$0\r\n\r\n$1\r\nb\r\n"
	for range aheadMost {
		stream += "*2\r\n$4\r\nINCR\r\n$6\r\n{k1}:n\r\n"
	}
	stream += "GET k1\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n*3\r\n$6\r\nOBJECT\r\n$8\r\nENCODING\r\n$2\r\nk1\r\n"
	want := "+OK\r\n+PONG\r\n+OK\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n:8\r\n$1\r\na\r\n$1\r\nb\r\n$6\r\nembstr\r\n"
	for round := range 3 {
		x.out.Reset()
		x.conn = sink{w: &x.out}
		x.framer.Advance(copy(x.framer.Space(len(stream)), stream))
		if !x.runBuffered() {
			t.Fatal("the connection ended")
		}
		if got := x.out.String(); got != want {
			t.Fatalf("round %d:\n got %q\nwant %q", round, got, want)
		}
		if x.ahead.keys != nil || x.ahead.room[0].Key != nil {
			t.Error("the buffer is still referred to")
		}
		x.do("DEL", "{k1}:n")
		x.out.Reset()
	}
}
