// Package prefetch asks the processor to fetch memory that will be needed in a moment.
//
// Shape. One function. A look at a random row costs the time of a hundred instructions while memory answers; of ten rows
// that are asked for ahead the answers come together.
//
// Errors. None: it is advice, and an address that nothing is at is no harm.
//
// Not here: what will be needed.
package prefetch

// LineBytes is how much one call fetches, at the least: the cache line that the address is in.
const LineBytes = 64
