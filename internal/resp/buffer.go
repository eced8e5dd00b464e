package resp

import (
	"math/bits"
	"unsafe"
)

// The read buffer of a Framer. It grows with what really arrived, is moved a
// bounded number of times, and shrinks again.
//
//	0        start          pos        end            len(buf)
//	| parsed | the command being parsed | free: Space   |
//
// Growth. A buffer that a read filled doubles up to maxReadAhead, so that a
// pipeline is read in few calls. A long argument makes the buffer as large as
// its declared length, but hardly more than growStep times what was received: 512
// MiB cost four moves of 73 MiB together, and a length without data costs 64 KiB.
//
// Many long arguments in one command are not moved for each other: from leaveFrom
// on, a buffer that is full stays behind with the arguments that are complete in
// it, and only the incomplete one goes on in the next, which is just long enough
// for it. So a command takes its own length and little more.
//
// Shrinking. After a long command the buffer goes at once; after a burst, when
// quietRounds rounds in a row used less than a quarter of it. Release drops
// everything.
const (
	initialBuffer = 4 << 10
	maxReadAhead  = 64 << 10
	keepBuffer    = 1 << 20
	growStep      = 8
	quietRounds   = 16

	leaveFrom  = 64 << 10  // bytes of complete arguments that are left behind rather than moved
	exactFrom  = 16 << 10  // an argument that lacks so much gets a buffer of its own length
	nextBuffer = 256 << 10 // else the next buffer has room for many
	moveStep   = 1 << 20   // bytes moved at once; copying is not interrupted, and a collector waits for it

	lowRoom   = 512     // less free room than this is not worth a read
	tailRoom  = 1 << 10 // behind a long argument, for the short ones that follow it
	keepArgs  = 1 << 10 // slice headers kept between batches
	firstArgs = 16

	argHeader = int64(unsafe.Sizeof([]byte(nil)))
)

// Space returns free room of at least want bytes to read into; Advance says how
// much was used. It ends the life of all args and raw that Next returned.
func (f *Framer) Space(want int) []byte {
	want = max(want, 1)
	f.recycleArgs()
	if f.Buffered() == 0 {
		f.rewind()
	}
	size, leave := f.plan(want)
	if leave {
		f.leave()
	}
	if size != len(f.buf) || f.tight(want) {
		f.move(size)
	}
	f.full = false
	return f.buf[f.end:]
}

// plan says how large the buffer should be for the next read, and whether it is a
// new one that leaves the present one behind.
func (f *Framer) plan(want int) (size int, leave bool) {
	size = f.wantSize(want)
	if done := f.pos - f.start; size <= len(f.buf) || done < leaveFrom && (f.before == 0 || done == 0) {
		return size, false
	}
	rest := f.end - f.pos
	if miss := f.missing(); miss >= exactFrom {
		return max(f.within(rest+miss+tailRoom), rest+want), true
	}
	return rest + max(want+tailRoom, f.missing()+tailRoom, min(f.Buffered(), nextBuffer)), true
}

// leave makes what is not yet an argument all that the buffer holds.
func (f *Framer) leave() {
	f.kept += len(f.buf)
	f.before += f.pos - f.start
	f.there = len(f.args) - f.first
	f.base += int64(f.pos)
	f.buf = f.buf[f.pos:f.end]
	f.scan -= f.pos
	f.end -= f.pos
	f.start, f.pos = 0, 0
	f.full, f.quiet, f.high = false, 0, 0
}

// Room is about how large Space(want) would make the buffer, for who has to ask first.
func (f *Framer) Room(want int) int {
	if f.Buffered() == 0 && len(f.buf) > keepBuffer {
		return initialBuffer
	}
	size, leave := f.plan(max(want, 1))
	if leave {
		size += len(f.buf)
	}
	if f.before > 0 {
		size += f.kept
	}
	return size
}

// Advance says that n bytes were read into what Space returned. More than there
// was room for is a mistake of the caller and panics.
func (f *Framer) Advance(n int) {
	if n < 0 || n > len(f.buf)-f.end {
		panic("BUG: resp: read more bytes than the buffer had room for")
	}
	f.end += n
	f.full = n > 0 && f.end == len(f.buf)
}

// Buffered is the number of bytes received that no command returned by Next has
// used: 0 between commands.
func (f *Framer) Buffered() int { return f.before + f.end - f.start }

// MemoryBytes is what the buffers and the argument headers occupy.
func (f *Framer) MemoryBytes() int { return f.kept + len(f.buf) + cap(f.args)*int(argHeader) }

// Release gives the buffer back if nothing is pending in it, and reports whether
// it did. A connection calls it when it expects to be idle. It ends the life of
// all args and raw that Next returned.
func (f *Framer) Release() bool {
	if f.Buffered() != 0 {
		return false
	}
	f.recycleArgs()
	f.rewind()
	f.buf, f.args, f.kept = nil, nil, 0
	f.quiet, f.high, f.full = 0, 0, false
	return true
}

// Trim is Release for a connection of which a part of a command may be pending: it leaves the buffer no room but for
// that. The next Space moves it once more, so it is for a connection that has been silent for a while.
func (f *Framer) Trim() {
	if f.Release() {
		return
	}
	f.recycleArgs()
	if pending := f.end - f.start; len(f.buf)-pending >= lowRoom {
		f.move(pending)
		f.full, f.quiet, f.high = false, 0, 0
	}
}

// Pending is Buffered in two parts: bytes of arguments that are whole, and bytes that are no argument yet.
func (f *Framer) Pending() (parsed, raw int) { return f.before + f.pos - f.start, f.end - f.pos }

// missing is how many bytes of the argument at pos have not arrived, its CR LF
// included, or 0 when its length is not known yet.
func (f *Framer) missing() int {
	if f.bulk < 0 {
		return 0
	}
	if f.taker != nil { // it only passes through
		return min(f.untaken, maxReadAhead-2) + 2
	}
	return f.bulk + 2 - (f.end - f.pos)
}

// tight reports that the room behind end is too small to be worth a read.
func (f *Framer) tight(want int) bool {
	free := len(f.buf) - f.end
	if miss := f.missing(); miss > 0 && free >= miss {
		return free < want
	}
	return free < max(want, lowRoom)
}

// wantSize decides how large the buffer should be for the next read.
func (f *Framer) wantSize(want int) int {
	size := len(f.buf)
	pending := f.end - f.start
	need := max(pending+want, initialBuffer)
	goal := need // where the buffer should end up, as far as declared lengths tell
	if miss := f.missing(); miss > 0 {
		goal = max(need, pending+miss)
		if goal > maxReadAhead {
			goal += tailRoom
		}
	}
	if size > keepBuffer && goal <= size/growStep {
		return roundSize(goal) // a long command is over, though others follow closely
	}
	if f.full && size < maxReadAhead {
		return max(2*size, roundSize(min(goal, maxReadAhead)), roundSize(need))
	}
	if size > 0 && !f.tight(want) {
		return size
	}
	if goal <= size && (f.missing() > 0 || pending <= size/2) {
		return size // moving the pending bytes to the front is enough
	}
	next := f.within(goal)
	if next <= size || size >= maxReadAhead && f.missing() < exactFrom {
		// Each growth is by a share of what is moved, so all moves of a command
		// together stay proportional to its length. A long argument needs no
		// more than its length: it is the last one that moves with this buffer.
		next = max(next, size+max(size/4, min(size, keepBuffer)))
	}
	return roundSize(max(next, need))
}

// within bounds a size by what was received.
func (f *Framer) within(size int) int {
	for size > max((f.Buffered()+2*lowRoom)*growStep, maxReadAhead) {
		size /= growStep // the last and dearest move is then of an eighth of the whole
	}
	return size
}

// roundSize rounds short buffers up to a power of two, so that similar commands
// find the buffer large enough. Long ones stay as they are.
func roundSize(n int) int {
	if n > maxReadAhead {
		return n
	}
	return 1 << bits.Len(uint(max(n, initialBuffer)-1))
}

// move puts the pending bytes at the front of a buffer of the given size.
func (f *Framer) move(size int) {
	pending := f.buf[f.start:f.end]
	f.work += int64(len(pending))
	if size == len(f.buf) {
		copy(f.buf, pending)
	} else {
		buf := make([]byte, size)
		for at := 0; at < len(pending); at += moveStep {
			copy(buf[at:], pending[at:min(at+moveStep, len(pending))])
		}
		f.buf = buf
		clear(f.args[len(f.args):cap(f.args)]) // no stale header may hold the old buffer
	}
	f.base += int64(f.start)
	f.pos -= f.start
	f.scan -= f.start
	f.end -= f.start
	f.start = 0
	f.rebaseArgs()
}

// rebaseArgs points the arguments of the unfinished command into the buffer
// again, but for those that were left behind. Lengths are accepted in their
// shortest form only, so the place of each argument follows from the lengths
// before it.
func (f *Framer) rebaseArgs() {
	if len(f.args) <= f.there {
		return
	}
	at := f.start + f.at
	for i, arg := range f.args[f.there:] {
		n := len(arg)
		if i > 0 {
			at += 1 + decimals(n) + 2
		}
		f.args[f.there+i] = f.buf[at : at+n : at+n]
		at += n + 2
	}
}

// decimals is the number of digits of n, which is not negative.
func decimals(n int) int {
	d := 1
	for ; n >= 10; n /= 10 {
		d++
	}
	return d
}

// rewind starts again at the front of an empty buffer and lets a buffer go that
// has been larger than needed.
func (f *Framer) rewind() {
	used := f.end
	f.base += int64(f.start)
	f.start, f.pos, f.scan, f.end = 0, 0, 0, 0
	if used*4 > len(f.buf) {
		f.quiet, f.high = 0, 0
	} else {
		f.quiet++
		f.high = max(f.high, used)
	}
	if len(f.buf) > keepBuffer || f.quiet >= quietRounds && len(f.buf) > initialBuffer {
		size := roundSize(min(2*f.high, maxReadAhead))
		f.buf = nil
		if f.quiet >= quietRounds {
			f.buf = make([]byte, size)
		}
		f.args = nil
		f.quiet, f.high, f.full = 0, 0, false
	}
}

// recycleArgs empties the arena but for the arguments of an unfinished command.
func (f *Framer) recycleArgs() {
	n := copy(f.args, f.args[f.first:])
	f.args = f.args[:n]
	f.first = 0
	if f.kept > 0 && f.before == 0 { // the command that had those buffers is done with
		f.kept = 0
		clear(f.args[n:cap(f.args)])
	}
	if n == 0 && cap(f.args) > keepArgs {
		f.args = nil
	}
}

// growArgs makes room for more argument headers. The arena grows with arguments
// received, not with the number declared. Earlier commands keep the old one.
func (f *Framer) growArgs() bool {
	have := len(f.args) - f.first
	size := max(firstArgs, 2*have, min(2*cap(f.args), keepArgs))
	if size > keepArgs {
		size = min(size, have+f.left)
		if int64(f.before+f.pos-f.start)+int64(size)*argHeader > f.lim.MaxQuery {
			return f.fail(ErrQueryLimit)
		}
	}
	args := make([][]byte, have, size)
	copy(args, f.args[f.first:])
	f.args, f.first = args, 0
	f.work += int64(have)
	return true
}
