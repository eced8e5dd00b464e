package local

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/internal/slot"
)

// Whole clusters are tested with the program itself, in cmd/cairn.

// TestSlots: every slot has one primary, and no primary has much more than another.
func TestSlots(t *testing.T) {
	t.Parallel()
	for _, primaries := range []int{1, 2, 3, 5, 6, 7, 100, maxNodes} {
		next := 0
		for i := range primaries {
			first, last := slotsOf(i, primaries)
			if size := last - first + 1; first != next || size < slot.Count/primaries || size > slot.Count/primaries+1 {
				t.Fatalf("primary %d of %d: slots %d to %d, want from %d on", i, primaries, first, last, next)
			}
			next = last + 1
		}
		if next != slot.Count {
			t.Errorf("%d primaries have slots up to %d", primaries, next-1)
		}
	}
}

func unsaid() UpOptions { return UpOptions{Replicas: -1, Self: "cairn"} }

// TestSettle: what is not said is as it was; what would make another cluster of it is refused.
func TestSettle(t *testing.T) {
	t.Parallel()
	there := func() *record {
		return &record{Primaries: 5, Replicas: 2, Port: 9000, MemoryBudget: "64mb", Directives: []string{"--a", "b"}, Formed: true}
	}
	for _, c := range []struct {
		name    string
		rec     *record // nil: a new folder
		ask     func(*UpOptions)
		want    string // of the result, or of the error
		changed bool
	}{
		{"new", nil, func(*UpOptions) {}, "3 1 7000 128mb", false},
		{"new, said", nil, func(o *UpOptions) { o.Primaries, o.Replicas, o.Port, o.MemoryBudget = 1, 0, 80, "1gb" }, "1 0 80 1gb", false},
		{"as it was", there(), func(*UpOptions) {}, "5 2 9000 64mb --a b", false},
		{"said again", there(), func(o *UpOptions) { o.Primaries, o.Replicas, o.Port = 5, 2, 9000 }, "5 2 9000 64mb --a b", false},
		{"memory", there(), func(o *UpOptions) { o.MemoryBudget = "1gb" }, "5 2 9000 1gb --a b", true},
		{"directives", there(), func(o *UpOptions) { o.Directives = []string{} }, "5 2 9000 64mb", true},
		{"primaries", there(), func(o *UpOptions) { o.Primaries = 3 }, "holds a cluster of 5 primaries with 2 replicas each, from port 9000", false},
		{"replicas", there(), func(o *UpOptions) { o.Replicas = 0 }, "holds a cluster of 5", false},
		{"port", there(), func(o *UpOptions) { o.Port = 7000 }, "holds a cluster of 5", false},
		{"never formed", &record{Primaries: 3, Port: 7000, MemoryBudget: "1gb"}, func(o *UpOptions) { o.Port = 8000 }, "3 0 8000 1gb", true},
		{"bus port", nil, func(o *UpOptions) { o.Port = 55531 }, "want 1 to 55535", false},
		{"many", nil, func(o *UpOptions) { o.Replicas = 400 }, "at most 1000 nodes", false},
		{"own directive", nil, func(o *UpOptions) { o.Directives = []string{"--Port=1"} }, "--port is what up decides itself", false},
		{"no directive", nil, func(o *UpOptions) { o.Directives = []string{"x"} }, "want --name value", false},
	} {
		o, rec, known := unsaid(), c.rec, c.rec != nil
		if !known {
			rec = &record{}
		}
		c.ask(&o)
		got := ""
		if err := rec.settle(&o, "/d", known); err != nil {
			got = err.Error()
			if !strings.Contains(got, c.want) {
				t.Errorf("%s: %s", c.name, got)
			}
			continue
		}
		got = strings.TrimSpace(strings.Join(append([]string{num(rec.Primaries), num(rec.Replicas), num(rec.Port), rec.MemoryBudget}, rec.Directives...), " "))
		if got != c.want || rec.changed != c.changed {
			t.Errorf("%s: %q, changed %v; want %q, %v", c.name, got, rec.changed, c.want, c.changed)
		}
	}
}

func num(n int) string {
	_, port, _ := net.SplitHostPort(address(n))
	return port
}

func TestRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, known, err := loadRecord(dir); known || err != nil {
		t.Fatalf("no record: %v, %v", known, err)
	}
	rec := &record{Primaries: 3, Replicas: 1, Port: 7000, MemoryBudget: "1gb", Directives: []string{"--requirepass", "s"}}
	if err := rec.save(dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, recordName)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a record that may hold a password: %v, %v", info, err)
	}
	got, known, err := loadRecord(dir)
	if err != nil || !known || got.MemoryBudget != "1gb" || got.directive("requirepass") != "s" {
		t.Errorf("%+v, %v, %v", got, known, err)
	}
	for _, text := range []string{"", "{", `{"primaries": 0}`, `{"primaries": 3, "port": 99999}`, `{"primaries":1000000000000,"replicas":1000000000000,"port":1}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := loadRecord(dir); err == nil || !strings.HasPrefix(err.Error(), path) {
			t.Errorf("record %q: %v", text, err)
		}
	}
}

func TestDirective(t *testing.T) {
	t.Parallel()
	r := &record{Directives: []string{"--requirepass", "a", "--save", "", "--RequirePass=b=c"}}
	if got := r.directive("requirepass"); got != "b=c" {
		t.Errorf("requirepass %q", got)
	}
	if got := r.directive("masterauth"); got != "" {
		t.Errorf("masterauth %q", got)
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	got := environment([]string{"HOME=/h", "CAIRN_PORT=1", "NOTIFY_SOCKET=/s", "WATCHDOG_USEC=1", "PATH=/p"})
	if !slices.Equal(got, []string{"HOME=/h", "PATH=/p"}) {
		t.Errorf("%q", got)
	}
}

// TestTwoAtOnce: one Up or Down at a time works on a folder.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	release, err := takeFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	o := unsaid()
	o.Dir, o.Program, o.Out = dir, []string{"/nonexistent"}, io.Discard
	if err := Up(context.Background(), o); err == nil || !strings.Contains(err.Error(), "another up or down, pid ") {
		t.Errorf("up: %v", err)
	}
}

// TestNothingThere: down does not make a folder to find it empty.
func TestNothingThere(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	if err := Down(context.Background(), DownOptions{Dir: dir, Self: "cairn"}); err == nil || !strings.Contains(err.Error(), "there is no cluster in "+dir) {
		t.Errorf("down: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("down has made the folder")
	}
}

// TestScreen: a terminal sees phases go on, a file gets lines.
func TestScreen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		colour bool
		want   string
	}{
		{false, "title 1\n  waiting   2 of 2\nNext:\n  a     what a does\n  long  what long does\n"},
		{true, bold + "title 1" + plain + "\n" + erase + dim + "  waiting   1 of 2" + plain + erase + "  " + green + "waiting  " + plain + " 2 of 2\n" +
			"Next:\n  " + bold + "a   " + plain + "  what a does\n  " + bold + "long" + plain + "  what long does\n"},
	} {
		var out strings.Builder
		s := newScreen(&out, c.colour)
		s.title("title %d", 1)
		s.step("waiting", "%d of 2", 1)
		s.phase("waiting", "%d of 2", 2)
		s.hint("Next:", [][2]string{{"a", "what a does"}, {"long", "what long does"}})
		if out.String() != c.want {
			t.Errorf("colour %v: %q\nwant %q", c.colour, out.String(), c.want)
		}
	}
}

// TestListening reads what the kernel shows of sockets: those that listen, over both families.
func TestListening(t *testing.T) {
	t.Parallel()
	got := listening([]byte(`  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1B58 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 412345 1 0000000000000000 100 0 0 10 0
   1: 0100007F:1B59 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 412346 1 0000000000000000 100 0 0 10 0
   0: 00000000000000000000000001000000:4268 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 412347 1 0
   garbage
   2: x:y 0 0A 0 0 0 0 0 9 1
`))
	if len(got) != 2 || got["412345"] != 7000 || got["412347"] != 17000 {
		t.Errorf("%v", got)
	}
}

// TestInUse names who has a port, where that can be told.
func TestInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	text := inUse([]int{port})
	want := "port " + num(port) + " in use"
	if _, err := os.Stat("/proc/net/tcp"); err == nil {
		want += " by pid " + strconv.Itoa(os.Getpid()) + " (local.test)"
	}
	if !strings.Contains(text, want) || !strings.Contains(text, "nothing was started") {
		t.Errorf("%q, want %q", text, want)
	}
}

// TestFewestReplicas: who comes back anew strengthens the shard that needs it; nodes that failed do not count.
func TestFewestReplicas(t *testing.T) {
	t.Parallel()
	const nodes = `a 127.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-5460
b 127.0.0.1:7001@17001 master - 0 0 2 connected 5461-10922
c 127.0.0.1:7002@17002 master,fail - 0 0 3 disconnected
d 127.0.0.1:7003@17003 slave a 0 0 1 connected
e 127.0.0.1:7004@17004 slave,fail b 0 0 2 disconnected
f 127.0.0.1:7002@17002 master - 0 0 0 connected
`
	if got := fewestReplicas(nodes); got != "b" {
		t.Errorf("primary %q, want b, whose replica failed", got)
	}
	if got := formerOf(nodes, 7002, "f"); !slices.Equal(got, []string{"c"}) {
		t.Errorf("former selves of f: %q, want c", got)
	}
}

// TestEndedNodeIsStarted: a node that was found running, and had been killed a moment before, is started.
func TestEndedNodeIsStarted(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	dir := t.TempDir()
	n := newNode(dir, port)
	n.pid, n.held = 1, true // as the lock said, before the system put the process away
	c := &localCluster{
		rec: &record{Primaries: 1, Port: port}, dir: dir, say: newScreen(nil, false), nodes: []*localNode{n},
		program: []string{"/bin/sh", "-c", "echo was started; exit 3"},
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = c.connect(ctx, c.nodes)
	if err == nil || !strings.Contains(err.Error(), "it ended (exit status 3)") || !strings.Contains(err.Error(), "was started") {
		t.Errorf("connect: %v", err)
	}
}
