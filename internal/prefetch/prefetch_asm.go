//go:build amd64 || arm64

package prefetch

import "unsafe"

// Line fetches the cache line at p.
//
//go:noescape
func Line(p unsafe.Pointer)
