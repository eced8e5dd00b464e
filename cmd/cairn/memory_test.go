package main

import (
	"runtime"
	"strconv"
	"strings"
	"testing"

	"cairn/internal/testkit"
	"cairn/tools/node"
)

// TestMemoryOfManyValues: one command, or one transaction, of many values that are all short. Neither the primary nor its
// replica has more of it than it has to, and when it is in the store nothing of it stays in memory.
func TestMemoryOfManyValues(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the memory of a process is asked of Linux")
	}
	const budget, allowed = 64 << 20, 64<<20 + 64<<20/10
	primary := start(t, t.TempDir())
	replica := start(t, t.TempDir(), "--replicaof", "127.0.0.1 "+portOf(primary.addr))
	awaitStep(t, primary.addr, replica.addr)
	c := testkit.Dial(t, primary.addr)
	peaks := func(what string, limit int64) {
		t.Helper()
		awaitStep(t, primary.addr, replica.addr)
		for name, n := range map[string]*running{"primary": primary, "replica": replica} {
			peak, err := node.Peak(n.Pid())
			if err != nil {
				t.Fatal(err)
			}
			if t.Logf("%s: %s had %d MB", what, name, peak>>20); peak > limit {
				t.Errorf("%s: the %s had %d bytes in memory, limit %d with a budget of %d", what, name, peak, limit, int64(budget))
			}
			testkit.Eventually(t, startLimit, func() bool {
				now, err := node.RSS(n.Pid())
				return err == nil && now <= allowed
			}, "%s: the %s is back within its budget", what, name)
			if err := node.ResetPeak(n.Pid()); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Values that are staged: the connection has them, and that is all.
	const staged = 900 << 10
	c.Do("MULTI")
	for i := range 80 {
		c.Do("SET", "staged"+strconv.Itoa(i), strings.Repeat(strconv.Itoa(i%10), staged))
	}
	if got := c.Do("EXEC").Raw; !strings.HasPrefix(got, "*80\r\n+OK") {
		t.Fatalf("EXEC: %.100q", got)
	}
	peaks("80 values in a transaction", allowed+80*staged)
	// Values that are records: on their way to the store they are there twice, for readers and in what is written.
	const row = 60 << 10
	args := []string{"MSET"}
	for i := range 1200 {
		args = append(args, "row"+strconv.Itoa(i), strings.Repeat(strconv.Itoa(i%10), row))
	}
	if got := c.Do(args...).Raw; got != "+OK\r\n" {
		t.Fatalf("MSET: %.100q", got)
	}
	peaks("1200 values in a command", allowed+2*1200*row)
	for _, n := range []*running{primary, replica} {
		if got := testkit.Dial(t, n.addr).Do("DBSIZE").Value; got != int64(1280) {
			t.Errorf("%s: %v keys", n.addr, got)
		}
	}
}
