package command

import (
	"sync/atomic"

	"cairn/engine"
)

// Settings are the configuration values that handlers read, changed live by CONFIG SET.
type Settings struct {
	ProtoMaxBulk   atomic.Int64 // bytes; no string grows beyond it
	HashMaxEntries atomic.Int64 // hash-max-listpack-entries
	HashMaxValue   atomic.Int64 // hash-max-listpack-value, bytes
	MaxmemoryLFU   atomic.Bool  // maxmemory-policy is one of the LFU ones
	MaxmemoryLRU   atomic.Bool  // or one of the LRU ones
	NotifyMiss     atomic.Bool  // notify-keyspace-events asks for keys that were missed
}

// DefaultSettings fills s with Redis's defaults.
func (s *Settings) DefaultSettings() {
	s.ProtoMaxBulk.Store(512 << 20)
	s.HashMaxEntries.Store(512)
	s.HashMaxValue.Store(64)
}

// Host is what handlers ask of the node around them. Each family's file declares the part that it needs.
type Host interface {
	Settings() *Settings
	Store() *engine.Store
	Table() *Table

	KeyspaceHost
	MigrateHost
	ConnectionHost
	TransactionHost
	PubSubHost
	AdminHost
	ClusterHost
}

// Client is who asks, as far as handlers may know.
type Client interface {
	ID() int64
}

// host makes a handler of a method of Host.
func host[H any](f func(H, *Ctx) error) Handler {
	return func(c *Ctx) error { return f(any(c.Host).(H), c) }
}

// families lists the rows of all commands, a function per file.
func families() [][]Command {
	return [][]Command{
		stringCommands(),
		bitCommands(),
		hashCommands(),
		keyspaceCommands(),
		expireCommands(),
		dumpCommands(),
		migrateCommands(),
		connectionCommands(),
		clientCommands(),
		transactionCommands(),
		pubsubCommands(),
		adminCommands(),
		configCommands(),
		debugCommands(),
		introspectionCommands(),
		clusterCommands(),
	}
}
