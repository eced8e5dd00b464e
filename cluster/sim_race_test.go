//go:build race

package cluster

// simRace says that the race detector is on, which makes each step slow.
const simRace = true
