package engine

import "strconv"

// The log entry that a transaction builds: the commands that replicas receive, in MULTI ... EXEC when there is
// more than one, so that an entry is executed as a whole or not at all.

const (
	multiHead = "*1\r\n$5\r\nMULTI\r\n"
	multiTail = "*1\r\n$4\r\nEXEC\r\n"
)

// Log adds a command to the entry.
func (t *Txn) Log(args ...[]byte) {
	t.startCommand(len(args))
	for _, a := range args {
		t.logArgument(a)
	}
}

// LogStrings adds a command whose name is text and whose arguments are bytes.
func (t *Txn) LogStrings(name string, args ...[]byte) {
	t.startCommand(1 + len(args))
	t.entry = appendBulk(t.entry, name)
	for _, a := range args {
		t.logArgument(a)
	}
}

// longArgument is from where on an argument is handed to the log as it lies, instead of being copied into the
// entry first: of a value of hundreds of megabytes there must not be one copy more than needed.
const longArgument = 64 << 10

// longPart is an argument that is left out of the entry's bytes, and where it belongs.
type longPart struct {
	at   int
	part []byte
}

func (t *Txn) logArgument(a []byte) {
	if len(a) < longArgument {
		t.entry = appendBulk(t.entry, a)
		return
	}
	t.entry = append(t.entry, '$')
	t.entry = strconv.AppendInt(t.entry, int64(len(a)), 10)
	t.entry = append(t.entry, '\r', '\n')
	t.long = append(t.long, longPart{len(t.entry), a})
	t.entry = append(t.entry, '\r', '\n')
}

// appendEntry hands the whole entry to the log. borrows: see Log.AppendParts.
func (t *Txn) appendEntry(log Log, entry []byte) (end int64, borrows bool) {
	if len(t.long) == 0 {
		if len(entry) < longArgument {
			return log.Append(entry), false
		}
		return log.AppendParts(entry)
	}
	parts := make([][]byte, 0, 2*len(t.long)+1)
	at := len(t.entry) - len(entry) // what a single command leaves out in front
	for _, l := range t.long {
		parts = append(parts, t.entry[at:l.at], l.part)
		at = l.at
	}
	return log.AppendParts(append(parts, t.entry[at:])...)
}

// LogRaw adds a command that is encoded already.
func (t *Txn) LogRaw(raw []byte) {
	t.startEntry()
	t.entry = append(t.entry, raw...)
}

// Logged counts the commands of the entry so far.
func (t *Txn) Logged() int { return t.nlogged }

func (t *Txn) startEntry() {
	if t.nlogged == 0 {
		t.entry = append(t.entry[:0], multiHead...)
	}
	t.nlogged++
}

func (t *Txn) startCommand(n int) {
	t.startEntry()
	t.entry = append(t.entry, '*')
	t.entry = strconv.AppendInt(t.entry, int64(n), 10)
	t.entry = append(t.entry, '\r', '\n')
}

// finishEntry gives the whole entry.
func (t *Txn) finishEntry() []byte {
	switch t.nlogged {
	case 0:
		return nil
	case 1:
		return t.entry[len(multiHead):]
	default:
		t.entry = append(t.entry, multiTail...)
		return t.entry
	}
}

func appendBulk[B []byte | string](dst []byte, b B) []byte {
	dst = append(dst, '$')
	dst = strconv.AppendInt(dst, int64(len(b)), 10)
	dst = append(dst, '\r', '\n')
	dst = append(dst, b...)
	return append(dst, '\r', '\n')
}
