package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"cairn/internal/slot"
	"cairn/tools/node"
)

const reshardText = `usage: go run ./tools/chaos reshard SCENE [flags]

Moves slots between nodes with redis-cli while clients write, and looks whether anything gets lost.

  back       a go-redis client reads, appends and sets fields while slots go back and forth: it sees no error, every value
             is exact, no node shows keys of slots that it does not own
  kill       SIGKILL of the source, the target, the tool or both nodes in the middle; they are started again at once, and one
             "redis-cli --cluster fix" must leave all slots covered, none open, each key on one primary with its last value
  failover   the source or the target fails over in the middle, by SIGKILL or when asked; the same must hold for what WAIT
             answered for, and for every key that was moved
  news       the old owner's pings arrive after the new owner's claim: never two owners or none beyond 2 x node timeout
  clients    other languages' clients meanwhile, in front of cairn and of redis-server; tools/clients has them

  go build -o bin/ ./cmd/...
  go run ./tools/chaos reshard kill --rounds 25
  go run ./tools/chaos reshard back --program redis-server --redis

flags:
`

// The moved slots are the lowest of the first shard, as redis-cli picks the lowest ones of a node.
const (
	toolLimit = 5 * time.Minute // for any run of redis-cli
	moveKeys  = 10              // keys in a MIGRATE, as redis-cli does unless told otherwise
)

// moveOptions are the flags of reshard.
type moveOptions struct {
	scene   string
	program string
	redis   bool
	rounds  int
	victim  string
	slots   int
	keys    int
	ops     int
	clients string
	timeout time.Duration
	untimed bool
	dir     string

	command    []string
	directives []string
	ownDir     bool
}

func newMoveOptions(scene string) (*moveOptions, *flag.FlagSet) {
	o := &moveOptions{scene: scene}
	f := flag.NewFlagSet("reshard", flag.ContinueOnError)
	f.StringVar(&o.program, "program", "bin/cairn server", "`program` with its leading arguments")
	f.BoolVar(&o.redis, "redis", false, "the program is a redis-server: no directives of cairn's own, and none of its own promises")
	f.IntVar(&o.rounds, "rounds", 1, "how `often`: moves there and back, kills of each victim, failovers of each kind, late pings")
	f.StringVar(&o.victim, "victim", "", "kill: source, target, tool or both `alone`; failover: kill-source, kill-target, ask-source or ask-target")
	f.IntVar(&o.slots, "slots", 400, "how many `slots` move")
	f.IntVar(&o.keys, "keys", 2000, "how many `keys` are in them")
	f.IntVar(&o.ops, "ops", 200_000, "back: at least this many `operations`")
	f.StringVar(&o.clients, "run", "", "clients: one `program` and its arguments; default all that are in tools/clients")
	usual := 2 * time.Second
	if scene == "back" || scene == "kill" {
		usual = 5 * time.Second // nobody is to fail over
	}
	f.DurationVar(&o.timeout, "node-timeout", usual, "cluster-node-timeout")
	f.BoolVar(&o.untimed, "untimed", false, "measure, but do not fail for times: for a machine that does other things")
	f.StringVar(&o.dir, "dir", "", "`folder` of the nodes; default a fresh temporary one, removed unless a promise is broken")
	f.Usage = func() {
		fmt.Fprint(f.Output(), reshardText)
		f.PrintDefaults()
	}
	return o, f
}

// scenes are what reshard can do.
func scenes() map[string]func(l *moveLab) error {
	return map[string]func(l *moveLab) error{
		"back": (*moveLab).back, "kill": (*moveLab).kills, "failover": (*moveLab).failovers, "news": (*moveLab).news, "clients": (*moveLab).clientsToo,
	}
}

func (o *moveOptions) complete(rest []string) (err error) {
	o.command = strings.Fields(o.program)
	switch {
	case len(rest) > 0:
		return fmt.Errorf("%q: no arguments beside flags", rest)
	case o.rounds < 1 || o.timeout < 100*time.Millisecond || o.ops < 1:
		return fmt.Errorf("rounds %d, node-timeout %v, ops %d: want at least 1, 100ms, 1", o.rounds, o.timeout, o.ops)
	case o.slots < 1 || o.slots > slot.Count/shards-1 || o.keys < o.slots:
		return fmt.Errorf("slots %d, keys %d: want 1 to %d slots, and a key for each", o.slots, o.keys, slot.Count/shards-1)
	case len(o.command) == 0:
		return errors.New("program: empty")
	}
	o.directives = []string{"--memory-budget", "64mb"}
	if o.redis {
		o.directives = redisDirectives()
	}
	if o.dir != "" {
		return os.MkdirAll(o.dir, 0o755)
	}
	o.ownDir = true
	o.dir, err = os.MkdirTemp("", "cairn-chaos-")
	return err
}

// redisDirectives let a redis-server keep what it acknowledges over a SIGKILL, as cairn does.
func redisDirectives() []string {
	return []string{"--save", "", "--appendonly", "yes", "--repl-diskless-sync-delay", "0"}
}

// runReshard is the subcommand.
func runReshard(ctx context.Context, args []string, out io.Writer) int {
	scene := ""
	if len(args) > 0 {
		scene = args[0]
	}
	o, flags := newMoveOptions(scene)
	run := scenes()[scene]
	if run == nil {
		flags.Usage()
		return 2
	}
	if err := flags.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if err := o.complete(flags.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
		return 2
	}
	logging.Disable() // of go-redis, which tells of every connection that a killed node refuses
	l := &moveLab{moveOptions: *o, ctx: ctx, out: out, tags: node.Tags(o.slots)}
	err := run(l)
	if err != nil {
		l.tell()
	}
	l.close()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		fmt.Fprintf(out, "\nFAIL: %v\n\nthe folder is kept: %s\n", err, o.dir)
		return 1
	}
	if o.ownDir {
		if err := os.RemoveAll(o.dir); err != nil {
			fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
		}
	}
	fmt.Fprintln(out, "PASS")
	return 0
}

// moveLab is a cluster between whose first two shards slots move.
type moveLab struct {
	moveOptions
	ctx     context.Context
	out     io.Writer
	tags    []string // a hash tag of slot i, with its braces
	cluster *node.Cluster
}

// start starts three primaries with a replica each.
func (l *moveLab) start(name string, program, directives []string) (err error) {
	l.cluster, err = node.StartCluster(node.ClusterSpec{
		Program: program, Args: directives, Dir: filepath.Join(l.dir, name), Primaries: shards, Replicas: 1, Timeout: l.timeout,
	}, settle)
	return err
}

func (l *moveLab) close() {
	if l.cluster != nil {
		l.cluster.Close()
		l.cluster = nil
	}
}

func (l *moveLab) say(format string, args ...any) {
	fmt.Fprintf(l.out, time.Now().Format("15:04:05.000")+"  "+format+"\n", args...)
}

// tell prints what each node says of itself, for who has to find out what went wrong.
func (l *moveLab) tell() {
	if l.cluster == nil {
		return
	}
	for _, m := range l.cluster.Members {
		if mine, err := m.Apart().Mine(); err != nil {
			l.say("%v", err)
		} else {
			l.say("%s, %s, %s: %s, epoch %d, slots %v, open %v", m.Name, m.Addr, mine.ID, mine.Flags, mine.Epoch, mine.Ranges, mine.Open)
		}
	}
}

// ends says from where to where slots are to move next, and how many: from where most of them are.
func (l *moveLab) ends() (from, to *node.Member, n int, err error) {
	var ends [2]*node.Member
	var has [2]int
	for k := range ends {
		if ends[k], _, err = l.cluster.Primary(k); err != nil {
			return nil, nil, 0, err
		}
		mine, err := ends[k].Mine()
		if err != nil {
			return nil, nil, 0, err
		}
		for s := range l.slots {
			if mine.Owns(uint16(s)) {
				has[k]++
			}
		}
	}
	if has[0] >= has[1] {
		return ends[0], ends[1], has[0], nil
	}
	return ends[1], ends[0], has[1], nil
}

// startMove starts a move in the direction of ends.
func (l *moveLab) startMove() (tool *node.Tool, from, to *node.Member, err error) {
	from, to, n, err := l.ends()
	if err != nil {
		return nil, nil, nil, err
	}
	if n == 0 {
		return nil, nil, nil, errors.New("neither end owns any of the slots")
	}
	tool, err = node.StartReshard(from, to, n, moveKeys, "--cluster-timeout", "10000")
	return tool, from, to, err
}

// wait waits for at most d, or until done is closed. An error says that the user has had enough.
func (l *moveLab) wait(d time.Duration, done <-chan struct{}) error {
	select {
	case <-l.ctx.Done():
		return l.ctx.Err()
	case <-done:
		return nil
	case <-time.After(d):
		return nil
	}
}

// sometime is a moment within about the length of a move.
func sometime(length time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(length)))
}
