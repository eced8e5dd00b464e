package main

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"cairn/internal/slot"
	"cairn/tools/node"
)

const moveHelp = `
A slot moves with what is huge in it, by redis-cli --cluster reshard: a hash of 2 million fields, and a string of 512 MB. Three
primaries with a replica each. Meanwhile PING is sent to both ends every millisecond, every node is asked whom it suspects, and
writers write, also into the slot itself. Bars: nobody suspects anybody, nobody waits longer than 250 ms, and neither end
takes more memory than its budget, 10 % of it, and one piece.

  go run ./tools/bars move
  go run ./tools/bars move --quick                 200 000 fields, 64 MB`

const (
	movePiece = 1 << 20 // of a value, that is in memory beside the budget
	movePart  = 8 << 20 // in which the string is written
)

type moveOptions struct {
	fields int
	mb     int
	budget int
}

func prepareMove(f *flag.FlagSet) func(l *lab) error {
	var o moveOptions
	f.IntVar(&o.fields, "fields", 2_000_000, "of the hash")
	f.IntVar(&o.mb, "mb", 512, "`MB` of the string")
	f.IntVar(&o.budget, "budget", 128, "memory-budget of each node, in `MB`")
	timeout := timeoutFlag(f)
	quick := f.Bool("quick", false, "200 000 fields, 64 MB")
	return func(l *lab) error {
		if *quick {
			o.fields, o.mb = 200_000, 64
		}
		if err := l.wantFree(int64(o.mb)*12<<20 + 4<<30); err != nil {
			return err
		}
		c, err := l.cluster(l.cairnSide(strconv.Itoa(o.budget)+"mb"), *timeout)
		if err != nil {
			return err
		}
		return o.measure(l, c)
	}
}

func (o *moveOptions) measure(l *lab, c *node.Cluster) error {
	key := "{" + tagIn(slot.Range{}, "huge", 0) + "}" // in slot 0, which redis-cli takes first
	alive := &aliveOptions{fields: o.fields}
	for _, v := range []struct {
		name, key string
		fill      func(conn *node.Conn, key string) error
		size      []string // asks for it
		want      int64
	}{
		{fmt.Sprintf("hash of %d fields", o.fields), key + "hash", func(conn *node.Conn, key string) error { return alive.fillHash(l, conn, key) }, []string{"HLEN"}, int64(o.fields)},
		{fmt.Sprintf("string of %d MB", o.mb), key + "string", o.fillString, []string{"STRLEN"}, int64(o.mb) << 20},
	} {
		from, to, err := slotEnds(c, 0)
		if err != nil {
			return err
		}
		conn, err := node.Dial(from.Addr, 5*time.Second)
		if err != nil {
			return err
		}
		conn.SetTimeout(readyLimit)
		if err = v.fill(conn, v.key); err == nil {
			err = c.AwaitSteady(readyLimit)
		}
		conn.Close()
		if err == nil {
			err = o.move(l, c, v.name, from, to)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		after, err := node.Dial(to.Addr, 5*time.Second)
		if err != nil {
			return err
		}
		n, err := after.Int(append(v.size, v.key)...)
		if err == nil && n != v.want {
			err = fmt.Errorf("%s is %d at the target, want %d", v.name, n, v.want)
		}
		if err == nil { // out of the way of what comes next
			_, err = after.Int("DEL", v.key)
		}
		after.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// slotEnds are the primaries of the first two shards, that which has the slot first.
func slotEnds(c *node.Cluster, s uint16) (from, to *node.Member, err error) {
	a, _, err := c.Primary(0)
	if err != nil {
		return nil, nil, err
	}
	b, _, err := c.Primary(1)
	if err != nil {
		return nil, nil, err
	}
	mine, err := a.Mine()
	if err == nil && !mine.Owns(s) {
		a, b = b, a
	}
	return a, b, err
}

func (o *moveOptions) fillString(conn *node.Conn, key string) error {
	v := newValues()
	part := strings.Builder{}
	for part.Len() < movePart {
		part.WriteString(v.at(part.Len(), 1<<19))
	}
	for at := 0; at < o.mb<<20; at += movePart {
		text := part.String()[:min(movePart, o.mb<<20-at)]
		if _, err := conn.Int("APPEND", key, text); err != nil {
			return err
		}
	}
	return nil
}

// move moves the slot under load, and holds what is seen meanwhile against the bars.
func (o *moveOptions) move(l *lab, c *node.Cluster, name string, from, to *node.Member) error {
	load := startLoad(c, "beside "+strings.Fields(name)[0], newValues())
	defer load.close()
	inside := o.inside(c, name)
	defer inside.close()
	if err := load.wrote(-1, "", time.Now()); err != nil {
		return err
	}
	p := startPulse(c, []*node.Member{from, to})
	defer p.end()
	if err := l.pause(time.Second); err != nil {
		return err
	}
	idle, _ := p.take()
	for _, m := range []*node.Member{from, to} {
		if err := node.ResetPeak(m.Pid()); err != nil {
			return err
		}
	}
	began := time.Now()
	tool, err := node.StartReshard(from, to, 1, 10, "--cluster-timeout", "600000")
	if err == nil {
		err = tool.Wait(readyLimit)
	}
	took := time.Since(began)
	if err != nil {
		err = fmt.Errorf("%w\nthe source says:\n%s\nthe target says:\n%s", err, from.Output(1<<10), to.Output(1<<10))
	}
	if err = errors.Join(err, l.pause(time.Second)); err != nil {
		return err
	}
	longest, flags := p.take()
	if err := errors.Join(load.end(), inside.end()); err != nil {
		return err
	}
	l.figure(name+": moved in", took.Round(time.Millisecond).String())
	for i, m := range []*node.Member{from, to} {
		end := []string{"source", "target"}[i]
		what := name + ": longest PING, " + end
		l.timed(what, ms(longest[i]), "< 250 ms", longest[i] < pingBar)
		l.figure("  before the move", ms(idle[i]))
		peak, err := node.Peak(m.Pid())
		if err != nil {
			return err
		}
		bar := int64(o.budget)<<20*11/10 + movePiece
		l.timed(name+": peak memory, "+end, mb(peak), "<= "+mb(bar), peak <= bar)
	}
	for k := range shards {
		gap := load.gap(k, began)
		l.timed(fmt.Sprintf("%s: longest write, shard %d", name, k), ms(gap), "< 250 ms", gap < pingBar)
	}
	gap := inside.gap(0, began)
	l.timed(name+": longest write into the slot", ms(gap), "< 250 ms", gap < pingBar)
	l.timed(name+": who suspects whom", strconv.Itoa(len(flags)), "0", len(flags) == 0)
	for text, n := range flags {
		l.figure("  "+text, strconv.Itoa(n)+" times")
	}
	if _, err := load.verify(""); err != nil {
		return err
	}
	_, err = inside.verify("")
	return err
}

// inside is a writer of other keys in the slot that moves.
func (o *moveOptions) inside(c *node.Cluster, name string) *clusterLoad {
	tag := tagIn(slot.Range{}, "huge", 0)
	w := &clusterWriter{
		tag: tag, head: "{" + tag + "}" + strings.Fields(name)[0] + ":", values: newValues(), router: node.NewRouter(c.Addrs(), 20*time.Second),
	}
	return beginLoad([]*clusterWriter{w})
}
