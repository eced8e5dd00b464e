package nodesconf

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"cairn/internal/slot"
)

// Error says what is wrong with which line.
type Error struct {
	Line int // from 1; 0: the file as a whole
	Err  error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("line %d: %v", e.Line, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// ErrTorn says that the end of the file is missing.
var ErrTorn = errors.New("the file is cut short: its last line, which holds the epochs, is not whole")

// fieldsMin are those that every node's line has.
const fieldsMin = 8

// Parse reads a file's text.
func Parse(text []byte) (*File, error) {
	if len(text) == 0 || text[len(text)-1] != '\n' {
		return nil, &Error{0, ErrTorn}
	}
	f, vars, at := &File{}, false, 0
	seen := make(map[string]struct{})
	for line := range strings.Lines(string(text)) {
		at++
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if strings.EqualFold(words[0], "vars") {
			if err := f.parseVars(words[1:]); err != nil {
				return nil, &Error{at, err}
			}
			vars = true
			continue
		}
		n, err := parseNode(words)
		if _, twice := seen[n.ID]; err == nil && twice {
			err = fmt.Errorf("node %s stands here a second time", n.ID)
		}
		if err == nil && n.Flags&Myself != 0 && f.Myself() != nil {
			err = fmt.Errorf("node %s is a second one that is this node itself", n.ID)
		}
		if err != nil {
			return nil, &Error{at, err}
		}
		seen[n.ID] = struct{}{}
		f.Nodes = append(f.Nodes, n)
	}
	if !vars {
		return nil, &Error{0, ErrTorn}
	}
	if f.Myself() == nil {
		return nil, &Error{0, fmt.Errorf("none of the %d nodes has the flag myself", len(f.Nodes))}
	}
	return f, nil
}

func (f *File) parseVars(words []string) error {
	if len(words)%2 != 0 {
		return fmt.Errorf("%d words after vars, want names and values in turn", len(words))
	}
	for i := 0; i < len(words); i += 2 {
		var to *uint64
		switch {
		case strings.EqualFold(words[i], "currentEpoch"):
			to = &f.CurrentEpoch
		case strings.EqualFold(words[i], "lastVoteEpoch"):
			to = &f.LastVoteEpoch
		default:
			continue // of a newer version
		}
		v, err := strconv.ParseUint(words[i+1], 10, 64)
		if err != nil {
			return fmt.Errorf("variable %s: %.40q is not an epoch", words[i], words[i+1])
		}
		*to = v
	}
	return nil
}

func parseNode(words []string) (n Node, err error) {
	if len(words) < fieldsMin {
		return n, fmt.Errorf("%d fields, want at least %d", len(words), fieldsMin)
	}
	if !validID(words[0]) {
		return n, fmt.Errorf("%.60q is not a node id of %d hex digits", words[0], IDLen)
	}
	n.ID = words[0]
	if err := n.parseAddress(words[1]); err != nil {
		return n, err
	}
	if n.Flags, err = parseFlags(words[2]); err != nil {
		return n, err
	}
	if words[3] != "-" {
		if !validID(words[3]) {
			return n, fmt.Errorf("primary %.60q is not a node id of %d hex digits", words[3], IDLen)
		}
		n.PrimaryID = words[3]
	}
	for i, to := range []*int64{&n.PingSent, &n.PongAt} {
		if *to, err = strconv.ParseInt(words[4+i], 10, 64); err != nil {
			return n, fmt.Errorf("field %d: %.40q is not a time", 5+i, words[4+i])
		}
	}
	if n.Epoch, err = strconv.ParseUint(words[6], 10, 64); err != nil {
		return n, fmt.Errorf("field 7: %.40q is not an epoch", words[6])
	}
	n.Connected = words[7] == "connected"
	return n, n.parseSlots(words[fieldsMin:])
}

// parseAddress reads ip:port[@bus port][,hostname][,name=value]...
func (n *Node) parseAddress(word string) error {
	addr, rest, more := strings.Cut(word, ",")
	main := &n.Port
	if more {
		var aux string
		if n.Hostname, aux, more = strings.Cut(rest, ","); more {
			for field := range strings.SplitSeq(aux, ",") {
				if err := n.parseAux(field); err != nil {
					return err
				}
				if strings.HasPrefix(field, "tcp-port=") {
					main = &n.TLSPort // the plain port stands here, so the one in the address is for TLS
				}
			}
		}
	}
	colon := strings.LastIndexByte(addr, ':')
	if colon < 0 {
		return fmt.Errorf("address %.60q has no port", word)
	}
	n.IP = addr[:colon]
	port, bus, hasBus := strings.Cut(addr[colon+1:], "@")
	var err error
	if *main, err = parsePort(port); err != nil {
		return err
	}
	if n.BusPort = *main + 10000; n.BusPort > 65535 {
		n.BusPort = 0
	}
	if hasBus {
		n.BusPort, err = parsePort(bus)
	}
	return err
}

func parsePort(text string) (int, error) {
	v, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("port %.40q is not within [0, 65535]", text)
	}
	return int(v), nil
}

func (n *Node) parseAux(field string) (err error) {
	name, value, ok := strings.Cut(field, "=")
	if !ok || strings.Contains(value, "=") {
		return fmt.Errorf("auxiliary field %.60q is not name=value", field)
	}
	switch name {
	case "shard-id":
		if !validID(value) {
			return fmt.Errorf("shard id %.60q is not %d hex digits", value, IDLen)
		}
		n.ShardID = value
	case "nodename":
		n.Name = value
	case "tcp-port":
		n.Port, err = parsePort(value)
	case "tls-port":
		n.TLSPort, err = parsePort(value)
	case "client-ipv4", "client-ipv6": // Valkey's; every node tells its own again
	default:
		return fmt.Errorf("auxiliary field %.60q is not known", name)
	}
	return err
}

func parseFlags(text string) (f Flags, err error) {
	for word := range strings.SplitSeq(text, ",") {
		switch strings.ToLower(word) {
		case "primary": // Valkey reads these words, too
			word = "master"
		case "replica":
			word = "slave"
		}
		found := strings.EqualFold(word, "noflags")
		for _, n := range flagNames() {
			if strings.EqualFold(word, n.word) {
				f, found = f|n.flag, true
			}
		}
		if !found {
			return 0, fmt.Errorf("flag %.40q is not known", word)
		}
	}
	return f, nil
}

func (n *Node) parseSlots(words []string) error {
	for _, w := range words {
		if w[0] == '[' {
			o, err := parseOpen(w)
			if err != nil {
				return err
			}
			n.Open = append(n.Open, o)
			continue
		}
		r, err := slot.ParseRange(w)
		if err != nil {
			return err
		}
		n.Slots = append(n.Slots, r)
	}
	return nil
}

// parseOpen reads [slot->-id] or [slot-<-id].
func parseOpen(word string) (o OpenSlot, err error) {
	inner, ok := strings.CutSuffix(word[1:], "]")
	number, peer, leaving := strings.Cut(inner, "->-")
	if !leaving {
		number, peer, o.Importing = strings.Cut(inner, "-<-")
	}
	if !ok || !leaving && !o.Importing || !validID(peer) {
		return o, fmt.Errorf("open slot %.80q is not [slot->-id] or [slot-<-id]", word)
	}
	o.Peer = peer
	o.Slot, err = slot.Parse(number)
	return o, err
}

func validID(text string) bool {
	if len(text) != IDLen {
		return false
	}
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}
