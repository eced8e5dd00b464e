package replication

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cairn/internal/testkit"
	"cairn/replication/psync"
)

// fakeData is an Applier that keeps everything in memory.
type fakeData struct {
	mu      sync.Mutex
	id      string
	offset  int64
	log     string
	data    string
	adopted []string
	refuse  map[string]error // by the first word of a command
	settled int
	durable int64
}

func (d *fakeData) Position() (string, int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.id, d.offset
}

func (d *fakeData) Ahead([]Entry) {}

func (d *fakeData) Apply(_ context.Context, e Entry) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range e.Commands {
		if err := d.refuse[string(c[0])]; err != nil {
			return err
		}
	}
	d.log += string(e.Raw)
	d.offset += int64(len(e.Raw))
	return nil
}

func (d *fakeData) Settle() (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settled++
	return d.offset, nil
}

func (d *fakeData) Load(r io.Reader, id string, offset int64) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch string(b) {
	case "bad":
		return errors.New("bad data")
	case "bad rows":
		return &RowsError{errors.New("bad rows")}
	}
	d.data, d.id, d.offset, d.log = string(b), id, max(offset, 0), ""
	return nil
}

func (d *fakeData) Adopt(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.id, d.adopted = id, append(d.adopted, id)
	return nil
}

func (d *fakeData) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprintf("data %q id %.4q offset %d log %q", d.data, d.id, d.offset, d.log)
}

func (d *fakeData) Rewind(offset int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if offset < d.durable {
		return ErrCannotRewind
	}
	d.offset = offset
	return nil
}

// fakePrimary is the other side, written out by the test.
type fakePrimary struct {
	t    *testing.T
	l    net.Listener
	conn net.Conn
	rd   *bufio.Reader
	rows bool // the replica takes rows
}

// link starts a link to a primary that the test plays.
func link(t *testing.T, d *fakeData, edit func(*Options)) (*fakePrimary, *Replica) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, Applier: d,
		Hello: func() psync.Hello { return psync.Hello{Port: 6379} }, Timeout: func() time.Duration { return 10 * time.Second },
		TempDir: t.TempDir(), Note: func(string, ...any) {}, Warn: func(e string, f ...any) { t.Log(e, f) },
		retry: time.Millisecond, slowRetry: 20 * time.Millisecond,
	}
	if edit != nil {
		edit(&o)
	}
	r := NewReplica(o)
	r.Start()
	p := &fakePrimary{t: t, l: l}
	t.Cleanup(func() {
		r.Stop()
		l.Close()
		if p.conn != nil {
			p.conn.Close()
		}
	})
	return p, r
}

// rowsCapa is what a replica that takes rows says behind everything else.
const rowsCapa = " capa " + psync.RowsCapa

// accept takes the next connection and answers up to PSYNC, whose words it gives.
func (p *fakePrimary) accept() string {
	p.t.Helper()
	if p.conn != nil {
		p.conn.Close()
	}
	var err error
	if p.conn, err = p.l.Accept(); err != nil {
		p.t.Fatal(err)
	}
	_ = p.conn.SetDeadline(time.Now().Add(time.Minute))
	p.rd = bufio.NewReader(p.conn)
	for _, step := range []string{"PING", "REPLCONF listening-port 6379", "REPLCONF capa eof capa psync2"} {
		said := p.command()
		got, rows := strings.CutSuffix(said, rowsCapa)
		if got = strings.TrimSuffix(got, " capa fork"); got != step {
			p.t.Fatalf("the replica says %q, want %q", said, step)
		}
		p.rows = rows
		p.say("+OK\r\n")
	}
	return p.command()
}

// command reads a command, skipping empty lines.
func (p *fakePrimary) command() string {
	p.t.Helper()
	for {
		head, err := p.rd.ReadString('\n')
		if err != nil {
			p.t.Fatalf("read from the replica: %v", err)
		}
		head = strings.TrimRight(head, "\r\n")
		if head == "" {
			continue
		}
		if head[0] != '*' {
			return "inline " + head
		}
		n, _ := strconv.Atoi(head[1:])
		var words []string
		for range n {
			size, err := p.rd.ReadString('\n')
			if err != nil {
				p.t.Fatal(err)
			}
			k, _ := strconv.Atoi(strings.TrimRight(size[1:], "\r\n"))
			b := make([]byte, k+2)
			if _, err := io.ReadFull(p.rd, b); err != nil {
				p.t.Fatal(err)
			}
			words = append(words, string(b[:k]))
		}
		return strings.Join(words, " ")
	}
}

func (p *fakePrimary) say(text string) {
	p.t.Helper()
	if _, err := p.conn.Write([]byte(text)); err != nil {
		p.t.Fatalf("write to the replica: %v", err)
	}
}

// awaitAck reads until the replica acknowledges offset.
func (p *fakePrimary) awaitAck(offset int64) {
	p.t.Helper()
	want := fmt.Sprintf("REPLCONF ACK %d FACK %d", offset, offset)
	for got := ""; got != want; {
		got = p.command()
		if !strings.HasPrefix(got, "REPLCONF ACK") {
			p.t.Fatalf("the replica says %q, want %q", got, want)
		}
	}
}

const (
	idOne = "1111111111111111111111111111111111111111"
	idTwo = "2222222222222222222222222222222222222222"
)

// Data that came as rows and cannot be read is asked for as RDB, and not again and again.
func TestBadRowsAreAskedForAsRDB(t *testing.T) {
	d := &fakeData{}
	p, _ := link(t, d, nil)
	for i, data := range []string{"bad rows", "fine"} {
		p.accept()
		if want := i == 0; p.rows != want {
			t.Fatalf("connection %d: rows are announced: %v", i, p.rows)
		}
		p.say(fmt.Sprintf("+FULLRESYNC %s 1000\r\n$%d\r\n%s", idOne, len(data), data))
	}
	p.awaitAck(1000)
}

func TestFullThenPartial(t *testing.T) {
	d := &fakeData{}
	p, r := link(t, d, nil)
	if got := p.accept(); got != "PSYNC ? -1" {
		t.Fatal(got)
	}
	mark := strings.Repeat("E", 40)
	p.say("\n\n+FULLRESYNC " + idOne + " 1000\r\n\n$EOF:" + mark + "\r\nthe data")
	testkit.Eventually(t, 5*time.Second, func() bool { return r.Status().State == Syncing })
	p.say(mark)
	if got := p.command(); got != "REPLCONF ACK 1000 FACK 1000" {
		t.Fatalf("after the data: %q", got)
	}
	set := line("SELECT", "0") + line("SET", "a", "1")
	getack := line("REPLCONF", "GETACK", "*")
	p.say(set + getack)
	p.awaitAck(1000 + int64(len(set))) // what lies before the question
	open := line("MULTI") + line("DEL", "a")
	p.say(open)
	at := 1000 + int64(len(set)+len(getack))
	p.awaitAck(at)
	if !r.Up() {
		t.Error("the link is not up")
	}
	testkit.Eventually(t, 5*time.Second, func() bool { return r.Status().Read == at+int64(len(open)) })
	if st := r.Status(); st.Applied != at {
		t.Errorf("applied %d, want %d", st.Applied, at)
	}
	// The link breaks within the transaction: what is asked for lies before MULTI.
	if got, want := p.accept(), fmt.Sprintf("PSYNC %s %d", idOne, at+1); got != want {
		t.Fatalf("%q, want %q", got, want)
	}
	if r.Up() {
		t.Error("the link is up before the primary answered")
	}
	p.say("+CONTINUE " + idTwo + "\r\n" + open + line("EXEC"))
	p.awaitAck(at + int64(len(open+line("EXEC"))))
	want := fmt.Sprintf("data \"the data\" id \"2222\" offset %d log %q", at+int64(len(open+line("EXEC"))), set+getack+open+line("EXEC"))
	if d.String() != want {
		t.Errorf("%s\nwant %s", d, want)
	}
}

func TestDataOfALength(t *testing.T) {
	d := &fakeData{}
	p, _ := link(t, d, nil)
	p.accept()
	p.say("+FULLRESYNC " + idOne + " 7\r\n$4\r\ndata" + line("PING"))
	p.awaitAck(7 + int64(len(line("PING"))))
	// A transfer that breaks leaves what there was.
	p.accept()
	p.say("+FULLRESYNC " + idTwo + " 9000\r\n$400\r\nmore")
	p.accept()
	if !strings.HasPrefix(d.String(), `data "data" id "1111"`) {
		t.Error(d)
	}
}

// A primary that knows SYNC only gets no acknowledgements, and is asked for everything each time.
func TestOldPrimary(t *testing.T) {
	d := &fakeData{id: idOne, offset: 5}
	p, r := link(t, d, nil)
	if got := p.accept(); got != "PSYNC "+idOne+" 6" {
		t.Fatal(got)
	}
	p.say("-ERR unknown command 'PSYNC'\r\n")
	if got := p.command(); got != "inline SYNC" {
		t.Fatal(got)
	}
	p.say("$3\r\nold" + line("SET", "a", "b") + line("REPLCONF", "GETACK", "*"))
	testkit.Eventually(t, 5*time.Second, func() bool {
		return r.Status().Applied == int64(len(line("SET", "a", "b")+line("REPLCONF", "GETACK", "*")))
	})
	if got := p.accept(); got != "PSYNC ? -1" {
		t.Error(got)
	}
}

// What is no stream of commands ends the link, and nothing is built on what came of it.
func TestGarbage(t *testing.T) {
	for _, bad := range []string{"\n", "PING\r\n", "*1\r\n$x\r\n"} {
		d := &fakeData{id: idOne, offset: 5}
		p, r := link(t, d, nil)
		p.accept()
		p.say("+CONTINUE\r\n" + line("SET", "a", "b") + bad)
		if got := p.accept(); got != "PSYNC ? -1" {
			t.Errorf("after %q: %q", bad, got)
		}
		if got := d.String(); !strings.Contains(got, fmt.Sprintf("log %q", line("SET", "a", "b"))) {
			t.Errorf("after %q: %s", bad, got)
		}
		if st := r.Status(); !strings.Contains(st.LastErr, "stream is broken") {
			t.Errorf("last error %q", st.LastErr)
		}
	}
}

func TestUnsupported(t *testing.T) {
	d := &fakeData{id: idOne, offset: 5, refuse: map[string]error{"LPUSH": &UnsupportedError{What: "command LPUSH"}}}
	p, r := link(t, d, nil)
	p.accept()
	ok := line("SET", "a", "b")
	p.say("+CONTINUE\r\n" + ok + line("LPUSH", "l", "x") + ok)
	at := 5 + int64(len(ok))
	if got, want := p.accept(), fmt.Sprintf("PSYNC %s %d", idOne, at+1); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if st := r.Status(); !strings.Contains(st.LastErr, fmt.Sprintf("command LPUSH in the primary's stream behind offset %d", at)) {
		t.Errorf("last error %q", st.LastErr)
	}
	p.say("+CONTINUE\r\n" + line("SELECT", "3") + ok)
	if got, want := p.accept(), fmt.Sprintf("PSYNC %s %d", idOne, at+1); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if st := r.Status(); !strings.Contains(st.LastErr, "database 3") {
		t.Errorf("last error %q", st.LastErr)
	}
}

// An entry that only the primary could execute shows that the data differ: all of it is asked for.
func TestDiverged(t *testing.T) {
	d := &fakeData{id: idOne, offset: 5, refuse: map[string]error{"INCR": &DivergedError{Reason: "WRONGTYPE"}}}
	p, _ := link(t, d, nil)
	p.accept()
	p.say("+CONTINUE\r\n" + line("INCR", "a"))
	if got := p.accept(); got != "PSYNC ? -1" {
		t.Error(got)
	}
	p.say("+FULLRESYNC " + idTwo + " 50\r\n$3\r\nbad")
	if got := p.accept(); got != "PSYNC ? -1" {
		t.Errorf("data that was refused: %q", got)
	}
	p.say("+FULLRESYNC " + idTwo + " 50\r\n$3\r\nfit")
	p.awaitAck(50)
	if got := p.accept(); got != "PSYNC "+idTwo+" 51" {
		t.Errorf("data that was taken: %q", got)
	}
}

func TestFork(t *testing.T) {
	d := &fakeData{id: idOne, offset: 100, durable: 50}
	p, _ := link(t, d, nil)
	p.accept()
	p.say("+FORK " + idTwo + " 90\r\n")
	if got := p.accept(); got != "PSYNC "+idOne+" 91" {
		t.Errorf("gone back: %q", got)
	}
	p.say("+FORK " + idTwo + " 40\r\n")
	if got := p.accept(); got != "PSYNC ? -1" {
		t.Errorf("cannot go back: %q", got)
	}
}

// While data is loaded, and while nothing happens, the primary hears of the replica each second.
func TestLifeSigns(t *testing.T) {
	d := &fakeData{}
	p, _ := link(t, d, nil)
	p.accept()
	p.say("+FULLRESYNC " + idOne + " 7\r\n$4\r\nda")
	if b, err := p.rd.ReadByte(); err != nil || b != '\n' {
		t.Errorf("while loading: %q, %v", b, err)
	}
	p.say("ta")
	p.awaitAck(7)
	p.awaitAck(7)
}

func TestSilence(t *testing.T) {
	d := &fakeData{id: idOne, offset: 5}
	p, r := link(t, d, func(o *Options) { o.Timeout = func() time.Duration { return 50 * time.Millisecond } })
	p.accept()
	p.say("+CONTINUE\r\n")
	testkit.Eventually(t, 10*time.Second, func() bool {
		return strings.Contains(r.Status().LastErr, "nothing came from the primary for 50ms")
	}, "the last error is %q", r.Status().LastErr)
}

func TestStopAtAnyPoint(t *testing.T) {
	for _, said := range []string{"", "+FULLRESYNC " + idOne + " 7\r\n$4\r\nda", "+CONTINUE\r\n" + line("SET", "a", "b")[:9]} {
		d := &fakeData{id: idOne, offset: 5}
		p, r := link(t, d, nil)
		p.accept()
		p.say(said)
		r.Stop()
		if st := r.Status(); st.State != Connect {
			t.Errorf("after %q: %v", said, st.State)
		}
	}
}

// A transaction that is longer than memory is meant to hold arrives whole.
func TestLongTransaction(t *testing.T) {
	d := &fakeData{id: idOne, offset: 5}
	p, r := link(t, d, nil)
	p.accept()
	value := strings.Repeat("0123456789abcdef", (spillBytes+1<<20)/16)
	entry := line("MULTI") + line("SET", "long", value) + line("DEL", "x") + line("EXEC")
	p.say("+CONTINUE\r\n" + line("PING") + entry + line("PING"))
	at := 5 + int64(len(entry)+2*len(line("PING")))
	testkit.Eventually(t, 20*time.Second, func() bool { return r.Status().Applied == at })
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.log != line("PING")+entry+line("PING") {
		t.Error("other bytes have arrived")
	}
}
