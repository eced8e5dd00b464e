package server

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/replication/rows"
	"cairn/server/command"
)

// rowsData is primaryData as another node of this program sends it.
func rowsData(t *testing.T, n int) []byte {
	t.Helper()
	s, err := openOn(t, vfs.NewMem(), "no", "boot-rows")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close() //nolint:errcheck // it has served
	a := newApplier(s)
	defer a.close()
	if err := a.Load(bytes.NewReader(primaryData(t, n)), strings.Repeat("cd", 20), 1000); err != nil {
		t.Fatal(err)
	}
	sn, err := s.store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer sn.Close() //nolint:errcheck // of a snapshot that was read only
	var out bytes.Buffer
	if err := command.WriteRows(sn, &out, rows.S2); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A full sync between two nodes goes by rows, whatever packs them, and what is written meanwhile and afterwards follows.
func TestRowsBetweenNodes(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	c := p.dial(t)
	rnd := rand.New(rand.NewPCG(3, 9))
	scribble(t, c, rnd, 2000)
	c.Do("SET", "big", strings.Repeat("0123456789", 300_000))
	for _, codec := range []string{"s2", "zstd", "no"} {
		if got := c.Do("CONFIG", "SET", "repl-compression", codec).Raw; got != "+OK\r\n" {
			t.Fatal(got)
		}
		n := startServer(t)
		r := n.dial(t)
		r.Do("SET", "own", "goes away")
		follows(t, r, p.Port)
		scribble(t, c, rnd, 200)
		sameContent(t, c, r)
		// What came may be changed as what was written here: deadlines, elements, generations.
		r.Do("REPLICAOF", "NO", "ONE")
		scribble(t, r, rnd, 300)
		r.Do("HSET", "new", "f", strings.Repeat("x", 100))
		r.Do("FLUSHALL")
		if got := r.Do("DBSIZE").Raw; got != ":0\r\n" {
			t.Errorf("%s: DBSIZE %q after FLUSHALL", codec, got)
		}
	}
	if got := strings.Count(p.log.String(), "form=rows"); got != 3 {
		t.Errorf("%d syncs by rows, want 3", got)
	}
}

// Rows that do not read leave the old data in place, and RDB is asked for.
func TestRowsThatDoNotRead(t *testing.T) {
	s, err := openOn(t, vfs.NewMem(), "always", "boot-0")
	if err != nil {
		t.Fatal(err)
	}
	x := newSession(s)
	x.do("SET", "k0", "old")
	a := newApplier(s)
	whole := rowsData(t, 100)
	for at := 0; at < len(whole); at += 1 + len(whole)/40 {
		bad := bytes.Clone(whole)
		bad[at] ^= 0x10
		if err := a.Load(bytes.NewReader(bad), strings.Repeat("ab", 20), 5000); err == nil {
			t.Fatalf("changed at byte %d of %d: taken", at, len(whole))
		}
		if err := a.Load(bytes.NewReader(whole[:at]), strings.Repeat("ab", 20), 5000); err == nil {
			t.Fatalf("cut at byte %d of %d: taken", at, len(whole))
		}
	}
	if err := a.Load(bytes.NewReader(append(bytes.Clone(whole), 'x')), strings.Repeat("ab", 20), 5000); err == nil {
		t.Error("a byte behind the end was taken")
	}
	if got := bulk(x.do("GET", "k0")); got != "old" {
		t.Errorf("k0 is %q", got)
	}
	if err := a.Load(bytes.NewReader(whole), strings.Repeat("ab", 20), 5000); err != nil {
		t.Fatal(err)
	}
	if got := bulk(x.do("GET", "k0")); got != "new0" {
		t.Errorf("k0 is %q", got)
	}
	a.close()
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}
