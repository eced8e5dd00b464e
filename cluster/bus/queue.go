package bus

import (
	"sync"

	"cairn/cluster"
)

// nodeQueue holds the node's effects and runs them in their order, each after the save that it waits for, so that what
// was decided later never overtakes what was decided before.
type nodeQueue struct {
	mu      sync.Mutex
	changed sync.Cond
	tasks   []queued
	added   uint64 // number of the last task
	done    uint64 // number of the last task that was run
	onDisk  uint64 // last save
	lost    bool   // there will be no other save
	closed  bool

	notes     []cluster.Note
	lostNotes int
}

type queued struct {
	after uint64
	task  nodeTask
}

// nodeTask is one call of Node.
type nodeTask struct {
	effect cluster.Effect
	view   *cluster.View // of a Route, as it was when the machine decided
	then   func()        // called instead, if there is no effect
}

// maxNotes is how many lines wait for the log when its disk is slow; more are counted and dropped.
const maxNotes = 1000

func (q *nodeQueue) init() { q.changed.L = &q.mu }

func (q *nodeQueue) add(after uint64, t nodeTask) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.added++
	q.tasks = append(q.tasks, queued{after, t})
	q.changed.Broadcast()
}

func (q *nodeQueue) note(level cluster.Level, text string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.notes) >= maxNotes {
		q.lostNotes++
		return
	}
	q.notes = append(q.notes, cluster.Note{Level: level, Text: text})
	q.changed.Broadcast()
}

func (q *nodeQueue) saved(seq uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.onDisk = max(q.onDisk, seq)
	q.changed.Broadcast()
}

func (q *nodeQueue) last() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.added
}

// noMoreSaves ends the waiting of those who wait for one.
func (q *nodeQueue) noMoreSaves() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lost = true
	q.changed.Broadcast()
}

// await waits until the task with that number was run and that save is on disk. False: that will not be.
func (q *nodeQueue) await(task, save uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.done < task || q.onDisk < save {
		if q.closed || q.lost {
			return false
		}
		q.changed.Wait()
	}
	return true
}

func (q *nodeQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}

// next waits for what can be run: lines for the log first, since they tell why.
func (q *nodeQueue) next() (notes []cluster.Note, lost int, task nodeTask, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case len(q.notes) > 0:
			notes, lost = q.notes, q.lostNotes
			q.notes, q.lostNotes = nil, 0
			return notes, lost, nodeTask{}, true
		case q.closed: // what is left waits for saves that may never be
			return nil, 0, nodeTask{}, false
		case len(q.tasks) > 0 && q.tasks[0].after <= q.onDisk:
			task = q.tasks[0].task
			q.tasks = q.tasks[1:]
			return nil, 0, task, true
		}
		q.changed.Wait()
	}
}

func (q *nodeQueue) run(d *Driver) {
	for {
		notes, lost, task, ok := q.next()
		if !ok {
			return
		}
		for _, n := range notes {
			d.o.Node.Note(n.Level, n.Text)
		}
		if lost > 0 {
			d.o.Node.Note(cluster.Warning, "lines of the cluster lost because the log was too slow")
		}
		switch {
		case task.then != nil:
			task.then()
		case task.effect == nil:
			continue // there were lines only
		default:
			task.run(d.o.Node)
		}
		if _, paused := task.effect.(cluster.Pause); paused {
			// Only now does the offset stand still, and may the replica be told where.
			d.with(func(now int64) []cluster.Effect { return d.machine.Paused(now) })
		}
		q.mu.Lock()
		q.done++
		q.changed.Broadcast()
		q.mu.Unlock()
	}
}

func (t nodeTask) run(n Node) {
	switch e := t.effect.(type) {
	case cluster.Route:
		n.Route(t.view)
	case cluster.Follow:
		n.Follow(e.ID.String(), e.IP, e.Port)
	case cluster.Unfollow:
		n.Unfollow()
	case cluster.Promote:
		n.Promote()
	case cluster.Pause:
		n.Pause(e.Until)
	case cluster.Resume:
		n.Resume()
	case cluster.DropSlots:
		n.DropSlots(e.Slots)
	case cluster.Flush:
		n.Flush()
	}
}
