// Package floorplan is the plan of who may import whom, and the test that holds
// the tree to it.
//
// Shape. Plan lists every package, lowest floor first, also those that are not
// written yet. A package imports only packages of lower floors, and of these only
// what its line allows. Doors lists every library and the packages that may import
// it. Bans lists parts of the standard library that a package must do without.
// Check compares a tree with all three.
//
// Changing a table is a design decision: the commit says why.
//
// Errors. Check returns one sentence for each broken rule. It names the package,
// the import, the rule and its reason.
//
// Tests of a package may import any floor. internal/testkit is for them alone.
// Libraries have the same doors in tests, and a few are for tests only.
//
// Not here: rules about what stands in a file; they are in tools/lint.
package floorplan

// Module is the prefix of our own import paths. The tables leave it out.
const Module = "cairn"

// Testkit may be imported by _test.go files only.
const Testkit = "internal/testkit"

// Floor is a set of packages that do not import each other.
type Floor struct {
	Name     string
	Packages []Package
}

// Package is one line of the plan.
type Package struct {
	Path string
	// May lists what of the lower floors it may import: a package, "below" for
	// all lower floors, or a name of groups.
	May []string
}

// groups are names for sets of packages in May.
var groups = map[string][]string{
	"ground":  {"internal/slot", "internal/resp", "internal/glob", "internal/invariant", "internal/datadir", "internal/spill", "internal/prefetch", "internal/coldread"},
	"formats": {"engine/layout", "cluster/wire", "cluster/nodesconf", "replication/rdb", "replication/rows", "wal/record"},
	"operators": {
		"tools/admin", "tools/local", "tools/proxy", "tools/console", "tools/convert",
	},
}

// Plan is the floor plan, lowest floor first.
//
// The rooms of a store stand above the formats, and the rooms of the server above
// the commands, because they use their types and packages of one floor do not
// import each other.
var Plan = []Floor{
	{"ground", []Package{
		{"internal/slot", nil},
		{"internal/resp", nil},
		{"internal/glob", nil},
		{"internal/invariant", nil},
		{"internal/datadir", nil},
		{"internal/spill", nil},
		{"internal/prefetch", nil},
		{"internal/coldread", nil},
		{"internal/testkit", nil},
	}},
	{"formats", []Package{
		{"engine/layout", []string{"ground"}},
		{"cluster/wire", []string{"ground"}},
		{"cluster/nodesconf", []string{"ground"}},
		{"replication/rdb", []string{"ground"}},
		{"replication/rows", nil},
		{"wal/record", []string{"ground"}},
	}},
	{"rows in memory", []Package{
		{"engine/cache", []string{"engine/layout", "ground"}},
		{"engine/pending", []string{"engine/layout", "ground"}},
		{"engine/filter", nil},
	}},
	{"stores and machines", []Package{
		{"engine", []string{"engine/layout", "engine/cache", "engine/pending", "engine/filter", "ground"}},
		{"wal", []string{"wal/record", "ground"}},
		{"cluster", []string{"cluster/wire", "cluster/nodesconf", "ground"}},
		{"replication/psync", []string{"ground"}},
	}},
	{"drivers", []Package{
		{"cluster/bus", []string{"cluster", "cluster/wire", "cluster/nodesconf", "ground"}},
		{"replication", []string{"replication/psync", "replication/rdb", "wal", "engine", "ground"}},
	}},
	{"commands", []Package{
		{"server/command", []string{"engine", "engine/layout", "replication/rdb", "replication/rows", "ground"}},
		{"server/config", []string{"ground"}},
	}},
	{"rooms of the server", []Package{
		{"server/script", []string{"server/command", "ground"}},
		{"server/acl", []string{"server/command", "ground"}},
		{"server/pubsub", []string{"server/command", "ground"}},
	}},
	{"service", []Package{
		{"server", []string{"below"}},
	}},
	// bench compares servers that it starts, as the checks do; no other program may start one this way.
	{"a server as a process, for benchmark and checks", []Package{
		{"tools/node", []string{"ground"}},
	}},
	{"cluster administration, beside the service", []Package{
		{"tools/admin", []string{"ground", "formats"}},
	}},
	{"beside the service", []Package{
		{"bench", []string{"tools/node", "internal/resp", "internal/slot"}},
		{"tools/local", []string{"tools/admin", "ground", "formats"}},
		{"tools/proxy", []string{"tools/admin", "ground", "formats"}},
		{"tools/console", []string{"tools/admin", "ground", "formats"}},
		{"tools/convert", []string{"tools/admin", "ground", "formats"}},
	}},
	{"programs", []Package{
		{"cmd/cairn", []string{"server", "server/config", "operators", "ground"}},
		{"cmd/cairn-bench", []string{"bench"}},
	}},
	{"checks", []Package{
		{"tools/floorplan", nil},
		{"tools/lint", nil},
		{"tools/chaos", []string{"tools/node", "ground"}},
		{"tools/crash", []string{"tools/node", "ground"}},
		{"tools/bars", []string{"tools/node", "ground"}},
	}},
}

// Ban is an import that a package must do without, and why. It holds for the
// packages below the import, too, except those in harmless.
type Ban struct {
	Import string
	Why    string
}

// harmless are packages below a banned one that hold only values.
var harmless = map[string]bool{"net/netip": true}

const (
	noFile  = "a format works on bytes, or on a reader and writer it is given; its caller owns files"
	noNet   = "connections belong to the drivers and to the server"
	noClock = "the caller passes the time, so that a test can own it"
	noRand  = "the caller passes a function for random numbers, so that one seed gives one run"
	noLock  = "a state machine is a value that one goroutine at a time changes; its driver locks"
)

var machineBans = []Ban{
	{"net", "a state machine talks to nobody; its driver owns the sockets"},
	{"os", "a state machine stores nothing; an effect asks the driver to save"},
	{"time", noClock},
	{"sync", noLock},
	{"golang.org/x/sync", noLock},
	{"math/rand", noRand},
	{"crypto/rand", noRand},
}

// Bans lists for each package what it must do without.
var Bans = map[string][]Ban{
	"internal/resp":     {{"net", noNet}, {"time", noClock}},
	"engine/layout":     {{"io", noFile}, {"os", noFile}, {"net", noNet}, {"time", noClock}},
	"cluster/wire":      {{"io", noFile}, {"os", noFile}, {"net", noNet}, {"time", noClock}},
	"cluster/nodesconf": {{"os", noFile}, {"net", noNet}, {"time", noClock}},
	"replication/rdb":   {{"os", noFile}, {"net", noNet}, {"time", noClock}},
	"replication/rows":  {{"os", noFile}, {"net", noNet}, {"time", noClock}},
	"wal/record":        {{"os", noFile}, {"net", noNet}, {"time", noClock}},
	"engine/cache":      {{"os", noFile}, {"net", noNet}, {"time", noClock}},
	"engine/pending":    {{"os", noFile}, {"net", noNet}, {"time", noClock}},
	"engine/filter":     {{"os", noFile}, {"net", noNet}, {"time", noClock}},
	"engine":            {{"net", noNet}},
	"wal":               {{"net", noNet}},
	"cluster":           machineBans,
	"replication/psync": machineBans,
	"server/command":    {{"net", noNet}, {"time", noClock}},
	"server/script":     {{"net", noNet}},
	"server/acl":        {{"net", noNet}},
	"server/pubsub":     {{"net", noNet}},
}

// Door says which packages may import a library. "x/..." is x and all below it,
// "..." is everything.
type Door struct {
	Library string // import path; all packages below it, unless they have their own line
	Doors   []string
	Tests   []string // packages whose tests may import it, beside those of Doors
}

var everywhere = []string{"..."}

// Doors lists every library. One that is not here is not used: a new one is a
// design decision, too.
var Doors = []Door{
	{Library: "github.com/cockroachdb/pebble/v2", Doors: []string{"engine"}},
	{Library: "github.com/cockroachdb/pebble/v2/vfs", Doors: []string{"engine", "wal", "cluster/bus"}, Tests: everywhere},
	{Library: "github.com/cockroachdb/errors", Doors: []string{"engine"}},
	{Library: "github.com/cockroachdb/redact", Doors: []string{"engine"}},
	{Library: "github.com/cockroachdb/crlib", Doors: []string{"engine"}},
	{Library: "github.com/tidwall/redcon", Doors: []string{"server", "internal/resp"}},
	{Library: "github.com/klauspost/compress", Doors: []string{"replication/..."}},
	{Library: "github.com/spf13/viper", Doors: []string{"server/config"}},
	{Library: "github.com/tidwall/btree", Doors: []string{"engine/..."}},
	{Library: "github.com/cespare/xxhash/v2", Doors: []string{"engine/..."}},

	{Library: "github.com/go-viper/mapstructure/v2", Doors: []string{"server/config"}},
	{Library: "github.com/pelletier/go-toml/v2", Doors: []string{"server/config"}},
	{Library: "go.yaml.in/yaml/v3", Doors: []string{"server/config"}},
	{Library: "github.com/spf13/pflag", Doors: []string{"server/config", "cmd/..."}},
	{Library: "github.com/spf13/cobra", Doors: []string{"cmd/..."}},
	{Library: "github.com/coreos/go-systemd/v22", Doors: []string{"cmd/cairn"}},
	{Library: "github.com/KimMachineGun/automemlimit", Doors: []string{"cmd/cairn", "server"}},
	{Library: "gopkg.in/natefinch/lumberjack.v2", Doors: []string{"cmd/cairn", "server"}},
	{Library: "github.com/prometheus/client_golang", Doors: []string{"server", "tools/console"}},
	{Library: "github.com/yuin/gopher-lua", Doors: []string{"server/script"}},
	{Library: "github.com/HdrHistogram/hdrhistogram-go", Doors: []string{"bench"}},
	{Library: "gonum.org/v1/plot", Doors: []string{"bench"}},
	{Library: "golang.org/x/sync", Doors: everywhere},
	{Library: "golang.org/x/sys", Doors: []string{"engine", "wal", "cluster/bus", "server", "internal/spill", "internal/coldread", "cmd/...", "bench", "tools/..."}},

	{Library: "golang.org/x/tools", Doors: []string{"tools/lint", "tools/floorplan"}},
	{Library: "github.com/anishathalye/porcupine", Doors: []string{"tools/chaos", "tools/crash"}, Tests: everywhere},
	{Library: "github.com/redis/go-redis/v9", Doors: []string{"tools/chaos"}, Tests: everywhere},
	{Library: "github.com/rogpeppe/go-internal", Tests: everywhere},
	{Library: "github.com/cockroachdb/datadriven", Tests: everywhere},
	{Library: "go.uber.org/goleak", Tests: everywhere},
	{Library: "pgregory.net/rapid", Tests: everywhere},
}
