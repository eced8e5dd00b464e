package config

import "math"

// refusedRows promise protection that this server does not give yet. They are
// known, so that CONFIG GET answers, but only their defaults are accepted:
// starting as if nothing had been asked for would be worse than not starting.
func refusedRows() []param {
	const noTLS = "TLS is not supported yet, and ignoring it would send everything in the clear"
	rows := noting("access control lists are not supported yet, and ignoring them would leave the server open",
		refused, text("aclfile", "", immutable))
	return append(rows, noting(noTLS, refused,
		number("tls-port", "0", 0, maxPort, "", 0),
		number("tls-session-cache-size", "20480", 0, maxInt, "", 0),
		number("tls-session-cache-timeout", "300", 0, maxInt, "s", 0),
		yesNo("tls-cluster", "no", 0),
		yesNo("tls-replication", "no", 0),
		enum("tls-auth-clients", "yes", 0, "no", "yes", "optional"),
		yesNo("tls-prefer-server-ciphers", "no", 0),
		yesNo("tls-session-caching", "yes", 0),
		text("tls-cert-file", "", 0),
		text("tls-key-file", "", 0),
		text("tls-key-file-pass", "", secret),
		text("tls-client-cert-file", "", 0),
		text("tls-client-key-file", "", 0),
		text("tls-client-key-file-pass", "", secret),
		text("tls-dh-params-file", "", 0),
		text("tls-ca-cert-file", "", 0),
		text("tls-ca-cert-dir", "", 0),
		text("tls-protocols", "", 0),
		text("tls-ciphers", "", 0),
		text("tls-ciphersuites", "", 0),
	)...)
}

// persistenceRows speak of RDB and AOF files, which are not kept here.
func persistenceRows() []param {
	rows := noting("no RDB file is kept on disk", ignored,
		yesNo("rdbchecksum", "yes", immutable),
		yesNo("rdbcompression", "yes", 0),
		yesNo("rdb-del-sync-files", "no", 0),
		yesNo("rdb-save-incremental-fsync", "yes", 0),
		yesNo("stop-writes-on-bgsave-error", "yes", 0),
		text("dbfilename", "dump.rdb", protected).with(baseName("dbfilename", "filename", true)),
		number("loading-process-events-interval-bytes", "2097152", 1024, maxInt, "bytes", hidden),
	)
	rows = append(rows, text("appenddirname", "appendonlydir", immutable).with(baseName("appenddirname", "dirname", false)))
	rows = append(rows, noting("the log is trimmed as it is applied, there is no AOF to rewrite", ignored,
		text("appendfilename", "appendonly.aof", immutable).with(baseName("appendfilename", "filename", false)),
		yesNo("aof-rewrite-incremental-fsync", "yes", 0),
		yesNo("no-appendfsync-on-rewrite", "no", 0),
		yesNo("aof-load-truncated", "yes", 0),
		yesNo("aof-use-rdb-preamble", "yes", 0),
		yesNo("aof-timestamp-enabled", "no", 0),
		yesNo("aof-disable-auto-gc", "no", hidden),
		number("auto-aof-rewrite-percentage", "100", 0, maxInt, "percent", 0),
		memory("auto-aof-rewrite-min-size", "67108864", 0, maxLong, 0),
	)...)
	rows = append(rows, noting("a full copy is always streamed", ignored,
		yesNo("repl-diskless-sync", "yes", 0))...)
	rows = append(rows, noting("the backlog is the log on disk and is always there", ignored,
		number("repl-backlog-ttl", "3600", 0, maxLong, "s", 0))...)
	rows = append(rows, noting("the old data is always dropped in the background", ignored,
		yesNo("replica-lazy-flush slave-lazy-flush", "no", 0))...)
	return append(rows, noting("a replica whose disk is full stops reading its stream and goes on later", ignored,
		yesNo("replica-ignore-disk-write-errors", "no", 0))...)
}

// memoryRows tune a table or an allocator that is not here.
func memoryRows() []param {
	rows := noting("there is no such allocator or table in memory", ignored,
		yesNo("activerehashing", "yes", 0),
		yesNo("jemalloc-bg-thread", "yes", 0),
		yesNo("activedefrag", "no", 0),
		number("active-defrag-cycle-min", "1", 1, 99, "percent", 0),
		number("active-defrag-cycle-max", "25", 1, 99, "percent", 0),
		number("active-defrag-threshold-lower", "10", 0, 1000, "percent", 0),
		number("active-defrag-threshold-upper", "100", 0, 1000, "percent", 0),
		number("active-defrag-max-scan-fields", "1000", 1, maxLong, "", 0),
		memory("active-defrag-ignore-bytes", "104857600", 1, maxLong, 0),
		yesNo("disable-thp", "yes", immutable),
	)
	return append(rows, noting("list nodes are compressed on disk, by the block", ignored,
		number("list-compress-depth", "0", 0, maxInt, "", 0))...)
}

// systemRows concern threads, processes and the system's own logs.
func systemRows() []param {
	rows := noting("every core is used as it is needed", ignored,
		number("io-threads", "1", 1, 128, "", immutable),
		yesNo("io-threads-do-reads", "no", immutable),
		text("server_cpulist", "", immutable),
		text("bio_cpulist", "", immutable),
		text("aof_rewrite_cpulist", "", immutable),
		text("bgsave_cpulist", "", immutable),
		yesNo("dynamic-hz", "yes", 0),
	)
	rows = append(rows, noting("the process keeps the name it was started by", ignored,
		yesNo("set-proc-title", "yes", immutable),
		text("proc-title-template", "{title} {listen-addr} {server-mode}", 0).with(checkTitle),
	)...)
	rows = append(rows, noting("the log goes to logfile or standard output", ignored,
		yesNo("always-show-logo", "no", immutable),
		yesNo("syslog-enabled", "no", immutable),
		text("syslog-ident", "redis", immutable),
		enum("syslog-facility", "local0", immutable,
			"user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"),
	)...)
	rows = append(rows, noting("it has no effect here", ignored,
		yesNo("crash-log-enabled", "yes", 0),
		yesNo("crash-memcheck-enabled", "yes", 0),
		yesNo("use-exit-on-panic", "no", hidden),
		number("watchdog-period", "0", 0, maxInt, "ms", hidden),
		text("ignore-warnings", "", 0),
		number("socket-mark-id", "0", 0, math.MaxUint32, "", immutable),
		enum("propagation-error-behavior", "ignore", 0, "ignore", "panic", "panic-on-replicas"),
	)...)
	rows = append(rows, noting("text is compared byte by byte", ignored, text("locale-collate", "", 0))...)
	return append(rows, noting("set OOMScoreAdjust in the service unit instead", ignored,
		enum("oom-score-adj", "no", 0, "no", "yes=relative", "absolute"),
		special("oom-score-adj-values", "0 200 800", multi, checkOOMValues),
	)...)
}
