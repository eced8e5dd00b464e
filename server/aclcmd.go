package server

import (
	"crypto/sha256"
	"encoding/hex"

	"cairn/server/command"
)

// There is one user, default, who may do everything; requirepass gives it a password. These commands tell that
// in Redis's words.

// ACLWhoAmI is ACL WHOAMI.
func (s *Server) ACLWhoAmI(x *command.Ctx) error {
	c := clientOf(x)
	c.mu.Lock()
	defer c.mu.Unlock()
	x.W.BulkString(c.user)
	return nil
}

// passwordHash is how ACL shows the password, "" for none.
func (s *Server) passwordHash() string {
	pass := s.cfg.V.RequirePass.Load()
	if pass == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(pass))
	return hex.EncodeToString(sum[:])
}

// ACLList is ACL LIST.
func (s *Server) ACLList(x *command.Ctx) error {
	rights := "nopass"
	if h := s.passwordHash(); h != "" {
		rights = "#" + h
	}
	x.W.Array(1)
	x.W.BulkString("user default on " + rights + " sanitize-payload ~* &* +@all")
	return nil
}

// ACLGetUser is ACL GETUSER.
func (s *Server) ACLGetUser(x *command.Ctx) error {
	if string(x.Args[2]) != "default" {
		x.W.Null()
		return nil
	}
	flags, passwords := []string{"on", "nopass", "sanitize-payload"}, []string{}
	if h := s.passwordHash(); h != "" {
		flags, passwords = []string{"on", "sanitize-payload"}, []string{h}
	}
	x.W.Map(6)
	x.W.BulkString("flags")
	x.W.Set(len(flags))
	for _, f := range flags {
		x.W.BulkString(f)
	}
	x.W.BulkString("passwords")
	x.W.Array(len(passwords))
	for _, p := range passwords {
		x.W.BulkString(p)
	}
	for _, pair := range [][2]string{{"commands", "+@all"}, {"keys", "~*"}, {"channels", "&*"}} {
		x.W.BulkString(pair[0])
		x.W.BulkString(pair[1])
	}
	x.W.BulkString("selectors")
	x.W.Array(0)
	return nil
}
