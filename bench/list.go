package bench

import (
	"fmt"
	"io"
)

// List writes all rows by group, and all scenarios.
func List(w io.Writer) {
	works, data := workloads(), dataSets()
	rows := Rows()
	for _, g := range groupHelp() {
		fmt.Fprintf(w, "%s: %s\n", g[0], g[1])
		for _, r := range rows {
			if r.Group != g[0] {
				continue
			}
			quick := ""
			if r.Quick {
				quick = ", quick"
			}
			fmt.Fprintf(w, "  %-20s %s; %s; %s keys, pipeline %d, %s against %s%s\n", r.Name, works[r.Work].help, data[r.Data].help, r.Dist, r.Pipeline, r.Sync, r.Peer, quick)
		}
	}
	fmt.Fprintln(w, "scenarios:")
	for _, s := range Scenarios() {
		fmt.Fprintf(w, "  %-20s %s\n", s.Name, s.Help)
	}
}
