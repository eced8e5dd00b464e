package resp

// aheadArgs is how many arguments a command has at most whose key is looked for ahead.
const aheadArgs = 8

// SecondArgs appends the second arguments of the commands that Next will return, which for most is their key, up to
// as many as dst has room for; nil for a command of one argument. It is a look from afar that changes nothing: it ends
// at a command that is not here as a whole, is not plain, or has many arguments, and Next may find it wrong yet. The
// bytes alias the buffer as those of Next do.
func (f *Framer) SecondArgs(dst [][]byte) [][]byte {
	if f.err != nil || f.total != 0 {
		return dst
	}
	src := f.buf[f.pos:f.end]
	for len(dst) < cap(dst) {
		arg, size := secondArg(src)
		if size == 0 {
			break
		}
		dst, src = append(dst, arg), src[size:]
	}
	return dst
}

// secondArg is the second argument of the command at the start of src, and the command's length, 0 if it is not here
// and plain.
func secondArg(src []byte) (arg []byte, size int) {
	count, at := shortLength(src, '*')
	if at == 0 || count < 1 || count > aheadArgs {
		return nil, 0
	}
	for i := range count {
		n, head := shortLength(src[at:], '$')
		if head == 0 || int64(len(src)-at-head-2) < n {
			return nil, 0
		}
		at += head
		if i == 1 {
			arg = src[at : at+int(n) : at+int(n)]
		}
		at += int(n) + 2
	}
	return arg, at
}
