package resp

// Long arguments that are kept elsewhere than in the buffer, in a file say: the owner of the connection names them as
// their lengths arrive, and gives each a Keeper.
//
//	buffers left behind              the Keeper              the buffer
//	| RESTORE key 0 $536870912 |     | 512 MiB as they come | | REPLACE ... |
//
// The argument's bytes pass through the buffer, which stays as short as for a pipeline. What came before it in the command
// is left behind as before any long argument, see buffer.go. The limits are those of every argument, and Buffered, Pending
// and Offset count its bytes as if they were in the buffer; MemoryBytes and Room do not.

// Keeper takes one argument.
type Keeper interface {
	// Take is given the argument's bytes in order, and keeps no reference to b. What goes wrong is told by Whole.
	Take(b []byte)
	// Whole is called when all bytes were taken, and gives them in one piece: the argument. It stays as it is until its
	// owner ends its life, after the command.
	Whole() ([]byte, error)
}

// KeepElsewhere names who says where long arguments go. It is asked for each of more than from bytes, with the arguments of
// the command that are there already, never none, and the length of the next one. nil: in the buffer.
func (f *Framer) KeepElsewhere(from int, keeper func(args [][]byte, length int) Keeper) {
	f.keepFrom, f.keeper = from, keeper
}

// Lost is why an argument of the command that Next returned last could not be kept; that argument is empty then. The command
// is not to be run.
func (f *Framer) Lost() error { return f.lost }

// keep asks whether the argument at pos, whose length is known, goes elsewhere.
func (f *Framer) keep() {
	if f.keeper == nil || f.bulk <= f.keepFrom || len(f.args) == f.first {
		return
	}
	if f.taker = f.keeper(f.args[f.first:], f.bulk); f.taker == nil {
		return
	}
	f.untaken = f.bulk
	if len(f.args)-f.first > f.there {
		f.leave()
	} else {
		f.drop()
	}
}

// passOn gives what is here of the argument to its keeper, and makes it an argument when it is whole. false: more is to
// come. The buffer begins with the argument's next byte.
func (f *Framer) passOn() bool {
	if n := min(f.untaken, f.end-f.pos); n > 0 {
		f.taker.Take(f.buf[f.pos : f.pos+n])
		f.untaken -= n
		f.skip(n)
	}
	if f.untaken > 0 || f.end-f.pos < 2 {
		return false
	}
	if f.buf[f.pos] != '\r' || f.buf[f.pos+1] != '\n' {
		f.odd = true
	}
	arg, err := f.taker.Whole()
	if err != nil {
		arg, f.lost = []byte{}, err
	}
	f.taker = nil
	if len(f.args) == cap(f.args) && !f.growArgs() {
		return false
	}
	f.args = append(f.args, arg[:len(arg):len(arg)])
	f.there = len(f.args) - f.first
	f.skip(2)
	f.bulk = -1
	f.left--
	return true
}

// skip steps over n bytes at pos, where the buffer's part of the command begins.
func (f *Framer) skip(n int) {
	f.pos += n
	f.drop()
}

// drop lets go of the command's bytes in front of pos, as if they were in a buffer left behind. No argument lies there.
func (f *Framer) drop() {
	f.before += f.pos - f.start
	f.start, f.scan = f.pos, f.pos
	if f.pos == f.end { // all room is free again
		f.base += int64(f.pos)
		f.start, f.pos, f.scan, f.end = 0, 0, 0, 0
	}
}
