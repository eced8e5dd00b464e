package main

import (
	"errors"
	"time"

	"cairn/tools/node"
)

// fabric is what connects the nodes, and can be cut: proxies (network.go), or namespaces of the kernel (spaces_linux.go).
type fabric interface {
	// place is where a node runs; directives make it reachable there for the others.
	place(i int) node.Place
	directives(i, port int) ([]string, error)

	// block loses, or holds, what goes along these ways, until it is called with false. Connections stay.
	block(ways []way, on bool) error
	// jolt disturbs a node for a moment.
	jolt(i int) error
	// slow delays every packet and loses some, as well as it can, which it tells. fast ends it.
	slow() (how string, err error)
	fast() error
	close()
}

// way is one direction between two nodes.
type way struct{ from, to int }

// What slow does.
const (
	slowDelay = 20 * time.Millisecond // each way
	slowLoss  = 1                     // percent of the packets
)

// errCannot says that a fabric has no means for something. That is skipped, and said.
var errCannot = errors.New("not possible here")

// between are the ways between two groups, in both directions.
func between(left, right []int) (ways []way) {
	for _, i := range left {
		for _, j := range right {
			ways = append(ways, way{i, j}, way{j, i})
		}
	}
	return ways
}

// allWays are the ways between so many nodes.
func allWays(nodes int) (ways []way) {
	for i := range nodes {
		for j := range i {
			ways = append(ways, way{i, j}, way{j, i})
		}
	}
	return ways
}
