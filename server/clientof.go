package server

import "cairn/server/command"

// clientOf gives the connection that a handler runs for.
func clientOf(x *command.Ctx) *client {
	c, _ := x.Client.(*client)
	return c
}

// allowedSubscribed names what a RESP2 connection may send while it is subscribed.
func allowedSubscribed(cmd *command.Command) bool {
	if cmd.Parent() != nil {
		return false
	}
	switch cmd.Name {
	case "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe", "ping", "quit", "reset":
		return true
	}
	return false
}
