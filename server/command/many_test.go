package command

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Commands with many names reply, and tell events, in the order of their arguments, though they read in another one.
func TestManyNames(t *testing.T) {
	const n = 300
	nd := newNode(t)
	names := func(word ...string) []string {
		for i := range n {
			word = append(word, fmt.Sprint("k", i))
		}
		return word
	}
	var pairs, want []string
	for i := range n {
		pairs = append(pairs, fmt.Sprint("k", i), "old", fmt.Sprint("k", i), fmt.Sprint("v", i))
		v := fmt.Sprint("v", i)
		want = append(want, fmt.Sprintf("$%d\r\n%s\r\n", len(v), v))
	}
	all := fmt.Sprintf("*%d\r\n", n) + strings.Join(want, "")
	expect := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %.200q, want %.200q", got, want)
		}
	}
	count := fmt.Sprintf(":%d\r\n", n)
	expect(nd.do(append([]string{"MSET"}, pairs...)...), "+OK\r\n")
	expect(nd.do(append([]string{"HSET", "h"}, pairs...)...), count)
	nd.do("PEXPIREAT", "k7", fmt.Sprint(nd.now+1))
	nd.do("PEXPIREAT", "k3", fmt.Sprint(nd.now+1))
	if err := nd.store.Flush(); err != nil { // from here on they are read from the store
		t.Fatal(err)
	}
	expect(nd.do(names("MGET")...), all)
	expect(nd.do(append(names("EXISTS"), "k1", "none")...), fmt.Sprintf(":%d\r\n", n+1))
	nd.now += 2
	nd.events = nil
	expect(nd.do(append(names("DEL"), "k1")...), fmt.Sprintf(":%d\r\n", n-2))
	events := make([]string, n)
	for i := range n {
		events[i] = fmt.Sprint("del k", i)
	}
	events[3], events[7] = "expired k3", "expired k7"
	if !slices.Equal(nd.events, events) {
		t.Errorf("events %.300q", nd.events)
	}
}

// The same for fields of a hash with rows: of a field named twice the last value counts, and is removed once.
func TestManyFields(t *testing.T) {
	const n = 700 // more than a packed hash has
	nd := newNode(t)
	set, get, del := []string{"HSET", "h"}, []string{"HMGET", "h"}, []string{"HDEL", "h"}
	var want strings.Builder
	fmt.Fprintf(&want, "*%d\r\n", 2*n)
	for i := range n {
		f, v := fmt.Sprint("f", i), fmt.Sprint("v", i)
		set = append(set, f, "old", f, v)
		get = append(get, f, "none")
		del = append(del, f, f)
		fmt.Fprintf(&want, "$%d\r\n%s\r\n$-1\r\n", len(v), v)
	}
	for round := range 2 {
		if got, want := nd.do(set...), fmt.Sprintf(":%d\r\n", n*(1-round)); got != want {
			t.Errorf("HSET: %q, want %q", got, want)
		}
		if err := nd.store.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if got := nd.do(get...); got != want.String() {
		t.Errorf("HMGET: %.200q, want %.200q", got, want.String())
	}
	if got := nd.do("HLEN", "h"); got != fmt.Sprintf(":%d\r\n", n) {
		t.Errorf("HLEN: %q", got)
	}
	if got := nd.do(del...); got != fmt.Sprintf(":%d\r\n", n) {
		t.Errorf("HDEL: %q", got)
	}
	if got := nd.do("EXISTS", "h"); got != ":0\r\n" {
		t.Errorf("EXISTS: %q", got)
	}
}
