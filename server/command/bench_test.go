package command

import "testing"

// What a command's name costs: as clients send it, in capitals and not, and with a subcommand.
func BenchmarkLookup(b *testing.B) {
	for _, words := range [][]string{{"get"}, {"GET"}, {"GETRANGE"}, {"CONFIG", "GET"}, {"NOSUCH"}} {
		var args [][]byte
		name := ""
		for _, w := range words {
			args = append(args, []byte(w))
			name += w
		}
		b.Run(name, func(b *testing.B) {
			t := NewTable()
			b.ReportAllocs()
			for b.Loop() {
				t.Lookup(args)
			}
		})
	}
}
