package server

import (
	"slices"
	"testing"

	"cairn/internal/testkit"
)

// lookups are commands that find or miss keys, in all the ways that count differently.
const lookups = `
	SET k v
	GET k
	GET none
	MGET k none other k
	EXISTS k none
	TOUCH k none
	TYPE none
	TTL none
	PTTL k
	OBJECT ENCODING none
	OBJECT ENCODING k
	STRLEN none
	GETRANGE none 0 1
	DEL none
	INCR n
	EXPIRE none 10
	PERSIST none
	GETSET k w
	GETSET fresh w
	GETDEL fresh
	GETDEL fresh
	GETEX none
	GETEX k
	SET k v GET
	SETNX none2 v
	APPEND k x
	SETRANGE none3 0 x
	COPY none elsewhere
	COPY k elsewhere
	RENAME none x
	BITOP AND dst k none
	BITCOUNT none
	HSET h f v
	HGET h f
	HGET none f
	HGETALL none
	HLEN h
	HINCRBY h n 1
	HDEL none f
	HRANDFIELD none
	LCS k none
	DUMP none
	MULTI
	GET k
	GET none
	SET k v
	GET another
	EXEC
	GET h
`

// Keys found and missed are counted, and missed ones told, as Redis does.
func TestHitsAndMisses(t *testing.T) {
	n, r := startServer(t, "notify-keyspace-events Em"), testkit.StartRedis(t, "--notify-keyspace-events", "Em")
	b, subs := newBoth(t, n, r), newBoth(t, n, r)
	for _, c := range []*testkit.Conn{subs.ours, subs.redis} {
		c.Do("SUBSCRIBE", "__keyevent@0__:keymiss", "end")
	}
	b.all(lookups)
	ours, theirs := infoFields(b.ours.Do("INFO", "stats").Value.(string)), infoFields(b.redis.Do("INFO", "stats").Value.(string))
	for _, field := range []string{"Stats keyspace_hits", "Stats keyspace_misses"} {
		if ours[field] != theirs[field] || ours[field] == "" {
			t.Errorf("%s: got %s, want %s", field, ours[field], theirs[field])
		}
	}
	b.all("PUBLISH end x")
	if got, want := missed(t, subs.ours), missed(t, subs.redis); !slices.Equal(got, want) {
		t.Errorf("keymiss events\ngot  %q\nwant %q", got, want)
	}
}

// missed gives the messages up to the one on channel end.
func missed(t *testing.T, c *testkit.Conn) (keys []string) {
	t.Helper()
	for {
		m, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		parts := m.Value.([]any)
		if parts[1].(string) == "end" {
			return keys
		}
		keys = append(keys, parts[2].(string))
	}
}
