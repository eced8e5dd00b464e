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

// An entry of many bytes is gathered in pieces: one buffer that grows to all of it would be moved again and again, and
// be there twice. From the second piece on an argument need not be long to be handed over as it lies.
const (
	entryPiece    = 256 << 10
	pieceArgument = 512
)

func (t *Txn) logArgument(a []byte) {
	if len(a) < longArgument && len(t.entry) < entryPiece && t.pieces == nil {
		t.entry = appendBulk(t.entry, a)
		return
	}
	t.logLong(a)
}

// logLong adds an argument that is long, or one of many.
func (t *Txn) logLong(a []byte) {
	if len(t.entry) >= entryPiece {
		t.pieces = t.appendPieces(t.pieces, 0)
		t.entry = make([]byte, 0, entryPiece+longArgument)
		clear(t.long)
		t.long = t.long[:0]
	}
	if len(a) < pieceArgument || len(a) < longArgument && t.pieces == nil {
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
	if len(t.long) == 0 && t.pieces == nil {
		if len(entry) < longArgument {
			return log.Append(entry), false
		}
		return log.AppendParts(entry)
	}
	parts := append(make([][]byte, 0, len(t.pieces)+2*len(t.long)+1), t.pieces...)
	return log.AppendParts(t.appendPieces(parts, len(t.entry)-len(entry))...)
}

// appendPieces appends what is gathered, from byte at of the present buffer on.
func (t *Txn) appendPieces(parts [][]byte, at int) [][]byte {
	for _, l := range t.long {
		parts = append(parts, t.entry[at:l.at], l.part)
		at = l.at
	}
	return append(parts, t.entry[at:])
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
		if t.pieces != nil {
			t.pieces[0] = t.pieces[0][len(multiHead):]
			return t.entry
		}
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
