package command

import (
	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/resp"
	"cairn/replication/rdb"
)

// MIGRATE, as far as it is words. What it does takes connections, and is the server's. Semantics and texts follow
// Redis 7.2, cluster.c.

// MigrateHost is what MIGRATE asks of the node around it.
type MigrateHost interface {
	Migrate(*Ctx) error
	// Sender says what it is with the connection that brings a key of a slot, whose lock is held.
	Sender(c *Ctx, slot uint16) Sender
}

// Sender is what a node knows of who brings a key.
type Sender struct {
	Gone     bool // it has hung up: what it brings is not to be executed
	Older    bool // another one that has brought keys of the slot was made after it: without REPLACE it takes nothing's place
	Original bool // the slot was on its way there, and what is here was here before anything was
}

func migrateCommands() []Command {
	return []Command{{
		Name: "migrate", Arity: -6, Flags: Write | OwnTxns | Keyspace | Dangerous, Group: "generic", Since: "2.6.0",
		Keys: []KeySpec{
			{Flags: "RW access delete", BeginIndex: 3},
			{Flags: "RW access delete incomplete", BeginKeyword: "KEYS", StartFrom: -2, Last: -1},
		},
		Find:    migrateKeys,
		Summary: "Moves keys to another node.", Tips: "nondeterministic_output", Run: host(MigrateHost.Migrate),
	}}
}

// The words of MIGRATE: host port key db timeout [options] [KEYS key ...].
const (
	migrateHost = 1 + iota
	migratePort
	migrateKey
	migrateDB
	migrateTimeout
	migrateOptions
)

// migrateKeys finds the keys: the third word, or those behind KEYS. A password may be the word KEYS too.
func migrateKeys(dst []int, args [][]byte) []int {
	if len(args) < migrateOptions {
		return dst
	}
	first, last := migrateKey, migrateKey
	for i := migrateOptions; i < len(args); i++ {
		switch {
		case resp.IsWord(args[i], "auth"):
			i++
		case resp.IsWord(args[i], "auth2"):
			i += 2
		case resp.IsWord(args[i], "keys"):
			if len(args[migrateKey]) > 0 {
				return dst // the handler will refuse it
			}
			first, last = i+1, len(args)-1
			i = len(args)
		}
	}
	for i := first; i <= last; i++ {
		dst = append(dst, i)
	}
	return dst
}

// Migration is what a MIGRATE asks for.
type Migration struct {
	Host string
	Port int64
	Keys [][]byte
	DB   int64 // at the target
	// TimeoutMs is how long the target may take for any one step.
	TimeoutMs int64
	Copy      bool // the keys stay here
	Replace   bool // those of the target go

	Auth           bool
	User, Password []byte // no User: the default one
}

const (
	errMigrateKeys Reply = "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string"

	migrateTimeoutIfNone = 1000               // ms
	migrateTimeoutMost   = 365 * 86400 * 1000 // ms
)

// ParseMigration reads the words of MIGRATE.
func ParseMigration(c *Ctx) (m Migration, err error) {
	m.Host, m.Keys = string(c.Args[migrateHost]), c.Args[migrateKey:migrateKey+1]
	if err := m.parseOptions(c); err != nil {
		return m, err
	}
	if m.TimeoutMs, err = c.Int(migrateTimeout); err != nil {
		return m, err
	}
	if m.DB, err = c.Int(migrateDB); err != nil {
		return m, err
	}
	if m.TimeoutMs = min(m.TimeoutMs, migrateTimeoutMost); m.TimeoutMs <= 0 {
		m.TimeoutMs = migrateTimeoutIfNone
	}
	m.Port, _ = resp.ParseInt(c.Args[migratePort]) // what is no number is no port that anybody listens on
	return m, nil
}

func (m *Migration) parseOptions(c *Ctx) error {
	for i := migrateOptions; i < len(c.Args); i++ {
		more := len(c.Args) - 1 - i
		switch {
		case c.Is(i, "copy"):
			m.Copy = true
		case c.Is(i, "replace"):
			m.Replace = true
		case c.Is(i, "auth") && more >= 1:
			m.Auth, m.Password = true, c.Args[i+1]
			i++
		case c.Is(i, "auth2") && more >= 2:
			m.Auth, m.User, m.Password = true, c.Args[i+1], c.Args[i+2]
			i += 2
		case c.Is(i, "keys"):
			if len(c.Args[migrateKey]) != 0 {
				return errMigrateKeys
			}
			m.Keys = c.Args[i+1:]
			return nil
		default:
			return ErrSyntax
		}
	}
	return nil
}

// AppendPlainDump appends the payload of a string that is not in chunks, and gives ok false for any other value. It is not
// compressed: between nodes that takes longer than to send the bytes.
func AppendPlainDump(dst []byte, t *engine.Txn, k *engine.Key) (payload []byte, ok bool, err error) {
	if k.Rec.Type != layout.String || k.Rec.Form == layout.Rows {
		return dst, false, nil
	}
	v, err := t.Value(k)
	if err != nil {
		return dst, false, err
	}
	const neverPacked = 20 // bytes; so short a string is an integer, or as it is
	at := len(dst)
	if len(v) <= neverPacked {
		dst = rdb.AppendStringValue(dst, v)
	} else {
		dst = append(rdb.AppendLength(append(dst, rdb.TypeString), uint64(len(v))), v...)
	}
	return rdb.CloseDump(dst, at), true, nil
}
