//go:build invariants

package invariant

// Enabled says that costly checks are compiled in: this build has the tag
// "invariants".
const Enabled = true
