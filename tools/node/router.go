package node

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"cairn/internal/resp"
	"cairn/internal/slot"
)

// Router is a client of a cluster. It knows who serves which slot, follows MOVED and ASK, and asks anew when a node is gone, as
// client libraries do. One goroutine uses it.
type Router struct {
	seeds []string
	owner [slot.Count]string // address, "" when not known
	conns map[string]*Conn
	limit time.Duration // of a reply
}

// NewRouter returns a client that knows some addresses. limit is how long a reply may take.
func NewRouter(seeds []string, limit time.Duration) *Router {
	return &Router{seeds: slices.Clone(seeds), conns: map[string]*Conn{}, limit: limit}
}

// Close closes all connections.
func (r *Router) Close() {
	for _, c := range r.conns {
		c.Close()
	}
	clear(r.conns)
}

// ErrElsewhere says that a node did not execute a command, because it does not serve the slot or not yet. The command was
// not executed, and is to be tried again.
var ErrElsewhere = errors.New("not executed")

// Try sends commands about one key in one pipeline to the node that serves it, and returns the replies and the node's
// address. When the connection breaks, or a node refers to another, the error says so, and replies has those of the
// commands before: the caller tries the rest again after a moment.
func (r *Router) Try(key string, commands ...[]string) (replies []resp.Reply, addr string, err error) {
	s := slot.Of([]byte(key))
	if r.owner[s] == "" {
		if err := r.learn(); err != nil {
			return nil, "", err
		}
	}
	addr = r.owner[s]
	c, err := r.conn(addr)
	if err != nil {
		r.lost(addr)
		return nil, addr, err
	}
	for _, args := range commands {
		c.Append(args...)
	}
	if err := c.Flush(); err != nil {
		r.lost(addr)
		return nil, addr, err
	}
	for n := range commands {
		reply, err := c.Receive()
		if err != nil {
			r.lost(addr)
			return replies, addr, err
		}
		if text := reply.Err(); text != "" && r.redirected(s, text) {
			to := askedAt(text)
			// The replies that follow are taken, so that the connection stays of use; commands that were executed
			// all the same are executed again by the caller.
			for range len(commands) - n - 1 {
				if _, err := c.Receive(); err != nil {
					r.lost(addr)
					break
				}
			}
			if to != "" && n == 0 {
				return r.ask(to, commands)
			}
			return replies, addr, fmt.Errorf("%w: %s", ErrElsewhere, text)
		}
		replies = append(replies, kept(reply))
	}
	return replies, addr, nil
}

// kept copies a reply, whose texts are the connection's.
func kept(reply resp.Reply) resp.Reply {
	reply.Str = slices.Clone(reply.Str)
	for i := range reply.Elems {
		reply.Elems[i].Str = slices.Clone(reply.Elems[i].Str)
	}
	return reply
}

// askedAt is the address in a reply ASK, "" in others.
func askedAt(text string) string {
	if f := strings.Fields(text); len(f) == 3 && f[0] == "ASK" {
		return f[2]
	}
	return ""
}

// ask sends the commands, once, to a node that is about to get the slot.
func (r *Router) ask(addr string, commands [][]string) (replies []resp.Reply, at string, err error) {
	c, err := r.conn(addr)
	if err != nil {
		return nil, addr, err
	}
	for _, args := range commands {
		c.Append("ASKING")
		c.Append(args...)
	}
	if err := c.Flush(); err != nil {
		r.lost(addr)
		return nil, addr, err
	}
	refused := ""
	for range commands {
		for _, asking := range []bool{true, false} {
			reply, err := c.Receive()
			if err != nil {
				r.lost(addr)
				return replies, addr, err
			}
			text := reply.Err()
			word, _, _ := strings.Cut(text, " ")
			switch {
			case refused != "" || asking && text == "":
			case elsewhere[word]:
				refused = text
			case !asking:
				replies = append(replies, kept(reply))
			}
		}
	}
	if refused != "" {
		return replies, addr, fmt.Errorf("%w: %s", ErrElsewhere, refused)
	}
	return replies, addr, nil
}

// elsewhere has the first words of error replies after which a command is to be tried elsewhere, or later.
var elsewhere = map[string]bool{
	"MOVED": true, "ASK": true, "CLUSTERDOWN": true, "TRYAGAIN": true, "LOADING": true, "MASTERDOWN": true, "READONLY": true,
}

// redirected says whether an error reply is about who serves the slot, and learns from it.
func (r *Router) redirected(s uint16, text string) bool {
	word, rest, _ := strings.Cut(text, " ")
	switch {
	case word == "ASK": // for this once
		return true
	case word == "MOVED":
		_, addr, _ := strings.Cut(rest, " ")
		if strings.HasPrefix(addr, ":") {
			addr = "127.0.0.1" + addr
		}
		r.owner[s] = addr
		return true
	case elsewhere[word]:
		r.owner[s] = ""
		return true
	}
	return false
}

// lost forgets what was known of a node that does not answer.
func (r *Router) lost(addr string) {
	if c := r.conns[addr]; c != nil {
		c.Close()
		delete(r.conns, addr)
	}
	for s := range r.owner {
		if r.owner[s] == addr {
			r.owner[s] = ""
		}
	}
}

func (r *Router) conn(addr string) (*Conn, error) {
	if c := r.conns[addr]; c != nil {
		return c, nil
	}
	c, err := Dial(addr, time.Second)
	if err != nil {
		return nil, err
	}
	c.SetTimeout(r.limit)
	r.conns[addr] = c
	return c, nil
}

// learn asks the nodes, in any order, until one says who serves what.
func (r *Router) learn() error {
	err := errors.New("no addresses")
	for _, i := range rand.Perm(len(r.seeds)) {
		if err = r.learnFrom(r.seeds[i]); err == nil {
			return nil
		}
	}
	return fmt.Errorf("who serves what: %w", err)
}

func (r *Router) learnFrom(addr string) error {
	c, err := r.conn(addr)
	if err != nil {
		return err
	}
	reply, err := c.Do("CLUSTER", "SLOTS")
	if err != nil {
		r.lost(addr)
		return err
	}
	if text := reply.Err(); text != "" {
		return errors.New(text)
	}
	known := 0
	for _, part := range reply.Elems {
		if len(part.Elems) < 3 || len(part.Elems[2].Elems) < 2 {
			return fmt.Errorf("CLUSTER SLOTS: a part of %d elements", len(part.Elems))
		}
		first, last, at := part.Elems[0].Int, part.Elems[1].Int, part.Elems[2].Elems
		if first < 0 || last >= slot.Count || first > last {
			return fmt.Errorf("CLUSTER SLOTS: slots %d to %d", first, last)
		}
		owner := string(at[0].Str) + ":" + strconv.FormatInt(at[1].Int, 10)
		if len(at[0].Str) == 0 {
			owner = "127.0.0.1" + owner // a node that does not know its own address yet
		}
		for s := first; s <= last; s++ {
			r.owner[s] = owner
		}
		known++
	}
	if known == 0 {
		return fmt.Errorf("%s serves nothing and knows nobody who does", addr)
	}
	return nil
}

// Tags returns a hash tag, with its braces, for each of the lowest n slots, which are the ones that redis-cli moves away
// from a node first.
func Tags(n int) []string {
	tags := make([]string, n)
	for i, found := 0, 0; found < n; i++ {
		tag := strconv.Itoa(i)
		if s := slot.Of([]byte(tag)); int(s) < n && tags[s] == "" {
			tags[s] = "{" + tag + "}"
			found++
		}
	}
	return tags
}
