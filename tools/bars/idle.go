package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"cairn/tools/node"
)

const idleHelp = `
Takes the time that normal clients wait for GET and SET, alone and then beside 10 000 connections that do nothing and
1 000 that send one byte of a long command now and then.
Bars: 20 KiB of memory for an idle connection; the 99th percentile at most twice as long as alone.

  go run ./tools/bars idle
  go run ./tools/bars idle --idle 1000 --dribble 100`

const (
	idleBarBytes = 20 << 10
	idleAskers   = 4
	dribbleEvery = 100 * time.Millisecond
	dribbleSize  = 10_000 // bytes of the value that never ends
)

func prepareIdle(f *flag.FlagSet) func(l *lab) error {
	idle := f.Int("idle", 10_000, "`connections` that do nothing")
	dribble := f.Int("dribble", 1_000, "`connections` that send byte by byte")
	span := f.Duration("for", 10*time.Second, "how `long` each measurement takes")
	return func(l *lab) error { return measureIdle(l, *idle, *dribble, *span) }
}

func measureIdle(l *lab, idle, dribble int, span time.Duration) error {
	s, c, err := l.cairn("node", "--maxclients", strconv.Itoa(idle+dribble+100))
	if err != nil {
		return err
	}
	c.Close()
	if _, err := askers(l, s.Addr, time.Second); err != nil { // warm
		return err
	}
	alone, err := askers(l, s.Addr, span)
	if err != nil {
		return err
	}
	l.figure("99th percentile alone", ms(alone))
	before, err := node.RSS(s.Pid())
	if err != nil {
		return err
	}
	quiet, err := connectMany(l, s.Addr, idle)
	defer closeAll(quiet)
	if err != nil {
		return err
	}
	if err := l.pause(2 * time.Second); err != nil {
		return err
	}
	after, err := node.RSS(s.Pid())
	if err != nil {
		return err
	}
	each := (after - before) / int64(max(idle, 1))
	l.verdict(fmt.Sprintf("memory for each of %d idle connections", idle), fmt.Sprintf("%.1f KiB", float64(each)/1024), "<= 20 KiB", each <= idleBarBytes)
	slow, err := connectMany(l, s.Addr, dribble)
	defer closeAll(slow)
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { dribbleAll(slow, stop) }) // ends when stop is closed
	beside, err := askers(l, s.Addr, span)
	close(stop)
	wg.Wait()
	if err != nil {
		return err
	}
	if rss, err := node.RSS(s.Pid()); err == nil {
		l.figure("memory with all of them", mb(rss))
	}
	l.verdict(fmt.Sprintf("99th percentile beside %d idle and %d dribbling", idle, dribble), ms(beside), "<= "+ms(2*alone), beside <= 2*alone)
	return nil
}

// askers measures GET and SET of a few clients, and returns the 99th percentile.
func askers(l *lab, addr string, span time.Duration) (time.Duration, error) {
	times := make([][]time.Duration, idleAskers)
	faults := make(chan error, idleAskers)
	end := time.Now().Add(span)
	var wg sync.WaitGroup
	for i := range idleAskers {
		wg.Go(func() { // ends with the time or the context
			c, err := node.Dial(addr, 5*time.Second)
			if err != nil {
				faults <- err
				return
			}
			defer c.Close()
			rng := rand.New(rand.NewPCG(uint64(i), 0))
			for n := 0; time.Now().Before(end) && l.ctx.Err() == nil; n++ {
				args := []string{"GET", keyName(rng.IntN(1000))}
				if n%2 == 0 {
					args = []string{"SET", keyName(rng.IntN(1000)), "value"}
				}
				began := time.Now()
				reply, err := c.Do(args...)
				times[i] = append(times[i], time.Since(began))
				if err == nil && reply.Err() != "" {
					err = errors.New(reply.Err())
				}
				if err != nil {
					faults <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-faults:
		return 0, err
	default:
	}
	all := slices.Concat(times...)
	if len(all) == 0 {
		return 0, errors.Join(errors.New("no command was answered"), l.ctx.Err())
	}
	slices.Sort(all)
	return all[len(all)*99/100], l.ctx.Err()
}

// connectMany opens connections and lets each of them PING once, as a pool does.
func connectMany(l *lab, addr string, n int) (all []net.Conn, err error) {
	reply := make([]byte, 64)
	for i := range n {
		c, err := net.DialTimeout("tcp", addr, 5*time.Second)
		if err != nil {
			return all, fmt.Errorf("connection %d: %w", i+1, err)
		}
		all = append(all, c)
		if _, err = c.Write([]byte("PING\r\n")); err == nil {
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second)) // an error shows at the read
			_, err = c.Read(reply)
		}
		if err != nil {
			return all, fmt.Errorf("connection %d: PING: %w", i+1, err)
		}
		l.progress("%d of %d connections", i, n)
		if l.ctx.Err() != nil {
			return all, l.ctx.Err()
		}
	}
	return all, nil
}

func closeAll(all []net.Conn) {
	for _, c := range all {
		c.Close()
	}
}

// dribbleAll sends one byte on each connection, round after round.
func dribbleAll(all []net.Conn, stop <-chan struct{}) {
	text := fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", dribbleSize)
	tick := time.NewTicker(dribbleEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		b := []byte{'x'}
		if i < len(text) {
			b[0] = text[i]
		}
		for _, c := range all {
			_, _ = c.Write(b) // a server that had enough may close it
		}
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}
