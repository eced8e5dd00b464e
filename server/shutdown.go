package server

import "os"

// keepOpen keeps the connection of the client that asked for the end of the node open until the node has given up its
// data: the end of that connection is what a script waits for before it starts the node again.
func (s *Server) keepOpen(c *client) {
	if c == nil {
		return
	}
	conn, ok := c.conn.(interface{ File() (*os.File, error) })
	if !ok {
		return
	}
	second, err := conn.File()
	if err != nil {
		return // it closes earlier, then
	}
	go func() { // ends with the node
		<-s.ended
		_ = second.Close()
	}()
}
