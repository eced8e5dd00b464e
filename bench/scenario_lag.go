package bench

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"cairn/tools/node"
)

// lag overwrites values on a primary as fast as single commands go, and takes the time in which its replica gets what was acknowledged
// by the end. Both nodes are held to a quarter of --gb each, as in larger-4x, and have four times that; the other server's two have it in
// memory.
func lag(l *Lab) ([]Figure, error) {
	limit := l.memoryLimit()
	keys := uint64(4 * limit / scenarioValue)
	if err := l.wantFree(2 * int64(keys) * scenarioValue * diskFactor); err != nil {
		return nil, err
	}
	length := 8 * l.opts.Measure
	figure := Figure{Name: fmt.Sprintf("lag of a replica after %v of overwriting", length), Unit: "s", LessIsBetter: true}
	budget := strconv.FormatInt(limit/2, 10)
	starts := []func() (*Side, error){
		func() (*Side, error) { return l.Cairn("--cluster-enabled", "no", "--memory-budget", budget) },
		func() (*Side, error) { return l.Peer("--appendonly", "no", "--repl-diskless-sync-delay", "0") },
	}
	if l.opts.PeerAddr != "" {
		starts = starts[:1]
	}
	for i, start := range starts {
		var pair [2]*Side
		for k := range pair {
			var err error
			if pair[k], err = start(); err != nil {
				return nil, err
			}
			if i == 0 {
				f := newFence("lag-"+strconv.Itoa(k), limit)
				l.atEnd(f.remove)
				l.atEnd(pair[k].Remove) // which the group waits for
				if err := f.add(pair[k].pid()); err != nil {
					return nil, err
				}
				figure.Note = f.Label
			}
		}
		values, err := l.lagOf(pair[0], pair[1], keys, length)
		if err != nil {
			return []Figure{figure}, fmt.Errorf("%s: %w", pair[0].Name, err)
		}
		if i == 0 {
			figure.Ours = values
		} else {
			figure.Other = values
		}
		pair[0].Remove()
		pair[1].Remove()
	}
	return []Figure{figure}, nil
}

func (l *Lab) lagOf(primary, replica *Side, keys uint64, length time.Duration) (lags []float64, err error) {
	if err := l.fillStrings(primary, keys); err != nil {
		return nil, err
	}
	if _, err := l.follow(replica, primary, int64(keys)); err != nil {
		return nil, err
	}
	shape := Shape{Keys: keys, Size: scenarioValue, Dist: Uniform, Next: new(atomic.Uint64)}
	for n := range l.opts.Pairs {
		l.progress("lag: %s, %d of %d", primary.Name, n+1, l.opts.Pairs)
		if _, err := l.openLoop(primary, "set", shape, 0, length); err != nil {
			return lags, err
		}
		began := time.Now()
		info, err := primary.conn.Text("INFO", "replication")
		if err != nil {
			return lags, err
		}
		want, err := offset(info, "master_repl_offset")
		if err != nil {
			return lags, err
		}
		if err := l.reaches(replica, want); err != nil {
			return lags, err
		}
		lags = append(lags, time.Since(began).Seconds())
	}
	return lags, nil
}

// reaches waits until a replica has what its primary had at an offset.
func (l *Lab) reaches(replica *Side, want int64) error {
	for began := time.Now(); ; {
		info, err := replica.conn.Text("INFO", "replication")
		if err != nil {
			return err
		}
		got, err := offset(info, "slave_repl_offset")
		if err != nil || got >= want {
			return err
		}
		if state := node.Field(info, "master_link_status"); state != "up" || time.Since(began) > readyLimit {
			return fmt.Errorf("replica at offset %d after %v, want %d, its link %q", got, time.Since(began).Round(time.Second), want, state)
		}
		if err := l.pause(time.Millisecond); err != nil {
			return err
		}
	}
}
