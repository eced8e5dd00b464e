package main

import (
	"slices"
	"strings"
	"testing"

	"cairn/internal/testkit"
)

// TestClusterByRedisCLI is a cluster's life with redis-cli alone: made, looked at, asked, given a replica, and rid of it again.
func TestClusterByRedisCLI(t *testing.T) {
	t.Parallel()
	m, path := newMixed(t), built().cairn
	node := func(name string) *seat { return m.add(name, path, "server", "--memory-budget", "64mb") }
	var addrs []string
	for _, name := range []string{"one", "two", "three", "four", "five", "six"} {
		addrs = append(addrs, node(name).addr)
	}
	m.cli(slices.Concat([]string{"create"}, addrs, []string{"--cluster-replicas", "1", "--cluster-yes"})...)
	m.agree()
	first := m.seats[0]
	m.write(200)

	if out := m.cli("info", first.addr); !strings.Contains(out, "keys in 3 masters") || strings.Count(out, "1 slaves") != 3 {
		t.Errorf("info:\n%s", out)
	}
	if out := m.cli("call", first.addr, "PING"); strings.Count(out, ": PONG") != 6 {
		t.Errorf("call:\n%s", out)
	}
	m.cli("set-timeout", first.addr, "2500")
	for _, s := range m.seats {
		if got := s.conn.Do("CONFIG", "GET", "cluster-node-timeout").Raw; !strings.Contains(got, "\r\n2500\r\n") {
			t.Errorf("%s: node timeout: %q", s.name, got)
		}
	}

	guest := node("seven")
	m.cli("add-node", guest.addr, first.addr, "--cluster-slave", "--cluster-master-id", first.id)
	m.role(guest, first)
	m.agree()
	m.same(first, guest)

	// redis-cli tells each node to forget the guest, and stops at one that has not heard of it yet.
	testkit.Eventually(t, mixedLimit, func() bool {
		return !slices.ContainsFunc(m.seats[:6], func(s *seat) bool {
			return !strings.Contains(s.conn.Do("CLUSTER", "NODES").Raw, guest.id)
		})
	}, "all nodes know the new one")
	m.cli("del-node", first.addr, guest.id)
	testkit.Eventually(t, mixedLimit, func() bool {
		return !slices.ContainsFunc(m.seats[:6], func(s *seat) bool {
			return strings.Contains(s.conn.Do("CLUSTER", "NODES").Raw, guest.id)
		})
	}, "the node that was removed is still known")
	testkit.Eventually(t, mixedLimit, func() bool {
		return strings.Contains(guest.conn.Do("CLUSTER", "INFO").Raw, "cluster_known_nodes:1\r\n") && guest.conn.Do("DBSIZE").Raw == ":0\r\n"
	}, "the node that was removed keeps the cluster or its data")
	m.kill(guest)
	m.agree()
}
