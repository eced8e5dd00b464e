package nodesconf_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cairn/cluster/nodesconf"
	"cairn/internal/testkit"
)

const (
	a = "07c37dfeb235213a872192d90877d0cd55635b91"
	b = "e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca"
)

func TestLinesReadBackAsWritten(t *testing.T) {
	for _, text := range []string{
		a + " 127.0.0.1:7000@17000,,tls-port=0,shard-id=" + b + " myself,master - 0 0 1 connected 0-5460 7 [9->-" + b + "] [10-<-" + b + "]\n",
		a + " :0@0,,tls-port=0,shard-id=" + b + " myself,master - 0 0 0 connected\n",
		a + " ::1:7000@17000,host.name,tls-port=0,nodename=left,shard-id=" + b + " myself,slave,nofailover " + b + " 5 6 1 connected\n" +
			b + " 10.0.0.1:7001@17001,,tls-port=8001,shard-id=" + b + " master,fail? - 1700000000000 1700000000001 7 disconnected 1-2 5\n",
	} {
		text += "vars currentEpoch 9 lastVoteEpoch 3\n"
		f, err := nodesconf.Parse([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := string(f.Append(nil)); got != text {
			t.Errorf("got\n%swant\n%s", got, text)
		}
	}
}

func TestOlderFiles(t *testing.T) {
	f, err := nodesconf.Parse([]byte(a + " 127.0.0.1:7000 myself,master - 0 0 1 connected 5\nvars currentEpoch 1 lastVoteEpoch 0\n"))
	if err != nil {
		t.Fatal(err)
	}
	if me := f.Myself(); me.Port != 7000 || me.BusPort != 17000 || me.ShardID != "" {
		t.Fatalf("got %+v, want port 7000 and bus port 17000", me)
	}
	f, err = nodesconf.Parse([]byte(a + " 127.0.0.1:7000@1,,tcp-port=6000 myself - 0 0 1 connected\nvars currentEpoch 1 lastVoteEpoch 0\n"))
	if err != nil {
		t.Fatal(err)
	}
	if me := f.Myself(); me.Port != 6000 || me.TLSPort != 7000 {
		t.Fatalf("got %+v, want port 6000 and TLS port 7000", me)
	}
}

func TestDamage(t *testing.T) {
	good := a + " 127.0.0.1:7000@17000,,tls-port=0,shard-id=" + b + " myself,master - 0 0 1 connected 0-5460\nvars currentEpoch 9 lastVoteEpoch 3\n"
	for n := range len(good) {
		if _, err := nodesconf.Parse([]byte(good[:n])); !errors.Is(err, nodesconf.ErrTorn) {
			t.Fatalf("cut to %d bytes: got %v, want the torn file refused", n, err)
		}
	}
	for _, c := range []struct{ from, to, want string }{
		{a, "07", "line 1: \"07\" is not a node id"},
		{"7000@", "x@", "port \"x\""},
		{"myself,master", "master", "none of the 1 nodes"},
		{"myself", "mine", "flag \"mine\""},
		{"0-5460", "0-16384", "outside [0, 16384)"},
		{"0-5460", "[1->-x]", "open slot"},
		{" 1 connected", " x connected", "field 7"},
		{",shard-id", ",color", "auxiliary field \"color\""},
		{"currentEpoch 9", "currentEpoch x", "line 2: variable"},
		{"vars", good[:100] + "\nvars", "line 2:"},
	} {
		_, err := nodesconf.Parse([]byte(strings.Replace(good, c.from, c.to, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: got %v, want an error with %q", c.to, c.from, err, c.want)
		}
	}
}

// The file of a live node is read and written back unchanged.
func TestRealFile(t *testing.T) {
	server := testkit.StartRedis(t, "--cluster-enabled", "yes")
	client := testkit.Dial(t, server.Addr)
	client.Do("CLUSTER", "ADDSLOTSRANGE", "0", "100", "200", "200")
	client.Do("CLUSTER", "SET-CONFIG-EPOCH", "5")
	client.Do("CLUSTER", "SAVECONFIG")
	text, err := os.ReadFile(filepath.Join(server.Dir, "nodes.conf"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := nodesconf.Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	me := f.Myself()
	if me.Epoch != 5 || len(me.Slots) != 2 || me.Slots[0].Last != 100 {
		t.Fatalf("got %+v from %s", me, text)
	}
	shown := client.Do("CLUSTER", "NODES").Raw
	if !strings.Contains(shown, string(me.AppendShown(nil))+"\n") {
		t.Errorf("CLUSTER NODES gives %q, we show %q", shown, me.AppendShown(nil))
	}
	if me.ShardID != "" { // 7.0 writes no auxiliary fields
		if got := string(f.Append(nil)); got != string(text) {
			t.Errorf("got %q, want %q", got, text)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(a + " 127.0.0.1:7000@17000,h,shard-id=" + b + " myself,master - 0 0 1 connected 0-5460 [9->-" + b + "]\nvars currentEpoch 9 lastVoteEpoch 3\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := nodesconf.Parse(text)
		if err != nil {
			return
		}
		once := file.Append(nil)
		again, err := nodesconf.Parse(once)
		if err != nil {
			t.Fatalf("%q, written of %q, does not read back: %v", once, text, err)
		}
		if twice := again.Append(nil); string(twice) != string(once) {
			t.Fatalf("got %q, want %q", twice, once)
		}
	})
}
