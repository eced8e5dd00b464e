package config

import "math"

// ownRows are the directives that Redis does not have. docs/configuration.md
// explains each.
func ownRows() []param {
	const noLimit = "limits on data are not supported yet"
	rows := noting(noLimit, refused, memory("maxdata", "0", 0, maxLong, own))
	rows = append(rows, noting(noLimit, noted, enum("maxdata-policy", "noeviction", own, policies()...))...)
	rows = append(rows, noting("a fixed share of memory-budget is used so far", noted,
		memory("pending-bytes-limit", "0", 1<<20, 64<<30, own|auto))...)
	rows = append(rows, noting("a disk that does not answer is not noticed yet", noted,
		number("disk-stall-timeout", "20", 0, 3600, "s", own))...)
	return append(rows,
		memory("memory-budget", "0", minMemoryBudget, maxLong, own|auto),
		memory("recovery-log-size", "0", 16<<20, 16<<30, own|auto),
		number("apply-interval", "1000", 1, 60_000, "ms", own),
		param{name: "repl-pin-limit", kind: kindPercent, def: "10%", max: maxLong, unit: "bytes or percent", flags: own},
		enum("repl-compression", "s2", own, "s2", "zstd", "no"),
		param{name: "disk-reserve", kind: kindPercent, def: "0", max: maxLong, unit: "bytes or percent", flags: own | auto},
		number("unauthenticated-timeout", "10", 0, math.MaxInt32, "s", own),
	)
}
