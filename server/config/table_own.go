package config

import "math"

// ownRows are the directives that Redis does not have. docs/configuration.md
// explains each.
func ownRows() []param {
	return []param{
		memory("memory-budget", "0", minMemoryBudget, maxLong, own|auto),
		memory("maxdata", "0", 0, maxLong, own),
		enum("maxdata-policy", "noeviction", own, policies()...),
		memory("recovery-log-size", "0", 16<<20, 16<<30, own|auto),
		memory("pending-bytes-limit", "0", 1<<20, 64<<30, own|auto),
		number("apply-interval", "1000", 1, 60_000, "ms", own),
		{name: "repl-pin-limit", kind: kindPercent, def: "10%", max: maxLong, unit: "bytes or percent", flags: own},
		{name: "disk-reserve", kind: kindPercent, def: "0", max: maxLong, unit: "bytes or percent", flags: own | auto},
		number("disk-stall-timeout", "20", 0, 3600, "s", own),
		number("unauthenticated-timeout", "10", 0, math.MaxInt32, "s", own),
	}
}
