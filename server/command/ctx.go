package command

import (
	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/resp"
)

// Reply is an error whose text goes to the client as it is: "ERR syntax error".
type Reply string

func (r Reply) Error() string { return string(r) }

// The errors that many commands share, byte for byte Redis's.
const (
	ErrSyntax     Reply = "ERR syntax error"
	ErrWrongType  Reply = "WRONGTYPE Operation against a key holding the wrong kind of value"
	ErrNotInteger Reply = "ERR value is not an integer or out of range"
	ErrNotFloat   Reply = "ERR value is not a valid float"
	ErrNoSuchKey  Reply = "ERR no such key"
	ErrOutOfRange Reply = "ERR index out of range"
	ErrTooBig     Reply = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
)

// Ctx is what a handler sees of the command it runs.
type Ctx struct {
	Args [][]byte
	Cmd  *Command
	// Txn is open on the slots of the command's keys; on none for a command without keys.
	Txn  *engine.Txn
	Host Host
	// Client is who asks; nil in recovery and for a primary's stream.
	Client Client
	// NowMs is the time of this command, Unix milliseconds; one value for all commands of an EXEC. In recovery
	// and on a replica's stream it is the real time too, while the transaction has none.
	NowMs int64
	// W is the reply. A handler appends one whole reply, or returns an error and leaves W as it was.
	W *resp.Writer
	// InMulti says that the command runs inside EXEC.
	InMulti bool
	// Replaying says that the reply goes nowhere and nothing may depend on the time: recovery or a stream.
	Replaying bool

	// Passed is told which parts of the arguments have been read and are not needed soon, so that what is not in memory
	// need not stay there. May be nil.
	Passed func(part []byte)

	// Together is how many bytes the arguments of all commands have that are one transaction with this one, while it
	// stages; 0 when it is alone.
	Together int64

	// NoTouch says that the client's commands are no accesses to keys.
	NoTouch bool

	// Failed counts the errors answered.
	Failed int
	// Hits and Misses count the keys that were read, found and not. Who runs the commands takes them away.
	Hits, Misses int64
	// Expired names keys that were met with their time passed. Their deletion is part of what a writing transaction
	// commits; where nothing was committed, who runs the commands may delete them. The names live as long as the
	// arguments.
	Expired [][]byte

	staged     []staged
	stagings   int // how often what was staged did not hold
	streams    []Stream
	propagated bool
	suppressed bool
}

// Reset makes the context ready for the next command.
func (c *Ctx) Reset(cmd *Command, args [][]byte) {
	c.Cmd, c.Args = cmd, args
	c.propagated, c.suppressed = false, false
}

// Stream is a part of a reply that is produced while it is sent, after the locks are gone: at is its place in
// the reply's bytes. Run appends to w and calls flush when it has gathered enough; Close lets go of what Run
// needs, and is called once, run or not.
type Stream struct {
	At    int
	Run   func(w *resp.Writer, flush func() error) error
	Close func() error
}

// StreamFrom is how much of a reply is worth streaming, bytes.
const StreamFrom = 64 << 10

// Stream adds a part to the reply at its present end.
func (c *Ctx) Stream(run func(w *resp.Writer, flush func() error) error, close func() error) {
	c.streams = append(c.streams, Stream{len(c.W.Buf), run, close})
}

// TakeStreams gives the streams gathered and forgets them.
func (c *Ctx) TakeStreams() []Stream {
	s := c.streams
	c.streams = nil
	return s
}

// DropStreams closes the streams from the n-th on without running them.
func (c *Ctx) DropStreams(n int) {
	for _, s := range c.streams[n:] {
		_ = s.Close() // nothing was promised from it
	}
	c.streams = c.streams[:n]
}

// Streams counts the streams gathered.
func (c *Ctx) Streams() int { return len(c.streams) }

// Propagate says what is logged instead of the command as it came. Called more than once, all are, in order.
func (c *Ctx) Propagate(name string, args ...[]byte) {
	c.propagated = true
	c.Txn.LogStrings(name, args...)
}

// Suppress says that the command's own words are not logged, though it changed something (what it ran did
// that, or it is about this node only).
func (c *Ctx) Suppress() { c.suppressed = true }

// Finish logs the command as it came when it changed something and did not say otherwise. before is
// Txn.Dirty when it began.
func (c *Ctx) Finish(before int) {
	if c.Txn.Dirty() != before && !c.propagated && !c.suppressed {
		c.Txn.Log(c.Args...)
	}
}

// Event queues a keyspace event. class is Redis's letter: g generic, $ string, h hash, x expired ...
func (c *Ctx) Event(class byte, name string, key []byte) { c.Txn.Event(class, name, key) }

// Key looks a key up, see engine.Txn.Key. For a command that only reads, keys found and missed are counted, and
// missing ones are an event.
func (c *Ctx) Key(name []byte) (*engine.Key, error) {
	if !c.touches() {
		return c.KeyNoTouch(name)
	}
	k, err := c.Txn.Key(name)
	return k, c.lookedUp(name, k, err)
}

// KeyNoTouch is Key for who asks about a key and not for its value: no access.
func (c *Ctx) KeyNoTouch(name []byte) (*engine.Key, error) {
	k, err := c.Txn.KeyNoTouch(name)
	return k, c.lookedUp(name, k, err)
}

// KeyForValue is Key for who wants the value of a string and nothing else of the key, see engine.Txn.KeyForValue.
func (c *Ctx) KeyForValue(name []byte) (*engine.Key, error) {
	k, err := c.Txn.KeyForValue(name, c.touches())
	return k, c.lookedUp(name, k, err)
}

// touches says whether looking a key up counts as an access to it.
func (c *Ctx) touches() bool { return !c.NoTouch || c.Cmd.Name == "touch" }

// lookedUp follows a look at a key, whose error it passes on.
func (c *Ctx) lookedUp(name []byte, k *engine.Key, err error) error {
	if err != nil {
		return err
	}
	if c.Cmd.Flags&ReadOnly != 0 {
		c.CountRead(k)
	}
	if k.Expired() {
		c.meetExpired(name)
	}
	return nil
}

// LookAhead reads the records of many names at once, see engine.Txn.LookAhead; it is for commands that call Key with each.
func (c *Ctx) LookAhead(args [][]byte, step int) error {
	return c.Txn.LookAhead(args, step, c.touches())
}

// expiredMost bounds Expired. What a command meets beyond it waits for the expirer.
const expiredMost = 1024

func (c *Ctx) meetExpired(name []byte) {
	if !c.Replaying && len(c.Expired) < expiredMost {
		c.Expired = append(c.Expired, name)
	}
}

// CountRead counts a key that was looked up to be read. Commands that write call it for the keys whose value they
// give out, as Redis counts them.
func (c *Ctx) CountRead(k *engine.Key) {
	if k.Exists() {
		c.Hits++
		return
	}
	c.Misses++
	if !c.Replaying && c.Host.Settings().NotifyMiss.Load() && !c.asksInside() {
		c.Event('m', "keymiss", k.Name)
	}
}

// asksInside says whether the command is about the inside of values: a key that it misses is no event.
func (c *Ctx) asksInside() bool { return c.Cmd.parent != nil && c.Cmd.parent.Name == "object" }

// TypedKey looks a key up and refuses one that holds another type; a missing key is no error.
func (c *Ctx) TypedKey(name []byte, t layout.Type) (*engine.Key, error) {
	k, err := c.Key(name)
	if err != nil {
		return nil, err
	}
	if k.Exists() && k.Rec.Type != t {
		return nil, ErrWrongType
	}
	return k, nil
}

// Int parses an argument as a 64-bit integer.
func (c *Ctx) Int(i int) (int64, error) {
	n, ok := resp.ParseInt(c.Args[i])
	if !ok {
		return 0, ErrNotInteger
	}
	return n, nil
}

// Is says whether an argument is this word, in any case.
func (c *Ctx) Is(i int, word string) bool { return resp.IsWord(c.Args[i], word) }

// Recover says whether an error is for the client to read as it is.
func Recover(err error) (Reply, bool) {
	r, ok := err.(Reply)
	return r, ok
}
