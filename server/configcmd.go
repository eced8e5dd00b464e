package server

import (
	"errors"
	"strings"

	"cairn/server/command"
	"cairn/server/config"
)

// ConfigGet is CONFIG GET.
func (s *Server) ConfigGet(x *command.Ctx) error {
	patterns := make([]string, len(x.Args)-2)
	for i, a := range x.Args[2:] {
		patterns[i] = string(a)
	}
	pairs := s.cfg.Get(patterns...)
	x.W.Map(len(pairs))
	for _, p := range pairs {
		x.W.BulkString(p.Name)
		x.W.BulkString(p.Value)
	}
	return nil
}

// ConfigSet is CONFIG SET.
func (s *Server) ConfigSet(x *command.Ctx) error {
	pairs := make([]string, len(x.Args)-2)
	for i, a := range x.Args[2:] {
		pairs[i] = string(a)
	}
	err := s.cfg.Set(pairs, config.Caller{Local: clientOf(x).local, Loading: s.loading.Load()})
	for i := 0; err == nil && i < len(pairs); i += 2 {
		if why := s.cfg.WithoutEffect(pairs[i]); why != "" {
			s.log.Notice(strings.ToLower(pairs[i]) + ": accepted without effect: " + why)
		}
	}
	return s.configDone(x, err)
}

// ConfigRewrite is CONFIG REWRITE.
func (s *Server) ConfigRewrite(x *command.Ctx) error { return s.configDone(x, s.cfg.Rewrite()) }

func (s *Server) configDone(x *command.Ctx, err error) error {
	var r config.Reply
	if errors.As(err, &r) {
		return command.Reply(r)
	}
	if err == nil {
		x.W.OK()
	}
	return err
}

// ConfigResetStat is CONFIG RESETSTAT.
func (s *Server) ConfigResetStat(x *command.Ctx) error {
	s.resetStats()
	x.W.OK()
	return nil
}
