package config

import (
	"strconv"
	"strings"
	"sync/atomic"
)

// Values are the settings that the server reads. Every field may be read at any
// time from any goroutine, without a lock; CONFIG SET changes them one by one.
// The tag names the directive, whose row says default and range. A comment says
// what cannot be told from there.
type Values struct {
	// Sockets and clients.
	Bind                   Strings `directive:"bind"` // "-" before an address: may be missing; "*": all
	Port                   Int     `directive:"port"` // 0: no TCP
	TCPBacklog             Int     `directive:"tcp-backlog"`
	TCPKeepalive           Int     `directive:"tcp-keepalive"` // seconds, 0: off
	UnixSocket             String  `directive:"unixsocket"`    // "": none
	UnixSocketPerm         Int     `directive:"unixsocketperm"`
	BindSourceAddr         String  `directive:"bind-source-addr"`
	ProtectedMode          Bool    `directive:"protected-mode"`
	Timeout                Int     `directive:"timeout"` // seconds idle, 0: never
	MaxClients             Int     `directive:"maxclients"`
	MaxMemoryClients       Size    `directive:"maxmemory-clients"` // percent of maxmemory; 0: no limit
	ProtoMaxBulkLen        Int     `directive:"proto-max-bulk-len"`
	ClientQueryBuffer      Int     `directive:"client-query-buffer-limit"`
	OutputLimits           Limits  `directive:"client-output-buffer-limit"`
	TrackingTableMaxKeys   Int     `directive:"tracking-table-max-keys"` // 0: no limit
	UnauthenticatedTimeout Int     `directive:"unauthenticated-timeout"` // seconds, 0: never

	// Process.
	Daemonize         Bool                `directive:"daemonize"`
	Supervised        Enum[Supervision]   `directive:"supervised"`
	PidFile           String              `directive:"pidfile"`       // "": none
	Dir               String              `directive:"dir"`           // absolute
	AppendDirName     String              `directive:"appenddirname"` // says where the data folder is
	LogFile           String              `directive:"logfile"`       // "": standard output
	LogLevel          Enum[LogLevel]      `directive:"loglevel"`
	ShutdownTimeout   Int                 `directive:"shutdown-timeout"` // seconds
	ShutdownOnSigint  Bits[ShutdownFlags] `directive:"shutdown-on-sigint"`
	ShutdownOnSigterm Bits[ShutdownFlags] `directive:"shutdown-on-sigterm"`
	Hz                Int                 `directive:"hz"`

	// Who may do what.
	RequirePass            String             `directive:"requirepass"` // "": none
	MasterUser             String             `directive:"masteruser"`
	MasterAuth             String             `directive:"masterauth"`
	ACLPubSubDefault       Enum[PubSubAccess] `directive:"acl-pubsub-default"`
	ACLLogMaxLen           Int                `directive:"acllog-max-len"`
	EnableProtectedConfigs Enum[Access]       `directive:"enable-protected-configs"`
	EnableDebugCommand     Enum[Access]       `directive:"enable-debug-command"`
	EnableModuleCommand    Enum[Access]       `directive:"enable-module-command"`

	// Data and where it is kept.
	AppendOnly         Bool         `directive:"appendonly"`
	AppendFsync        Enum[Fsync]  `directive:"appendfsync"`
	Save               SavePoints   `directive:"save"`
	MaxMemory          Int          `directive:"maxmemory"` // 0: no limit
	MaxMemoryPolicy    Enum[Policy] `directive:"maxmemory-policy"`
	MaxMemorySamples   Int          `directive:"maxmemory-samples"`
	EvictionTenacity   Int          `directive:"maxmemory-eviction-tenacity"`
	MaxData            Int          `directive:"maxdata"` // 0: no limit
	MaxDataPolicy      Enum[Policy] `directive:"maxdata-policy"`
	LFULogFactor       Int          `directive:"lfu-log-factor"`
	LFUDecayTime       Int          `directive:"lfu-decay-time"` // minutes
	MemoryBudget       Int          `directive:"memory-budget"`  // effective, never 0
	RecoveryLogSize    Int          `directive:"recovery-log-size"`
	PendingBytesLimit  Int          `directive:"pending-bytes-limit"`
	ApplyInterval      Int          `directive:"apply-interval"` // milliseconds
	DiskReserve        Size         `directive:"disk-reserve"`   // percent of the disk; 0: found by the server
	DiskStallTimeout   Int          `directive:"disk-stall-timeout"`
	ActiveExpireEffort Int          `directive:"active-expire-effort"`
	LazyEviction       Bool         `directive:"lazyfree-lazy-eviction"`
	LazyExpire         Bool         `directive:"lazyfree-lazy-expire"`
	LazyServerDel      Bool         `directive:"lazyfree-lazy-server-del"`
	LazyUserDel        Bool         `directive:"lazyfree-lazy-user-del"`
	LazyUserFlush      Bool         `directive:"lazyfree-lazy-user-flush"`

	// Encodings, named as in Redis so that OBJECT ENCODING tells the truth.
	HashMaxListpackEntries Int            `directive:"hash-max-listpack-entries"`
	HashMaxListpackValue   Int            `directive:"hash-max-listpack-value"`
	ListMaxListpackSize    Int            `directive:"list-max-listpack-size"` // entries, or -1 .. -5: 4 .. 64 KiB
	SetMaxIntsetEntries    Int            `directive:"set-max-intset-entries"`
	SetMaxListpackEntries  Int            `directive:"set-max-listpack-entries"`
	SetMaxListpackValue    Int            `directive:"set-max-listpack-value"`
	ZSetMaxListpackEntries Int            `directive:"zset-max-listpack-entries"`
	ZSetMaxListpackValue   Int            `directive:"zset-max-listpack-value"`
	HLLSparseMaxBytes      Int            `directive:"hll-sparse-max-bytes"`
	StreamNodeMaxBytes     Int            `directive:"stream-node-max-bytes"`
	StreamNodeMaxEntries   Int            `directive:"stream-node-max-entries"`
	SanitizeDumpPayload    Enum[Sanitize] `directive:"sanitize-dump-payload"`

	// Replication.
	ReplicaOf              HostPort           `directive:"replicaof"`
	ReplicaServeStaleData  Bool               `directive:"replica-serve-stale-data"`
	ReplicaReadOnly        Bool               `directive:"replica-read-only"`
	ReplicaPriority        Int                `directive:"replica-priority"`
	ReplicaAnnounced       Bool               `directive:"replica-announced"`
	ReplicaAnnounceIP      String             `directive:"replica-announce-ip"`
	ReplicaAnnouncePort    Int                `directive:"replica-announce-port"`
	ReplicaIgnoreMaxMemory Bool               `directive:"replica-ignore-maxmemory"`
	ReplTimeout            Int                `directive:"repl-timeout"`
	ReplPingPeriod         Int                `directive:"repl-ping-replica-period"`
	ReplBacklogSize        Int                `directive:"repl-backlog-size"` // effective, never 0
	ReplPinLimit           Size               `directive:"repl-pin-limit"`    // percent of the disk
	ReplCompression        Enum[Compression]  `directive:"repl-compression"`
	ReplDisableNoDelay     Bool               `directive:"repl-disable-tcp-nodelay"`
	ReplDisklessLoad       Enum[DisklessLoad] `directive:"repl-diskless-load"`
	MinReplicasToWrite     Int                `directive:"min-replicas-to-write"`
	MinReplicasMaxLag      Int                `directive:"min-replicas-max-lag"`
	RDBKeySaveDelay        Int                `directive:"rdb-key-save-delay"` // microseconds a key; below 0: keys a microsecond
	KeyLoadDelay           Int                `directive:"key-load-delay"`     // as RDBKeySaveDelay

	// Cluster.
	ClusterEnabled          Bool               `directive:"cluster-enabled"`
	ClusterConfigFile       String             `directive:"cluster-config-file"`
	ClusterNodeTimeout      Int                `directive:"cluster-node-timeout"`  // milliseconds
	ClusterPingInterval     Int                `directive:"cluster-ping-interval"` // milliseconds, 0: half of the node timeout
	ClusterPort             Int                `directive:"cluster-port"`          // 0: port + 10000
	ClusterValidityFactor   Int                `directive:"cluster-replica-validity-factor"`
	ClusterMigrationBarrier Int                `directive:"cluster-migration-barrier"`
	ClusterAllowMigration   Bool               `directive:"cluster-allow-replica-migration"`
	ClusterNoFailover       Bool               `directive:"cluster-replica-no-failover"`
	ClusterFullCoverage     Bool               `directive:"cluster-require-full-coverage"`
	ClusterReadsWhenDown    Bool               `directive:"cluster-allow-reads-when-down"`
	ClusterPubSubWhenDown   Bool               `directive:"cluster-allow-pubsubshard-when-down"`
	ClusterLinkSendLimit    Int                `directive:"cluster-link-sendbuf-limit"` // 0: no limit
	ClusterAnnounceIP       String             `directive:"cluster-announce-ip"`
	ClusterAnnounceHostname String             `directive:"cluster-announce-hostname"`
	ClusterAnnounceNodename String             `directive:"cluster-announce-human-nodename"`
	ClusterAnnouncePort     Int                `directive:"cluster-announce-port"`
	ClusterAnnounceTLSPort  Int                `directive:"cluster-announce-tls-port"`
	ClusterAnnounceBusPort  Int                `directive:"cluster-announce-bus-port"`
	ClusterEndpointType     Enum[EndpointType] `directive:"cluster-preferred-endpoint-type"`
	ClusterBusProtected     Bool               `directive:"cluster-bus-port-protected-mode"`

	// Watching.
	NotifyKeyspaceEvents    Notify `directive:"notify-keyspace-events"`
	SlowlogSlowerThan       Int    `directive:"slowlog-log-slower-than"` // microseconds, below 0: off
	SlowlogMaxLen           Int    `directive:"slowlog-max-len"`
	LatencyMonitorThreshold Int    `directive:"latency-monitor-threshold"` // milliseconds, 0: off
	LatencyTracking         Bool   `directive:"latency-tracking"`
	LatencyPercentiles      Floats `directive:"latency-tracking-info-percentiles"`
	BusyReplyThreshold      Int    `directive:"busy-reply-threshold"` // milliseconds
}

// The choices of the enumerations, in the order of their rows.
type (
	// Supervision says who watches the process.
	Supervision int32
	// LogLevel is the least important event that is logged.
	LogLevel int32
	// PubSubAccess is what a new user may do with channels.
	PubSubAccess int32
	// Access says who may use a dangerous command: nobody, all, or clients of this machine.
	Access int32
	// Fsync says when a write is on the platter.
	Fsync int32
	// Policy is what goes first when a limit is met.
	Policy int32
	// Sanitize says whose payloads are checked deeply.
	Sanitize int32
	// DisklessLoad is how a replica takes a full copy.
	DisklessLoad int32
	// Compression is how a full copy between two nodes of this program is packed.
	Compression int32
	// EndpointType is what CLUSTER SLOTS names a node by.
	EndpointType int32
	// ShutdownFlags say how a signal ends the server; 0 is the default way.
	ShutdownFlags uint32
)

// Values of Supervision.
const (
	SupervisedUpstart Supervision = iota
	SupervisedSystemd
	SupervisedAuto
	SupervisedNo
)

// Values of LogLevel.
const (
	LogDebug LogLevel = iota
	LogVerbose
	LogNotice
	LogWarning
	LogNothing
)

// Values of PubSubAccess.
const (
	AllChannels PubSubAccess = iota
	ResetChannels
)

// Values of Access.
const (
	AccessNo Access = iota
	AccessYes
	AccessLocal
)

// Allows says whether a client may; local is true for one of this machine.
func (a Access) Allows(local bool) bool { return a == AccessYes || a == AccessLocal && local }

// Values of Fsync.
const (
	FsyncEverysec Fsync = iota
	FsyncAlways
	FsyncNo
)

// Values of Policy.
const (
	VolatileLRU Policy = iota
	VolatileLFU
	VolatileRandom
	VolatileTTL
	AllKeysLRU
	AllKeysLFU
	AllKeysRandom
	NoEviction
)

// Values of Sanitize.
const (
	SanitizeNo Sanitize = iota
	SanitizeYes
	SanitizeClients
)

// Values of DisklessLoad.
const (
	LoadDisabled DisklessLoad = iota
	LoadOnEmptyDB
	LoadSwapDB
)

// Values of Compression.
const (
	CompressS2 Compression = iota
	CompressZstd
	CompressNo
)

// Values of EndpointType.
const (
	EndpointIP EndpointType = iota
	EndpointHostname
	EndpointUnknown
)

// Values of ShutdownFlags.
const (
	ShutdownSave ShutdownFlags = 1 << iota
	ShutdownNoSave
	ShutdownNow
	ShutdownForce
)

// A holder is a field of Values. store takes canonical text.
type holder interface{ store(p *param, text string) }

// Bool is a yes or no.
type Bool struct{ v atomic.Bool }

// Load returns the value now.
func (b *Bool) Load() bool { return b.v.Load() }

func (b *Bool) store(_ *param, text string) { b.v.Store(text == "yes") }

// Int is a number, a time or a number of bytes. Past 2^63-1 it stays there.
type Int struct{ v atomic.Int64 }

// Load returns the value now.
func (n *Int) Load() int64 { return n.v.Load() }

func (n *Int) store(p *param, text string) {
	base := 10
	if p.kind == kindOctal {
		base = 8
	}
	// Canonical text is a number; one too big for int64 gives the biggest.
	v, _ := strconv.ParseInt(text, base, 64)
	n.v.Store(v)
}

// Size is a number of bytes, or a share of something.
type Size struct{ v atomic.Int64 }

// Of returns the bytes: as given, or that percentage of whole.
func (s *Size) Of(whole int64) int64 {
	v := s.v.Load()
	if v < 0 {
		return whole/100*-v + whole%100*-v/100
	}
	return v
}

// Load returns bytes, or a percentage as a negative number.
func (s *Size) Load() int64 { return s.v.Load() }

func (s *Size) store(_ *param, text string) {
	digits, percent := strings.CutSuffix(text, "%")
	v, _ := strconv.ParseInt(digits, 10, 64)
	if percent {
		v = -v
	}
	s.v.Store(v)
}

// held is a value too big for an atomic number. What Load returns is shared:
// read it only.
type held[T any] struct{ v atomic.Pointer[T] }

// Load returns the value now, to be read only.
func (h *held[T]) Load() T {
	if p := h.v.Load(); p != nil {
		return *p
	}
	var zero T
	return zero
}

func (h *held[T]) set(v T) { h.v.Store(&v) }

// String is a text.
type String struct{ held[string] }

func (s *String) store(_ *param, text string) { s.set(text) }

// Strings is a list of words.
type Strings struct{ held[[]string] }

func (s *Strings) store(_ *param, text string) { s.set(strings.Fields(text)) }

// Floats is a list of numbers.
type Floats struct{ held[[]float64] }

func (f *Floats) store(_ *param, text string) { f.set(parsePercentiles(text)) }

// SavePoints are those of the save directive.
type SavePoints struct{ held[[]SavePoint] }

func (s *SavePoints) store(_ *param, text string) { s.set(parseSave(text)) }

// Limits are the output buffer limits.
type Limits struct{ held[OutputLimits] }

func (l *Limits) store(_ *param, text string) { l.set(parseOutputLimits(text)) }

// Notify is a set of event classes.
type Notify struct{ v atomic.Uint32 }

// Load returns the value now.
func (n *Notify) Load() NotifyFlags { return NotifyFlags(n.v.Load()) }

func (n *Notify) store(_ *param, text string) {
	set, _ := parseNotify(text)
	n.v.Store(uint32(set))
}

// Primary is where a replica copies from; an empty Host is a primary.
type Primary struct {
	Host string
	Port uint16
}

// HostPort is the primary named by replicaof.
type HostPort struct{ held[Primary] }

func (h *HostPort) store(_ *param, text string) {
	host, port, _ := strings.Cut(text, " ")
	n, _ := strconv.ParseUint(port, 10, 16)
	h.set(Primary{host, uint16(n)})
}

// Enum is one of several words.
type Enum[T ~int32] struct{ v atomic.Int32 }

// Load returns the value now.
func (e *Enum[T]) Load() T { return T(e.v.Load()) }

func (e *Enum[T]) store(p *param, text string) { e.v.Store(int32(p.choice(text))) }

// Bits is any of several words.
type Bits[T ~uint32] struct{ v atomic.Uint32 }

// Load returns the value now.
func (b *Bits[T]) Load() T { return T(b.v.Load()) }

func (b *Bits[T]) store(p *param, text string) {
	mask, _ := p.bits(strings.Fields(text))
	b.v.Store(mask)
}
