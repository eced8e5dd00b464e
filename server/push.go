package server

// placeholders
type pushQueue struct{}

func (q *pushQueue) init()                            {}
func (q *pushQueue) active() bool                     { return false }
func (q *pushQueue) replies(c *client, b []byte) bool { return true }
func (q *pushQueue) close()                           {}
func (s *Server) publish(channel, message []byte) int { return 0 }
func (s *Server) forgetSubscriptions(c *client)       {}
func (c *client) subscribed() bool                    { return false }
