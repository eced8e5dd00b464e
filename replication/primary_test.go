package replication

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/internal/resp"
	"cairn/replication/rdb"
	"cairn/wal"
)

// lab is a primary over a log of its own, and replicas made by hand.
type lab struct {
	*Primary
	t      *testing.T
	log    *wal.Log
	data   *fakeSource
	notNow bool
	mu     sync.Mutex
	said   []string
	served sync.WaitGroup
}

// fakeSource gives a data set of one key.
type fakeSource struct {
	log  *wal.Log
	size int
	hold chan struct{} // closed: snapshots may be had; nil: at once
	fail bool
	open sync.WaitGroup
}

type fakeSnapshot struct {
	src    *fakeSource
	offset int64
	h      wal.History
}

func (f *fakeSource) Snapshot() (Snapshot, error) {
	if f.hold != nil {
		<-f.hold
	}
	f.open.Add(1)
	return &fakeSnapshot{f, f.log.End(), f.log.History()}, nil
}

func (s *fakeSnapshot) Offset() int64        { return s.offset }
func (s *fakeSnapshot) History() wal.History { return s.h }
func (s *fakeSnapshot) Close() error         { s.src.open.Done(); return nil }
func (s *fakeSnapshot) WriteRows(w io.Writer) error {
	_, err := io.WriteString(w, "rows")
	return err
}

func (s *fakeSnapshot) WriteRDB(w io.Writer) error {
	if s.src.fail {
		return errors.New("the key has no form")
	}
	out := rdb.NewWriter(w, 0)
	if err := out.SelectDB(0); err != nil {
		return err
	}
	for i := range max(1, s.src.size/1000) {
		if err := out.Key(rdb.Key{Name: fmt.Appendf(nil, "key%d", i)}); err != nil {
			return err
		}
		// Nothing in it that could be packed: what is sent is as long as it looks.
		value := bytes.Repeat([]byte{byte(i), byte(i >> 8), 'x', byte(i * 7)}, min(s.src.size, 1000)/4)
		if err := out.BeginString(uint64(len(value))); err != nil {
			return err
		}
		if _, err := out.Write(value); err != nil {
			return err
		}
	}
	return out.Close()
}

func newLab(t *testing.T, tune func(*wal.Options)) *lab {
	t.Helper()
	o := wal.Options{FS: vfs.NewMem(), Dir: "log", Policy: wal.EverySec, KeepBytes: 1 << 20, PinLimit: 1 << 30, Logf: func(string, ...any) {}}
	if tune != nil {
		tune(&o)
	}
	h := wal.History{ID: [40]byte([]byte(strings.Repeat("a", 40))), ID2: [40]byte([]byte(strings.Repeat("0", 40))), Offset2: -1, Counter: 1}
	log, _, err := wal.Open(o, wal.OpenPoint{Fresh: true, Floor: -1, History: h})
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, log: log, data: &fakeSource{log: log, size: 100}}
	l.Primary = NewPrimary(PrimaryOptions{
		Log: log, Source: l.data, Append: l.appendControl,
		Timeout:   func() time.Duration { return 20 * time.Second },
		PingEvery: func() time.Duration { return 10 * time.Second },
		MaxLag:    func() time.Duration { return 10 * time.Second },
		Logf:      l.logf,
	})
	t.Cleanup(func() {
		l.DisconnectAll("the test is over")
		l.served.Wait()
		l.data.open.Wait() // every snapshot was closed
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *lab) appendControl(words ...string) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.notNow {
		return 0, ErrNotNow
	}
	return l.log.Append(resp.AppendCommandStrings(nil, words...)), nil
}

func (l *lab) logf(event string, fields ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, fmt.Sprint(append([]any{event, " "}, fields...)...))
}

// heard says whether a line of the log holds text.
func (l *lab) heardOf(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(strings.Join(l.said, "\n"), text)
}

// write appends n bytes that look like a stream and gives them back.
func (l *lab) write(n int) []byte {
	l.t.Helper()
	at := l.log.End()
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(at + int64(i))
	}
	if err := l.log.WaitDurable(l.log.Append(b)); err != nil {
		l.t.Fatal(err)
	}
	return b
}

// handPatience is how long a replica made by hand waits for anything. It never comes to it but on a machine that has
// much else to do.
const handPatience = 2 * time.Minute

// hand is a replica made by hand.
type hand struct {
	t    *testing.T
	conn net.Conn
	rd   *bufio.Reader
	r    *Attached
	done chan struct{} // closed when it is no longer served
}

// join attaches a replica.
func (l *lab) join(h Hello) *hand {
	l.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		l.t.Fatal(err)
	}
	far, err := ln.Accept()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := near.SetDeadline(time.Now().Add(handPatience)); err != nil {
		l.t.Fatal(err)
	}
	h.Conn, h.Framer, h.Addr = far, resp.NewFramer(resp.Limits{}), far.RemoteAddr().String()
	c := &hand{t: l.t, conn: near, rd: bufio.NewReader(near), done: make(chan struct{})}
	attached := make(chan *Attached, 1)
	l.served.Add(1)
	go func() {
		defer l.served.Done()
		defer close(c.done)
		l.Serve(h, func(r *Attached) { attached <- r })
	}()
	c.r = <-attached
	l.t.Cleanup(func() { near.Close() })
	return c
}

func (c *hand) line() string {
	c.t.Helper()
	for {
		line, err := c.rd.ReadString('\n')
		if err != nil {
			c.t.Fatalf("line: %q, %v", line, err)
		}
		if line != "\n" {
			return strings.TrimSuffix(line, "\r\n")
		}
	}
}

func (c *hand) bytes(n int) []byte {
	c.t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(c.rd, b); err != nil {
		c.t.Fatalf("%d bytes of the stream: %v", n, err)
	}
	return b
}

func (c *hand) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, text); err != nil {
		c.t.Fatal(err)
	}
}

func (c *hand) ack(words ...any) {
	c.t.Helper()
	args := []string{"REPLCONF", "ACK"}
	for _, w := range words {
		args = append(args, fmt.Sprint(w))
	}
	c.send(string(resp.AppendCommandStrings(nil, args...)))
}

// markedRDB reads a data set between marks.
func (c *hand) markedRDB() []byte {
	c.t.Helper()
	mark, ok := strings.CutPrefix(c.line(), "$EOF:")
	if !ok || len(mark) != markLen {
		c.t.Fatalf("mark %q", mark)
	}
	var got []byte
	for !bytes.HasSuffix(got, []byte(mark)) {
		b, err := c.rd.ReadByte()
		if err != nil {
			c.t.Fatal(err)
		}
		got = append(got, b)
	}
	return got[:len(got)-markLen]
}

// closed waits for the end of the link.
func (c *hand) closed() {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(handPatience):
		c.t.Fatal("the link did not end")
	}
}

const selectZero = "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n"

// keyCounter counts the keys of a data set.
type keyCounter struct{ keys int }

func (*keyCounter) Aux(_, _ []byte) error         { return nil }
func (*keyCounter) Function([]byte) error         { return nil }
func (*keyCounter) SelectDB(uint64) error         { return nil }
func (*keyCounter) ResizeDB(uint64, uint64) error { return nil }
func (k *keyCounter) Key(rdb.Key) (rdb.Sink, error) {
	k.keys++
	return nil, nil
}

// keysOf reads a data set to its end and counts its keys.
func keysOf(t *testing.T, raw []byte) int {
	t.Helper()
	var k keyCounter
	br := bufio.NewReader(bytes.NewReader(raw))
	if err := rdb.Read(br, &k, rdb.ReadOptions{}); err != nil {
		t.Fatalf("the data set does not read: %v", err)
	}
	if _, err := br.ReadByte(); err != io.EOF {
		t.Fatal("bytes behind the data set")
	}
	return k.keys
}
