package glob_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"cairn/internal/glob"
	"cairn/internal/testkit"
)

type example struct {
	pattern, name string
	want          bool
}

// Recorded with KEYS on a redis-server 7.0.15 that held one key, the name.
// TestAgainstRedis asks a running one again.
var examples = []example{
	{"**", "", false},
	{"", "", true},
	{"a*", "a", true},
	{"a**", "a", true},
	{"h?llo", "hello", true},
	{"h?llo", "hllo", false},
	{"h*llo", "hllo", true},
	{"h*llo", "heeeello", true},
	{"h[ae]llo", "hello", true},
	{"h[ae]llo", "hillo", false},
	{"h[^e]llo", "hallo", true},
	{"h[^e]llo", "hello", false},
	{"h[a-b]llo", "hbllo", true},
	{"h[b-a]llo", "hallo", true},
	{"h[a-b]llo", "hcllo", false},
	{"\\*", "*", true},
	{"\\*", "x", false},
	{"a\\", "a\\", true},
	{"a\\\\", "a\\", true},
	{"[", "[", false},
	{"[", "a", false},
	{"[^", "a", true},
	{"[^", "^", true},
	{"[abc", "b", true},
	{"[abc", "[", false},
	{"[a", "a", true},
	{"[]", "]", false},
	{"[]a]", "a]", false},
	{"[^]", "a", true},
	{"[^]a]", "xa]", true},
	{"[\\]]", "]", true},
	{"[\\a-z]", "b", false},
	{"[\\a-z]", "-", true},
	{"[\\a-z]", "a", true},
	{"[a-\\z]", "[", false},
	{"[a-\\z]", "\\z", false},
	{"[a-\\z]", "\\", true},
	{"[a-", "-", true},
	{"[a-", "a", true},
	{"[a-]", "^", true},
	{"[a-]", "]", true},
	{"[a-]", "-", false},
	{"[a-]x", "`", true},
	{"[a-]x]", "x", true},
	{"[\\", "\\", true},
	{"[a\\", "\\", true},
	{"[-a]", "-", true},
	{"[z-a]", "q", true},
	{"[a^]", "^", true},
	{"[^^]", "^", false},
	{"[^^]", "a", true},
	{"[!a]", "!", true},
	{"]", "]", true},
	{"a]", "a]", true},
	{"{a,b}", "a", false},
	{"?", "\xff", true},
	{"[a-\xff]", "b", false},
	{"[a-\xff]", "A", true},
	{"[\x80-\xff]", "\x90", true},
	{"[\x80-\xff]", "a", false},
	{"[^a]", "\xff", true},
	{"*a*b*c", "xxaxxbxxc", true},
	{"*a*b*c", "xxaxxbxx", false},
	{"*ab", "aab", true},
	{"a*a", "a", false},
	{"*a?", "xab", true},
	{"*[ab]c*", "xxbcxx", true},
	{"*[ab]c", "xbcbc", true},
	{"*?", "a", true},
	{"*??", "a", false},
	{"?*", "a", true},
	{"a*b\\*", "axb*", true},
	{"*\\", "a\\", true},
	{"*[", "a[", false},
	{"*[^", "a", true},
	{"A", "a", false},
	{"\x00*", "\x00b", true},
	{"a\x00b", "a\x00b", true},
}

// Recorded with COMMAND LIST FILTERBY PATTERN, which ignores case; the name is
// that of a command.
var examplesNoCase = []example{
	{"GET", "get", true},
	{"gE?", "get", true},
	{"[A-G]ET", "get", true},
	{"[^G]et", "get", false},
	{"[Z-a]et", "get", false},
	{"[z-A]et", "get", true},
	{"[A-z]et", "get", true},
	{"*E*T", "get", true},
	{"\\GET", "get", true},
	{"[\\G]et", "get", false},
	{"G[\\E]t", "get", false},
	{"[^\\G]et", "get", true},
	{"[^x]ET", "get", true},
	{"[A-_]et", "get", false},
	{"[_-A]et", "get", false},
	{"[Z-g]et", "get", false},
	{"GET ", "get", false},
}

func TestMatch(t *testing.T) {
	for _, e := range examples {
		if got := glob.Match([]byte(e.pattern), []byte(e.name), false); got != e.want {
			t.Errorf("pattern %q, name %q: got %v, want %v", e.pattern, e.name, got, e.want)
		}
	}
	for _, e := range examplesNoCase {
		if got := glob.Match([]byte(e.pattern), []byte(e.name), true); got != e.want {
			t.Errorf("pattern %q, name %q, no case: got %v, want %v", e.pattern, e.name, got, e.want)
		}
	}
}

// KEYS knows a bare star before it matches, so the empty channel shows what a star
// says of an empty name: PUBLISH replies how many subscribers it reached.
func TestStarAndEmptyName(t *testing.T) {
	r := testkit.StartRedis(t)
	testkit.Dial(t, r.Addr).Do("PSUBSCRIBE", "*")
	got := glob.Match([]byte("*"), nil, false)
	if reached := testkit.Dial(t, r.Addr).Do("PUBLISH", "", "v").Value; got || reached != int64(0) {
		t.Fatalf(`"*" matches the empty name: got %v, redis-server reached %v subscribers`, got, reached)
	}
}

// TestAgainstRedis compares the table and random patterns with a real server.
func TestAgainstRedis(t *testing.T) {
	r := testkit.StartRedis(t)
	c := testkit.Dial(t, r.Addr)
	for _, e := range examples {
		c.Do("FLUSHALL")
		c.Do("SET", e.name, "v")
		if got := len(c.Do("KEYS", e.pattern).Value.([]any)) == 1; got != e.want {
			t.Errorf("pattern %q, name %q: redis-server says %v, the table %v", e.pattern, e.name, got, e.want)
		}
	}
	for _, e := range examplesNoCase {
		if got := contains(c.Do("COMMAND", "LIST", "FILTERBY", "PATTERN", e.pattern), e.name); got != e.want {
			t.Errorf("pattern %q, name %q, no case: redis-server says %v, the table %v", e.pattern, e.name, got, e.want)
		}
	}

	rng := rand.New(rand.NewPCG(1, 1))
	c.Do("FLUSHALL")
	var names []string
	for range 100 {
		name := randomText(rng, "aab-]^*\\[\xffZ", 6) + "a"
		names = append(names, name)
		c.Do("SET", name, "v")
	}
	for range 3000 {
		pattern := randomText(rng, "aab-]^**??\\[[[\xffZ", 9) + "a"
		reply := c.Do("KEYS", pattern)
		for _, name := range names {
			got := glob.Match([]byte(pattern), []byte(name), false)
			if want := contains(reply, name); got != want {
				t.Fatalf("pattern %q, name %q: got %v, redis-server says %v", pattern, name, got, want)
			}
		}
	}
}

// TestAgainstRedisNoCase compares random patterns with the names of the commands.
func TestAgainstRedisNoCase(t *testing.T) {
	r := testkit.StartRedis(t)
	c := testkit.Dial(t, r.Addr)
	names := c.Do("COMMAND", "LIST").Value.([]any)
	rng := rand.New(rand.NewPCG(2, 2))
	for range 1000 {
		pattern := randomText(rng, "eEsStTgGaA-]^**??\\[[_", 7) + "*"
		reply := c.Do("COMMAND", "LIST", "FILTERBY", "PATTERN", pattern)
		matches := 0
		for _, name := range names {
			if glob.Match([]byte(pattern), []byte(name.(string)), true) {
				matches++
			}
		}
		if want := len(reply.Value.([]any)); matches != want {
			t.Fatalf("pattern %q matches %d names of commands, redis-server says %d", pattern, matches, want)
		}
	}
}

func contains(reply testkit.Reply, name string) bool {
	return strings.Contains(reply.Raw, fmt.Sprintf("$%d\r\n%s\r\n", len(name), name))
}

func randomText(rng *rand.Rand, alphabet string, limit int) string {
	var b strings.Builder
	for range rng.IntN(limit + 1) {
		b.WriteByte(alphabet[rng.IntN(len(alphabet))])
	}
	return b.String()
}

// The test would not end in a lifetime with a matcher that goes back over more
// than one star, nor in its stack with one that calls itself for each.
func TestManyStars(t *testing.T) {
	many := bytes.Repeat([]byte("a*"), 1<<19)
	for _, c := range []struct {
		pattern, name []byte
		want          bool
	}{
		{many, bytes.Repeat([]byte("a"), 1<<20), true},
		{many, bytes.Repeat([]byte("a"), 1<<18), false},
		{append(many, 'b'), bytes.Repeat([]byte("a"), 1<<20), false},
		{bytes.Repeat([]byte("*"), 1<<20), []byte("a"), true},
		{bytes.Repeat([]byte("["), 1<<20), bytes.Repeat([]byte("["), 1<<20), false},
		{append([]byte("*"), append(bytes.Repeat([]byte("a"), 1<<19), "b*"...)...), bytes.Repeat([]byte("a"), 1<<20), false},
		{append([]byte("*?"), append(bytes.Repeat([]byte("a"), 1<<19), 'b')...), bytes.Repeat([]byte("a"), 1<<20), false},
	} {
		if got := glob.Match(c.pattern, c.name, false); got != c.want {
			t.Errorf("pattern %.20q... of %d bytes, name of %d bytes: got %v, want %v",
				c.pattern, len(c.pattern), len(c.name), got, c.want)
		}
	}
}

func TestLiteral(t *testing.T) {
	for pattern, want := range map[string]bool{
		"": true, "abc]^-": true, "a*": false, "?": false, "[": false, `a\b`: false,
	} {
		if got := glob.Literal([]byte(pattern)); got != want {
			t.Errorf("%q: literal %v, want %v", pattern, got, want)
		}
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	pattern, name := []byte("*use?:[0-9]*:{tag}*"), []byte("app:user:1000:{tag}:x")
	if n := testing.AllocsPerRun(100, func() { glob.Match(pattern, name, true) }); n != 0 {
		t.Fatalf("Match allocates %v times a call, want 0", n)
	}
}

func FuzzMatch(f *testing.F) {
	for _, e := range examples {
		f.Add([]byte(e.pattern), []byte(e.name))
	}
	f.Fuzz(func(t *testing.T, pattern, name []byte) {
		got := glob.Match(pattern, name, false)
		if glob.Literal(pattern) && got != bytes.Equal(pattern, name) {
			t.Fatalf("literal pattern %q, name %q: got %v", pattern, name, got)
		}
		if len(pattern) <= 64 && len(name) <= 64 {
			if want := len(name) > 0 && slow(pattern, name) || len(name)+len(pattern) == 0; got != want {
				t.Fatalf("pattern %q, name %q: got %v, the table of all places says %v", pattern, name, got, want)
			}
		}
		glob.Match(pattern, name, true)
	})
}

// slow fills the table of all (pattern, name) suffixes. It knows only stars; one
// byte against one element is asked of Match.
func slow(pattern, name []byte) bool {
	starts := []int{} // of the elements
	for at := 0; at < len(pattern); at += width(pattern[at:]) {
		starts = append(starts, at)
	}
	reach := make([]bool, len(name)+1) // reach[i]: the elements so far match name[:i]
	reach[0] = true
	for k, at := range starts {
		end := len(pattern)
		if k+1 < len(starts) {
			end = starts[k+1]
		}
		next := make([]bool, len(name)+1)
		for i := range next {
			if pattern[at] == '*' {
				next[i] = reach[i] || i > 0 && next[i-1]
			} else {
				next[i] = i > 0 && reach[i-1] && glob.Match(pattern[at:end], name[i-1:i], false)
			}
		}
		reach = next
	}
	return reach[len(name)]
}

// width returns the bytes of the element at the start of pattern.
func width(pattern []byte) int {
	switch {
	case pattern[0] == '\\' && len(pattern) > 1:
		return 2
	case pattern[0] != '[':
		return 1
	}
	at := 1
	if at < len(pattern) && pattern[at] == '^' {
		at++
	}
	for at < len(pattern) && pattern[at] != ']' {
		rest := pattern[at:]
		switch {
		case rest[0] == '\\' && len(rest) > 1:
			at++
		case len(rest) > 2 && rest[1] == '-':
			at += 2
		}
		at++
	}
	return min(at+1, len(pattern))
}

func BenchmarkMatch(b *testing.B) {
	name := []byte("app:user:1000:{tag}:profile")
	for _, pattern := range []string{"app:user:*", "*:profile", "*user*{tag}*", "app:use?:[0-9]*"} {
		b.Run(strings.ReplaceAll(pattern, "*", "+"), func(b *testing.B) {
			p := []byte(pattern)
			b.ReportAllocs()
			for b.Loop() {
				glob.Match(p, name, false)
			}
		})
	}
}
