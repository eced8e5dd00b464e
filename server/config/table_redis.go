package config

import "math"

func networkRows() []param {
	rows := []param{{name: "maxmemory-clients", kind: kindPercent, def: "0", max: maxLong, unit: "bytes or percent"}}
	rows = append(rows, noting("the system's own limit holds", noted,
		number("tcp-backlog", "511", 0, maxInt, "", immutable))...)
	return append(rows,
		special("bind", "* -::*", multi, checkBind),
		number("port", "6379", 0, maxPort, "", 0),
		number("tcp-keepalive", "300", 0, maxInt, "s", 0),
		text("unixsocket", "", immutable),
		param{name: "unixsocketperm", kind: kindOctal, def: "0", max: 0o777, flags: immutable},
		text("bind-source-addr", "", 0),
		yesNo("protected-mode", "yes", 0),
		number("timeout", "0", 0, maxInt, "s", 0),
		number("maxclients", "10000", 1, math.MaxUint32, "", 0),
		memory("proto-max-bulk-len", "536870912", 1<<20, maxLong, 0),
		memory("client-query-buffer-limit", "1073741824", 1<<20, maxLong, 0),
		special("client-output-buffer-limit",
			"normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", multi|cumulative, checkOutputLimits),
		number("tracking-table-max-keys", "1000000", 0, maxLong, "", 0),
	)
}

func processRows() []param {
	rows := noting("background work does not go by it", noted,
		number("hz", "10", 0, maxInt, "", 0).with(checkHz))
	rows = append(rows, noting("every stop applies and flushes all there is", noted,
		bits("shutdown-on-sigint", "default", 0, "default", "save", "nosave", "now", "force").with(checkSignal),
		bits("shutdown-on-sigterm", "default", 0, "default", "save", "nosave", "now", "force").with(checkSignal))...)
	return append(rows,
		number("shutdown-timeout", "10", 0, maxInt, "s", 0),
		yesNo("daemonize", "no", immutable),
		enum("supervised", "no", immutable, "upstart", "systemd", "auto", "no"),
		text("pidfile", "", immutable),
		special("dir", "", protected|notLoading, checkDir),
		text("logfile", "", immutable),
		enum("loglevel", "notice", 0, "debug", "verbose", "notice", "warning", "nothing"),
	)
}

func securityRows() []param {
	rows := noting("modules are not supported", noted,
		enum("enable-module-command", "no", immutable, "no", "yes", "local"))
	return append(rows,
		text("requirepass", "", secret),
		enum("acl-pubsub-default", "resetchannels", 0, "allchannels", "resetchannels"),
		number("acllog-max-len", "128", 0, maxLong, "", 0),
		enum("enable-protected-configs", "no", immutable, "no", "yes", "local"),
		enum("enable-debug-command", "no", immutable, "no", "yes", "local"),
	)
}

// policies are the words of maxmemory-policy and maxdata-policy.
func policies() []string {
	return []string{
		"volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl",
		"allkeys-lru", "allkeys-lfu", "allkeys-random", "noeviction",
	}
}

func dataRows() []param {
	const memoryOnly = "memory is a cache here and nothing is evicted, see memory-budget"
	rows := noting("there is one database, number 0", fixed,
		number("databases", "1", 1, maxInt, "", immutable).with(checkDatabases))
	rows = append(rows, noting("the log is always kept", noted,
		yesNo("appendonly", "no", notLoading),
		special("save", "3600 1 300 100 60 10000", multi|cumulative, checkSave))...)
	rows = append(rows, noting(memoryOnly, noted,
		memory("maxmemory", "0", 0, math.MaxUint64, 0),
		enum("maxmemory-policy", "noeviction", 0, policies()...),
		number("maxmemory-samples", "5", 1, maxInt, "", 0),
		number("maxmemory-eviction-tenacity", "10", 0, 100, "", 0),
		yesNo("lazyfree-lazy-eviction", "no", 0),
		number("lfu-log-factor", "10", 0, maxInt, "", 0),
		number("lfu-decay-time", "1", 0, maxInt, "min", 0))...)
	rows = append(rows, noting("expired keys are deleted as they come due", noted,
		number("active-expire-effort", "1", 1, 10, "", 0))...)
	rows = append(rows, noting("there is one way to delete", noted,
		yesNo("lazyfree-lazy-expire", "no", 0),
		yesNo("lazyfree-lazy-server-del", "no", 0),
		yesNo("lazyfree-lazy-user-del", "no", 0),
		yesNo("lazyfree-lazy-user-flush", "no", 0))...)
	return append(rows,
		enum("appendfsync", "everysec", 0, "everysec", "always", "no"),
	)
}

func encodingRows() []param {
	return []param{
		number("hash-max-listpack-entries hash-max-ziplist-entries", "512", 0, maxLong, "", 0),
		memory("hash-max-listpack-value hash-max-ziplist-value", "64", 0, maxLong, 0),
		number("list-max-listpack-size list-max-ziplist-size", "-2", math.MinInt32, maxInt, "", 0),
		number("set-max-intset-entries", "512", 0, maxLong, "", 0),
		number("set-max-listpack-entries", "128", 0, maxLong, "", 0),
		number("set-max-listpack-value", "64", 0, maxLong, "bytes", 0),
		number("zset-max-listpack-entries zset-max-ziplist-entries", "128", 0, maxLong, "", 0),
		memory("zset-max-listpack-value zset-max-ziplist-value", "64", 0, maxLong, 0),
		memory("hll-sparse-max-bytes", "3000", 0, maxLong, 0),
		memory("stream-node-max-bytes", "4096", 0, maxLong, 0),
		number("stream-node-max-entries", "100", 0, maxLong, "", 0),
		enum("sanitize-dump-payload", "no", 0, "no", "yes", "clients"),
	}
}

func replicationRows() []param {
	rows := []param{
		special("replicaof slaveof", "", immutable|multi, checkReplicaOf),
		text("masteruser", "", secret),
		text("masterauth", "", secret),
		yesNo("replica-serve-stale-data slave-serve-stale-data", "yes", 0),
		number("replica-priority slave-priority", "100", 0, maxInt, "", 0),
		yesNo("replica-announced", "yes", 0),
		text("replica-announce-ip slave-announce-ip", "", 0),
		number("replica-announce-port slave-announce-port", "0", 0, maxPort, "", 0),
		number("repl-timeout", "60", 1, maxInt, "s", 0),
		number("repl-ping-replica-period repl-ping-slave-period", "10", 1, maxInt, "s", 0),
		yesNo("repl-disable-tcp-nodelay", "no", 0),
	}
	rows = append(rows, noting("a replica's log is the stream of its primary, byte for byte: a write of its own has no place in it", noted,
		yesNo("replica-read-only slave-read-only", "yes", 0))...)
	rows = append(rows, noting("memory is a cache here and nothing is evicted, see memory-budget", noted,
		yesNo("replica-ignore-maxmemory slave-ignore-maxmemory", "yes", 0))...)
	rows = append(rows, noting("a replica always builds the new data beside the old, and swaps", noted,
		enum("repl-diskless-load", "disabled", notLoading, "disabled", "on-empty-db", "swapdb"))...)
	rows = append(rows, noting("each replica gets a snapshot of its own at once", ignored,
		number("repl-diskless-sync-delay", "5", 0, maxInt, "s", 0),
		number("repl-diskless-sync-max-replicas", "0", 0, maxInt, "", 0))...)
	rows = append(rows, noting("it slows Redis down for its own tests", noted,
		number("rdb-key-save-delay", "0", math.MinInt32, maxInt, "us", hidden),
		number("key-load-delay", "0", math.MinInt32, maxInt, "us", hidden))...)
	return append(rows,
		memory("repl-backlog-size", "0", 1, maxLong, auto),
		number("min-replicas-to-write min-slaves-to-write", "0", 0, maxInt, "", 0),
		number("min-replicas-max-lag min-slaves-max-lag", "10", 0, maxInt, "s", 0),
	)
}

func clusterRows() []param {
	return []param{
		yesNo("cluster-enabled", "no", immutable),
		text("cluster-config-file", "nodes.conf", immutable),
		number("cluster-node-timeout", "15000", 0, maxLong, "ms", 0),
		number("cluster-ping-interval", "0", 0, maxLong, "ms", hidden),
		number("cluster-port", "0", 0, maxPort, "", immutable),
		number("cluster-replica-validity-factor cluster-slave-validity-factor", "10", 0, maxInt, "", 0),
		number("cluster-migration-barrier", "1", 0, maxInt, "", 0),
		yesNo("cluster-allow-replica-migration", "yes", 0),
		yesNo("cluster-replica-no-failover cluster-slave-no-failover", "no", 0),
		yesNo("cluster-require-full-coverage", "yes", 0),
		yesNo("cluster-allow-reads-when-down", "no", 0),
		yesNo("cluster-allow-pubsubshard-when-down", "yes", 0),
		memory("cluster-link-sendbuf-limit", "0", 0, math.MaxUint64, 0),
		text("cluster-announce-ip", "", 0).with(checkAnnouncedIP),
		text("cluster-announce-hostname", "", 0).with(checkHostname),
		text("cluster-announce-human-nodename", "", 0).with(checkNodename),
		number("cluster-announce-port", "0", 0, maxPort, "", 0),
		number("cluster-announce-tls-port", "0", 0, maxPort, "", 0),
		number("cluster-announce-bus-port", "0", 0, maxPort, "", 0),
		enum("cluster-preferred-endpoint-type", "ip", 0, "ip", "hostname", "unknown-endpoint"),
		yesNo("cluster-bus-port-protected-mode", "no", 0),
	}
}

func watchRows() []param {
	return []param{
		special("notify-keyspace-events", "", 0, checkNotify),
		number("slowlog-log-slower-than", "10000", -1, maxLong, "us", 0),
		number("slowlog-max-len", "128", 0, maxLong, "", 0),
		number("latency-monitor-threshold", "0", 0, maxLong, "ms", 0),
		yesNo("latency-tracking", "yes", 0),
		special("latency-tracking-info-percentiles", "50 99 99.9", multi, checkPercentiles),
		number("busy-reply-threshold lua-time-limit", "5000", 0, maxLong, "ms", 0),
	}
}
