package main

import (
	"cmp"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"cairn/internal/slot"
	"cairn/tools/node"
)

const moveSpeedHelp = `
How fast slots move, beside redis-server: redis-cli --cluster reshard --cluster-pipeline 100, with values of 100 bytes and of
16 KB, there and back, in turns A B A B. Three primaries; redis-server keeps a log that it syncs each second. Prints keys and
MB a second, of the medians. Bar: not slower than redis-server.

  go run ./tools/bars reshard
  go run ./tools/bars reshard --replicas 1         each key goes on to a replica before the source forgets it
  go run ./tools/bars reshard --quick              a tenth of the keys`

type moveSpeedOptions struct {
	slots, replicas, rounds int
	quick                   bool
}

func prepareMoveSpeed(f *flag.FlagSet) func(l *lab) error {
	var o moveSpeedOptions
	f.IntVar(&o.slots, "slots", 1000, "how many `slots` move")
	f.IntVar(&o.replicas, "replicas", 0, "of each primary")
	f.IntVar(&o.rounds, "rounds", 4, "`moves` of each server for each size")
	f.BoolVar(&o.quick, "quick", false, "a tenth of the keys")
	return func(l *lab) error { return o.measure(l) }
}

// moveSize is a kind of keys.
type moveSize struct {
	name        string
	bytes, keys int
}

func (o *moveSpeedOptions) measure(l *lab) error {
	sizes := []moveSize{{"100 B", 100, 200_000}, {"16 KB", 16 << 10, 20_000}}
	if o.quick {
		sizes[0].keys, sizes[1].keys = sizes[0].keys/10, sizes[1].keys/10
	}
	if err := l.wantFree(8 << 30); err != nil {
		return err
	}
	sides := []side{l.cairnSide("512mb"), redisSide()}
	clusters := make([]*node.Cluster, len(sides))
	for i, s := range sides {
		c, err := node.StartCluster(node.ClusterSpec{
			Program: s.program, Args: s.args, Dir: filepath.Join(l.dir, s.name), Primaries: shards, Replicas: o.replicas, Timeout: 15 * time.Second,
		}, clusterLimit)
		l.atEnd(c.Close)
		if err != nil {
			return err
		}
		clusters[i] = c
	}
	for _, size := range sizes {
		if err := o.one(l, size, sides, clusters); err != nil {
			return fmt.Errorf("%s: %w", size.name, err)
		}
	}
	return nil
}

func (o *moveSpeedOptions) one(l *lab, size moveSize, sides []side, clusters []*node.Cluster) error {
	tags := make([]string, o.slots)
	for s := range tags {
		tags[s] = "{" + tagIn(slot.Range{First: uint16(s), Last: uint16(s)}, "t", 0) + "}" + size.name
	}
	v := newValues()
	runs := make([][]time.Duration, len(sides))
	for i, c := range clusters {
		from, _, err := slotEnds(c, 0)
		if err != nil {
			return err
		}
		add := func(conn *node.Conn, k int) {
			conn.Append("SET", tags[k%len(tags)]+strconv.Itoa(k), v.at(k, size.bytes))
		}
		if err := l.fill(from.Addr, sides[i].name, size.keys, add); err != nil {
			return err
		}
	}
	for n := range o.rounds {
		for i, c := range clusters {
			if err := l.pause(2 * time.Second); err != nil { // for what the turn before left to do
				return err
			}
			l.progress("%s of %s: move %d of %d", sides[i].name, size.name, n+1, o.rounds)
			took, err := o.move(c, size)
			if err != nil {
				return fmt.Errorf("%s: %w", sides[i].name, err)
			}
			runs[i] = append(runs[i], took)
		}
	}
	rates := make([]float64, len(sides))
	for i := range sides {
		rates[i] = float64(size.keys) / medianTime(runs[i]).Seconds()
		mbs := rates[i] * float64(size.bytes) / (1 << 20)
		l.figure(fmt.Sprintf("%s, %s, keys a second", sides[i].name, size.name), fmt.Sprintf("%.0f", rates[i]))
		l.figure(fmt.Sprintf("%s, %s, MB a second", sides[i].name, size.name), fmt.Sprintf("%.1f", mbs))
		l.figure("  moves took", fmt.Sprintf("%v to %v", slices.Min(runs[i]).Round(time.Millisecond), slices.Max(runs[i]).Round(time.Millisecond)))
	}
	ratio := rates[0] / rates[1]
	l.timed(fmt.Sprintf("%s: beside redis-server", size.name), fmt.Sprintf("%.2f", ratio), ">= 1.0", cmp.Compare(ratio, 1) >= 0)
	return o.empty(clusters)
}

// move moves all the slots to the other end.
func (o *moveSpeedOptions) move(c *node.Cluster, size moveSize) (time.Duration, error) {
	from, to, err := slotEnds(c, 0)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	tool, err := node.StartReshard(from, to, o.slots, 100)
	if err == nil {
		err = tool.Wait(readyLimit)
	}
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	conn, err := node.Dial(to.Addr, time.Second)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if n, err := conn.Int("DBSIZE"); err != nil || n != int64(size.keys) {
		return 0, fmt.Errorf("%s has %d keys, %w, want %d", to.Name, n, err, size.keys)
	}
	return took, c.Await(clusterLimit, func() error { return node.Content(to.Addr, clusterLimit) })
}

func (o *moveSpeedOptions) empty(clusters []*node.Cluster) error {
	for _, c := range clusters {
		for k := range shards {
			p, _, err := c.Primary(k)
			if err != nil {
				return err
			}
			if err := p.OK("FLUSHALL"); err != nil {
				return err
			}
		}
	}
	return nil
}
