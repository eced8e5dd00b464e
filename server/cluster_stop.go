package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"cairn/cluster"
	"cairn/internal/resp"
)

// A primary that is asked to stop hands its slots to its best replica first, with the failover that loses nothing: the
// one that CLUSTER FAILOVER begins at the replica. Only a replica can begin it, so this node sends it that command, as
// a client; a replica of any kind understands it. What takes too long, or is refused, is given up: then the replicas get
// the end of the stream (primary.go), and elect one of themselves when they miss this node.

const (
	handOverTries = 3
	handOverPause = 200 * time.Millisecond // before the next try
	handOverLook  = 10 * time.Millisecond  // how often this node looks whether it is a replica now
	takeOverReply = 2 * time.Second        // for a replica to answer
)

// handOverSlots makes a replica take this primary's place, within half of shutdown-timeout: the rest is for the end of the
// stream. It does nothing where there is none, or after SHUTDOWN NOW.
func (s *Server) handOverSlots(limit time.Duration) {
	if !s.busRuns || limit == 0 || s.admin.hurry.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for range handOverTries {
		if s.store.Routing().Replica {
			return
		}
		best := s.bus.Do(cluster.CmdHandOver{})
		if !best.OK {
			return
		}
		err := s.handOverTo(ctx, best)
		if err == nil {
			s.log.Notice("Replica took over before this primary stops", "replica", best.ID.String())
			return
		}
		s.log.Warning("the replica that is to take over did not", "replica", best.ID.String(), "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(handOverPause):
		}
	}
}

// handOverTo asks one replica, and waits until this node is one itself.
func (s *Server) handOverTo(ctx context.Context, to cluster.Answer) (err error) {
	conn, err := s.dialPrimary(ctx, net.JoinHostPort(to.IP, strconv.Itoa(to.Port)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	in := bufio.NewReader(conn)
	if password := s.cfg.V.MasterAuth.Load(); password != "" {
		login := []string{"AUTH", password}
		if user := s.cfg.V.MasterUser.Load(); user != "" {
			login = []string{"AUTH", user, password}
		}
		if err := ask(ctx, conn, in, login...); err != nil {
			return fmt.Errorf("log in: %w", err)
		}
	}
	if err := ask(ctx, conn, in, "CLUSTER", "FAILOVER"); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() { // ends with the connection
		defer close(gone)
		_, _ = io.Copy(io.Discard, in)
	}()
	return s.awaitSuccessor(ctx, gone)
}

// awaitSuccessor waits until this node is a replica. gone tells that the other one has ended.
func (s *Server) awaitSuccessor(ctx context.Context, gone <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, manualFailover*time.Millisecond)
	defer cancel()
	look := time.NewTicker(handOverLook)
	defer look.Stop()
	for !s.store.Routing().Replica {
		select {
		case <-gone:
			return errors.New("its connection ended")
		case <-ctx.Done():
			return errors.New("its failover did not end in time")
		case <-look.C:
		}
	}
	return nil
}

// ask sends a command and gives an error that is answered.
func ask(ctx context.Context, conn net.Conn, in *bufio.Reader, words ...string) error {
	limit := time.Now().Add(takeOverReply)
	if until, ok := ctx.Deadline(); ok && until.Before(limit) {
		limit = until
	}
	if err := conn.SetDeadline(limit); err != nil {
		return err
	}
	var w resp.Writer
	w.Array(len(words))
	for _, word := range words {
		w.BulkString(word)
	}
	if _, err := conn.Write(w.Buf); err != nil {
		return err
	}
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	if text, bad := strings.CutPrefix(line, "-"); bad {
		return errors.New(strings.TrimSpace(text))
	}
	return nil
}
