package server

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"cairn/engine"
	"cairn/engine/layout"
	"cairn/internal/glob"
	"cairn/internal/resp"
	"cairn/internal/slot"
	"cairn/server/command"
)

// DEBUG is for tests of the node itself: those of Redis, which take its words and answers for granted. It is
// refused unless enable-debug-command says otherwise.

const textNoDebug = `ERR DEBUG command not allowed. If the enable-debug-command option is set to "local", you can run it ` +
	`from a local connection, otherwise you need to set this option in the configuration file, and then restart the server.`

// debugCommand is one subcommand: args counts its words, DEBUG and itself included; below 0: at least.
type debugCommand struct {
	name string
	args int
	run  func(*Server, *command.Ctx) error
}

func debugCommands() []debugCommand {
	return []debugCommand{
		{"aof-flush-sleep", 3, debugNothing},
		{"change-repl-id", 2, (*Server).debugChangeID},
		{"config-rewrite-force-all", 2, (*Server).ConfigRewrite},
		{"clusterlink", 5, (*Server).debugLink},
		{"digest", 2, (*Server).debugDigest},
		{"digest-value", -2, (*Server).debugDigestValue},
		{"drop-cluster-packet-filter", 3, (*Server).debugPackets},
		{"error", 3, func(_ *Server, x *command.Ctx) error { return command.Reply(x.Args[2]) }},
		{"help", 2, (*Server).debugHelp},
		{"htstats", -3, (*Server).debugTable},
		{"htstats-key", -3, (*Server).debugTableOf},
		{"jmap", -2, debugNothing},
		{"loadaof", 2, (*Server).debugReload},
		{"log", 3, (*Server).debugLog},
		{"mallctl", -3, debugZero},
		{"mallctl-str", -3, debugZero},
		{"object", 3, (*Server).debugObject},
		{"panic", 2, (*Server).debugCrash},
		{"pause-cron", 3, (*Server).debugExpiryPause},
		{"populate", -3, (*Server).debugPopulate},
		{"protocol", 3, (*Server).debugProtocol},
		{"quicklist-packed-threshold", 3, debugNothing},
		{"reload", -2, (*Server).debugReload},
		{"replybuffer", 4, debugNothing},
		{"segfault", 2, (*Server).debugCrash},
		{"set-active-expire", 3, (*Server).debugActiveExpire},
		{"set-disable-deny-scripts", 3, debugNothing},
		{"set-skip-checksum-validation", 3, debugNothing},
		{"sleep", 3, (*Server).debugSleep},
		{"stringmatch-len", 4, (*Server).debugMatch},
	}
}

// Debug is DEBUG.
func (s *Server) Debug(x *command.Ctx) error {
	if !s.cfg.V.EnableDebugCommand.Load().Allows(clientOf(x).local) {
		return command.Reply(textNoDebug)
	}
	name := strings.ToLower(string(x.Args[1]))
	for _, d := range debugCommands() {
		if d.name == name && (d.args == len(x.Args) || d.args < 0 && len(x.Args) >= -d.args) {
			return d.run(s, x)
		}
	}
	return command.Reply(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.128s'. Try DEBUG HELP.", x.Args[1]))
}

// debugNothing accepts what concerns a part that is not here.
func debugNothing(_ *Server, x *command.Ctx) error {
	x.W.OK()
	return nil
}

// debugLink cuts links of the bus.
func (s *Server) debugLink(x *command.Ctx) error {
	if !s.ClusterEnabled() {
		return command.Reply("ERR Debug option only available for cluster mode enabled setup!")
	}
	if err := s.inCluster(); err != nil {
		return err
	}
	if _, err := find(s.bus.View(), x.Args[4]); err != nil {
		return err
	}
	switch {
	case x.Is(3, "to"):
		s.bus.KillLinks(string(x.Args[4]), true, false)
	case x.Is(3, "from"):
		s.bus.KillLinks(string(x.Args[4]), false, true)
	case x.Is(3, "all"):
		s.bus.KillLinks(string(x.Args[4]), true, true)
	default:
		return command.Reply(fmt.Sprintf("ERR Unknown direction %.128s", x.Args[3]))
	}
	x.W.OK()
	return nil
}

// debugPackets makes the node deaf for one type of message of the bus: -1 for none, -2 for all.
func (s *Server) debugPackets(x *command.Ctx) error {
	kind, err := x.Int(2)
	if err != nil {
		return err
	}
	if s.inCluster() == nil {
		s.bus.DropPackets(int(min(max(kind, -2), math.MaxUint16)))
	}
	x.W.OK()
	return nil
}

func debugZero(_ *Server, x *command.Ctx) error {
	x.W.Int(0)
	return nil
}

func (s *Server) debugHelp(x *command.Ctx) error {
	all := debugCommands()
	x.W.Array(len(all) + 1)
	x.W.Simple("DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
	for _, d := range all {
		x.W.Simple(strings.ToUpper(d.name))
	}
	return nil
}

// inSlot runs f in a transaction on one slot: that of EXEC, or one of its own in which deadlines do not count,
// since Redis looks at keys here that have expired and are not deleted.
func (s *Server) inSlot(x *command.Ctx, sl uint16, f func() error) error {
	if x.InMulti {
		return f()
	}
	x.Txn.Begin([]uint16{sl}, false, engine.Forever)
	err := f()
	x.Txn.End()
	return err
}

// debugSleep holds all data back for a while, as a server that does one thing at a time would.
func (s *Server) debugSleep(x *command.Ctx) error {
	sec, err := strconv.ParseFloat(string(x.Args[2]), 64)
	if err != nil || sec != sec {
		sec = 0
	}
	const most = 1e6 // so that the conversion does not overflow
	d := time.Duration(min(max(sec, 0), most) * float64(time.Second))
	if !x.InMulti {
		x.Txn.BeginAll(true, engine.Forever)
		defer x.Txn.End()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.stop:
	}
	x.W.OK()
	return nil
}

func (s *Server) debugActiveExpire(x *command.Ctx) error {
	n, _ := strconv.Atoi(string(x.Args[2])) // what is no number is 0, as in Redis
	s.stats.expiryOff.Store(n == 0)
	x.W.OK()
	return nil
}

// debugExpiryPause stops what runs by itself, of which the expirer is all that a client could notice.
func (s *Server) debugExpiryPause(x *command.Ctx) error {
	n, _ := strconv.Atoi(string(x.Args[2]))
	s.stats.expiryOff.Store(n != 0)
	x.W.OK()
	return nil
}

// debugReload applies and flushes everything; the data read afterwards comes from where a restart finds it.
func (s *Server) debugReload(x *command.Ctx) error {
	for i := 2; i < len(x.Args); i++ {
		if !x.Is(i, "merge") && !x.Is(i, "noflush") && !x.Is(i, "nosave") {
			return command.Reply("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.")
		}
	}
	if err := s.store.Flush(); err != nil {
		return err
	}
	x.W.OK()
	return nil
}

func (s *Server) debugLog(x *command.Ctx) error {
	s.log.Warning("DEBUG LOG: " + strings.NewReplacer("\n", " ", "\r", " ").Replace(string(x.Args[2])))
	x.W.OK()
	return nil
}

func (s *Server) debugCrash(*command.Ctx) error {
	s.crash()
	return nil
}

// debugChangeID gives the log a new id. All slots are held, so that nobody appends meanwhile. Unlike in Redis the
// id before stays known as the second one: the log refuses to forget where it came from.
func (s *Server) debugChangeID(x *command.Ctx) error {
	if x.InMulti {
		return command.Reply("ERR DEBUG CHANGE-REPL-ID is not allowed inside a transaction")
	}
	x.Txn.BeginAll(true, engine.Forever)
	defer x.Txn.End()
	h := follow(s.wal.History(), s.wal.End())
	if err := s.wal.SetHistory(h); err != nil {
		return err
	}
	s.store.SetHistory(appendHistory(nil, h))
	x.W.OK()
	return nil
}

func (s *Server) debugMatch(x *command.Ctx) error {
	if glob.Match(x.Args[2], x.Args[3], false) {
		x.W.Int(1)
	} else {
		x.W.Int(0)
	}
	return nil
}

func (s *Server) debugObject(x *command.Ctx) error {
	sl := slot.Of(x.Args[2])
	idle, _ := s.AccessInfo(sl, x.Args[2])
	return s.inSlot(x, sl, func() error {
		k, err := x.Txn.KeyNoTouch(x.Args[2])
		if err != nil {
			return err
		}
		if !k.Exists() {
			return command.ErrNoSuchKey
		}
		lru := (s.accessClock.Load() - idle) & (1<<24 - 1)
		x.W.Simple(fmt.Sprintf("Value at:0x%x refcount:1 encoding:%s serializedlength:%d lru:%d lru_seconds_idle:%d",
			k.Hash, command.EncodingName(&k.Rec), command.ValueBytes(&k.Rec)+1, lru, idle))
		return nil
	})
}

func (s *Server) debugTable(x *command.Ctx) error {
	db, ok := resp.ParseInt(x.Args[2])
	if !ok {
		return command.ErrNotInteger
	}
	if db != 0 {
		return command.Reply("ERR Out of range database")
	}
	x.W.Verbatim("txt", fmt.Appendf(nil, "[Dictionary HT]\nkeys on disk: %d\n[Expires HT]\nNo stats available for empty dictionaries\n", s.store.Keys()))
	return nil
}

func (s *Server) debugTableOf(x *command.Ctx) error {
	return s.inSlot(x, slot.Of(x.Args[2]), func() error {
		k, err := x.Txn.Key(x.Args[2])
		if err != nil {
			return err
		}
		if !k.Exists() {
			return command.ErrNoSuchKey
		}
		if command.EncodingName(&k.Rec) != "hashtable" {
			return command.Reply("ERR The value stored at the specified key is not represented using an hash table")
		}
		x.W.Verbatim("txt", fmt.Appendf(nil, "rows on disk: %d\n", k.Rec.Count))
		return nil
	})
}

func (s *Server) debugDigestValue(x *command.Ctx) error {
	x.W.Array(len(x.Args) - 2)
	for _, name := range x.Args[2:] {
		var d command.Digest
		err := s.inSlot(x, slot.Of(name), func() error {
			k, err := x.Txn.Key(name)
			if err != nil || !k.Exists() {
				return err
			}
			return d.MixValue(x.Txn, k)
		})
		if err != nil {
			return err
		}
		x.W.Simple(fmt.Sprintf("%x", d[:]))
	}
	return nil
}

// digestBatch is how many keys of a slot one transaction looks at: values that are read stay with it.
const digestBatch = 256

func (s *Server) debugDigest(x *command.Ctx) error {
	var d command.Digest
	if s.store.Keys() > 0 {
		d.Mix([]byte{0, 0, 0, 0}) // the number of the database
	}
	for sl := range uint16(slot.Count) {
		if s.store.SlotCounters(sl).Keys == 0 && !x.InMulti {
			continue
		}
		if err := s.digestSlot(x, sl, &d); err != nil {
			return err
		}
	}
	x.W.Simple(fmt.Sprintf("%x", d[:]))
	return nil
}

func (s *Server) digestSlot(x *command.Ctx, sl uint16, d *command.Digest) error {
	var walk *engine.Records
	err := s.inSlot(x, sl, func() (err error) {
		if walk, err = x.Txn.Records(sl, 0, 0); err == nil {
			walk.KeepOpen()
		}
		return err
	})
	if err != nil {
		return err
	}
	for walk.Valid() && err == nil {
		err = s.inSlot(x, sl, func() error {
			for n := 0; n < digestBatch && walk.Valid(); n++ {
				k := &engine.Key{Name: walk.Key(), Slot: sl, Hash: layout.Hash(walk.Key()), Rec: *walk.Record()}
				var one command.Digest
				one.Mix(k.Name)
				if err := one.MixValue(x.Txn, k); err != nil {
					return err
				}
				d.XorSum(one[:])
				walk.Next()
			}
			return nil
		})
	}
	return errors.Join(err, walk.Close())
}

// debugPopulate makes keys, each by SET in a transaction of its own, leaving out those that are there.
func (s *Server) debugPopulate(x *command.Ctx) error {
	if len(x.Args) > 5 {
		return command.Reply("ERR unknown subcommand or wrong number of arguments for 'populate'. Try DEBUG HELP.")
	}
	if x.InMulti {
		return command.Reply("ERR DEBUG POPULATE is not allowed inside a transaction")
	}
	n, ok := resp.ParseInt(x.Args[2])
	if !ok || n < 0 {
		return command.Reply("ERR value is out of range, must be positive")
	}
	prefix, size := "key", int64(0)
	if len(x.Args) > 3 {
		prefix = string(x.Args[3])
	}
	if len(x.Args) > 4 {
		if size, ok = resp.ParseInt(x.Args[4]); !ok || size < 0 || size > s.settings.ProtoMaxBulk.Load() {
			return command.Reply("ERR value is out of range, must be positive")
		}
	}
	c := clientOf(x)
	for i := int64(0); i < n && !c.killed.Load() && !s.draining.Load(); i++ {
		value := fmt.Appendf(nil, "value:%d", i)
		if size > 0 {
			value = append(value, make([]byte, max(size-int64(len(value)), 0))...)[:size]
		}
		if err := s.populate(x, fmt.Appendf(nil, "%s:%d", prefix, i), value); err != nil {
			return err
		}
	}
	x.W.OK()
	return nil
}

func (s *Server) populate(x *command.Ctx, key, value []byte) error {
	args := [][]byte{[]byte("SET"), key, value, []byte("NX")}
	set, _ := s.table.Lookup(args)
	for {
		if err := s.store.Reserve(argBytes(args)); err != nil {
			return err
		}
		nowMs := s.clock()
		x.Txn.Begin([]uint16{slot.Of(key)}, true, nowMs)
		inner := command.Ctx{Txn: x.Txn, Host: s, Client: x.Client, W: &resp.Writer{}, NowMs: nowMs}
		inner.Reset(set, args)
		if err := inner.Execute(); err != nil {
			x.Txn.End()
			return err
		}
		if _, err := x.Txn.Commit(); !errors.Is(err, engine.ErrRerouted) {
			s.events.deliver(s)
			return err
		}
	}
}
