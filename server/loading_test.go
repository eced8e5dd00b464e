package server

import (
	"strings"
	"testing"
	"time"

	"cairn/internal/testkit"
)

// Who connects while the data is being loaded is answered when it is there: most loads are shorter than anybody minds.
func TestShortLoadIsWaitedFor(t *testing.T) {
	n := newServer(t)
	n.patience = time.Hour
	started := make(chan error, 1)
	n.loading.Store(true)
	if err := n.listen(); err != nil {
		t.Fatal(err)
	}
	c := n.dial(t)
	if err := c.Send("PING"); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the load
		err := n.open()
		n.primary = n.newPrimary()
		n.loading.Store(false)
		close(n.loaded)
		started <- err
	}()
	if got, err := c.Receive(); err != nil || got.Raw != "+PONG\r\n" {
		t.Errorf("PING sent while loading: %q, %v", got.Raw, err)
	}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
}

// A node that goes back to a fork sends clients to whoever has their slot, as Redis does while it loads.
func TestRedirectsWhileRewinding(t *testing.T) {
	n := startServer(t, "cluster-enabled yes")
	c := n.dial(t)
	if got := c.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383").Raw; got != "+OK\r\n" {
		t.Fatal(got)
	}
	testkit.Eventually(t, replyWait, func() bool { return strings.Contains(c.Do("CLUSTER", "INFO").Raw, "cluster_state:ok") }, "the state is ok")
	n.loading.Store(true)
	defer n.loading.Store(false)
	if got := c.Do("GET", "a").Raw; !strings.HasPrefix(got, "-LOADING ") {
		t.Errorf("GET of a slot of its own: %q", got)
	}
	if got := c.Do("CLUSTER", "SHARDS").Raw; strings.HasPrefix(got, "-LOADING ") {
		t.Errorf("CLUSTER SHARDS: %q", got)
	}
	r := *n.store.Routing()
	r.Replica = true
	n.store.SetRouting(&r)
	if got := c.Do("GET", "a").Raw; !strings.HasPrefix(got, "-MOVED 15495 ") {
		t.Errorf("GET on a replica: %q", got)
	}
	if got := c.Do("MGET", "a", "b").Raw; !strings.HasPrefix(got, "-CROSSSLOT ") {
		t.Errorf("MGET of two slots: %q", got)
	}
	c.Do("READONLY")
	if got := c.Do("GET", "a").Raw; !strings.HasPrefix(got, "-LOADING ") {
		t.Errorf("GET on a replica that reads itself: %q", got)
	}
}
