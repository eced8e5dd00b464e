package server

import (
	"fmt"
	"math"
	"time"

	"cairn/internal/resp"
	"cairn/server/command"
)

// The subcommands of CLIENT: command.ClientHost. Texts are Redis 7.2's. What a line of CLIENT LIST says is in
// clientline.go.

// ClientGetName tells the connection's name, null when it has none.
func (s *Server) ClientGetName(x *command.Ctx) error {
	c := clientOf(x)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.name == "" {
		x.W.Null()
	} else {
		x.W.BulkString(c.name)
	}
	return nil
}

// ClientSetName names the connection; an empty name takes it away.
func (s *Server) ClientSetName(x *command.Ctx) error {
	if !validAttribute(x.Args[2]) {
		return errName
	}
	clientOf(x).setName(x.Args[2])
	x.W.OK()
	return nil
}

// ClientSetInfo notes name or version of the client's library.
func (s *Server) ClientSetInfo(x *command.Ctx) error {
	c := clientOf(x)
	var field *string
	switch {
	case x.Is(2, "lib-name"):
		field = &c.libName
	case x.Is(2, "lib-ver"):
		field = &c.libVer
	default:
		return command.Reply(fmt.Sprintf("ERR Unrecognized option '%s'", x.Args[2]))
	}
	if !validAttribute(x.Args[3]) {
		return command.Reply(fmt.Sprintf("ERR %s cannot contain spaces, newlines or special characters.", x.Args[2]))
	}
	c.mu.Lock()
	*field = string(x.Args[3])
	c.mu.Unlock()
	x.W.OK()
	return nil
}

// ClientInfo describes this connection.
func (s *Server) ClientInfo(x *command.Ctx) error {
	c := clientOf(x)
	x.W.Verbatim("txt", append(c.appendLine(nil, x), '\n'))
	return nil
}

// ClientList describes connections: all, those of a kind, or those with certain numbers.
func (s *Server) ClientList(x *command.Ctx) error {
	var lines []byte
	switch {
	case len(x.Args) == 2:
		for _, c := range s.clients.snapshot() {
			lines = c.appendListed(lines, x)
		}
		lines = s.appendLink(lines, 0)
	case len(x.Args) == 4 && x.Is(2, "type"):
		k, ok := clientKindOf(x, 3)
		if !ok {
			return unknownKind(x, 3)
		}
		for _, c := range s.clients.snapshot() {
			if c.kind() == k {
				lines = c.appendListed(lines, x)
			}
		}
		if k == kindPrimary {
			lines = s.appendLink(lines, 0)
		}
	case len(x.Args) > 3 && x.Is(2, "id"):
		for _, arg := range x.Args[3:] {
			id, ok := resp.ParseInt(arg)
			if !ok {
				return command.Reply("ERR Invalid client ID")
			}
			if c := s.clients.byNumber(id); c != nil {
				lines = c.appendListed(lines, x)
			} else {
				lines = s.appendLink(lines, id)
			}
		}
	default:
		return command.ErrSyntax
	}
	x.W.Verbatim("txt", lines)
	return nil
}

// killFilter says which connections CLIENT KILL means; zero fields do not matter.
type killFilter struct {
	id          int64
	addr, laddr []byte
	kind        clientKind
	byKind      bool
	skipMe      bool
}

func (f *killFilter) matches(c, me *client) bool {
	switch {
	case f.addr != nil && c.addr != string(f.addr),
		f.laddr != nil && c.laddr != string(f.laddr),
		f.byKind && c.kind() != f.kind,
		f.id != 0 && c.id != f.id,
		c == me && f.skipMe:
		return false
	}
	return true
}

func parseKill(x *command.Ctx) (f killFilter, err error) {
	f.skipMe = true
	for i := 2; i < len(x.Args); i += 2 {
		if i+1 == len(x.Args) {
			return f, command.ErrSyntax
		}
		value := x.Args[i+1]
		switch {
		case x.Is(i, "id"):
			n, ok := resp.ParseInt(value)
			if !ok || n < 1 {
				return f, command.Reply("ERR client-id should be greater than 0")
			}
			f.id = n
		case x.Is(i, "type"):
			if f.kind, f.byKind = clientKindOf(x, i+1); !f.byKind {
				return f, unknownKind(x, i+1)
			}
		case x.Is(i, "addr"):
			f.addr = value
		case x.Is(i, "laddr"):
			f.laddr = value
		case x.Is(i, "user"):
			if string(value) != defaultUser { // the one there is
				return f, command.Reply(fmt.Sprintf("ERR No such user '%s'", value))
			}
		case x.Is(i, "skipme") && x.Is(i+1, "yes"):
			f.skipMe = true
		case x.Is(i, "skipme") && x.Is(i+1, "no"):
			f.skipMe = false
		default:
			return f, command.ErrSyntax
		}
	}
	return f, nil
}

// ClientKill ends connections: one by its address, or all that match. One's own goes after the reply.
func (s *Server) ClientKill(x *command.Ctx) error {
	old := len(x.Args) == 3
	filter := killFilter{}
	if old {
		filter.addr = x.Args[2]
	} else {
		var err error
		if filter, err = parseKill(x); err != nil {
			return err
		}
	}
	me, killed := clientOf(x), int64(0)
	for _, c := range s.clients.snapshot() {
		if c.killed.Load() || !filter.matches(c, me) {
			continue
		}
		killed++
		if c == me {
			me.closing = true
		} else {
			c.kill()
		}
	}
	killed += s.killLink(&filter)
	switch {
	case !old:
		x.W.Int(killed)
	case killed == 0:
		return command.Reply("ERR No such client")
	default:
		x.W.OK()
	}
	return nil
}

// ClientPause makes commands of all clients wait, or those that write.
func (s *Server) ClientPause(x *command.Ctx) error {
	all := true
	switch {
	case len(x.Args) > 4:
		return x.ErrSubcommand()
	case len(x.Args) == 4 && x.Is(3, "write"):
		all = false
	case len(x.Args) == 4 && !x.Is(3, "all"):
		return command.Reply("ERR CLIENT PAUSE mode must be WRITE or ALL")
	}
	ms, ok := resp.ParseInt(x.Args[2])
	switch {
	case !ok:
		return command.Reply("ERR timeout is not an integer or out of range")
	case ms < 0:
		return command.Reply("ERR timeout is negative")
	case ms > math.MaxInt64-x.NowMs:
		return command.Reply("ERR timeout is out of range")
	}
	s.pause.set(time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond)))*time.Millisecond, all)
	x.W.OK()
	return nil
}

// ClientUnpause ends a pause.
func (s *Server) ClientUnpause(x *command.Ctx) error {
	s.pause.clear()
	x.W.OK()
	return nil
}

// ClientReply says whether commands are answered; this one is only when they are.
func (s *Server) ClientReply(x *command.Ctx) error {
	c := clientOf(x)
	switch {
	case x.Is(2, "on"):
		c.reply = replyOn
		x.W.OK()
	case x.Is(2, "off"):
		c.reply = replyOff
	case x.Is(2, "skip"):
		if c.reply != replyOff {
			c.reply = replySkipNext
		}
	default:
		return command.ErrSyntax
	}
	return nil
}

// ClientNoEvict excepts the connection from being closed for the memory it takes.
func (s *Server) ClientNoEvict(x *command.Ctx) error {
	return setOnOff(x, func(on bool) {
		clientOf(x).noEvict.Store(on)
		if !on {
			s.relieve(nil, 0)
		}
	})
}

// ClientNoTouch says whether commands of the connection count as accesses.
func (s *Server) ClientNoTouch(x *command.Ctx) error {
	return setOnOff(x, clientOf(x).noTouch.Store)
}

func setOnOff(x *command.Ctx, set func(bool)) error {
	switch {
	case x.Is(2, "on"):
		set(true)
	case x.Is(2, "off"):
		set(false)
	default:
		return command.ErrSyntax
	}
	x.W.OK()
	return nil
}

// ClientTracking refuses to track; switching it off changes nothing.
func (s *Server) ClientTracking(x *command.Ctx) error {
	switch {
	case x.Is(2, "off"):
		x.W.OK()
		return nil
	case x.Is(2, "on"):
		return command.Reply("ERR CLIENT TRACKING is not supported yet")
	}
	return command.ErrSyntax
}

// ClientCaching is for connections that track keys.
func (s *Server) ClientCaching(*command.Ctx) error {
	return command.Reply("ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled")
}

// ClientGetRedir tells where tracking messages go: nothing is tracked.
func (s *Server) ClientGetRedir(x *command.Ctx) error {
	x.W.Int(-1)
	return nil
}

// ClientTrackingInfo tells how the connection tracks keys: it does not.
func (s *Server) ClientTrackingInfo(x *command.Ctx) error {
	x.W.Map(3)
	x.W.BulkString("flags")
	x.W.Set(1)
	x.W.BulkString("off")
	x.W.BulkString("redirect")
	x.W.Int(-1)
	x.W.BulkString("prefixes")
	x.W.Array(0)
	return nil
}

// clientKind is a class of connections.
type clientKind uint8

const (
	kindNormal clientKind = iota
	kindPubSub
	kindReplica
	kindPrimary
)

// kind is the class of a connection now.
func (c *client) kind() clientKind {
	if c.replica.Load() != nil {
		return kindReplica
	}
	if c.subscribed() {
		return kindPubSub
	}
	return kindNormal
}

func clientKindOf(x *command.Ctx, i int) (k clientKind, ok bool) {
	switch {
	case x.Is(i, "normal"):
		return kindNormal, true
	case x.Is(i, "pubsub"):
		return kindPubSub, true
	case x.Is(i, "replica"), x.Is(i, "slave"):
		return kindReplica, true
	case x.Is(i, "master"):
		return kindPrimary, true
	}
	return 0, false
}

func unknownKind(x *command.Ctx, i int) command.Reply {
	return command.Reply(fmt.Sprintf("ERR Unknown client type '%s'", x.Args[i]))
}
