package psync

import (
	"bytes"
	"strconv"
	"strings"
)

// Hello is what a replica says of itself.
type Hello struct {
	User, Password string // masteruser, masterauth; no AUTH without a password
	Port           int    // where this node listens, as others are to see it
	IP             string // the same; "": as the primary sees the connection
	ID             string // replication id of the data here; "" asks for everything
	Offset         int64  // of the last byte here
	Failover       bool   // the primary is to hand its role over first
	Fork           bool   // a primary that went another way from some offset on may say so
	Rows           bool   // the data may come as rows of this program's
	TimeoutMs      int64  // repl-timeout
}

// Next is what the driver does after an Effect.
type Next int

// What comes next.
const (
	Wait     Next = iota // for the next line
	Retry                // close the connection, begin anew later: Effect.Reason says why
	Continue             // the stream follows, from Hello.Offset on
	Payload              // the data follows
	Forked               // the histories part at Effect.Offset; nothing follows
)

// Effect is what to do about an event.
type Effect struct {
	Write []byte // to be sent, may be empty
	Next  Next
	// Reason is for the log: why it ends, or what is odd about an answer that is accepted.
	Reason string

	// Of Continue and Forked: the primary's replication id, "" for the one asked with. Of Payload: that of the data, ""
	// when it is of no known history.
	ID string
	// Offset of the data in a Payload, -1 when the primary does not say; of the last common byte in Forked.
	Offset int64
	// Length of the data in bytes; -1: it ends with Mark.
	Length int64
	Mark   []byte
}

// state is which answer is awaited.
type state int

const (
	idle state = iota
	ponging
	greeting // the answers to AUTH and REPLCONF
	asking   // the answer to PSYNC
	heading  // the line before the data
	done
)

// Handshake is the replica's side of one connection. One goroutine uses it.
type Handshake struct {
	hello    Hello
	state    state
	deadline int64
	awaited  []string // the greetings whose answers are not here yet, in order
	id       string
	offset   int64
	old      bool // PSYNC is unknown over there
	said     bool // something to PSYNC
}

// New makes a handshake.
func New(h Hello) *Handshake { return &Handshake{hello: h} }

// Deadline is when Tick has something to say; it moves with every event.
func (h *Handshake) Deadline() int64 { return h.deadline }

// Old says that the primary knows SYNC only: it wants no acknowledgements, and nothing can be continued later.
func (h *Handshake) Old() bool { return h.old }

// Answered says that PSYNC was answered, well or not.
func (h *Handshake) Answered() bool { return h.said }

// Receiving says that the primary was asked for data and has agreed, or may take its time to answer.
func (h *Handshake) Receiving() bool { return h.state == heading }

// Connected begins.
func (h *Handshake) Connected(now int64) Effect {
	h.state = ponging
	h.deadline = now + stepMs
	return Effect{Write: appendWords(nil, "PING")}
}

// Tick ends a handshake whose time is up.
func (h *Handshake) Tick(now int64) Effect {
	if h.state == done || now < h.deadline {
		return Effect{}
	}
	what := map[state]string{
		idle: "the connection", ponging: "the answer to PING", greeting: "the answer to REPLCONF",
		asking: "the answer to PSYNC", heading: "the data",
	}[h.state]
	if h.state == greeting && len(h.awaited) > 0 {
		what = "the answer to " + h.awaited[0]
	}
	return h.retry("timeout while waiting for " + what)
}

func (h *Handshake) retry(reason string) Effect {
	h.state = done
	return Effect{Next: Retry, Reason: reason}
}

// Line takes a line from the primary, without its end.
func (h *Handshake) Line(now int64, line []byte) Effect {
	if len(line) > MaxLine {
		return h.retry("a line of more than " + strconv.Itoa(MaxLine) + " bytes instead of an answer")
	}
	switch h.state {
	case ponging:
		return h.ponged(now, line)
	case greeting:
		return h.greeted(now, line)
	case asking:
		return h.answered(now, line)
	case heading:
		return h.headed(now, line)
	}
	return h.retry("an answer that nobody asked for: " + quoted(line))
}

// ponged takes the answer to PING. That this node is not logged in, or may not say PING, comes later or not at all.
func (h *Handshake) ponged(now int64, line []byte) Effect {
	if !has(line, "+") && !has(line, "-NOAUTH") && !has(line, "-NOPERM") && !has(line, "-ERR operation not permitted") {
		return h.retry("the primary answered PING with " + quoted(line))
	}
	out := h.greetings()
	h.state, h.deadline = greeting, now+stepMs
	return Effect{Write: out}
}

// greetings are all written before the first is answered, as a Redis replica does.
func (h *Handshake) greetings() (out []byte) {
	if h.hello.Password != "" {
		h.awaited = append(h.awaited, "AUTH")
		if h.hello.User != "" {
			out = appendWords(out, "AUTH", h.hello.User, h.hello.Password)
		} else {
			out = appendWords(out, "AUTH", h.hello.Password)
		}
	}
	h.awaited = append(h.awaited, "REPLCONF listening-port")
	out = appendWords(out, "REPLCONF", "listening-port", strconv.Itoa(h.hello.Port))
	if h.hello.IP != "" {
		h.awaited = append(h.awaited, "REPLCONF ip-address")
		out = appendWords(out, "REPLCONF", "ip-address", h.hello.IP)
	}
	h.awaited = append(h.awaited, "REPLCONF capa")
	words := []string{"REPLCONF", "capa", "eof", "capa", "psync2"}
	if h.hello.Fork {
		words = append(words, "capa", "fork")
	}
	if h.hello.Rows {
		words = append(words, "capa", RowsCapa)
	}
	return appendWords(out, words...)
}

// greeted takes one of the answers. Only AUTH must be answered well: an old primary does not know all options.
func (h *Handshake) greeted(now int64, line []byte) Effect {
	to := h.awaited[0]
	e := Effect{}
	if has(line, "-") {
		e.Reason = "the primary answered " + to + " with " + quoted(line)
		if to == "AUTH" {
			return h.retry(e.Reason)
		}
	}
	h.awaited = h.awaited[1:]
	h.deadline = now + stepMs
	if len(h.awaited) > 0 {
		return e
	}
	id, next := "?", "-1"
	if h.hello.ID != "" {
		id, next = h.hello.ID, strconv.FormatInt(h.hello.Offset+1, 10)
	}
	words := []string{"PSYNC", id, next}
	if h.hello.Failover {
		words = append(words, "FAILOVER")
	}
	h.state, h.deadline = asking, now+h.hello.TimeoutMs
	e.Write = appendWords(nil, words...)
	return e
}

// answered takes the answer to PSYNC.
func (h *Handshake) answered(now int64, line []byte) Effect {
	switch {
	case len(line) == 0: // it is at work
		h.deadline = now + h.hello.TimeoutMs
		return Effect{}
	}
	h.said = true
	switch {
	case has(line, "+FULLRESYNC"):
		return h.full(now, line)
	case has(line, "+CONTINUE"):
		return h.continued(line)
	case has(line, "+FORK ") && h.hello.Fork:
		return h.forked(line)
	case has(line, "-NOMASTERLINK"), has(line, "-LOADING"):
		return h.retry("the primary cannot serve now: " + quoted(line))
	}
	if has(line, "-NOAUTH") || has(line, "-NOPERM") {
		return h.retry("the primary wants another login, see masterauth and masteruser: " + quoted(line))
	}
	if h.hello.Failover {
		return h.retry("the primary did not hand over: " + quoted(line))
	}
	// Whatever else it is: PSYNC is not understood. What there was before it is.
	h.old = true
	h.state, h.deadline = heading, now+h.hello.TimeoutMs
	h.id, h.offset = "", noOffset
	return Effect{Write: []byte("SYNC\r\n"), Reason: "the primary answered PSYNC with " + quoted(line) + "; trying SYNC"}
}

func (h *Handshake) full(now int64, line []byte) Effect {
	words := bytes.Fields(line)
	e := Effect{}
	h.id, h.offset = "", noOffset
	if len(words) >= 3 {
		if n, err := strconv.ParseInt(string(words[2]), 10, 64); err == nil && n >= 0 {
			h.offset = n
		}
	}
	if len(words) >= 3 && h.offset >= 0 && validID(words[1]) {
		h.id = string(words[1])
	} else {
		// Redis goes on with the data, too. What follows it cannot be continued after the link breaks.
		e.Reason = "the primary names no valid replication id and offset: " + quoted(line)
	}
	h.state, h.deadline = heading, now+h.hello.TimeoutMs
	return e
}

func (h *Handshake) continued(line []byte) Effect {
	words := bytes.Fields(line)
	h.state = done
	e := Effect{Next: Continue, Offset: h.hello.Offset}
	if h.hello.ID == "" {
		return h.retry("the primary wants to continue what was never begun: " + quoted(line))
	}
	if len(words) > 1 && !strings.EqualFold(string(words[1]), h.hello.ID) {
		if !validID(words[1]) {
			return h.retry("the primary continues under an id that is none: " + quoted(line))
		}
		e.ID = string(words[1])
	}
	return e
}

// forked takes "+FORK <id> <offset>": the data here is of a history that the primary left at offset.
func (h *Handshake) forked(line []byte) Effect {
	words := bytes.Fields(line)
	if len(words) != 3 || !validID(words[1]) {
		return h.retry("the primary answered PSYNC with " + quoted(line))
	}
	n, err := strconv.ParseInt(string(words[2]), 10, 64)
	if err != nil || n < 0 || n >= h.hello.Offset {
		return h.retry("the primary parts at an offset that is not below the one here: " + quoted(line))
	}
	h.state = done
	return Effect{Next: Forked, ID: string(words[1]), Offset: n}
}

// headed takes the line before the data.
func (h *Handshake) headed(now int64, line []byte) Effect {
	switch {
	case len(line) == 0:
		h.deadline = now + h.hello.TimeoutMs
		return Effect{}
	case has(line, "-"):
		return h.retry("the primary gives the sync up: " + quoted(line))
	case has(line, "$EOF:"):
		mark := line[len("$EOF:"):]
		if len(mark) < MarkLen {
			return h.retry("the mark at the end of the data is too short: " + quoted(line))
		}
		return h.payload(-1, append([]byte(nil), mark[:MarkLen]...))
	case has(line, "$"):
		n, err := strconv.ParseInt(string(line[1:]), 10, 64)
		if err != nil || n < 0 {
			return h.retry("the length of the data is no number: " + quoted(line))
		}
		return h.payload(n, nil)
	}
	return h.retry("the primary announced no data: " + quoted(line))
}

// MarkLen is the length of the mark behind data whose length is not known before, bytes.
const MarkLen = 40

func (h *Handshake) payload(length int64, mark []byte) Effect {
	h.state = done
	return Effect{Next: Payload, ID: h.id, Offset: h.offset, Length: length, Mark: mark}
}

func has(line []byte, prefix string) bool { return bytes.HasPrefix(line, []byte(prefix)) }

// validID says whether b can be a replication id: Redis's are hex, and it checks the length only.
func validID(b []byte) bool {
	if len(b) != idLen {
		return false
	}
	for _, c := range b {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

// quoted is as much of a line as belongs into a log.
func quoted(line []byte) string {
	const enough = 128
	if len(line) > enough {
		return strconv.Quote(string(line[:enough])) + "..."
	}
	return strconv.Quote(string(line))
}

// appendWords appends a command as an array of bulk strings.
func appendWords(dst []byte, words ...string) []byte {
	dst = append(dst, '*')
	dst = strconv.AppendInt(dst, int64(len(words)), 10)
	dst = append(dst, '\r', '\n')
	for _, w := range words {
		dst = append(dst, '$')
		dst = strconv.AppendInt(dst, int64(len(w)), 10)
		dst = append(dst, '\r', '\n')
		dst = append(dst, w...)
		dst = append(dst, '\r', '\n')
	}
	return dst
}
