package command

import (
	"strings"

	"cairn/internal/resp"
)

// Flags of a command, Redis's own.
type Flags uint64

// The flags that COMMAND INFO shows, and below them what only cairn asks.
const (
	Write Flags = 1 << iota
	ReadOnly
	DenyOOM
	Admin
	PubSub
	NoScript
	Blocking
	Loading
	Stale
	SkipMonitor
	SkipSlowlog
	Asking
	Fast
	NoAuth
	MayReplicate
	NoMulti
	MovableKeys
	AllowBusy
	NoAsyncLoading
	NoMandatoryKeys

	// AllSlots: works on every slot; in MULTI all of them are locked.
	AllSlots
	// NoKeysTxn: has no keys, but its handler opens transactions by itself (SCAN, RANDOMKEY).
	NoKeysTxn
	// OwnTxns: has keys, but its handler locks them by itself, more than once, and waits in between. Not in MULTI.
	OwnTxns
	// Dangerous, and so on: categories that no other flag implies.
	Dangerous
	Keyspace
	SkipReplicate // never logged verbatim
)

// KeySpec says where a command's keys are, in Redis's terms.
type KeySpec struct {
	Flags string // as COMMAND INFO shows them, space separated: "RO access"
	// BeginIndex is the argument with the first key; 0 with BeginKeyword set: after this word.
	BeginIndex   int
	BeginKeyword string
	StartFrom    int
	// A range: Last relative to the first key (negative: from the end), Step, Limit. Or a number of keys:
	// KeyNum true, the number at NumIndex and the keys from First on.
	Last, Step, Limit      int
	KeyNum                 bool
	NumIndex, First, KStep int
}

// Handler runs a command.
type Handler func(*Ctx) error

// Command is one row of the table.
type Command struct {
	Name  string // lower case; of a subcommand the last word only
	Arity int    // of the whole command, name included; negative: at least
	Flags Flags
	Keys  []KeySpec
	// Find tells where the keys are, for the few commands whose specs do not. Nil: the specs do.
	Find    func(dst []int, args [][]byte) []int
	Group   string // Redis's group: string, hash, generic, connection, server, pubsub, transactions, cluster
	Since   string
	Summary string
	ACL     string // categories that flags and group do not imply, space separated
	Tips    string // separated by newlines
	Run     Handler
	// Stage writes large values among the arguments to the store before any lock is taken, see stage.go. Most
	// commands have none. StageKeys: what it stages is made of what keys hold, so that its arguments may be short.
	Stage     Handler
	StageKeys bool
	// LongArg is the argument that is kept in a file while the command arrives, when it is long; 0: none. It is a slice
	// like any other, but its handler says what it has passed (Ctx.Passed), and nobody keeps a part of it.
	LongArg int
	Sub     []Command

	parent *Command
	stats  *Stats
}

// FullName is the name as in COMMAND LIST: "client|list".
func (c *Command) FullName() string {
	if c.parent != nil {
		return c.parent.Name + "|" + c.Name
	}
	return c.Name
}

// Parent is the container command of a subcommand, nil of any other.
func (c *Command) Parent() *Command { return c.parent }

// Is says whether the command has all of these flags.
func (c *Command) Is(f Flags) bool { return c.Flags&f == f }

// Table finds commands by name. It does not change once made, but for the counters of its rows.
type Table struct {
	byName map[string]*Command
	order  []*Command
}

// NewTable makes the table of all commands.
func NewTable() *Table {
	t := &Table{byName: make(map[string]*Command)}
	for _, family := range families() {
		for i := range family {
			t.add(&family[i])
		}
	}
	return t
}

func (t *Table) add(c *Command) {
	c.stats = &Stats{}
	t.byName[c.Name] = c
	t.order = append(t.order, c)
	for i := range c.Sub {
		sub := &c.Sub[i]
		sub.parent, sub.stats = c, &Stats{}
		if sub.Group == "" {
			sub.Group = c.Group
		}
	}
}

// All lists the commands in table order, containers without their subcommands.
func (t *Table) All() []*Command { return t.order }

// maxName is longer than any command's name: a longer word is not looked up.
const maxName = 32

// Lookup finds the command that args name, the subcommand where there is one. nil: there is no such command;
// a container whose subcommand is unknown or missing is given itself, with ok false.
func (t *Table) Lookup(args [][]byte) (c *Command, ok bool) {
	c = t.Named(args[0])
	if c == nil || len(c.Sub) == 0 {
		return c, c != nil
	}
	if len(args) > 1 {
		for i := range c.Sub {
			if resp.IsWord(args[1], c.Sub[i].Name) {
				return &c.Sub[i], true
			}
		}
	}
	// A container that is also a command by itself (COMMAND) runs when no subcommand is given.
	return c, len(args) == 1 && c.Run != nil
}

// Named finds a command by its own name, in any case.
func (t *Table) Named(name []byte) *Command {
	if c, ok := t.byName[string(name)]; ok {
		return c
	}
	if len(name) > maxName {
		return nil
	}
	var buf [maxName]byte
	for i, b := range name {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		buf[i] = b
	}
	return t.byName[string(buf[:len(name)])]
}

// ByFullName finds "get" or "client|list".
func (t *Table) ByFullName(name string) *Command {
	parent, sub, nested := strings.Cut(name, "|")
	c := t.Named([]byte(parent))
	if !nested || c == nil {
		return c
	}
	for i := range c.Sub {
		if strings.EqualFold(c.Sub[i].Name, sub) {
			return &c.Sub[i]
		}
	}
	return nil
}

// ArityOK says whether n arguments, the name included, are allowed.
func (c *Command) ArityOK(n int) bool {
	if c.Arity < 0 {
		return n >= -c.Arity
	}
	return n == c.Arity
}
