package main

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"cairn/internal/resp"
	"cairn/tools/node"
)

// kind is what a key holds.
type kind byte

const (
	absent kind = iota
	text
	hash
)

// value is what the model believes of a key. It is never changed, only replaced.
type value struct {
	kind kind
	str  string
	hash map[string]string

	// The deadline is in [lo, hi]: the server computed it between sending and
	// reply. 0: none.
	lo, hi int64

	// perhapsGone: the command met a key whose deadline had perhaps come, so that
	// it perhaps did nothing.
	perhapsGone bool
}

// clockSlack covers the rounding of two readings of one clock, ms.
const clockSlack = 1

// gone reports whether the deadline has perhaps, and has surely, come at time t.
func (v value) gone(t int64) (perhaps, surely bool) {
	return v.lo != 0 && t+clockSlack >= v.lo, v.hi != 0 && t-clockSlack > v.hi
}

func (v value) String() string {
	var b strings.Builder
	switch v.kind {
	case absent:
		return "no key"
	case text:
		fmt.Fprintf(&b, "%d bytes %.40q", len(v.str), v.str)
	case hash:
		fmt.Fprintf(&b, "hash of %d fields", len(v.hash))
	}
	if v.lo != 0 {
		fmt.Fprintf(&b, ", deadline %d..%d", v.lo, v.hi)
	}
	if v.perhapsGone {
		b.WriteString(", or no key")
	}
	return b.String()
}

// seen is what a key was read back as, between the times from and to.
type seen struct {
	kind     kind
	str      string
	hash     map[string]string
	deadline int64 // 0: none
	from, to int64
}

// value turns what was seen into what the model believes from now on.
func (s seen) value() value {
	return value{kind: s.kind, str: s.str, hash: s.hash, lo: s.deadline, hi: s.deadline}
}

// match says in words why a key that was read back is not what v allows, or "".
func (v value) match(s seen) string {
	perhaps, _ := v.gone(s.to)
	if s.kind == absent {
		if v.kind == absent || perhaps || v.perhapsGone {
			return ""
		}
		return fmt.Sprintf("no key, want %v", v)
	}
	if _, surely := v.gone(s.from); v.kind != absent && surely {
		return fmt.Sprintf("there at %d, its deadline was %d at the latest", s.from, v.hi)
	}
	got := s.value()
	switch {
	case s.kind != v.kind, s.str != v.str, !maps.Equal(s.hash, v.hash):
		return fmt.Sprintf("%v, want %v%s", got, v, hashDifference(s.hash, v.hash))
	case (v.lo == 0) != (s.deadline == 0), s.deadline != 0 && (s.deadline < v.lo-clockSlack || s.deadline > v.hi+clockSlack):
		return fmt.Sprintf("deadline %d, want %d..%d (0: none)", s.deadline, v.lo, v.hi)
	}
	return ""
}

func hashDifference(got, want map[string]string) string {
	for f, w := range want {
		if g, ok := got[f]; !ok || g != w {
			return fmt.Sprintf("; field %s: %.40q (there: %v), want %.40q", f, g, ok, w)
		}
	}
	for f, g := range got {
		if _, ok := want[f]; !ok {
			return fmt.Sprintf("; field %s: %.40q, want none", f, g)
		}
	}
	return ""
}

// verb is a command that writers send.
type verb string

const (
	vSet     verb = "SET"
	vSetPX   verb = "SET PX"
	vAppend  verb = "APPEND"
	vIncr    verb = "INCR"
	vDel     verb = "DEL"
	vHSet    verb = "HSET"
	vHDel    verb = "HDEL"
	vExpire  verb = "PEXPIRE"
	vPersist verb = "PERSIST"
	vGet     verb = "GET"
	vPair    verb = "MULTI" // MULTI, SET key arg, SET second arg, EXEC
)

// op is one command on one key, or a transaction on two.
type op struct {
	verb   verb
	key    string
	second string   // vPair
	arg    string   // value
	fields []string // vHSet: field, value, ...; vHDel: fields
	ms     int64    // vSetPX, vExpire; at most 0 deletes at once
}

// send appends the op's commands and returns how many replies follow.
func (o *op) send(c *node.Conn) int {
	switch o.verb {
	case vSet, vAppend:
		c.Append(string(o.verb), o.key, o.arg)
	case vSetPX:
		if o.ms%1000 == 0 {
			c.Append("SET", o.key, o.arg, "EX", strconv.FormatInt(o.ms/1000, 10))
		} else {
			c.Append("SET", o.key, o.arg, "PX", strconv.FormatInt(o.ms, 10))
		}
	case vHSet, vHDel:
		c.Append(append([]string{string(o.verb), o.key}, o.fields...)...)
	case vExpire:
		c.Append("PEXPIRE", o.key, strconv.FormatInt(o.ms, 10))
	case vPair:
		c.Append("MULTI")
		c.Append("SET", o.key, o.arg)
		c.Append("SET", o.second, o.arg)
		c.Append("EXEC")
		return 4
	default:
		c.Append(string(o.verb), o.key)
	}
	return 1
}

// keys are the keys that the op changes.
func (o *op) keys() []string {
	if o.verb == vPair {
		return []string{o.key, o.second}
	}
	return []string{o.key}
}

// apply returns what the op makes of the value of one of its keys, when it was
// executed between t0 and t1, and its reply; "" where the reply cannot be known.
func (o *op) apply(old value, t0, t1 int64) (value, string) {
	perhaps, _ := old.gone(t1)
	if _, before := old.gone(t0); before {
		old, perhaps = value{}, false
	}
	next := old
	switch o.verb {
	case vSet, vPair:
		return value{kind: text, str: o.arg}, "+OK"
	case vSetPX:
		return value{kind: text, str: o.arg, lo: t0 + o.ms, hi: t1 + o.ms}, "+OK"
	case vDel:
		if perhaps || old.perhapsGone {
			return value{}, ""
		}
		return value{}, number(old.kind != absent)
	case vGet:
		switch {
		case perhaps || old.perhapsGone:
			return next, ""
		case old.kind == absent:
			return next, "nil"
		}
		return next, "$" + old.str
	case vAppend:
		next.kind, next.str = text, old.str+o.arg
		return next, ":" + strconv.Itoa(len(next.str))
	case vIncr:
		n, _ := strconv.ParseInt(old.str, 10, 64) // an absent counter is 0
		next.kind, next.str = text, strconv.FormatInt(n+1, 10)
		return next, ":" + next.str
	}
	return o.applyRest(old, t0, t1, perhaps || old.perhapsGone)
}

// applyRest is apply for deadlines and hashes. perhaps: the key is perhaps gone already.
func (o *op) applyRest(old value, t0, t1 int64, perhaps bool) (value, string) {
	next := old
	switch o.verb {
	case vExpire:
		if old.kind == absent {
			return next, ":0"
		}
		next.lo, next.hi, next.perhapsGone = t0+o.ms, t1+o.ms, perhaps
		if o.ms <= 0 {
			next = value{}
		}
		if perhaps {
			return next, ""
		}
		return next, ":1"
	case vPersist:
		next.lo, next.hi = 0, 0
		return next, number(old.lo != 0)
	case vHSet:
		next.kind, next.hash = hash, maps.Clone(old.hash)
		if next.hash == nil {
			next.hash = map[string]string{}
		}
		for i := 0; i < len(o.fields); i += 2 {
			next.hash[o.fields[i]] = o.fields[i+1]
		}
		return next, ":" + strconv.Itoa(len(next.hash)-len(old.hash))
	case vHDel:
		next.hash = maps.Clone(old.hash)
		for _, f := range o.fields {
			delete(next.hash, f)
		}
		removed := ":" + strconv.Itoa(len(old.hash)-len(next.hash))
		if len(next.hash) == 0 {
			next = value{}
		}
		return next, removed
	}
	return next, ""
}

// settle is for a reply that apply could not foretell: it says whether the key was there.
func (o *op) settle(next value, r resp.Reply) value {
	if o.verb == vExpire && r.Kind == resp.KindInt {
		if r.Int == 0 {
			return value{}
		}
		next.perhapsGone = false
	}
	return next
}

func number(b bool) string {
	if b {
		return ":1"
	}
	return ":0"
}

// checkReply says why the last reply of an op is not the one it must have, or "".
func checkReply(want string, r resp.Reply) string {
	if text := r.Err(); text != "" {
		return "error " + text
	}
	if want == "" {
		return ""
	}
	got := ""
	switch r.Kind {
	case resp.KindNull:
		got = "nil"
	case resp.KindInt:
		got = ":" + strconv.FormatInt(r.Int, 10)
	case resp.KindArray: // of EXEC: two OK
		got = "+OK"
		for _, e := range r.Elems {
			if string(e.Str) != "OK" {
				got = "an array with " + string(e.Str)
			}
		}
		if len(r.Elems) != 2 {
			got = fmt.Sprintf("an array of %d", len(r.Elems))
		}
	default:
		got = string(r.Kind) + string(r.Str)
	}
	if got != want {
		return fmt.Sprintf("reply %.60q (%d bytes), want %.60q (%d bytes)", got, len(got), want, len(want))
	}
	return ""
}
