package command

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"cairn/engine/layout"
	"cairn/internal/resp"
	"cairn/internal/testkit"
)

// A key lives through the very millisecond it was given and is gone in the next, for every command; a write that
// meets it logs its end first, in the same entry.
func TestStringExpiry(t *testing.T) {
	n := newNode(t)
	check := func(want string, args ...string) {
		t.Helper()
		if got := n.do(args...); got != want {
			t.Errorf("%v at %d gives %q, want %q", args, n.now, got, want)
		}
	}
	check("+OK\r\n", "SET", "k", "v", "PX", "100")
	n.now += 100
	check("$1\r\nv\r\n", "GET", "k")
	n.now++
	check("$-1\r\n", "GET", "k")
	check(":0\r\n", "STRLEN", "k")
	check("$0\r\n\r\n", "GETRANGE", "k", "0", "-1")
	check("*1\r\n$-1\r\n", "MGET", "k")
	check(":0\r\n", "GETBIT", "k", "1")
	check(":0\r\n", "BITCOUNT", "k")
	check(":-1\r\n", "BITPOS", "k", "1")
	logged := n.log.Len()
	check(":3\r\n", "APPEND", "k", "new")
	if got, want := describeLog(t, n.log.Bytes()[logged:]), "MULTI\nDEL k\nAPPEND k new\nEXEC\n"; got != want {
		t.Errorf("log has %q, want %q", got, want)
	}
	if got, want := strings.Join(n.events, ","), "new k,set k,expire k,expired k,new k,append k"; got != want {
		t.Errorf("events are %q, want %q", got, want)
	}
	check(":1\r\n", "SETNX", "other", "v")
	check("$1\r\nv\r\n", "GETEX", "other", "PX", "5")
	n.now += 6
	check(":1\r\n", "SETNX", "other", "v")
	check("$1\r\nv\r\n", "SET", "other", "w", "KEEPTTL", "GET")
	check("$1\r\nw\r\n", "GETEX", "other", "PXAT", strconv.FormatInt(n.now, 10))
	check("$-1\r\n", "GET", "other")
}

// Strings at the borders of the three forms, and with a bit where only one chunk should be.
func TestStringForms(t *testing.T) {
	n := newNode(t)
	form := func(key string) layout.Record {
		txn := n.store.NewTxn()
		txn.BeginAll(false, n.now)
		defer txn.End()
		k, err := txn.Key([]byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return k.Rec
	}
	for _, c := range []struct {
		size int
		want layout.Form
	}{
		{0, layout.Inline},
		{layout.InlineMax, layout.Inline},
		{layout.InlineMax + 1, layout.ValueRow},
		{layout.ChunkedOver, layout.ValueRow},
		{layout.ChunkedOver + 1, layout.Rows},
		{10 * layout.ChunkBytes, layout.Rows},
	} {
		value := strings.Repeat("x", c.size)
		n.do("SET", "set", value)
		n.do("GETDEL", "grown")
		n.do("APPEND", "grown", value[:c.size/2])
		n.do("APPEND", "grown", value[c.size/2:])
		for _, key := range []string{"set", "grown"} {
			if got := form(key); got.Form != c.want {
				t.Errorf("%d bytes, %s, have form %d, want %d", c.size, key, got.Form, c.want)
			}
		}
		if got, want := n.do("GET", "set"), fmt.Sprintf("$%d\r\n%s\r\n", c.size, value); got != want {
			t.Errorf("%d bytes do not read back", c.size)
		}
	}
	n.do("SETBIT", "far", "4294967295", "1")
	if r := form("far"); r.Form != layout.Rows || r.Count != 512<<20 || r.Bytes != layout.ChunkBytes {
		t.Errorf("one bit far out: form %d, %d bytes, %d stored; want %d, %d, %d",
			r.Form, r.Count, r.Bytes, layout.Rows, 512<<20, layout.ChunkBytes)
	}
	for _, c := range []struct{ want, command string }{
		{":536870912\r\n", "STRLEN far"},
		{":1\r\n", "BITCOUNT far"},
		{":4294967295\r\n", "BITPOS far 1"},
		{":0\r\n", "BITPOS far 0"},
		{"$2\r\n\x00\x01\r\n", "GETRANGE far -2 -1"},
		{"-" + string(ErrTooBig) + "\r\n", "APPEND far x"},
		{":536870912\r\n", "SETRANGE far 100000 y"},
		{"*3\r\n:0\r\n:1\r\n:-1\r\n", "BITFIELD far GET u8 100 GET u1 4294967295 GET i1 4294967295"},
		{":1\r\n", "SETBIT far 4294967295 0"},
		{":0\r\n", "SETBIT middling 7999999 1"},
		{":1000000\r\n", "BITOP NOT inverse middling"},
		{":7999999\r\n", "BITCOUNT inverse"},
		{":7999999\r\n", "BITPOS inverse 0"},
	} {
		if got := n.do(strings.Fields(c.command)...); got != c.want {
			t.Errorf("%s gives %.80q, want %q", c.command, got, c.want)
		}
	}
	// The chunk whose only bit was cleared has no row any more; the other has all up to its byte.
	if r, want := form("far"), uint64(100000%layout.ChunkBytes+1); r.Bytes != want {
		t.Errorf("%d bytes are stored, want %d", r.Bytes, want)
	}
}

// A long value leaves in pieces, whatever its length, as it was when the command ran.
func TestStringStream(t *testing.T) {
	n := newNode(t)
	n.do("SETBIT", "big", "4294967295", "1")
	n.do("SETRANGE", "big", "70000", "hello")
	args := [][]byte{[]byte("GETSET"), []byte("big"), []byte("small")}
	w := &resp.Writer{Proto: 2}
	c := &Ctx{Txn: n.txn, Host: n, NowMs: n.now, W: w}
	cmd, _ := n.table.Lookup(args)
	c.Reset(cmd, args)
	slots, _ := cmd.AppendSlots(nil, args)
	n.txn.Begin(slots, true, n.now)
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.txn.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := n.store.Apply(); err != nil {
		t.Fatal(err)
	}
	streams := c.TakeStreams()
	if len(streams) != 1 || string(w.Buf) != "$536870912\r\n\r\n" || streams[0].At != len("$536870912\r\n") {
		t.Fatalf("%d streams in %q", len(streams), w.Buf)
	}
	out, total, largest, found := &resp.Writer{}, 0, 0, 0
	drain := func() error {
		largest = max(largest, len(out.Buf))
		if i := bytes.Index(out.Buf, []byte("hello")); i >= 0 {
			found = total + i
		}
		total += len(out.Buf)
		out.Buf = out.Buf[:0]
		return nil
	}
	if err := streams[0].Run(out, drain); err != nil {
		t.Fatal(err)
	}
	last := out.Buf[len(out.Buf)-1]
	if err := drain(); err != nil {
		t.Fatal(err)
	}
	if err := streams[0].Close(); err != nil {
		t.Fatal(err)
	}
	if total != 512<<20 || found != 70000 || last != 1 || largest > StreamFrom+layout.ChunkBytes {
		t.Errorf("%d bytes with hello at %d, last %d, at most %d at once", total, found, last, largest)
	}
}

// randomString picks commands on few keys, with the odd wrong argument.
type randomString struct {
	*rand.Rand
	big bool // values around the borders of the forms
}

func (r *randomString) pick(words ...string) string { return words[r.IntN(len(words))] }
func (r *randomString) key() string                 { return r.pick("a", "b", "c", "d") }

func (r *randomString) value() string {
	switch r.IntN(8) {
	case 0:
		return ""
	case 1:
		return r.pick("x", "1e3", "10.5", " 7", "-0", "abc", "9223372036854775807")
	case 2, 3:
		return strconv.Itoa(r.IntN(400) - 200)
	}
	size := r.IntN(70)
	if r.big {
		size = []int{44, 45, 512, 513, 16384, 65536, 65537, 100000, 40000}[r.IntN(9)] + r.IntN(3) - 1
	}
	b := make([]byte, size)
	for i := range b {
		b[i] = "ab\x00\xff"[r.IntN(4)]
	}
	if r.IntN(3) == 0 { // a run of zeroes, for chunks that have no row
		from := r.IntN(size + 1)
		for i := range b[from:] {
			b[from+i] = 0
		}
	}
	return string(b)
}

func (r *randomString) number() string {
	if r.IntN(12) == 0 {
		return r.pick("x", "", "1.5", "9223372036854775807", "-9223372036854775808", " 1", "01")
	}
	span := 60
	if r.big {
		span = 130000
	}
	return strconv.Itoa(r.IntN(span) - span/4)
}

func (r *randomString) bit() string {
	if r.IntN(10) == 0 {
		return r.number()
	}
	span := 500
	if r.big {
		span = 1 << 20
	}
	return strconv.Itoa(r.IntN(span))
}

func (r *randomString) field() []string {
	width := r.pick("u", "i") + strconv.Itoa(1+r.IntN(64))
	off := r.bit()
	if r.IntN(4) == 0 {
		off = "#" + off
	}
	switch r.IntN(4) {
	case 0:
		return []string{"GET", width, off}
	case 1:
		return []string{"SET", width, off, strconv.FormatInt(int64(r.Uint64())>>r.IntN(64), 10)}
	case 2:
		return []string{"INCRBY", width, off, strconv.FormatInt(int64(r.Uint64())>>r.IntN(64), 10)}
	}
	return []string{"OVERFLOW", r.pick("WRAP", "SAT", "FAIL", "FOO")}
}

func (r *randomString) command() []string {
	k, n := r.key(), r.number
	switch r.IntN(30) {
	case 0, 1:
		args := []string{"SET", k, r.value()}
		for range r.IntN(3) {
			args = append(args, strings.Fields(r.pick("NX", "XX", "GET", "KEEPTTL", "EX 100", "PX 100000", "PX 0", "EX",
				"EXAT 1", "PXAT 99999999999999", "EXAT 99999999999", "FOO"))...)
		}
		return args
	case 2:
		return []string{"SETNX", k, r.value()}
	case 3:
		return []string{r.pick("SETEX", "PSETEX"), k, r.pick("100000", "0", "x"), r.value()}
	case 4:
		return []string{"GETSET", k, r.value()}
	case 5:
		return []string{r.pick("GETDEL", "GET", "INCR", "DECR"), k}
	case 6:
		return append([]string{"GETEX", k}, strings.Fields(r.pick("", "PERSIST", "EX 100", "PX 100000", "EXAT 1", "PXAT 99999999999999", "EX x", "NX"))...)
	case 7:
		return []string{"MGET", r.key(), r.key(), r.key()}
	case 8:
		return []string{r.pick("MSET", "MSETNX"), r.key(), r.value(), r.key(), r.value()}
	case 9, 10, 11:
		return []string{"APPEND", k, r.value()}
	case 12:
		return []string{"STRLEN", k}
	case 13, 14:
		return []string{r.pick("GETRANGE", "SUBSTR"), k, n(), n()}
	case 15, 16:
		return []string{"SETRANGE", k, n(), r.value()}
	case 17:
		return []string{r.pick("INCRBY", "DECRBY"), k, n()}
	case 18:
		return []string{"INCRBYFLOAT", k, r.pick("1.5", "-2", "1e3", "0.1", "x", "inf")}
	case 19, 20:
		return []string{"SETBIT", k, r.bit(), r.pick("0", "1", "1", "2")}
	case 21:
		return []string{"GETBIT", k, r.bit()}
	case 22:
		return append([]string{"BITCOUNT", k}, r.span()...)
	case 23, 24:
		args := append([]string{"BITPOS", k, r.pick("0", "1", "1", "2")}, r.span()...)
		return args[:len(args)-r.IntN(2)]
	case 25:
		return []string{"BITOP", r.pick("AND", "OR", "XOR", "NOT"), r.key(), r.key(), r.key()}
	case 26:
		return []string{"BITOP", r.pick("NOT", "XOR"), r.key(), r.key()}
	case 27:
		if r.big {
			return []string{"GET", k}
		}
		return append([]string{"LCS", r.key(), r.key()}, strings.Fields(r.pick("", "LEN", "IDX", "IDX WITHMATCHLEN", "IDX MINMATCHLEN 3"))...)
	}
	args := []string{r.pick("BITFIELD", "BITFIELD", "BITFIELD_RO"), k}
	for range 1 + r.IntN(4) {
		args = append(args, r.field()...)
	}
	return args
}

func (r *randomString) span() []string {
	return [][]string{nil, {r.number(), r.number()}, {r.bit(), r.number(), "BIT"}, {r.number(), r.bit(), "BYTE"}, {"1"}}[r.IntN(5)]
}

// encodings are what Redis calls Enc.
var encodings = map[uint8]string{EncRaw: "raw", EncInt: "int", EncEmbstr: "embstr"}

// Random commands get the replies that a real server gives, and executing their log gives the same rows.
func TestStringsLikeRedis(t *testing.T) {
	for _, c := range []struct {
		name   string
		big    bool
		proto  int
		rounds int
	}{
		{"small", false, 2, 6000},
		{"resp3", false, 3, 2000},
		{"big", true, 2, 2500},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := testkit.StartRedis(t)
			client := testkit.Dial(t, server.Addr)
			client.Do("HELLO", strconv.Itoa(c.proto))
			n := newNode(t)
			n.proto = c.proto
			r := &randomString{rand.New(rand.NewPCG(7, uint64(c.rounds))), c.big}
			unsure := map[string]bool{} // keys whose encoding need not be Redis's
			for i := range c.rounds {
				args := r.command()
				want, got := client.Do(args...).Raw, n.do(args...)
				if got != want {
					t.Fatalf("command %d, %.200q:\ngot  %.300q\nwant %.300q", i, args, got, want)
				}
				n.compareEncoding(t, client, args, got, unsure)
				if r.IntN(50) == 0 {
					if err := n.store.Apply(); err != nil {
						t.Fatal(err)
					}
				}
			}
			checkReplay(t, n)
			n.checkCanonical(t)
		})
	}
}

// compareEncoding looks at the first key of a command. Redis notes "embstr" after INCRBYFLOAT, where a replica
// says "int", and unpacks what SETBIT and BITFIELD then do not change.
func (n *node) compareEncoding(t *testing.T, client *testkit.Conn, args []string, reply string, unsure map[string]bool) {
	t.Helper()
	key := args[1]
	switch args[0] {
	case "INCRBYFLOAT", "SETBIT", "BITFIELD":
		unsure[key] = true
	case "SET", "SETEX", "PSETEX":
		if reply == "+OK\r\n" {
			delete(unsure, key)
		}
	}
	if unsure[key] || strings.HasPrefix(args[0], "M") || args[0] == "BITOP" {
		return
	}
	n.txn.BeginAll(false, n.now)
	defer n.txn.End()
	k, err := n.txn.Key([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	if !k.Exists() {
		delete(unsure, key)
		return
	}
	if got, want := encodings[k.Rec.Enc], client.Do("OBJECT", "ENCODING", key).Value; got != want {
		t.Fatalf("encoding of %q after %.100q is %s, want %v", key, args, got, want)
	}
}

// checkCanonical sets every value anew on another node: the rows must be the same, however they came about.
func (n *node) checkCanonical(t *testing.T) {
	t.Helper()
	other := newNode(t)
	for _, key := range []string{"a", "b", "c", "d"} {
		reply := n.do("GET", key)
		if _, value, ok := strings.Cut(reply, "\r\n"); ok && value != "" {
			other.do("SET", key, strings.TrimSuffix(value, "\r\n"), "KEEPTTL")
		}
	}
	strip := func(dump string) string {
		var out strings.Builder
		for line := range strings.Lines(dump) {
			if at := strings.Index(line, " enc="); at >= 0 { // encoding and deadline come from the commands
				line = line[:at] + line[strings.Index(line, " count="):]
			}
			out.WriteString(line)
		}
		return out.String()
	}
	if got, want := strip(dumpRows(t, n)), strip(dumpRows(t, other)); got != want {
		t.Errorf("rows depend on how the values were made:\ngot  %.2000q\nwant %.2000q", got, want)
	}
}

// A long table for LCS is not kept as a whole, which must not show; both ways round, as the table may be turned.
func TestLCSLikeRedis(t *testing.T) {
	server := testkit.StartRedis(t)
	client := testkit.Dial(t, server.Addr)
	n := newNode(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range [][2]int{{0, 5}, {1, 1}, {1, 700}, {17, 16}, {700, 3}, {900, 1100}} {
		for _, letters := range []string{"ab", "abcdefgh"} {
			text := func(size int) string {
				b := make([]byte, size)
				for i := range b {
					b[i] = letters[r.IntN(len(letters))]
				}
				return string(b)
			}
			args := []string{"MSET", "a", text(size[0]), "b", text(size[1])}
			client.Do(args...)
			n.do(args...)
			for _, command := range []string{"LCS a b", "LCS a b LEN", "LCS a b IDX WITHMATCHLEN", "LCS b a IDX MINMATCHLEN 4"} {
				words := strings.Fields(command)
				if got, want := n.do(words...), client.Do(words...).Raw; got != want {
					t.Fatalf("%s of %v bytes:\ngot  %.300q\nwant %.300q", command, size, got, want)
				}
			}
		}
	}
}

// The hot commands on a small value that is in memory take nothing from the heap but what holds a new number.
func TestStringAllocations(t *testing.T) {
	n := newNode(t)
	for _, c := range []struct {
		command string
		most    float64
	}{{"GET k", 0}, {"SET k 12345", 0}, {"INCR k", 1}, {"STRLEN k", 0}, {"GETRANGE k 0 2", 0}, {"GETBIT k 3", 0}} {
		var args [][]byte
		for word := range strings.FieldsSeq(c.command) {
			args = append(args, []byte(word))
		}
		cmd, _ := n.table.Lookup(args)
		w := &resp.Writer{Proto: 2}
		ctx := &Ctx{Txn: n.txn, Host: n, NowMs: n.now, W: w}
		slots, _ := cmd.AppendSlots(nil, args)
		handler := testing.AllocsPerRun(200, func() {
			w.Buf = w.Buf[:0]
			ctx.Reset(cmd, args)
			n.txn.Begin(slots, cmd.Is(Write), n.now)
			if err := cmd.Run(ctx); err != nil {
				t.Fatal(err)
			}
			n.events = n.events[:0]
			n.txn.End()
		})
		if handler > c.most {
			t.Errorf("%s allocates %v times, want at most %v", c.command, handler, c.most)
		}
	}
}

// Whatever a client sends to these commands, it gets a reply, and the log executes to the same rows.
func FuzzStringCommands(f *testing.F) {
	f.Add("SET k v EX 10\nAPPEND k x\nGETEX k PERSIST")
	f.Add("BITFIELD k OVERFLOW SAT INCRBY u63 #3 -1 GET i64 7\nBITPOS k 0 -3 -1 BIT")
	f.Add("SETRANGE k 70000 x\nSETBIT k 8000000 1\nBITOP NOT d k\nLCS k d IDX\nGETRANGE d -5 -1")
	f.Fuzz(func(t *testing.T, script string) {
		n := newNode(t)
		n.settings.ProtoMaxBulk.Store(1 << 20)
		families := append(stringCommands(), bitCommands()...)
		for line := range strings.Lines(script) {
			words, ok := resp.SplitArgs(nil, []byte(strings.TrimRight(line, "\n")))
			if !ok || len(words) == 0 {
				continue
			}
			for i := range families {
				if resp.IsWord(words[0], families[i].Name) {
					w := &resp.Writer{Proto: 2}
					n.run(w, words)
					if len(w.Buf) == 0 || strings.HasPrefix(string(w.Buf), "-IOERR") {
						t.Fatalf("%q gives %q", words, w.Buf)
					}
				}
			}
		}
		checkReplay(t, n)
	})
}
