package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"time"

	"cairn/internal/slot"
	"cairn/tools/node"
)

// What only a cluster shows. Both sides have clusters of the same shape, at the same time, and take turns.

const (
	clusterTimeout = 2 * time.Second // cluster-node-timeout
	clusterLimit   = time.Minute     // for a cluster to be content with itself
	reshardSlots   = 1000
	reshardDepth   = 100 // keys in a MIGRATE
	tryAgain       = 2 * time.Millisecond
)

// clusters starts one of each side: shards of a primary and so many replicas.
func (l *Lab) clusters(primaries, replicas int) (all []*node.Cluster, err error) {
	specs := []node.ClusterSpec{{Program: l.opts.Program, Args: append([]string{"--memory-budget", l.opts.Budget}, l.opts.Args...)}}
	if l.opts.PeerAddr == "" {
		specs = append(specs, node.ClusterSpec{Program: l.opts.Peer, Args: append([]string{"--save", "", "--appendonly", "no"}, l.opts.PeerArgs...)})
	}
	for _, spec := range specs {
		l.serial++
		spec.Dir = filepath.Join(l.dir, "cluster-"+strconv.Itoa(l.serial))
		spec.Primaries, spec.Replicas, spec.Timeout = primaries, replicas, clusterTimeout
		c, err := node.StartCluster(spec, clusterLimit)
		if c != nil {
			l.atEnd(c.Close)
		}
		if err != nil {
			return nil, fmt.Errorf("cluster of %s: %w", spec.Program[0], err)
		}
		all = append(all, c)
	}
	return all, nil
}

// failover kills the primary of a shard, and takes the time until a client that tries all the time has written there again.
func failover(l *Lab) ([]Figure, error) {
	clusters, err := l.clusters(3, 1)
	if err != nil {
		return nil, err
	}
	gap := Figure{Name: "time without writes after kill -9 of a primary", Unit: "s", LessIsBetter: true, Note: fmt.Sprintf("cluster-node-timeout %v", clusterTimeout)}
	for n := range l.opts.Pairs {
		for i, c := range clusters {
			l.progress("failover: %d of %d", n+1, l.opts.Pairs)
			took, err := l.killPrimary(c, n%3)
			if err != nil {
				return []Figure{gap}, err
			}
			gap.add(i, took.Seconds())
		}
	}
	return []Figure{gap}, nil
}

// killPrimary leaves the cluster whole again.
func (l *Lab) killPrimary(c *node.Cluster, shard int) (time.Duration, error) {
	victim, _, err := c.Primary(shard)
	if err != nil {
		return 0, err
	}
	key := keyIn(c.Slots(shard))
	r := node.NewRouter(c.Addrs(), time.Second)
	defer r.Close()
	if err := l.writeUntilDone(r, key); err != nil {
		return 0, err
	}
	began := time.Now()
	victim.Kill()
	if err := l.writeUntilDone(r, key); err != nil {
		return 0, err
	}
	took := time.Since(began)
	if err := c.Restart(victim, clusterLimit); err != nil {
		return 0, err
	}
	return took, c.AwaitSteady(clusterLimit)
}

// writeUntilDone tries one SET until it is acknowledged.
func (l *Lab) writeUntilDone(r *node.Router, key string) error {
	for end := time.Now().Add(clusterLimit); time.Now().Before(end); {
		replies, _, err := r.Try(key, []string{"SET", key, "v"})
		if err == nil && len(replies) == 1 && replies[0].Err() == "" {
			return nil
		}
		if err := l.pause(tryAgain); err != nil {
			return err
		}
	}
	return fmt.Errorf("no write to %s within %v", key, clusterLimit)
}

// keyIn returns a name whose slot is in the range.
func keyIn(slots slot.Range) string {
	for i := 0; ; i++ {
		key := "k" + strconv.Itoa(i)
		if s := slot.Of([]byte(key)); s >= slots.First && s <= slots.Last {
			return key
		}
	}
}

// reshard moves slots full of keys to another node with redis-cli, back and forth.
func reshard(l *Lab) ([]Figure, error) {
	clusters, err := l.clusters(3, 0)
	if err != nil {
		return nil, err
	}
	keys := max(reshardSlots, int(l.opts.GB*gigabyte/scenarioValue/10)) // a tenth of --gb
	for _, c := range clusters {
		if err := l.fillSlots(c.Members[0].Addr, keys); err != nil {
			return nil, err
		}
	}
	figure := Figure{
		Name: fmt.Sprintf("keys of 1 KB moved, %d slots by redis-cli --cluster reshard", reshardSlots), Unit: "1/s",
		Note: fmt.Sprintf("%d keys, %d in a MIGRATE", keys, reshardDepth),
	}
	for n := range l.opts.Pairs {
		for i, c := range clusters {
			l.progress("reshard: %d of %d", n+1, l.opts.Pairs)
			took, err := moveSlots(c, keys)
			if err != nil {
				return []Figure{figure}, err
			}
			rate := float64(keys) / took.Seconds()
			figure.add(i, rate)
		}
	}
	return []Figure{figure}, nil
}

// fillSlots puts keys into the lowest slots of a node, equally many in each.
func (l *Lab) fillSlots(addr string, keys int) error {
	tags := make([]string, reshardSlots)
	for i, missing := 0, reshardSlots; missing > 0; i++ {
		tag := "{" + strconv.Itoa(i) + "}"
		if s := slot.Of([]byte(tag)); int(s) < reshardSlots && tags[s] == "" {
			tags[s] = tag
			missing--
		}
	}
	conn, err := node.Dial(addr, clusterLimit)
	if err != nil {
		return err
	}
	defer conn.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	values := newFiller(scenarioValue, rng)
	var value []byte
	for done := 0; done < keys; {
		batch := min(loadDepth, keys-done)
		for range batch {
			value = values.append(value[:0], scenarioValue, rng)
			conn.Append("SET", tags[done%reshardSlots]+strconv.Itoa(done), string(value))
			done++
		}
		if err := errors.Join(conn.Flush(), l.ctx.Err()); err != nil {
			return err
		}
		for range batch {
			reply, err := conn.Receive()
			if err != nil {
				return err
			}
			if text := reply.Err(); text != "" {
				return fmt.Errorf("fill slots of %s: %s", addr, text)
			}
		}
		l.progress("reshard: %d of %d keys", done, keys)
	}
	return nil
}

// moveSlots moves the lowest slots from whoever of the first two nodes has them to the other one.
func moveSlots(c *node.Cluster, keys int) (time.Duration, error) {
	from, to := c.Members[0], c.Members[1]
	line, err := from.Mine()
	if err != nil {
		return 0, err
	}
	if !line.Owns(0) {
		from, to = to, from
	}
	began := time.Now()
	tool, err := node.StartReshard(from, to, reshardSlots, reshardDepth)
	if err == nil {
		err = tool.Wait(readyLimit)
	}
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	conn, err := node.Dial(to.Addr, clusterLimit)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if n, err := conn.Int("DBSIZE"); err != nil || n < int64(keys) {
		return 0, fmt.Errorf("%s has %d keys after the move, want %d: %w", to.Name, n, keys, errOr(err, errWrongReply))
	}
	return took, c.Await(clusterLimit, func() error { return node.Content(to.Addr, clusterLimit) })
}
