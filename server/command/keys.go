package command

import (
	"cairn/internal/resp"
)

// KeyPositions appends the argument positions of all keys that args name. ok is false when a key count or a
// keyword makes no sense; the handler then says what is wrong.
func (c *Command) KeyPositions(dst []int, args [][]byte) (pos []int, ok bool) {
	if c.Find != nil {
		return c.Find(dst, args), true
	}
	for i := range c.Keys {
		if dst, ok = c.Keys[i].positions(dst, args); !ok {
			return dst, false
		}
	}
	return dst, true
}

// FirstKey is the common case without a list: one key at a fixed place. 0: ask KeyPositions.
func (c *Command) FirstKey() int {
	if len(c.Keys) == 1 {
		if k := &c.Keys[0]; k.BeginIndex > 0 && k.Last == 0 && !k.KeyNum {
			return k.BeginIndex
		}
	}
	return 0
}

func (k *KeySpec) positions(dst []int, args [][]byte) ([]int, bool) {
	first := k.BeginIndex
	if k.BeginKeyword != "" {
		if first = k.findKeyword(args); first == 0 {
			return dst, true
		}
	}
	if k.KeyNum {
		return k.numbered(dst, args, first)
	}
	last := first + k.Last
	if k.Last < 0 {
		last = len(args) + k.Last
		if k.Limit > 1 {
			last = first + (last-first)/k.Limit
		}
	}
	step := max(k.Step, 1)
	for i := first; i <= last; i += step {
		if i >= len(args) {
			return dst, false
		}
		dst = append(dst, i)
	}
	return dst, true
}

func (k *KeySpec) findKeyword(args [][]byte) int {
	if k.StartFrom < 0 {
		for i := len(args) + k.StartFrom; i > 0; i-- {
			if resp.IsWord(args[i], k.BeginKeyword) {
				return i + 1
			}
		}
		return 0
	}
	for i := k.StartFrom; i < len(args); i++ {
		if resp.IsWord(args[i], k.BeginKeyword) {
			return i + 1
		}
	}
	return 0
}

func (k *KeySpec) numbered(dst []int, args [][]byte, first int) ([]int, bool) {
	at := first + k.NumIndex
	if at >= len(args) {
		return dst, false
	}
	n, ok := resp.ParseInt(args[at])
	if !ok || n < 0 || n > int64(len(args)) {
		return dst, false
	}
	for i := range int(n) {
		p := first + k.First + i*max(k.KStep, 1)
		if p >= len(args) {
			return dst, false
		}
		dst = append(dst, p)
	}
	return dst, true
}

// The shapes that most commands have.
var (
	keyRO  = []KeySpec{{Flags: "RO access", BeginIndex: 1}}
	keyROM = []KeySpec{{Flags: "RO", BeginIndex: 1}} // looks at the key's metadata only
	keyRW  = []KeySpec{{Flags: "RW access update", BeginIndex: 1}}
	keyRWU = []KeySpec{{Flags: "RW update", BeginIndex: 1}}
	keyRWI = []KeySpec{{Flags: "RW insert", BeginIndex: 1}}
	keyRWD = []KeySpec{{Flags: "RW delete", BeginIndex: 1}}
	keyOW  = []KeySpec{{Flags: "OW update", BeginIndex: 1}}
	keyOWI = []KeySpec{{Flags: "OW insert", BeginIndex: 1}}
)
