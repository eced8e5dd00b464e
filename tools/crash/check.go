package main

import (
	"errors"
	"fmt"
	"time"

	"cairn/internal/resp"
	"cairn/internal/slot"
	"cairn/tools/node"
)

const readBatch = 32 // keys read in one pipeline

// readAll reads every key of a writer.
func (w *writer) readAll(c *node.Conn) (map[string]seen, error) {
	all := make(map[string]seen, len(w.keys))
	for keys := w.keys; len(keys) > 0; keys = keys[min(readBatch, len(keys)):] {
		batch := keys[:min(readBatch, len(keys))]
		for _, k := range batch {
			c.Append("PEXPIRETIME", k)
			if w.isHash[k] {
				c.Append("HGETALL", k)
			} else {
				c.Append("GET", k)
			}
		}
		from := now()
		if err := c.Flush(); err != nil {
			return nil, err
		}
		for _, k := range batch {
			s, err := receiveSeen(c)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", k, err)
			}
			s.from, s.to = from, now()
			all[k] = s
		}
	}
	return all, nil
}

// receiveSeen takes the replies of PEXPIRETIME and GET or HGETALL.
func receiveSeen(c *node.Conn) (s seen, err error) {
	reply, err := c.Receive()
	if err != nil {
		return s, err
	}
	if text := reply.Err(); text != "" {
		return s, errors.New(text)
	}
	if reply.Int > 0 {
		s.deadline = reply.Int
	}
	if reply, err = c.Receive(); err != nil {
		return s, err
	}
	if text := reply.Err(); text != "" {
		return s, errors.New(text)
	}
	switch reply.Kind {
	case resp.KindBulk:
		s.kind, s.str = text, string(reply.Str)
	case resp.KindArray:
		if len(reply.Elems) == 0 {
			break
		}
		s.kind, s.hash = hash, make(map[string]string, len(reply.Elems)/2)
		for i := 0; i+1 < len(reply.Elems); i += 2 {
			s.hash[string(reply.Elems[i].Str)] = string(reply.Elems[i+1].Str)
		}
		if 2*len(s.hash) != len(reply.Elems) {
			return s, fmt.Errorf("HGETALL: %d elements for %d different fields", len(reply.Elems), len(s.hash))
		}
	}
	if s.kind == absent {
		s.deadline = 0 // it went between the two commands
	}
	return s, nil
}

// settle finds the prefix of the pipeline in flight that explains what was read,
// and takes what was read as the model of the next round. prefix is -1 for a
// writer that had nothing in flight.
func (w *writer) settle(all map[string]seen, killedAt int64) (prefix int, err error) {
	touched := map[string]bool{}
	for i := range w.flight {
		for _, k := range w.flight[i].keys() {
			touched[k] = true
		}
	}
	for _, k := range w.keys {
		if touched[k] {
			continue
		}
		if why := w.have[k].match(all[k]); why != "" {
			return 0, fmt.Errorf("key %s, nothing in flight: %s", k, why)
		}
	}
	prefix = -1
	if len(w.flight) > 0 {
		if prefix, err = w.findPrefix(all, touched, killedAt); err != nil {
			return 0, err
		}
	}
	for i := range pairs {
		a, b := pairKeys(w.id, i)
		if all[a].str != all[b].str {
			return 0, fmt.Errorf("half a transaction: %s is %q and %s is %q", a, all[a].str, b, all[b].str)
		}
	}
	w.flight = nil
	for k, s := range all {
		w.have[k] = s.value()
	}
	return prefix, nil
}

func (w *writer) findPrefix(all map[string]seen, touched map[string]bool, killedAt int64) (int, error) {
	world := make(map[string]value, len(touched))
	for k := range touched {
		world[k] = w.have[k]
	}
	first, last := "", ""
	for n := 0; ; n++ {
		fault := ""
		for k := range touched {
			if why := world[k].match(all[k]); why != "" {
				fault = fmt.Sprintf("key %s: %s", k, why)
				break
			}
		}
		if fault == "" {
			return n, nil
		}
		if n == 0 {
			first = fault
		}
		last = fault
		if n == len(w.flight) {
			return 0, fmt.Errorf("no prefix of the %d commands in flight explains what is there; with none of them: %s; with all: %s", n, first, last)
		}
		o := &w.flight[n]
		for _, k := range o.keys() {
			world[k], _ = o.apply(world[k], w.sentAt, killedAt)
		}
	}
}

// countLimit is how long the counts may take to agree: keys whose deadline came are counted until the node
// has removed them.
const countLimit = 15 * time.Second

// checkCounts holds DBSIZE, SCAN and the counts of the slots against each other
// and against the keys that were read.
func checkCounts(c *node.Conn, writers []*writer, cluster bool) error {
	known := map[string]bool{}
	for _, w := range writers {
		for _, k := range w.keys {
			known[k] = true
		}
	}
	why := ""
	for end := time.Now().Add(countLimit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		size, err := c.Int("DBSIZE")
		if err != nil {
			return err
		}
		keys, err := scan(c)
		if err != nil {
			return err
		}
		for k := range keys {
			if !known[k] {
				return fmt.Errorf("SCAN found %q, which nobody wrote", k)
			}
		}
		slots, err := slotSum(c, cluster)
		if err != nil {
			return err
		}
		again, err := c.Int("DBSIZE")
		if err != nil {
			return err
		}
		least, most := expectedKeys(writers)
		if size == again && size == slots && size == int64(len(keys)) && least <= size && size <= most {
			return nil
		}
		why = fmt.Sprintf("DBSIZE %d, %d later, %d keys found by SCAN, %d by slots or INFO keyspace, want all the same, and %d..%d", size, again, len(keys), slots, least, most)
	}
	return fmt.Errorf("counts do not agree within %v: %s", countLimit, why)
}

// expectedKeys is how many keys there must be, and may be, at this moment.
func expectedKeys(writers []*writer) (least, most int64) {
	t := now()
	for _, w := range writers {
		for _, v := range w.have {
			if v.kind == absent {
				continue
			}
			if perhaps, _ := v.gone(t); !perhaps {
				least++
			}
			if v.lo == 0 || v.hi+countLimit.Milliseconds() > t {
				most++
			}
		}
	}
	return least, most
}

// scan returns the keys that a whole SCAN finds.
func scan(c *node.Conn) (map[string]bool, error) {
	found := map[string]bool{}
	cursor := "0"
	for {
		reply, err := c.Do("SCAN", cursor, "COUNT", "1000")
		if err != nil {
			return nil, err
		}
		if text := reply.Err(); text != "" || len(reply.Elems) != 2 {
			return nil, fmt.Errorf("SCAN: %d elements, error %q", len(reply.Elems), text)
		}
		for _, e := range reply.Elems[1].Elems {
			found[string(e.Str)] = true
		}
		if cursor = string(reply.Elems[0].Str); cursor == "0" {
			return found, nil
		}
	}
}

// slotSum adds up the key counts of all slots, or reads INFO keyspace where there are no slots.
func slotSum(c *node.Conn, cluster bool) (sum int64, err error) {
	if !cluster {
		info, err := c.Text("INFO", "keyspace")
		if err != nil {
			return 0, err
		}
		line := node.Field(info, "db0")
		if line == "" {
			return 0, nil // no key, no line
		}
		if _, err := fmt.Sscanf(line, "keys=%d,", &sum); err != nil {
			return 0, fmt.Errorf("INFO keyspace: %q: %w", line, err)
		}
		return sum, nil
	}
	const batch = 1024
	for first := 0; first < slot.Count; first += batch {
		for s := range batch {
			c.Append("CLUSTER", "COUNTKEYSINSLOT", fmt.Sprint(first+s))
		}
		if err := c.Flush(); err != nil {
			return 0, err
		}
		for range batch {
			reply, err := c.Receive()
			if err != nil {
				return 0, err
			}
			if reply.Kind != resp.KindInt {
				return 0, fmt.Errorf("CLUSTER COUNTKEYSINSLOT: %s", reply.Str)
			}
			sum += reply.Int
		}
	}
	return sum, nil
}
