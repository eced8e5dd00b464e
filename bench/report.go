package bench

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Report is everything that was measured. results.json is this, and report.md is made from it.
type Report struct {
	Began       time.Time         `json:"began"`
	Took        time.Duration     `json:"took_ns"`
	Interrupted bool              `json:"interrupted"`
	Machine     machine           `json:"machine"`
	Versions    map[string]string `json:"versions"` // of the servers, by name
	Options     string            `json:"options"`
	Rows        []*RowResult      `json:"rows"`
	Figures     []Figure          `json:"figures,omitempty"`
	Faults      []string          `json:"faults,omitempty"` // scenarios that ended early
}

// columns of the table of rows.
func columns() []string {
	return []string{"row", "cairn/s", "other/s", "ratio", "cairn us/op", "other us/op", "cpu ratio", "client us/op", "cairn p99 ms", "other p99 ms", "cairn p99.9", "other p99.9"}
}

func (r *RowResult) cells() []string {
	a, b := r.Sides[0], r.Sides[1]
	figure := func(format string, v float64) string {
		if v == 0 {
			return "-"
		}
		return fmt.Sprintf(format, v)
	}
	return []string{
		r.Row.Name, figure("%.0f", a.Rate), figure("%.0f", b.Rate), r.Ratio.String(),
		figure("%.2f", a.ServerMicros), figure("%.2f", b.ServerMicros), figure("%.2f", r.CPU.Median),
		figure("%.2f", median([]float64{a.ClientMicros, b.ClientMicros})),
		figure("%.2f", a.P99Ms), figure("%.2f", b.P99Ms), figure("%.2f", a.P999Ms), figure("%.2f", b.P999Ms),
	}
}

func (r *RowResult) spaceCells() []string {
	a, b := r.Sides[0], r.Sides[1]
	mb := func(v float64) string { return fmt.Sprintf("%.0f", v/(1<<20)) }
	ratio := func(v float64) string {
		if v == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f", v)
	}
	return []string{r.Row.Name, mb(a.PeakBytes), mb(b.PeakBytes), mb(a.DiskBytes), mb(b.DiskBytes), ratio(a.WrittenRatio), ratio(b.WrittenRatio)}
}

func (rep *Report) rowCells() (speed, space [][]string) {
	speed = [][]string{columns()}
	space = [][]string{{"row", "cairn peak MB", "other peak MB", "cairn disk MB", "other disk MB", "cairn written/payload", "other written/payload"}}
	for _, r := range rep.Rows {
		speed = append(speed, r.cells())
		space = append(space, r.spaceCells())
	}
	return speed, space
}

func (rep *Report) figureCells() [][]string {
	table := [][]string{{"scenario", "figure", "unit", "cairn", "other", "ratio", "note"}}
	for _, f := range rep.Figures {
		other := "-"
		if len(f.Other) > 0 {
			other = fmt.Sprintf("%.4g", median(f.Other))
		}
		table = append(table, []string{f.Scenario, f.Name, f.Unit, fmt.Sprintf("%.4g", median(f.Ours)), other, f.Ratio().String(), f.Note})
	}
	return table
}

func (rep *Report) notes() (notes []string) {
	for _, r := range rep.Rows {
		for _, n := range r.Notes {
			notes = append(notes, r.Row.Name+": "+n)
		}
	}
	notes = append(notes, rep.Faults...)
	if rep.Interrupted {
		notes = append(notes, "interrupted: what was to come is missing")
	}
	for i, n := range notes {
		notes[i] = strings.Join(strings.Fields(n), " ") // the output of a server has lines
	}
	return notes
}

// Text is the table for a terminal.
func (rep *Report) Text() string {
	var b strings.Builder
	speed, _ := rep.rowCells()
	if len(rep.Rows) > 0 {
		aligned(&b, speed)
	}
	if len(rep.Figures) > 0 {
		b.WriteString("\n")
		aligned(&b, rep.figureCells())
	}
	for _, n := range rep.notes() {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}

// aligned writes columns under each other, the first to the left.
func aligned(b *strings.Builder, table [][]string) {
	width := make([]int, len(table[0]))
	for _, line := range table {
		for i, cell := range line {
			width[i] = max(width[i], len(cell))
		}
	}
	for _, line := range table {
		var text strings.Builder
		for i, cell := range line {
			if i == 0 {
				fmt.Fprintf(&text, "%-*s", width[i], cell)
			} else {
				fmt.Fprintf(&text, "  %*s", width[i], cell)
			}
		}
		b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
	}
}

// Markdown is the report for people.
func (rep *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# cairn beside another server, %s\n\n", rep.Began.Format("2006-01-02 15:04"))
	for _, name := range slices.Sorted(maps.Keys(rep.Versions)) {
		fmt.Fprintf(&b, "- %s %s\n", name, rep.Versions[name])
	}
	m := rep.Machine
	fmt.Fprintf(&b, "- machine: %d processors (%s), %d MB, Linux %s, load average %s when it began\n", m.Processors, m.Processor, m.MemoryMB, m.Kernel, m.LoadAverage)
	fmt.Fprintf(&b, "- %s; it took %v\n", rep.Options, rep.Took.Round(time.Second))
	if len(rep.Rows) > 0 {
		speed, space := rep.rowCells()
		b.WriteString("\n## Rates\n\nThe ratio is cairn to the other server: median of the pairs, and in parentheses the least and the most. " +
			"us/op is processor time of the server for one operation, all threads, what it puts off included. Client and servers share the processors.\n\n")
		markdownTable(&b, speed)
		rep.pictures(&b)
		b.WriteString("\n## Memory and disk\n\nThe peak of the process's memory in the run; the data folder after it; bytes given to the disk for each byte of key and value written.\n\n")
		markdownTable(&b, space)
		b.WriteString("\n## What the rows are\n\n")
		markdownTable(&b, rep.legend())
	}
	if len(rep.Figures) > 0 {
		b.WriteString("\n## Scenarios\n\nA ratio above 1 says that cairn does better.\n\n")
		markdownTable(&b, rep.figureCells())
	}
	if notes := rep.notes(); len(notes) > 0 {
		b.WriteString("\n## Notes\n\n")
		for _, n := range notes {
			fmt.Fprintf(&b, "- %s\n", n)
		}
	}
	return b.String()
}

func (rep *Report) legend() [][]string {
	table := [][]string{{"row", "workload", "data", "keys", "pipeline", "cairn", "other"}}
	works, data := workloads(), dataSets()
	for _, r := range rep.Rows {
		what := works[r.Row.Work].help
		if r.Row.Share > 0 {
			what += fmt.Sprintf(", open loop at %.0f %% of the highest rate", 100*r.Row.Share)
		}
		if r.Row.Tool {
			what += ", by redis-benchmark"
		}
		table = append(table, []string{
			r.Row.Name, what, data[r.Row.Data].help, string(r.Row.Dist), fmt.Sprint(r.Row.Pipeline), string(r.Row.Sync), string(r.Row.Peer),
		})
	}
	return table
}

func (rep *Report) pictures(b *strings.Builder) {
	b.WriteString("\n")
	for _, p := range rep.plots() {
		fmt.Fprintf(b, "![%s](%s.svg)\n", p.title, p.name)
	}
}

func markdownTable(b *strings.Builder, table [][]string) {
	for i, line := range table {
		cells := make([]string, len(line))
		for j, cell := range line {
			cells[j] = strings.ReplaceAll(cell, "|", `\|`)
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
		if i == 0 {
			b.WriteString("|" + strings.Repeat("---|", len(line)) + "\n")
		}
	}
}

// write makes the folder's files, pictures left out.
func (rep *Report) write(dir string) error {
	raw, err := json.MarshalIndent(rep, "", " ")
	if err != nil {
		return fmt.Errorf("results.json: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "results.json"), append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "report.md"), []byte(rep.Markdown()), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
