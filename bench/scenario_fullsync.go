package bench

import (
	"fmt"
	"net"
	"strconv"
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
	diskless := []string{"--appendonly", "no", "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-diskless-load", "on-empty-db"}
	starts := []func() (*Side, error){
		func() (*Side, error) { return l.Cairn(alone...) },
		func() (*Side, error) { return l.Peer(diskless...) },
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
			if i == 0 {
				figure.Ours = append(figure.Ours, took.Seconds())
			} else {
				figure.Other = append(figure.Other, took.Seconds())
			}
		}
	}
	return []Figure{figure}, nil
}

func (l *Lab) follow(replica, primary *Side, keys int64) (time.Duration, error) {
	host, port, err := net.SplitHostPort(primary.Addr)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if _, err := replica.conn.Text("REPLICAOF", host, port); err != nil {
		return 0, err
	}
	state := ""
	for time.Since(began) < readyLimit {
		info, err := replica.conn.Text("INFO", "replication")
		if err != nil {
			return 0, err
		}
		if state = node.Field(info, "master_link_status"); state == "up" {
			took := time.Since(began)
			if n, err := replica.conn.Int("DBSIZE"); err != nil || n != keys {
				return took, fmt.Errorf("replica has %s keys, want %d: %w", strconv.FormatInt(n, 10), keys, errOr(err, errWrongReply))
			}
			return took, nil
		}
		if err := l.pause(5 * time.Millisecond); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("link of the replica is %q after %v", state, readyLimit)
}

// errOr returns err, or what it is when there is none.
func errOr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}
