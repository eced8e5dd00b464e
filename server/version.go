package server

// Version is cairn's own.
const Version = "0.1.0"

// Healthy says whether the node still does its work: the watchdog of systemd asks.
func (s *Server) Healthy() bool { return s.wal.Failed() == nil && !s.draining.Load() }
