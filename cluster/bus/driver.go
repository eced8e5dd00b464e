package bus

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/cluster"
	"cairn/cluster/nodesconf"
	"cairn/cluster/wire"
	"cairn/internal/invariant"
)

// Node is the node that the cluster is about: its clients and its data. But for Deliver, the calls come one at a time and
// in the order in which the machine decided. They may take their time, and must not call Driver.Do.
type Node interface {
	// Route puts a view in force: who owns what, whether the cluster is ok, what this node is.
	Route(v *cluster.View)
	// Follow makes the node a replica of that address, or points it to another one.
	Follow(id, ip string, port int)
	// Unfollow stops replication, since the primary's address is not known.
	Unfollow()
	// Promote makes the node a primary, with the data it has.
	Promote()
	// Pause stops all writes until Resume, at most until that Unix time in ms.
	Pause(until int64)
	// Resume ends Pause.
	Resume()
	// DropSlots lets go of the keys of slots that are another node's now.
	DropSlots(slots []uint16)
	// Flush lets go of all data.
	Flush()
	// Deliver hands a publication to the subscribers here. It comes from many goroutines.
	Deliver(shard bool, channel, payload []byte)
	// Note is a line for the log.
	Note(level cluster.Level, text string)
}

// Options are what a Driver needs.
type Options struct {
	FS      vfs.FS   // nil: the system's
	Path    string   // of nodes.conf
	DataDir string   // where its companions lie
	Bind    []string // addresses to listen on; a leading "-" means that it may be missing
	Port    int      // to listen on
	Source  string   // address that links come from; "": the system's choice

	Config    cluster.Config
	Data      cluster.Data
	Node      Node
	SendLimit int64 // cluster-link-sendbuf-limit, bytes; 0: none but maxQueued
	// Failed is told, once, that the state cannot be saved any more. It may call Close.
	Failed func(error)
	// Clock gives Unix time in milliseconds, and must never jump. nil: what the system says when the Driver is made, and
	// from then on what has passed: somebody who sets the system's clock changes no timeout.
	Clock func() int64
}

// Driver is a node's side of the bus.
type Driver struct {
	o     Options
	file  *stateFile
	saver saver
	queue nodeQueue

	began      time.Time
	ticked     atomic.Int64 // time since began when the last tick was done, ns
	sleepLimit atomic.Int64 // ns
	awaited    atomic.Int64 // Machine.Awaited
	unsaved    atomic.Bool  // Machine.Unsaved

	mu        sync.Mutex
	machine   *cluster.Machine
	links     map[cluster.LinkID]*link
	lastIn    cluster.LinkID // last even number given out
	strangers []*link        // those that others opened and whose node is not known yet, oldest first
	saved     uint64
	held      []cluster.Send // wait for a save
	overLimit int64          // links closed because too much waited
	started   bool
	closed    bool
	drop      dropFilter
	listeners []net.Listener
	view      *cluster.View // last one put in force
	known     *cluster.View // Known's

	stop  context.Context
	end   context.CancelFunc
	tasks sync.WaitGroup
}

// Load opens the state file and makes the machine. Nothing is listened to, and nothing is said, before Start. fresh says
// what a node that never was in a cluster begins with.
func Load(o Options, fresh func() *cluster.State) (*Driver, error) {
	if o.Clock == nil {
		began := time.Now()
		o.Clock = func() int64 { return began.UnixMilli() + time.Since(began).Milliseconds() }
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	file, state, err := openState(o.FS, o.Path, o.DataDir)
	if err != nil {
		return nil, err
	}
	first := state == nil
	if first {
		state = fresh()
	}
	m, err := cluster.New(o.Config, o.Data, random, state, o.Clock())
	if err == nil && first {
		err = file.save(state)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cluster configuration file %s: %w", o.Path, err), file.close())
	}
	d := &Driver{o: o, file: file, machine: m, links: map[cluster.LinkID]*link{}, began: time.Now()}
	d.setSleepLimit()
	d.awaited.Store(m.Awaited())
	d.stop, d.end = context.WithCancel(context.Background())
	d.saver.init()
	d.queue.init()
	d.view = m.View()
	return d, nil
}

// random is the machine's chance.
func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	return binary.LittleEndian.Uint64(b[:])
}

// Start listens and begins to tick.
func (d *Driver) Start() error {
	if err := d.listen(); err != nil {
		return err
	}
	d.mu.Lock()
	d.started = true
	d.mu.Unlock()
	d.tasks.Go(d.tick)
	d.tasks.Go(func() { d.saver.run(d) })
	d.tasks.Go(func() { d.queue.run(d) })
	return nil
}

// Close ends all links and goroutines, and lets the file go. What is not saved yet is saved first.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	if d.started {
		_, effects := d.machine.Command(d.o.Clock(), cluster.CmdSave{})
		d.carryOut(effects)
	}
	d.closed = true
	for _, l := range d.links {
		l.shut()
	}
	d.held = nil
	d.mu.Unlock()
	d.end()
	var errs []error
	for _, l := range d.listeners {
		errs = append(errs, l.Close())
	}
	d.saver.close()
	d.queue.close()
	d.tasks.Wait()
	return errors.Join(append(errs, d.file.close())...)
}

const tickEvery = 100 * time.Millisecond

func (d *Driver) tick() {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	for {
		select {
		case <-d.stop.Done():
			return
		case <-t.C:
		}
		d.with(func(now int64) []cluster.Effect {
			d.enforceSendLimit()
			return d.machine.Tick(now)
		})
		if invariant.Enabled {
			d.Known() // checks that whatever changed has changed the version
		}
		woke := func() { d.ticked.Store(int64(time.Since(d.began))) }
		if d.Slept() {
			d.queue.add(0, nodeTask{then: woke}) // after what the tick found out is in force
			continue
		}
		woke()
	}
}

// Slept says that the process has not run for a node timeout: stopped by a signal, or its machine suspended. What it knows
// of the cluster is then too old for a write, until the next tick has looked around.
func (d *Driver) Slept() bool {
	return time.Since(d.began)-time.Duration(d.ticked.Load()) > time.Duration(d.sleepLimit.Load())
}

// setSleepLimit takes the node timeout. A process that is only slow misses a few ticks, which is no sleep.
func (d *Driver) setSleepLimit() {
	d.sleepLimit.Store(int64(max(time.Duration(d.o.Config.NodeTimeout)*time.Millisecond, 10*tickEvery)))
}

// with runs one call of the machine and what follows from it, and hands out the publications. Bytes from outside may have
// led there: a bug that they find costs the message and its link, not the node. Then, and after Close, it is false.
func (d *Driver) with(call func(now int64) []cluster.Effect) bool {
	publications, ok := d.locked(call)
	for _, p := range publications {
		d.o.Node.Deliver(p.Shard, p.Channel, p.Payload)
	}
	return ok
}

func (d *Driver) locked(call func(now int64) []cluster.Effect) (publications []cluster.Deliver, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, false
	}
	defer func() {
		if r := recover(); r != nil {
			d.queue.note(cluster.Warning, fmt.Sprintf("BUG in the cluster: %v\n%s", r, debug.Stack()))
		}
	}()
	publications = d.carryOut(call(d.o.Clock()))
	d.awaited.Store(d.machine.Awaited())
	d.unsaved.Store(d.machine.Unsaved())
	return publications, true
}

// carryOut does, or queues, what the machine decided, and gives the publications back. The caller holds mu.
func (d *Driver) carryOut(effects []cluster.Effect) (publications []cluster.Deliver) {
	var once encoded
	for _, e := range effects {
		switch e := e.(type) {
		case cluster.Send:
			if e.After > d.saved {
				d.held = append(d.held, e)
				continue
			}
			d.send(e, &once)
		case cluster.Connect:
			d.dial(e)
		case cluster.Disconnect:
			d.forget(e.Link)
		case cluster.Save:
			d.saver.want(e)
		case cluster.Deliver:
			publications = append(publications, e)
		case cluster.Note:
			d.queue.note(e.Level, e.Text)
		case cluster.Route:
			d.view = d.machine.View()
			d.queue.add(e.After, nodeTask{effect: e, view: d.view})
		default:
			d.queue.add(afterOf(e), nodeTask{effect: e})
		}
	}
	return publications
}

// afterOf is the save that one of the node's effects waits for.
func afterOf(e cluster.Effect) uint64 {
	switch e := e.(type) {
	case cluster.Follow:
		return e.After
	case cluster.Promote:
		return e.After
	case cluster.DropSlots:
		return e.After
	case cluster.Flush:
		return e.After
	}
	return 0
}

// encoded is the last message as bytes: one message often goes to many links, one after the other.
type encoded struct {
	of    *wire.Message
	bytes []byte
}

// send queues a message. The caller holds mu.
func (d *Driver) send(s cluster.Send, once *encoded) {
	l := d.links[s.Link]
	if l == nil {
		return
	}
	if once.of != s.Msg {
		once.of, once.bytes = s.Msg, wire.Append(nil, s.Msg)
	}
	l.enqueue(once.bytes)
}

// persisted is called when a save is on disk.
func (d *Driver) persisted(seq uint64) {
	d.with(func(now int64) []cluster.Effect {
		d.saved = max(d.saved, seq)
		held := d.held
		d.held = nil
		var once encoded
		for _, s := range held {
			if s.After > d.saved {
				d.held = append(d.held, s)
				continue
			}
			d.send(s, &once)
		}
		d.queue.saved(d.saved)
		return d.machine.Persisted(now, seq)
	})
}

// Do runs a command. When it returns, what the command changed is saved and in force on this node; net.ErrClosed: not
// known, since the driver ends or cannot save any more. It must not be called before Start.
func (d *Driver) Do(c cluster.Cmd) cluster.Answer {
	ans := cluster.Answer{Err: net.ErrClosed}
	var ticket uint64
	d.with(func(now int64) (effects []cluster.Effect) {
		ans, effects = d.machine.Command(now, c)
		return effects
	})
	if _, quick := c.(cluster.CmdPublish); quick {
		return ans
	}
	ticket = d.queue.last()
	if !d.queue.await(ticket, ans.After) && ans.Err == nil {
		ans.Err = net.ErrClosed
	}
	return ans
}

// Post runs a command that may be carried out and saved when there is time, also before Start.
func (d *Driver) Post(c cluster.Cmd) cluster.Answer {
	ans := cluster.Answer{Err: net.ErrClosed}
	d.with(func(now int64) (effects []cluster.Effect) {
		ans, effects = d.machine.Command(now, c)
		return effects
	})
	return ans
}

// DoSaved runs a command and waits until what it changed is saved, not until it is in force: for callers that Node's calls
// wait for.
func (d *Driver) DoSaved(c cluster.Cmd) cluster.Answer {
	ans := d.Post(c)
	if ans.Err == nil && !d.queue.await(0, ans.After) {
		ans.Err = net.ErrClosed
	}
	return ans
}

// View is what the node knows at this moment. It is not changed any more.
func (d *Driver) View() *cluster.View {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.machine.View()
}

// Ask runs f with the machine, for questions that change nothing.
func (d *Driver) Ask(f func(m *cluster.Machine)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.machine)
}

// Port is where the bus listens.
func (d *Driver) Port() int { return d.o.Port }

// Now is the time that the machine goes by, Unix milliseconds.
func (d *Driver) Now() int64 { return d.o.Clock() }

// Configure puts another configuration in force.
func (d *Driver) Configure(c cluster.Config, sendLimit int64) {
	d.with(func(now int64) []cluster.Effect {
		d.o.Config, d.o.SendLimit = c, sendLimit
		d.setSleepLimit()
		return d.machine.Configure(now, c)
	})
}

// Reached tells up to where a replica has executed its primary's stream. It is cheap unless a manual failover waits for that.
func (d *Driver) Reached(offset int64) {
	if at := d.awaited.Load(); at >= 0 && offset >= at {
		d.with(func(now int64) []cluster.Effect { return d.machine.Synced(now) })
	}
}

// Unsaved says that nodes.conf lacks something of what commands have done. It waits for nobody.
func (d *Driver) Unsaved() bool { return d.unsaved.Load() }

// ID is this node's id.
func (d *Driver) ID() string {
	return myself(d.View()).ID
}

func myself(v *cluster.View) nodesconf.Node {
	for i := range v.Nodes {
		if v.Nodes[i].Flags&nodesconf.Myself != 0 {
			return v.Nodes[i].Node
		}
	}
	return nodesconf.Node{}
}
