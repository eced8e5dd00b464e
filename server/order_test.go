package server

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/internal/testkit"
)

// Readers beside writers. What one entry writes is never seen in part, a transaction whose watched keys changed is
// never executed, and SCAN gives every key that was there from its beginning to its end, all while the applier
// cuts and writes every few milliseconds.

// asker runs commands: a session within the process, or a connection by a real socket.
type asker interface{ ask(args ...string) string }

func (x *session) ask(args ...string) string { return x.do(args...) }

type socketAsker struct{ c *testkit.Conn }

func (a socketAsker) ask(args ...string) string {
	r, err := a.c.Try(args...)
	if err != nil {
		return "-" + err.Error()
	}
	return r.Raw
}

// everyWay runs f with sessions on a node that applies all the time, and with sockets, which take longer, on a
// usual one.
func everyWay(t *testing.T, f func(t *testing.T, rounds int, open func() asker)) {
	t.Run("sessions", func(t *testing.T) {
		s, err := openOn(t, vfs.NewMem(), "everysec", "boot")
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.close(); err != nil {
				t.Error(err)
			}
		}()
		f(t, 1000, func() asker { return newSession(s) })
	})
	t.Run("sockets", func(t *testing.T) {
		n := startServer(t, "apply-interval 5")
		f(t, 300, func() asker { return socketAsker{n.dial(t)} })
	})
}

// crowd is goroutines that work until the first of them has failed or one says it is enough.
type crowd struct {
	t    *testing.T
	wg   sync.WaitGroup
	stop atomic.Bool
}

// run starts a worker, which is called again and again until the crowd stops.
func (c *crowd) run(work func(i int)) {
	c.wg.Add(1)
	go func() { // ends with the crowd
		defer c.wg.Done()
		for i := 0; !c.stop.Load(); i++ {
			work(i)
		}
	}()
}

func (c *crowd) failf(format string, args ...any) {
	c.t.Errorf(format, args...)
	c.stop.Store(true)
}

// repliesOf cuts an array reply of bulks into its contents.
func repliesOf(raw string) (parts []string) {
	r := raw
	for r != "" {
		line, rest, ok := strings.Cut(r, "\r\n")
		if !ok {
			return append(parts, r)
		}
		switch line[0] {
		case '*', '%':
			r = rest
		case '$':
			n := 0
			fmt.Sscanf(line[1:], "%d", &n)
			if n < 0 {
				parts, r = append(parts, "nil"), rest
				continue
			}
			parts, r = append(parts, rest[:n]), rest[n+2:]
		default:
			parts, r = append(parts, line), rest
		}
	}
	return parts
}

// allEqual says whether all parts are the same, and there are n of them.
func allEqual(parts []string, n int) bool {
	if len(parts) != n {
		return false
	}
	for _, p := range parts {
		if p != parts[0] {
			return false
		}
	}
	return true
}

func TestNoTornReads(t *testing.T) {
	everyWay(t, func(t *testing.T, rounds int, open func() asker) {
		c := &crowd{t: t}
		var left atomic.Int64
		writer := func(name string, write func(a asker, v string)) {
			a := open()
			write(a, name)
			left.Add(1)
			c.wg.Add(1)
			go func() { // ends after its rounds; the last one ends the crowd
				defer c.wg.Done()
				for i := range rounds {
					write(a, fmt.Sprint(name, i))
				}
				if left.Add(-1) == 0 {
					c.stop.Store(true)
				}
			}()
		}
		long := strings.Repeat("x", 600) // in a row of its own
		huge := strings.Repeat("y", 70_000)
		writer("m", func(a asker, v string) { a.ask("MSET", "{t}a", v, "{t}b", v, "{t}c", v+long, "{t}d", v+long) })
		writer("h", func(a asker, v string) {
			args := []string{"HSET", "{t}h"}
			for i := range 40 {
				args = append(args, fmt.Sprint("f", i), v)
			}
			if strings.HasSuffix(v, "00") {
				args = append(args, "large", huge, "large2", huge) // from now on in rows of its own
			}
			a.ask(args...)
			if strings.HasSuffix(v, "00") {
				a.ask("HDEL", "{t}h", "large", "large2")
			}
		})
		writer("e", func(a asker, v string) {
			a.ask("MULTI")
			a.ask("SET", "{t}x", v)
			a.ask("HSET", "{t}y", "f", v)
			a.ask("DEL", "{t}z")
			a.ask("SET", "{t}z", v, "EX", "1000")
			a.ask("EXEC")
		})
		for range 2 {
			a := open()
			c.run(func(int) {
				got := repliesOf(a.ask("MGET", "{t}a", "{t}b", "{t}c", "{t}d"))
				for i := range got {
					got[i] = strings.TrimSuffix(got[i], long)
				}
				if !allEqual(got, 4) {
					c.failf("MGET saw %.60q", got)
				}
			})
			c.run(readHash(c, open()))
			c.run(readExec(c, open()))
		}
		c.wg.Wait()
	})
}

func readHash(c *crowd, a asker) func(int) {
	return func(int) {
		var values []string
		parts := repliesOf(a.ask("HGETALL", "{t}h"))
		for i := 0; i+1 < len(parts); i += 2 {
			if parts[i][0] == 'f' {
				values = append(values, parts[i+1])
			}
		}
		if !allEqual(values, 40) {
			c.failf("HGETALL saw %.200q", values)
		}
	}
}

func readExec(c *crowd, a asker) func(int) {
	return func(int) {
		a.ask("MULTI")
		a.ask("GET", "{t}x")
		a.ask("HGET", "{t}y", "f")
		a.ask("GET", "{t}z")
		if got := repliesOf(a.ask("EXEC")); !allEqual(got, 3) {
			c.failf("EXEC saw %q", got)
		}
	}
}

// A counter that many raise by WATCH, GET, MULTI, SET, EXEC never loses a step, whatever touches the key.
func TestWatchStorm(t *testing.T) {
	everyWay(t, func(t *testing.T, rounds int, open func() asker) {
		const workers = 6
		steps := rounds / 6
		var wg sync.WaitGroup
		var retried atomic.Int64
		for range workers {
			a := open()
			wg.Add(1)
			go func() { // ends when its steps are done
				defer wg.Done()
				for done := 0; done < steps; {
					a.ask("WATCH", "{t}n", "{t}other")
					var n int
					fmt.Sscanf(bulk(a.ask("GET", "{t}n")), "%d", &n)
					a.ask("MULTI")
					a.ask("SET", "{t}n", fmt.Sprint(n+1))
					a.ask("HINCRBY", "{t}steps", "n", "1")
					switch reply := a.ask("EXEC"); {
					case reply == "*-1\r\n":
						retried.Add(1)
					case strings.HasPrefix(reply, "*2\r\n+OK\r\n:"):
						done++
					default:
						t.Errorf("EXEC: %q", reply)
						return
					}
				}
			}()
		}
		wg.Wait()
		a := open()
		if got := bulk(a.ask("GET", "{t}n")); got != fmt.Sprint(workers*steps) {
			t.Errorf("counter is %s after %d steps", got, workers*steps)
		}
		if got := bulk(a.ask("HGET", "{t}steps", "n")); got != fmt.Sprint(workers*steps) {
			t.Errorf("%s transactions were executed, want %d", got, workers*steps)
		}
		t.Logf("%d transactions were tried again", retried.Load())
	})
}

// SCAN gives each key that is there all the time at least once, and none that never was, while others come and go
// and rows go from memory to the store.
func TestScanBesideWriters(t *testing.T) {
	everyWay(t, func(t *testing.T, rounds int, open func() asker) {
		const stable = 600
		scans := 2 + rounds/100
		first := open()
		for i := range stable {
			first.ask("SET", fmt.Sprintf("{%d}stable%d", i%5, i), "v")
		}
		c := &crowd{t: t}
		for w := range 2 {
			a := open()
			c.run(func(i int) {
				key := fmt.Sprintf("{%d}moving%d-%d", i%5, w, i%300)
				if i%2 == 0 {
					a.ask("SET", key, strings.Repeat("v", i%900))
				} else {
					a.ask("DEL", key)
				}
				a.ask("SET", fmt.Sprintf("{%d}stable%d", i%stable%5, i%stable), fmt.Sprint(i)) // is written, and stays
			})
		}
		for s := range scans {
			seen := scanAll(c, first, fmt.Sprint(1+s*37))
			for i := range stable {
				if key := fmt.Sprintf("{%d}stable%d", i%5, i); !seen[key] {
					c.failf("scan %d did not give %s", s, key)
				}
			}
			for key := range seen {
				if !strings.Contains(key, "stable") && !strings.Contains(key, "moving") {
					c.failf("scan %d gave %q", s, key)
				}
			}
		}
		c.stop.Store(true)
		c.wg.Wait()
	})
}

func scanAll(c *crowd, a asker, count string) map[string]bool {
	seen, cursor := map[string]bool{}, "0"
	for {
		parts := repliesOf(a.ask("SCAN", cursor, "COUNT", count))
		if len(parts) == 0 {
			c.failf("SCAN %s gave nothing", cursor)
			return seen
		}
		for _, key := range parts[1:] {
			seen[key] = true
		}
		if cursor = parts[0]; cursor == "0" {
			return seen
		}
	}
}
