package server

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"cairn/internal/testkit"
)

// A command that is redirected counts as rejected, not as called, and an EXEC that is redirected says so plainly.
func TestTurnedAway(t *testing.T) {
	p := startClusterPair(t)
	p.alike("CLUSTER ADDSLOTSRANGE 0 16383\nCONFIG SET cluster-require-full-coverage no")
	conns := []*testkit.Conn{p.cairn, p.redis}
	for _, c := range conns {
		testkit.Eventually(t, replyWait, func() bool {
			return strings.Contains(c.Do("CLUSTER", "INFO").Raw, "cluster_state:ok")
		}, "cluster_state:ok")
	}
	p.alike("CONFIG RESETSTAT\nMULTI\nSET k v")
	for _, c := range conns {
		testkit.Dial(t, c.Net().RemoteAddr().String()).Do("CLUSTER", "DELSLOTS", "7629")
	}
	p.alike("EXEC\nGET k\nGET x\nMULTI\nGET k\nEXEC")
	for _, section := range []string{"commandstats", "errorstats"} {
		got, want := counted(p.cairn, section), counted(p.redis, section)
		if got != want {
			t.Errorf("INFO %s\ngot  %s\nwant %s", section, got, want)
		}
	}
}

// counted is what a section tells of EXEC, GET and SET and of errors, without times.
func counted(c *testkit.Conn, section string) string {
	found := regexp.MustCompile(`(cmdstat_(exec|get|set):|errorstat_).*`).FindAllString(c.Do("INFO", section).Raw, -1)
	slices.Sort(found)
	return regexp.MustCompile(`usec\w*=[0-9.]+,|\r`).ReplaceAllString(strings.Join(found, " "), "")
}
