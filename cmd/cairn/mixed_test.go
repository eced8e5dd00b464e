package main

import (
	"flag"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/internal/testkit"
)

var mixedRounds = flag.Int("mixed.rounds", 1, "times that each node of a mixed cluster fails and comes back")

// mixedLimit bounds each wait for nodes of a mixed cluster to agree.
const mixedLimit = time.Minute

// seat is one node of a mixed cluster: a cairn or a redis-server that can be killed and started again.
type seat struct {
	name string
	addr string
	id   string
	run  func() *testkit.Program
	now  *testkit.Program
	conn *testkit.Conn
}

// mixed is a cluster of both kinds, and what was written to it.
type mixed struct {
	t      *testing.T
	seats  []*seat
	text   map[string]string // strings by key
	hashes map[string]map[string]string
	n      int
}

func newMixed(t *testing.T) *mixed {
	t.Helper()
	return &mixed{t: t, text: map[string]string{}, hashes: map[string]map[string]string{}}
}

// add starts one more node that is alone yet.
func (m *mixed) add(name, path string, args ...string) *seat {
	m.t.Helper()
	port, dir := testkit.FreePort(m.t), m.t.TempDir()
	own := []string{
		"--port", strconv.Itoa(port), "--dir", dir, "--bind", "127.0.0.1", "--save", "", "--cluster-enabled", "yes",
		"--cluster-node-timeout", "1500", "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
		"--cluster-allow-replica-migration", "no",
	}
	args = append(args, own...)
	s := &seat{name: name, addr: "127.0.0.1:" + strconv.Itoa(port)}
	s.run = func() *testkit.Program { return testkit.StartProgram(m.t, path, args...) }
	m.seats = append(m.seats, s)
	m.start(s)
	s.id = s.conn.Do("CLUSTER", "MYID").Value.(string)
	return s
}

func (m *mixed) start(s *seat) {
	m.t.Helper()
	s.now = s.run()
	testkit.WaitPing(m.t, s.addr, startLimit)
	s.conn = testkit.Dial(m.t, s.addr)
	s.conn.Do("READONLY")
}

func (m *mixed) kill(s *seat) {
	s.now.Kill()
	s.conn = nil
}

// cli runs redis-cli --cluster.
func (m *mixed) cli(args ...string) string {
	m.t.Helper()
	r := runToEnd(m.t, lookPath(m.t, "redis-cli"), append([]string{"--cluster"}, args...)...)
	if r.code != 0 {
		m.t.Fatalf("redis-cli --cluster %s: status %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// agree waits until redis-cli finds nothing to complain about from any node.
func (m *mixed) agree() {
	m.t.Helper()
	path := lookPath(m.t, "redis-cli")
	for _, s := range m.seats {
		if s.conn == nil {
			continue
		}
		var out []byte
		ok := func() bool {
			var err error
			out, err = exec.CommandContext(m.t.Context(), path, "--cluster", "check", s.addr).CombinedOutput()
			return err == nil && strings.Contains(string(out), "All nodes agree") && strings.Contains(string(out), "All 16384 slots covered") &&
				!strings.Contains(string(out), "[ERR]") && !strings.Contains(string(out), "[WARNING]")
		}
		for end := time.Now().Add(mixedLimit); !ok(); {
			if time.Now().After(end) {
				m.t.Fatalf("%s is not content:\n%s", s.name, out)
			}
		}
	}
}

// role waits until a node says that it is a replica of another one, or with nil a primary.
func (m *mixed) role(s, of *seat) {
	m.t.Helper()
	want := []string{"myself,master -"}
	if of != nil {
		want = []string{"myself,slave " + of.id}
	}
	testkit.Eventually(m.t, mixedLimit, func() bool {
		for line := range strings.Lines(s.conn.Do("CLUSTER", "NODES").Value.(string)) {
			if f := strings.Fields(line); strings.Contains(f[2], "myself") {
				return slices.Contains(want, f[2]+" "+f[3])
			}
		}
		return false
	}, "%s is not %s", s.name, want)
}

// do sends a command to whom it is for, until that node is there.
func (m *mixed) do(args ...string) testkit.Reply {
	m.t.Helper()
	var reply testkit.Reply
	at := m.alive()
	defer func() {
		if m.t.Failed() {
			for _, s := range m.seats {
				if s.conn != nil {
					m.t.Logf("%s at %s: %s\n%v", s.name, s.addr, reply.Raw, s.conn.Do("CLUSTER", "NODES").Raw)
				}
			}
		}
	}()
	testkit.Eventually(m.t, mixedLimit, func() bool {
		r, err := at.conn.Try(args...)
		if err != nil {
			m.t.Fatalf("%s: %s: %v", at.name, args, err)
		}
		reply = r
		switch text := r.Raw; {
		case strings.HasPrefix(text, "-MOVED "):
			addr := strings.Fields(text)[2]
			i := slices.IndexFunc(m.seats, func(s *seat) bool { return s.addr == addr })
			if i < 0 {
				m.t.Fatalf("%s sends clients to %s, which is no node", at.name, addr)
			}
			if at = m.seats[i]; at.conn == nil { // it was killed, and its replica is to take over
				at = m.alive()
			}
			return false
		case strings.HasPrefix(text, "-CLUSTERDOWN "), strings.HasPrefix(text, "-MASTERDOWN "), strings.HasPrefix(text, "-LOADING "):
			return false
		}
		return true
	}, "%s is not executed", args)
	return reply
}

func (m *mixed) alive() *seat {
	i := slices.IndexFunc(m.seats, func(s *seat) bool { return s.conn != nil })
	return m.seats[i]
}

// write adds n strings and as many fields, and changes some of what is there.
func (m *mixed) write(n int) {
	m.t.Helper()
	for range n {
		m.n++
		k, h, f, v := "k"+strconv.Itoa(m.n%97), "h"+strconv.Itoa(m.n%13), "f"+strconv.Itoa(m.n%211), strconv.Itoa(m.n)
		if got := m.do("SET", k, v).Raw; got != "+OK\r\n" {
			m.t.Fatalf("SET %s: %q", k, got)
		}
		m.text[k] = v
		if m.hashes[h] == nil {
			m.hashes[h] = map[string]string{}
		}
		if got := m.do("HSET", h, f, v).Raw; got != ":0\r\n" && got != ":1\r\n" {
			m.t.Fatalf("HSET %s: %q", h, got)
		}
		m.hashes[h][f] = v
	}
}

// same waits until both nodes of a shard are in step, and wants in each of them all that was written to their slots.
func (m *mixed) same(primary, replica *seat) {
	m.t.Helper()
	awaitStep(m.t, primary.addr, replica.addr)
	for _, s := range []*seat{primary, replica} {
		served := 0
		for k, want := range m.text {
			r := s.conn.Do("GET", k)
			if strings.HasPrefix(r.Raw, "-MOVED ") {
				continue
			}
			served++
			if r.Value != want {
				m.t.Errorf("%s: %s is %q, want %q", s.name, k, r.Raw, want)
			}
		}
		for h, want := range m.hashes {
			r := s.conn.Do("HGETALL", h)
			if strings.HasPrefix(r.Raw, "-MOVED ") {
				continue
			}
			served++
			got := map[string]string{}
			for pair := range slices.Chunk(r.Value.([]any), 2) {
				got[pair[0].(string)] = pair[1].(string)
			}
			if !maps.Equal(got, want) {
				m.t.Errorf("%s: %s has %d fields, want %d: %v", s.name, h, len(got), len(want), got)
			}
		}
		if keys := s.conn.Do("DBSIZE").Value; keys != int64(served) {
			m.t.Errorf("%s has %v keys, want %d", s.name, keys, served)
		}
	}
}

// TestMixedCluster: one cairn beside two redis-servers as primaries, with a redis-server as replica of the cairn and a
// cairn as replica of a redis-server. Each takes over from the other, by itself and when asked, and nothing is lost.
func TestMixedCluster(t *testing.T) {
	t.Parallel()
	redis, m := testkit.RedisPath(t), newMixed(t)
	cairn := []string{"server", "--memory-budget", "64mb"}
	a := m.add("cairn a", built().cairn, cairn...)
	b := m.add("redis b", redis)
	c := m.add("redis c", redis)
	m.cli("create", a.addr, b.addr, c.addr, "--cluster-yes")
	m.agree()
	under := m.add("redis under a", redis)
	m.cli("add-node", under.addr, b.addr, "--cluster-slave", "--cluster-master-id", a.id)
	over := m.add("cairn under b", built().cairn, cairn...)
	m.cli("add-node", over.addr, a.addr, "--cluster-slave", "--cluster-master-id", b.id)
	m.agree()
	m.write(300)
	for range *mixedRounds {
		for _, shard := range [][2]*seat{{a, under}, {b, over}} {
			primary, replica := shard[0], shard[1]
			m.role(replica, primary)
			m.same(primary, replica)
			m.kill(primary)
			m.role(replica, nil)
			m.write(200)
			m.start(primary)
			m.role(primary, replica)
			m.same(replica, primary)
			m.agree()
			m.write(100)
			if got := primary.conn.Do("CLUSTER", "FAILOVER").Raw; got != "+OK\r\n" {
				t.Fatalf("%s: CLUSTER FAILOVER: %q", primary.name, got)
			}
			m.role(primary, nil)
			m.role(replica, primary)
			m.write(100)
			m.same(primary, replica)
			m.agree()
		}
	}
	for _, s := range m.seats {
		if !s.now.Running() {
			t.Errorf("%s ended by itself", s.name)
		}
	}
}
