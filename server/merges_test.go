package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/internal/testkit"
)

// valuesLeaveTables flushes changes to keys with these tags until a merge has written a file of values, which flushes do not:
// so many that lie over each other are merged. The keys are gone afterwards.
func valuesLeaveTables(t *testing.T, s *Server, x *session, fs vfs.FS, tags ...string) {
	t.Helper()
	do := func(args ...string) {
		if reply := x.do(args...); reply == "" || reply[0] == '-' {
			t.Fatalf("%.100q: %.200q", args, reply)
		}
	}
	testkit.Eventually(t, 0, func() bool {
		for i, tag := range tags {
			do("SET", fmt.Sprintf("{%s}passing", tag), strings.Repeat("v", 600+i))
			do("SET", fmt.Sprintf("{%s}passing long", tag), strings.Repeat("w", 70_000))
		}
		if err := s.store.Flush(); err != nil {
			t.Fatal(err)
		}
		names, err := fs.List("cairn/store")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, ".blob") {
				return true
			}
		}
		return false
	}, "a merge writes a file of values")
	for _, tag := range tags {
		do("DEL", fmt.Sprintf("{%s}passing", tag), fmt.Sprintf("{%s}passing long", tag))
	}
}
