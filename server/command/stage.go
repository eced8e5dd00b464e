package command

import (
	"errors"
	"fmt"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/slot"
)

// Staging: a value of engine.StageFrom bytes or more is written to the store piece by piece before its command takes
// a lock, so that neither the slot's lock, nor the pending rows, nor one batch ever hold it whole. The command then
// adopts what was staged. Who runs commands does
//
//	Stage (each command) -> Begin -> StagedHolds (else begin anew) -> Execute ... Commit -> EndStaged
//
// Staging never answers anything: where it meets an argument that makes no sense, a key that is missing, a value that
// is too small, it leaves the matter to the handler, which does without. What was staged and then not used (SETNX of
// a key that is there) is dropped in the background.
//
// Here are the values that are arguments. Those that are made of keys (COPY, BITOP, APPEND) stand in stage_made.go.

// staged is one value that waits for its command.
type staged struct {
	arg     []byte   // the argument that it is the value of
	of      *[]byte  // or the first argument of the command that makes it of keys: it tells the commands of an EXEC apart
	from    []origin // these keys
	rec     layout.Record
	rows    *engine.Staged
	created int64 // how many fields of it are new; of a hash that grows
	used    bool
}

const (
	// stageTries is how often a value is made of keys that keep changing, before it is made under the lock.
	stageTries = 3
	// manyFrom is how many bytes of arguments, of a command or of a transaction, are so many that each long string among
	// them is staged, also one below
	// engine.StageFrom.
	manyFrom = 4 << 20
)

// MayStage says whether the command may have something to stage, by the lengths of its arguments: this is asked of
// every command and must cost nothing.
func (c *Command) MayStage(args [][]byte) bool {
	if c.Stage == nil || c.StageKeys {
		return c.Stage != nil
	}
	if len(args) >= stageLookArgs {
		return true
	}
	total := 0
	for _, a := range args {
		total += len(a)
	}
	return total >= stageLookFrom
}

// Stage stages what the command brings. The transaction is not open.
func (c *Ctx) Stage() error {
	if c.Cmd.Stage == nil {
		return nil
	}
	return c.Cmd.Stage(c)
}

// StagedHolds says, once the locks are there, whether what was staged can still be used; else it is let go and has to
// be staged again.
func (c *Ctx) StagedHolds() (bool, error) {
	if len(c.staged) == 0 {
		return true, nil
	}
	for i := range c.staged {
		s := &c.staged[i]
		s.used = false
		same, err := c.unchanged(s.from)
		if err != nil || !same || s.rows.Stale() {
			c.stagings++
			return false, errors.Join(err, c.CloseStaged())
		}
	}
	return true, nil
}

// CloseStaged lets go of what was staged, used or not. The command may be tried again.
func (c *Ctx) CloseStaged() error {
	var err error
	for _, s := range c.staged {
		err = errors.Join(err, s.rows.Close())
	}
	clear(c.staged)
	c.staged = c.staged[:0]
	return err
}

// EndStaged is CloseStaged when the command is done with.
func (c *Ctx) EndStaged() error {
	c.stagings = 0
	return c.CloseStaged()
}

// hasStaged says whether the value of an argument is staged: then it was found sound.
func (c *Ctx) hasStaged(arg []byte) bool {
	for i := range c.staged {
		if s := &c.staged[i]; s.isArg(arg) {
			return true
		}
	}
	return false
}

// isArg compares places in memory: an argument is the same slice when it is staged and when its command runs.
func (s *staged) isArg(arg []byte) bool {
	return len(arg) > 0 && len(s.arg) == len(arg) && &s.arg[0] == &arg[0]
}

// adopt makes the staged value of an argument that of k, without a deadline; false when there is none that can be used.
func (c *Ctx) adopt(k *engine.Key, arg []byte) bool {
	for i := range c.staged {
		if s := &c.staged[i]; !s.used && s.isArg(arg) {
			return c.take(k, s)
		}
	}
	return false
}

func (c *Ctx) take(k *engine.Key, s *staged) bool {
	if c.Txn.Adopt(s.rows) != nil {
		return false // the transaction itself has emptied the slot
	}
	s.used = true
	k.Rec = s.rec
	return true
}

// stageString stages a string for key, unless it is shorter than from.
func (c *Ctx) stageString(key, value []byte, from int) error {
	if len(value) < from {
		return nil
	}
	g, err := c.Host.Store().Stage(slot.Of(key), true)
	if err != nil {
		return fmt.Errorf("stage the string at key %.64q: %w", key, err)
	}
	w := chunkWriter{put: g.Put}
	for rest := value; len(rest) > 0 && err == nil; {
		part := rest[:min(len(rest), layout.ChunkBytes)]
		rest = rest[len(part):]
		err = w.add(part)
		if c.Passed != nil {
			c.Passed(part)
		}
	}
	return c.addStaged(staged{arg: value, rows: g, rec: w.record(g.Gen(), int64(len(value)))}, err)
}

// addStaged ends the staging of one value.
func (c *Ctx) addStaged(s staged, err error) error {
	if err == nil {
		err = s.rows.Finish()
	}
	if err != nil {
		return errors.Join(err, s.rows.Close())
	}
	c.staged = append(c.staged, s)
	return nil
}

// stageArg stages argument i of commands that set one string to it.
func stageArg(i int) Handler {
	return func(c *Ctx) error {
		if i >= len(c.Args) {
			return nil
		}
		return c.stageString(c.Args[1], c.Args[i], c.stageFrom(0))
	}
}

// stageFrom is from where on a string is staged that comes with so many bytes of others.
func (c *Ctx) stageFrom(others int) int {
	if c.Together+int64(others) >= manyFrom {
		return layout.ChunkedOver + 1
	}
	return engine.StageFrom
}

// stagePairs stages the values of MSET.
func stagePairs(c *Ctx) error {
	total := 0
	for i := 2; i < len(c.Args); i += 2 {
		total += len(c.Args[i])
	}
	from := c.stageFrom(total)
	for i := 2; i < len(c.Args); i += 2 {
		if err := c.stageString(c.Args[i-1], c.Args[i], from); err != nil {
			return err
		}
	}
	return nil
}
