package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"cairn/internal/resp"
	"cairn/internal/testkit"
	"cairn/tools/node"
)

const (
	linearClients = 6
	linearKeys    = 5
	linearKills   = 3
	linearOps     = 4000 // acknowledged between two kills, in all
)

// call is one command of a history: GET, SET, INCR or DEL of one key.
type call struct {
	verb, key, arg string
}

// maybe is the output of a command whose connection broke: executed or not.
const maybe = "maybe"

const none = "nil" // the state of a key that is not there

// registers is the model: independent keys that hold a number or nothing. A state
// is the number's text.
func registers() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
			byKey := map[string][]porcupine.Operation{}
			for _, o := range history {
				k := o.Input.(call).key
				byKey[k] = append(byKey[k], o)
			}
			for _, part := range byKey {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() []any { return []any{none} },
		Step: func(state, input, output any) []any {
			next, want := step(state.(string), input.(call))
			switch output {
			case want:
				return []any{next}
			case maybe:
				return []any{state, next}
			}
			return nil
		},
		DescribeOperation: func(input, output any) string {
			c := input.(call)
			return fmt.Sprintf("%s %s %s: %v", c.verb, c.key, c.arg, output)
		},
	}
	return m.ToModel()
}

// step returns what a command makes of a key, and its reply.
func step(state string, c call) (next, reply string) {
	switch c.verb {
	case "SET":
		return c.arg, "OK"
	case "DEL":
		if state == none {
			return none, "0"
		}
		return none, "1"
	case "INCR":
		n, _ := strconv.Atoi(state) // nothing counts as 0
		next = strconv.Itoa(n + 1)
		return next, next
	}
	return state, state
}

// TestModelRefuses: a checker that accepts everything would pass as well.
func TestModelRefuses(t *testing.T) {
	set := porcupine.Operation{ClientId: 0, Input: call{"SET", "k", "1"}, Call: 1, Output: "OK", Return: 2}
	lost := porcupine.Operation{ClientId: 1, Input: call{"GET", "k", ""}, Call: 3, Output: none, Return: 4}
	if porcupine.CheckOperations(registers(), []porcupine.Operation{set, lost}) {
		t.Error("a lost write was accepted")
	}
	set.Output = maybe
	if !porcupine.CheckOperations(registers(), []porcupine.Operation{set, lost}) {
		t.Error("a write that perhaps never happened was refused")
	}
}

// history collects the commands of all clients.
type history struct {
	began time.Time
	acked atomic.Int64
	ended atomic.Bool

	mu  sync.Mutex
	all []porcupine.Operation
}

func (h *history) now() int64 { return time.Since(h.began).Nanoseconds() }

func (h *history) add(o porcupine.Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, o)
}

// TestLinearizable: clients on a few keys see one order of events, also over kills.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), testkit.FreePort(t)
	args := []string{"--appendfsync", "always", "--apply-interval", "20"}
	n := startOn(t, port, dir, args...)
	h := &history{began: time.Now()}
	faults := make(chan error, linearClients)
	var clients sync.WaitGroup
	for id := range linearClients {
		clients.Go(func() { // ends when h.ended is set
			if err := h.client(id, n.addr); err != nil {
				faults <- err
			}
		})
	}
	for range linearKills {
		target := h.acked.Load() + linearOps
		testkit.Eventually(t, startLimit, func() bool { return h.acked.Load() >= target || len(faults) > 0 }, "commands before a kill")
		n.Kill()
		n = startOn(t, port, dir, args...)
	}
	target := h.acked.Load() + linearOps/2
	testkit.Eventually(t, startLimit, func() bool { return h.acked.Load() >= target || len(faults) > 0 }, "commands after the last kill")
	h.ended.Store(true)
	clients.Wait()
	close(faults)
	for err := range faults {
		t.Error(err)
	}
	switch result := porcupine.CheckOperationsTimeout(registers(), h.all, time.Minute); result {
	case porcupine.Ok:
		t.Logf("%d commands, %d kills, one order", len(h.all), linearKills)
	case porcupine.Illegal:
		t.Errorf("%d commands have no order that explains their replies", len(h.all))
	default:
		t.Errorf("%d commands: not decided: %s", len(h.all), result)
	}
}

// client sends commands and connects again whenever its connection breaks.
func (h *history) client(id int, addr string) error {
	rng := rand.New(rand.NewPCG(uint64(id), 1))
	count := 0
	for !h.ended.Load() {
		c, err := node.Dial(addr, time.Second)
		if err != nil {
			<-time.After(5 * time.Millisecond) // the node is being started; a history has no bound to keep
			continue
		}
		err = h.session(c, id, rng, &count)
		c.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// session sends commands on one connection until it breaks. An error is a reply
// that no command may have.
func (h *history) session(c *node.Conn, id int, rng *rand.Rand, count *int) error {
	for !h.ended.Load() {
		in := call{verb: "GET", key: "k" + strconv.Itoa(rng.IntN(linearKeys))}
		args := []string{"GET", in.key}
		switch p := rng.IntN(10); {
		case p < 3:
			*count++
			in.verb, in.arg = "SET", strconv.Itoa(*count*linearClients+id) // no two are the same
			args = []string{"SET", in.key, in.arg}
		case p < 5:
			in.verb, args = "INCR", []string{"INCR", in.key}
		case p < 6:
			in.verb, args = "DEL", []string{"DEL", in.key}
		}
		began := h.now()
		reply, err := c.Do(args...)
		op := porcupine.Operation{ClientId: id, Input: in, Call: began, Output: maybe, Return: h.now()}
		if err != nil {
			// The kernel closes a dead process's sockets when the last of its threads is
			// gone: from here on the command cannot be executed any more.
			if in.verb != "GET" {
				h.add(op)
			}
			return nil
		}
		if text := reply.Err(); text != "" {
			if len(text) > 7 && text[:7] == "LOADING" {
				continue // refused, so not part of the history
			}
			return fmt.Errorf("%v: error %s", args, text)
		}
		switch reply.Kind {
		case resp.KindNull:
			op.Output = none
		case resp.KindInt:
			op.Output = strconv.FormatInt(reply.Int, 10)
		default:
			op.Output = string(reply.Str)
		}
		h.add(op)
		h.acked.Add(1)
	}
	return nil
}
