package bench

import (
	"context"
	"fmt"
	"net"
	"time"

	"cairn/tools/node"
)

// fullSync takes the time in which an empty replica becomes a copy of a primary: from REPLICAOF to a link that is up and as many
// keys. The other server sends without a file, and loads without one.
func fullSync(l *Lab) ([]Figure, error) {
	keys := l.scenarioKeys()
	if err := l.wantFree(2 * int64(keys) * scenarioValue * diskFactor); err != nil {
		return nil, err
	}
	figure := Figure{Name: fmt.Sprintf("full sync of %.3g GB to an empty replica", l.opts.GB), Unit: "s", LessIsBetter: true, Note: "the other without files on both ends"}
	alone := []string{"--cluster-enabled", "no"}
	starts := []func() (*Side, error){
		func() (*Side, error) { return l.Cairn(alone...) },
		func() (*Side, error) { return l.Peer(disklessPeer()...) },
	}
	if l.opts.PeerAddr != "" {
		starts = starts[:1]
	}
	primaries := make([]*Side, len(starts))
	for i, start := range starts {
		var err error
		if primaries[i], err = start(); err != nil {
			return nil, err
		}
		if err := l.fillStrings(primaries[i], keys); err != nil {
			return nil, err
		}
	}
	for n := range l.opts.Pairs {
		for i, start := range starts {
			l.progress("full sync: %s, %d of %d", primaries[i].Name, n+1, l.opts.Pairs)
			replica, err := start()
			if err != nil {
				return []Figure{figure}, err
			}
			took, err := l.follow(replica, primaries[i], int64(keys))
			replica.Remove()
			if err != nil {
				return []Figure{figure}, fmt.Errorf("%s: %w", replica.Name, err)
			}
			figure.add(i, took.Seconds())
		}
	}
	return []Figure{figure}, nil
}

// disklessPeer lets the other server send and load a full sync without a file.
func disklessPeer() []string {
	return []string{"--appendonly", "no", "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-diskless-load", "on-empty-db"}
}

// follow makes a replica, and wants it to have that many keys; the time is from REPLICAOF to a link that is up.
func (l *Lab) follow(replica, primary *Side, keys int64) (time.Duration, error) {
	began := time.Now()
	if err := l.linked(l.ctx, replica, primary); err != nil {
		return 0, err
	}
	took := time.Since(began)
	if n, err := replica.conn.Int("DBSIZE"); err != nil || n != keys {
		return took, fmt.Errorf("replica has %d keys, want %d: %w", n, keys, errOr(err, errWrongReply))
	}
	return took, nil
}

// linked makes a replica and waits until its link is up.
func (l *Lab) linked(ctx context.Context, replica, primary *Side) error {
	host, port, err := net.SplitHostPort(primary.Addr)
	if err != nil {
		return err
	}
	if _, err := replica.conn.Text("REPLICAOF", host, port); err != nil {
		return err
	}
	return l.relinked(ctx, replica)
}

// relinked waits until a replica's link is up.
func (l *Lab) relinked(ctx context.Context, replica *Side) error {
	state := ""
	for began := time.Now(); time.Since(began) < readyLimit; {
		info, err := replica.conn.Text("INFO", "replication")
		if err != nil {
			return err
		}
		if state = node.Field(info, "master_link_status"); state == "up" {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("link of the replica is %q after %v", state, readyLimit)
}

// errOr returns err, or what it is when there is none.
func errOr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}
