package pubsub

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"cairn/internal/glob"
	"cairn/internal/slot"
)

// listener keeps what it got.
type listener struct {
	mu  sync.Mutex
	set Set
	got []string
}

func newListener() *listener {
	l := &listener{}
	l.set.Init(l)
	return l
}

func (l *listener) Deliver(f *Frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got = append(l.got, string(f.Bytes(2)))
}

func (l *listener) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	got := l.got
	l.got = nil
	slices.Sort(got)
	return got
}

func b(s string) []byte { return []byte(s) }

func TestFrames(t *testing.T) {
	h, l := NewHub(), newListener()
	l.set.Add(h, Channel, b("a"))
	l.set.Add(h, Shard, b("a"))
	l.set.Add(h, Pattern, b("?"))
	if n := h.Publish(b("a"), b("xyz"), nil); n != 2 {
		t.Errorf("Publish reached %d, want 2", n)
	}
	if n := h.PublishShard(b("a"), b(""), nil); n != 1 {
		t.Errorf("PublishShard reached %d, want 1", n)
	}
	want := []string{
		"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$3\r\nxyz\r\n",
		"*3\r\n$8\r\nsmessage\r\n$1\r\na\r\n$0\r\n\r\n",
		"*4\r\n$8\r\npmessage\r\n$1\r\n?\r\n$1\r\na\r\n$3\r\nxyz\r\n",
	}
	if got := l.take(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	f := Frame{channel: b("a"), payload: b("x")}
	if got, want := string(f.Bytes(3)), ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n"; got != want {
		t.Errorf("RESP3: got %q, want %q", got, want)
	}
}

// model says by brute force what a hub should know.
type model map[*listener]map[Kind]map[string]bool

func (m model) names(k Kind) []string {
	var out []string
	for _, of := range m {
		for name := range of[k] {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return out
}

func (m model) subscribers(k Kind, name string) (n int) {
	for _, of := range m {
		if of[k][name] {
			n++
		}
	}
	return n
}

func (m model) receivers(channel string) int {
	n := m.subscribers(Channel, channel)
	for _, of := range m {
		for p := range of[Pattern] {
			if glob.Match(b(p), b(channel), false) {
				n++
			}
		}
	}
	return n
}

func TestModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	names := []string{"", "a", "b", "ab", "a*", "*", "{a}b", "{a}c", "[ab]"}
	h, m := NewHub(), model{}
	all := make([]*listener, 5)
	for i := range all {
		all[i] = newListener()
		m[all[i]] = map[Kind]map[string]bool{Channel: {}, Pattern: {}, Shard: {}}
	}
	for step := range 5000 {
		l, k, name := all[rnd.IntN(len(all))], Kind(rnd.IntN(int(kinds))), names[rnd.IntN(len(names))]
		switch op := rnd.IntN(20); {
		case op == 0:
			l.set.Clear(h)
			m[l] = map[Kind]map[string]bool{Channel: {}, Pattern: {}, Shard: {}}
		case op == 1:
			checkRevoke(t, h, m, slot.Of(b(name)))
		case op < 10:
			if got, want := l.set.Add(h, k, b(name)), !m[l][k][name]; got != want {
				t.Fatalf("step %d: Add says %v, want %v", step, got, want)
			}
			m[l][k][name] = true
		default:
			if got, want := l.set.Remove(h, k, b(name)), m[l][k][name]; got != want {
				t.Fatalf("step %d: Remove says %v, want %v", step, got, want)
			}
			delete(m[l][k], name)
		}
		checkModel(t, h, m, name)
	}
}

func checkRevoke(t *testing.T, h *Hub, m model, s uint16) {
	t.Helper()
	h.Revoke(s, func(who Subscriber, channel string, left int) {
		of := m[who.(*listener)][Shard]
		if !of[channel] || slot.Of(b(channel)) != s {
			t.Fatalf("Revoke of slot %d ended %q", s, channel)
		}
		delete(of, channel)
		if left != len(of) {
			t.Fatalf("Revoke: %d left, want %d", left, len(of))
		}
	})
	for _, name := range m.names(Shard) {
		if slot.Of(b(name)) == s {
			t.Fatalf("Revoke of slot %d left %q", s, name)
		}
	}
}

func checkModel(t *testing.T, h *Hub, m model, channel string) {
	t.Helper()
	for k := range kinds {
		got, want := h.Names(k, nil), m.names(k)
		slices.Sort(got)
		if !slices.Equal(got, want) || h.Count(k) != int64(len(want)) {
			t.Fatalf("kind %d: names %q, %d of them, want %q", k, got, h.Count(k), want)
		}
		if got, want := h.Subscribers(k, b(channel)), m.subscribers(k, channel); got != want {
			t.Fatalf("kind %d: %d subscribers of %q, want %d", k, got, channel, want)
		}
	}
	for l, of := range m {
		for k := range kinds {
			if l.set.Count(k) != len(of[k]) || len(l.set.Names(k)) != len(of[k]) {
				t.Fatalf("kind %d: set counts %d, want %d", k, l.set.Count(k), len(of[k]))
			}
		}
	}
	if got, want := h.Publish(b(channel), b("x"), nil), m.receivers(channel); got != want {
		t.Fatalf("message on %q reached %d, want %d", channel, got, want)
	}
	got := 0
	for l := range m {
		got += len(l.take())
	}
	if want := m.receivers(channel); got != want {
		t.Fatalf("message on %q: %d delivered, want %d", channel, got, want)
	}
}

// After Remove nothing of that name is handed over any more, however many publish.
func TestNothingAfterRemove(t *testing.T) {
	h := NewHub()
	stop := make(chan struct{})
	var publishers sync.WaitGroup
	for i := range 4 {
		publishers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				h.Publish(b("c"), fmt.Append(nil, i, "-", n), nil)
				h.PublishShard(b("c"), b("s"), nil)
			}
		})
	}
	l := newListener()
	for range 300 {
		for _, k := range []Kind{Channel, Shard} {
			l.set.Add(h, k, b("c"))
		}
		for _, k := range []Kind{Channel, Shard} {
			l.set.Remove(h, k, b("c"))
			word := []string{"$7\r\nmessage", "", "$8\r\nsmessage"}[k]
			l.take()
			h.Publish(b("c"), b("after"), nil)
			for _, m := range l.take() {
				if strings.Contains(m, word) {
					t.Fatalf("kind %d: %q came after Remove", k, m)
				}
			}
		}
	}
	close(stop)
	publishers.Wait()
	if l.set.Bytes() != 0 {
		t.Errorf("an empty set takes %d bytes", l.set.Bytes())
	}
}

func BenchmarkPublish(bench *testing.B) {
	for _, subs := range []int{0, 1, 100} {
		bench.Run(fmt.Sprintf("subscribers=%d", subs), func(bench *testing.B) {
			h := NewHub()
			for i := range 10000 {
				silent := &deaf{}
				silent.set.Init(silent)
				silent.set.Add(h, Channel, fmt.Append(nil, "other", i))
				if i < subs {
					silent.set.Add(h, Channel, b("c"))
				}
			}
			channel, payload := b("c"), make([]byte, 100)
			bench.ReportAllocs()
			for bench.Loop() {
				h.Publish(channel, payload, nil)
			}
		})
	}
}

type deaf struct{ set Set }

func (*deaf) Deliver(f *Frame) { f.Bytes(2) }
