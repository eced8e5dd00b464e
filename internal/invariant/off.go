//go:build !invariants

package invariant

// Enabled says that costly checks are compiled in: only in a build with the tag
// "invariants", which this is not.
const Enabled = false
