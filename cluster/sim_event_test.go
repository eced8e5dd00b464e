package cluster

import "cairn/cluster/wire"

// Events of the simulation: what is to happen when, in the order of time and, at one time, of their making.

type simKind uint8

const (
	simDo        simKind = iota // call
	simTick                     // of node
	simMessage                  // msg reaches the other end of conn
	simAccept                   // conn reaches its acceptor
	simConnected                // and its dialler hears of it
	simClosed                   // conn's end reaches the other side
	simSaved                    // node's save has ended
	simTask                     // the task that node's queue is at has ended
)

type simEvent struct {
	at     int64
	serial uint64
	kind   simKind
	side   uint8 // of conn, that does it
	node   int32
	life   int32
	conn   *simConn
	msg    *wire.Message
	call   func()
}

func (e *simEvent) before(o *simEvent) bool {
	return e.at < o.at || e.at == o.at && e.serial < o.serial
}

// simHeap is a heap of events.
type simHeap struct {
	events []simEvent
	serial uint64
}

func (h *simHeap) push(e simEvent) {
	h.serial++
	e.serial = h.serial
	h.events = append(h.events, e)
	i := len(h.events) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&h.events[up]) {
			break
		}
		h.events[i] = h.events[up]
		i = up
	}
	h.events[i] = e
}

func (h *simHeap) pop() simEvent {
	first := h.events[0]
	last := len(h.events) - 1
	e := h.events[last]
	h.events[last] = simEvent{}
	h.events = h.events[:last]
	if last == 0 {
		return first
	}
	i := 0
	for {
		least := 4*i + 1
		if least >= last {
			break
		}
		for j := least + 1; j < min(4*i+5, last); j++ {
			if h.events[j].before(&h.events[least]) {
				least = j
			}
		}
		if !h.events[least].before(&e) {
			break
		}
		h.events[i] = h.events[least]
		i = least
	}
	h.events[i] = e
	return first
}
