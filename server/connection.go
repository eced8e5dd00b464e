package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"math"

	"cairn/internal/resp"
	"cairn/server/command"
)

// Commands about the connection itself: command.ConnectionHost. Texts are Redis 7.2's.

// redisVersion is the version whose behaviour clients may count on.
const redisVersion = "7.2.4"

const (
	errWrongPass  command.Reply = "WRONGPASS invalid username-password pair or user is disabled."
	errNoPassword command.Reply = "ERR AUTH <password> called without any password configured for the default user. " +
		"Are you sure your configuration is correct?"
	errHelloNoAuth command.Reply = "NOAUTH HELLO must be called with the client already authenticated, otherwise the " +
		"HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol " +
		"version at the same time"
	errName command.Reply = "ERR Client names cannot contain spaces, newlines or special characters."
)

const defaultUser = "default"

// Ping answers; to a subscriber that speaks RESP2 in the form of a message.
func (s *Server) Ping(x *command.Ctx) error {
	if len(x.Args) > 2 {
		return command.Reply("ERR wrong number of arguments for 'ping' command")
	}
	if c := clientOf(x); c != nil && x.W.Proto == 2 && c.subscribed() {
		x.W.Array(2)
		x.W.BulkString("pong")
		if len(x.Args) == 1 {
			x.W.BulkString("")
		} else {
			x.W.Bulk(x.Args[1])
		}
		return nil
	}
	if len(x.Args) == 1 {
		x.W.Simple("PONG")
	} else {
		x.W.Bulk(x.Args[1])
	}
	return nil
}

// Auth logs in.
func (s *Server) Auth(x *command.Ctx) error {
	user, password := []byte(defaultUser), x.Args[1]
	switch {
	case len(x.Args) > 3:
		return command.ErrSyntax
	case len(x.Args) == 3:
		user, password = x.Args[1], x.Args[2]
	case s.cfg.V.RequirePass.Load() == "":
		return errNoPassword
	}
	if err := s.login(clientOf(x), user, password); err != nil {
		return err
	}
	x.W.OK()
	return nil
}

// login checks a user and a password. There is one user; without requirepass any password is right.
func (s *Server) login(c *client, user, password []byte) error {
	want := s.cfg.V.RequirePass.Load()
	if string(user) != defaultUser || want != "" && !sameSecret(password, []byte(want)) {
		return errWrongPass
	}
	c.mu.Lock()
	c.user = defaultUser
	c.mu.Unlock()
	c.authed.Store(true)
	c.setLimits()
	return nil
}

// sameSecret takes the same time whatever differs, length included.
func sameSecret(a, b []byte) bool {
	x, y := sha256.Sum256(a), sha256.Sum256(b)
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// helloOptions is what HELLO asks for.
type helloOptions struct {
	proto          int // 0: as it is
	user, password []byte
	auth           bool
	name           []byte
	setName        bool
}

func parseHello(x *command.Ctx) (o helloOptions, err error) {
	args := x.Args
	if len(args) > 1 {
		n, ok := resp.ParseInt(args[1])
		if !ok {
			return o, command.Reply("ERR Protocol version is not an integer or out of range")
		}
		if n != 2 && n != 3 {
			return o, command.Reply("NOPROTO unsupported protocol version")
		}
		o.proto = int(n)
	}
	for i := 2; i < len(args); i++ {
		left := len(args) - 1 - i
		switch {
		case x.Is(i, "auth") && left >= 2:
			o.auth, o.user, o.password = true, args[i+1], args[i+2]
			i += 2
		case x.Is(i, "setname") && left >= 1:
			if o.name, o.setName = args[i+1], true; !validAttribute(o.name) {
				return o, errName
			}
			i++
		default:
			return o, command.Reply(fmt.Sprintf("ERR Syntax error in HELLO option '%s'", args[i]))
		}
	}
	return o, nil
}

// Hello chooses the protocol, logs in, names the connection and says who is here.
func (s *Server) Hello(x *command.Ctx) error {
	c := clientOf(x)
	o, err := parseHello(x)
	if err != nil {
		return err
	}
	if o.auth {
		if err := s.login(c, o.user, o.password); err != nil {
			return err
		}
	}
	if !s.loggedIn(c) {
		return errHelloNoAuth
	}
	if o.setName {
		c.setName(o.name)
	}
	if o.proto != 0 {
		x.W.Proto = o.proto
		c.proto.Store(int32(o.proto))
	}
	x.W.Map(7)
	x.W.BulkString("server")
	x.W.BulkString("redis")
	x.W.BulkString("version")
	x.W.BulkString(redisVersion)
	x.W.BulkString("proto")
	x.W.Int(int64(x.W.Proto))
	x.W.BulkString("id")
	x.W.Int(c.id)
	x.W.BulkString("mode")
	if s.cfg.V.ClusterEnabled.Load() {
		x.W.BulkString("cluster")
	} else {
		x.W.BulkString("standalone")
	}
	x.W.BulkString("role")
	if !s.loading.Load() && s.store.Routing().Replica {
		x.W.BulkString("replica")
	} else {
		x.W.BulkString("master")
	}
	x.W.BulkString("modules")
	x.W.Array(0)
	return nil
}

// loggedIn says whether the client may do more than log in.
func (s *Server) loggedIn(c *client) bool {
	return c.authed.Load() || s.cfg.V.RequirePass.Load() == ""
}

// Select chooses the one database there is.
func (s *Server) Select(x *command.Ctx) error {
	n, err := x.Int(1)
	if err != nil {
		return err
	}
	switch {
	case n < math.MinInt32 || n > math.MaxInt32:
		return command.Reply("ERR value is out of range, value must between -2147483648 and 2147483647")
	case n != 0 && s.cfg.V.ClusterEnabled.Load():
		return command.Reply("ERR SELECT is not allowed in cluster mode")
	case n != 0:
		return command.Reply("ERR DB index is out of range")
	}
	x.W.OK()
	return nil
}

// Reset makes the connection as it was when new, but for the name of the client's library.
func (s *Server) Reset(x *command.Ctx) error {
	c := clientOf(x)
	s.endMulti(c)
	s.forgetSubscriptions(c)
	c.mu.Lock()
	c.name, c.user = "", defaultUser
	c.mu.Unlock()
	c.asking, c.readAny, c.reply, c.ownMessages = false, false, replyOn, nil
	c.noEvict.Store(false)
	c.noTouch.Store(false)
	c.authed.Store(s.cfg.V.RequirePass.Load() == "")
	c.setLimits()
	x.W.Proto = 2
	c.proto.Store(2)
	x.W.Simple("RESET")
	return nil
}

// Quit ends the connection after the reply.
func (s *Server) Quit(x *command.Ctx) error {
	clientOf(x).closing = true
	x.W.OK()
	return nil
}

// validAttribute says whether a text may stand in a line of CLIENT LIST. Empty is fine: no text.
func validAttribute(b []byte) bool {
	for _, c := range b {
		if c < '!' || c > '~' {
			return false
		}
	}
	return true
}

func (c *client) setName(name []byte) {
	c.mu.Lock()
	c.name = string(name)
	c.mu.Unlock()
}
