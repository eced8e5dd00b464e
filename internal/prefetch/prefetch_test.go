package prefetch

import (
	"testing"
	"unsafe"
)

// Advice changes nothing and reads nothing: any address will do.
func TestLineTakesAnyAddress(t *testing.T) {
	b := make([]byte, 2*LineBytes)
	b[LineBytes] = 7
	Line(unsafe.Pointer(&b[LineBytes]))
	Line(nil)
	if b[LineBytes] != 7 {
		t.Errorf("%d, want 7", b[LineBytes])
	}
}
