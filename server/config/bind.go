package config

import (
	"reflect"

	"cairn/internal/invariant"
)

// bindFields finds for each row the field of v that its name is the tag of. A
// tag that names no row, or a field that cannot hold text, is a mistake in this
// package; TestTable meets it.
func bindFields(v *Values, t *directory) []holder {
	holders := make([]holder, len(t.rows))
	fields := reflect.ValueOf(v).Elem()
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Tag.Get("directive")
		_, row := t.find(name)
		h, ok := fields.Field(i).Addr().Interface().(holder)
		if row < 0 || !ok {
			invariant.Fail("field %s: directive %q", fields.Type().Field(i).Name, name)
		}
		holders[row] = h
	}
	return holders
}
