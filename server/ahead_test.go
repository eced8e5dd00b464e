package server

import (
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"testing"

	"cairn/internal/resp"
	"cairn/server/config"
)

// Each key of what was read is fetched, and the same few keys are not fetched over and over.
func TestReadAheadFetchesEachKeyOnce(t *testing.T) {
	cfg, _, err := config.Load([]string{"--port", "0", "--dir", t.TempDir()}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &readAhead{
		table: New(cfg, NewLogger("", io.Discard, config.LogWarning)).table,
		work:  make(chan [][]byte, 64), seed: maphash.MakeSeed(),
	}
	var buf []byte
	var want []string
	for i := range 3*aheadGroup + 5 {
		key := fmt.Sprint("many", i)
		buf = resp.AppendCommand(buf, []byte("SET"), []byte(key), []byte("v"))
		buf = resp.AppendCommand(buf, []byte("INCR"), []byte("one"))
		buf = resp.AppendCommand(buf, []byte("PING"))
		want = append(want, key)
	}
	buf = append(resp.AppendCommand(buf, []byte("MSET"), []byte("m1"), []byte("v"), []byte("m2"), []byte("v")), "*2\r\n$4\r\nIN"...)
	want = append(want, "one", "m1", "m2")
	slices.Sort(want)
	for range 2 { // what was fetched long ago is fetched again
		a.commands(buf)
		var got []string
		for len(a.work) > 0 {
			for _, k := range <-a.work {
				got = append(got, string(k))
			}
		}
		slices.Sort(got)
		if got := slices.Compact(slices.Clone(got)); !slices.Equal(got, want) {
			t.Fatalf("fetched %q, want %q", got, want)
		}
		if len(got) > 2*len(want) { // two keys at one place may put each other out
			t.Errorf("%d fetches of %d keys", len(got), len(want))
		}
	}
}
