// Package invariant stops the process when a belief about our own state is broken.
//
// Shape. Check panics with a text that begins with "BUG: ". Cheap checks are
// always on. A costly one stands behind Enabled, which is true only in a build
// with the tag "invariants":
//
//	if invariant.Enabled {
//		invariant.Check(sorted(rows), "cut at %d: rows out of order", cut)
//	}
//
// Errors. A panic, never a returned error. The text names the thing and both
// numbers: "BUG: slot 16384 outside [0, 16384)".
//
// Not here: what clients, peers and disks do. Their mistakes are expected and are
// returned as errors; no bytes from outside may reach a Check.
package invariant

import (
	"fmt"
	"reflect"
)

// Check panics with "BUG: " and the formatted text unless ok. It allocates nothing
// when ok, so it may stand on a hot path.
//
// The price of that: an argument is shown as the integer, float, bool, text or
// bytes it is made of, without its String or Error method, and one of any other
// kind is shown as the name of its type. A text that needs more is for Fail.
func Check(ok bool, format string, args ...any) {
	if ok {
		return
	}
	// fmt keeps what it is given, so an argument handed to it would have to be
	// boxed on the heap by the caller, also in the case that ok is true. Copies
	// of the plain values do not tie the caller's boxes to fmt.
	copies := make([]any, len(args))
	for i, arg := range args {
		copies[i] = plain(reflect.ValueOf(arg))
	}
	Fail(format, copies...)
}

// Fail panics with "BUG: " and the formatted text. Its arguments are allocated
// where it is called, so it stands inside an if.
func Fail(format string, args ...any) {
	panic("BUG: " + fmt.Sprintf(format, args...))
}

// plain returns a copy of v as its basic type.
func plain(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Invalid:
		return nil
	case reflect.Bool:
		return v.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return v.Uint()
	case reflect.Float32, reflect.Float64:
		return v.Float()
	case reflect.String:
		return v.String()
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return append([]byte(nil), v.Bytes()...)
		}
	}
	return v.Type().String()
}
