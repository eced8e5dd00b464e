package server

import (
	"strings"
	"testing"

	"cairn/internal/testkit"
)

// redis-cli gives a node that it adds the functions of the cluster. None of them can be given in both directions.
func TestNoFunctionsAreGivenOn(t *testing.T) {
	n := startServer(t)
	r := testkit.StartRedis(t)
	ours, redis := n.dial(t), testkit.Dial(t, r.Addr)
	empty := [2]string{}
	for i, c := range []*testkit.Conn{ours, redis} {
		empty[i], _ = c.Do("FUNCTION", "DUMP").Value.(string)
	}
	for _, payload := range empty {
		for _, more := range [][]string{nil, {"FLUSH"}, {"append"}, {"REPLACE"}, {"OTHER"}, {"FLUSH", "x"}} {
			args := append([]string{"FUNCTION", "RESTORE", payload}, more...)
			if got, want := ours.Do(args...).Raw, redis.Do(args...).Raw; got != want {
				t.Errorf("RESTORE of %q with %q: got %q, want %q", payload, more, got, want)
			}
		}
	}
	for _, args := range [][]string{{"RESTORE", ""}, {"RESTORE", "x"}, {"RESTORE", empty[1] + "x"}, {"DUMP", "x"}, {"RESTORE"}} {
		args = append([]string{"FUNCTION"}, args...)
		if got, want := ours.Do(args...).Raw, redis.Do(args...).Raw; got != want {
			t.Errorf("%q: got %q, want %q", args, got, want)
		}
	}
	mustOK(t, redis, "FUNCTION", "FLUSH")
	if got := redis.Do("FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 1 end)").Raw; !strings.Contains(got, "l") {
		t.Fatal(got)
	}
	payload, _ := redis.Do("FUNCTION", "DUMP").Value.(string)
	if got := ours.Do("FUNCTION", "RESTORE", payload).Raw; !strings.HasPrefix(got, "-ERR the payload has functions") {
		t.Errorf("RESTORE of a function: %q", got)
	}
}
