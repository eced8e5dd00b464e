package command

import (
	"encoding/binary"

	"cairn/engine/layout"
	"cairn/internal/resp"
)

// BITFIELD: integers of 1 to 64 bits at any bit of a string, the highest bit first.

const errFieldType Reply = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is."

type fieldAction uint8

const (
	fieldGet fieldAction = iota
	fieldSet
	fieldAdd
)

// overflow says what happens to a value that does not fit.
type overflow uint8

const (
	overflowWrap overflow = iota
	overflowSat           // the nearest that fits
	overflowFail          // nothing is written, the reply is null
)

// fieldOp is one operation of a BITFIELD.
type fieldOp struct {
	action   fieldAction
	overflow overflow
	signed   bool
	width    uint  // bits
	off      int64 // bits
	arg      int64 // the value to set, or to add
}

func bitfield(c *Ctx) error   { return runBitfield(c, false) }
func bitfieldRO(c *Ctx) error { return runBitfield(c, true) }

func runBitfield(c *Ctx, readOnly bool) error {
	ops, end, err := parseFieldOps(c)
	if err != nil {
		return err
	}
	if readOnly && end > 0 {
		return Reply("ERR BITFIELD_RO only supports the GET subcommand")
	}
	k, err := c.TypedKey(c.Args[1], layout.String)
	if err != nil {
		return err
	}
	e, err := editString(c.Txn, k)
	if err != nil {
		return err
	}
	if end > 0 {
		noteNew(c, k)
	}
	// Redis makes room for the farthest write first, and that stays even if then nothing is written.
	e.grow((end + 7) / 8)
	grew, counted := e.changed, false
	c.W.Array(len(ops))
	for i := range ops {
		changed, err := ops[i].run(c.W, &e)
		if err != nil {
			return err
		}
		counted = counted || changed == fieldChanged || changed == fieldStored && grew
	}
	if e.changed {
		e.finish()
	}
	if counted {
		c.Event('$', "setbit", k.Name)
	}
	return nil
}

// parseFieldOps reads all operations. end is one more than the last bit that any of them writes, 0 for none.
func parseFieldOps(c *Ctx) (ops []fieldOp, end int64, err error) {
	mode := overflowWrap
	ops = make([]fieldOp, 0, len(c.Args)/3)
	for i := 2; i < len(c.Args); {
		rest := len(c.Args) - i - 1
		op := fieldOp{overflow: mode}
		switch {
		case c.Is(i, "get") && rest >= 2:
			op.action = fieldGet
		case c.Is(i, "set") && rest >= 3:
			op.action = fieldSet
		case c.Is(i, "incrby") && rest >= 3:
			op.action = fieldAdd
		case c.Is(i, "overflow") && rest >= 1:
			if mode, err = parseOverflow(c, i+1); err != nil {
				return nil, 0, err
			}
			i += 2
			continue
		default:
			return nil, 0, ErrSyntax
		}
		if op.signed, op.width, err = fieldType(c.Args[i+1]); err != nil {
			return nil, 0, err
		}
		if op.off, err = bitOffset(c, c.Args[i+2], int(op.width)); err != nil {
			return nil, 0, err
		}
		i += 3
		if op.action != fieldGet {
			end = max(end, op.off+int64(op.width))
			if op.arg, err = c.Int(i); err != nil {
				return nil, 0, err
			}
			i++
		}
		ops = append(ops, op)
	}
	return ops, end, nil
}

func parseOverflow(c *Ctx, i int) (overflow, error) {
	switch {
	case c.Is(i, "wrap"):
		return overflowWrap, nil
	case c.Is(i, "sat"):
		return overflowSat, nil
	case c.Is(i, "fail"):
		return overflowFail, nil
	}
	return 0, Reply("ERR Invalid OVERFLOW type specified")
}

// fieldType reads "i16" or "u8". Unsigned ones end at 63 bits, because a reply has no larger integer.
func fieldType(arg []byte) (signed bool, width uint, err error) {
	if len(arg) == 0 || arg[0] != 'i' && arg[0] != 'u' {
		return false, 0, errFieldType
	}
	signed = arg[0] == 'i'
	n, ok := resp.ParseInt(arg[1:])
	if !ok || n < 1 || n > 64 || n > 63 && !signed {
		return false, 0, errFieldType
	}
	return signed, uint(n), nil
}

// fieldOutcome is what an operation did to the string.
type fieldOutcome uint8

const (
	fieldUntouched fieldOutcome = iota
	fieldStored                 // the value that was there before
	fieldChanged
)

// run does the operation and appends its reply.
func (op *fieldOp) run(w *resp.Writer, e *stringEditor) (fieldOutcome, error) {
	var buf [9]byte // 64 bits that begin within a byte
	if err := e.read(op.off/8, buf[:]); err != nil {
		return fieldUntouched, err
	}
	old := op.extract(&buf)
	if op.action == fieldGet {
		w.Int(old)
		return fieldUntouched, nil
	}
	base, delta := old, op.arg
	if op.action == fieldSet {
		base, delta = op.arg, 0
	}
	next, fits := op.add(base, delta)
	if !fits && op.overflow == overflowFail {
		w.Null()
		return fieldUntouched, nil
	}
	if op.action == fieldSet {
		w.Int(old)
	} else {
		w.Int(next)
	}
	if next == old {
		return fieldStored, nil
	}
	op.insert(&buf, next)
	touched := (op.off&7 + int64(op.width) + 7) / 8
	return fieldChanged, e.write(op.off/8, buf[:touched])
}

// extract takes the integer out of the bytes from its first byte on.
func (op *fieldOp) extract(buf *[9]byte) int64 {
	shift := uint(op.off & 7)
	v := binary.BigEndian.Uint64(buf[:])<<shift | uint64(buf[8])>>(8-shift)
	if op.signed {
		return int64(v) >> (64 - op.width)
	}
	return int64(v >> (64 - op.width))
}

// insert puts the integer into the bytes from its first byte on.
func (op *fieldOp) insert(buf *[9]byte, n int64) {
	shift := uint(op.off & 7)
	v, mask := uint64(n)<<(64-op.width), ^uint64(0)<<(64-op.width)
	head := binary.BigEndian.Uint64(buf[:])
	binary.BigEndian.PutUint64(buf[:], head&^(mask>>shift)|v>>shift)
	buf[8] = buf[8]&^byte(mask<<(8-shift)) | byte(v<<(8-shift))
}

// add gives v+n as it fits the field's width: wrapped around or held at the limit when it does not.
func (op *fieldOp) add(v, n int64) (sum int64, fits bool) {
	lowest, highest := int64(0), int64(uint64(1)<<op.width-1)
	if op.signed {
		highest = int64(uint64(1)<<(op.width-1) - 1)
		lowest = -highest - 1
	}
	switch {
	case op.aboveLimit(v, n, highest):
		if op.overflow == overflowSat {
			return highest, false
		}
	case op.belowLimit(v, n, lowest):
		if op.overflow == overflowSat {
			return lowest, false
		}
	default:
		return v + n, true
	}
	shift := 64 - op.width
	if op.signed {
		return (v + n) << shift >> shift, false
	}
	return int64(uint64(v+n) << shift >> shift), false
}

// aboveLimit says whether v+n is over highest. v is out of range only where SET brings it, with n 0; a negative
// number is a very large one to an unsigned field.
func (op *fieldOp) aboveLimit(v, n, highest int64) bool {
	if !op.signed && v < 0 || v > highest {
		return true
	}
	return n > 0 && v > highest-n
}

// belowLimit says whether v+n is under lowest.
func (op *fieldOp) belowLimit(v, n, lowest int64) bool {
	switch {
	case v < lowest:
		return true
	case v < 0:
		return n < lowest-v // v+n might wrap
	}
	return n < 0 && v+n < lowest
}
