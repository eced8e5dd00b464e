package bench

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Row is one line of the table: a workload on a data set, in both servers.
type Row struct {
	Name, Group string
	Data        string // of dataSets
	Work        string // of workloads
	Dist        Dist
	Pipeline    int
	Sync        Durability // cairn's
	Peer        Durability // the other server's
	// Share makes an open loop: its rate is that part of the highest rate that cairn reaches in a closed one.
	Share float64
	// Longer multiplies how long a side is measured; 0 is 1.
	Longer float64
	// Tool: redis-benchmark is the client, the second opinion.
	Tool bool
	// Quick rows are those of a short run.
	Quick bool
}

// Durability is when a server makes writes safe from a power cut.
type Durability string

// The words are those of appendfsync; Volatile keeps nothing at all, which cairn does not offer.
const (
	Volatile Durability = "none"
	EverySec Durability = "everysec"
	Always   Durability = "always"
)

// dataSet is what is in both servers before a row is measured. Rows that share one are measured one after the other.
type dataSet struct {
	help   string
	keys   uint64
	size   int    // bytes of a value
	fields uint64 // of each hash
	loader string // workload that makes it; "": the row itself does, on an empty server
	each   uint64 // commands of the loader for one key; 0 is 1
}

func dataSets() map[string]dataSet {
	return map[string]dataSet{
		"100b":     {help: "1 M keys, values of 100 bytes", keys: 1_000_000, size: 100, loader: "load"},
		"1kb":      {help: "200 k keys, values of 1 KB", keys: 200_000, size: 1 << 10, loader: "load"},
		"16kb":     {help: "10 k keys, values of 16 KB", keys: 10_000, size: 16 << 10, loader: "load"},
		"counters": {help: "1 M counters", keys: 1_000_000, loader: "count"},
		"small":    {help: "100 k hashes of 10 fields, packed", keys: 100_000, fields: fieldsSmall, loader: "hload", each: fieldsSmall / hloadStep},
		"big":      {help: "10 hashes of 100 k fields, a row each", keys: 10, fields: fieldsBig, loader: "hload", each: fieldsBig / hloadStep},
		"ycsb":     {help: "100 k records of 10 fields of 100 bytes", keys: 100_000, loader: "ycsb-load"},
		"new":      {help: "nothing: 1 M keys of 100 bytes are made", keys: 1_000_000, size: 100},
		"new-1kb":  {help: "nothing: 200 k keys of 1 KB are made", keys: 200_000, size: 1 << 10},
	}
}

// groups in the order of the table, and what they are for.
func groupHelp() [][2]string {
	return [][2]string{
		{"hot", "small values in memory, the figures that are promised"},
		{"always", "every write on the disk before its reply, both sides"},
		{"load", "new keys into an empty server"},
		{"sizes", "values of 1 KB and 16 KB"},
		{"hashes", "HGET and HSET on packed hashes, and on huge ones"},
		{"zipf", "popular keys"},
		{"ycsb", "YCSB A to F"},
		{"open", "latency at a given load: arrivals do not wait for replies"},
		{"second", "the same servers under redis-benchmark"},
	}
}

var depths = []int{1, 16, 64}

// Rows returns the whole grid.
func Rows() []Row {
	return slices.Concat(hotRows(), alwaysRows(), loadRows(), sizeRows(), hashRows(), zipfRows(), ycsbRows(), openRows(), secondRows())
}

func hotRows() (rows []Row) {
	add := func(name, data, work string, dist Dist, p int, peer Durability, quick bool) {
		rows = append(rows, Row{
			Name: fmt.Sprintf("%s-p%d", name, p), Group: "hot", Data: data, Work: work,
			Dist: dist, Pipeline: p, Sync: EverySec, Peer: peer, Quick: quick,
		})
	}
	for _, p := range depths {
		add("get", "100b", "get", Uniform, p, Volatile, true)
	}
	for _, p := range depths {
		add("set", "100b", "set", Uniform, p, Volatile, true)
	}
	for _, p := range depths {
		add("mixed", "100b", "mixed", Uniform, p, Volatile, p == 16)
	}
	add("zipf-set", "100b", "set", Zipf, 16, Volatile, true)
	for _, p := range depths {
		add("set-aof", "100b", "set", Uniform, p, EverySec, p == 16)
	}
	for _, p := range depths {
		add("incr", "counters", "incr", Uniform, p, Volatile, p == 16)
	}
	return rows
}

func alwaysRows() (rows []Row) {
	for _, p := range depths {
		rows = append(rows, Row{
			Name: fmt.Sprintf("set-always-p%d", p), Group: "always", Data: "100b", Work: "set",
			Dist: Uniform, Pipeline: p, Sync: Always, Peer: Always,
		})
	}
	return rows
}

func loadRows() (rows []Row) {
	for _, p := range depths {
		rows = append(rows, Row{
			Name: fmt.Sprintf("load-p%d", p), Group: "load", Data: "new", Work: "load",
			Dist: Uniform, Pipeline: p, Sync: EverySec, Peer: Volatile, Quick: p == 64,
		})
	}
	return append(rows, Row{
		Name: "load-1kb-p16", Group: "load", Data: "new-1kb", Work: "load",
		Dist: Uniform, Pipeline: 16, Sync: EverySec, Peer: Volatile,
	})
}

func sizeRows() (rows []Row) {
	for _, size := range []string{"1kb", "16kb"} {
		for _, work := range []string{"get", "set", "mixed"} {
			for _, p := range depths {
				rows = append(rows, Row{
					Name: fmt.Sprintf("%s-%s-p%d", work, size, p), Group: "sizes", Data: size, Work: work,
					Dist: Uniform, Pipeline: p, Sync: EverySec, Peer: Volatile,
				})
			}
		}
		for _, p := range []int{1, 16} {
			rows = append(rows, Row{
				Name: fmt.Sprintf("set-aof-%s-p%d", size, p), Group: "sizes", Data: size, Work: "set",
				Dist: Uniform, Pipeline: p, Sync: EverySec, Peer: EverySec,
			})
		}
	}
	return rows
}

func hashRows() (rows []Row) {
	for _, data := range []string{"small", "big"} {
		for _, work := range []string{"hget", "hset"} {
			for _, p := range depths {
				rows = append(rows, Row{
					Name: fmt.Sprintf("%s-%s-p%d", work, data, p), Group: "hashes", Data: data, Work: work,
					Dist: Uniform, Pipeline: p, Sync: EverySec, Peer: Volatile,
				})
			}
		}
	}
	return rows
}

func zipfRows() (rows []Row) {
	for _, work := range []string{"get", "set", "mixed"} {
		for _, p := range depths {
			if work == "set" && p == 16 {
				continue // among the hot
			}
			rows = append(rows, Row{
				Name: fmt.Sprintf("zipf-%s-p%d", work, p), Group: "zipf", Data: "100b", Work: work,
				Dist: Zipf, Pipeline: p, Sync: EverySec, Peer: Volatile,
			})
		}
	}
	return rows
}

func ycsbRows() (rows []Row) {
	for _, letter := range "abcdef" {
		for _, p := range []int{1, 16} {
			rows = append(rows, Row{
				Name: fmt.Sprintf("ycsb-%c-p%d", letter, p), Group: "ycsb", Data: "ycsb", Work: fmt.Sprintf("ycsb-%c", letter),
				Dist: YCSB, Pipeline: p, Sync: EverySec, Peer: Volatile,
			})
		}
	}
	return rows
}

func openRows() (rows []Row) {
	for _, work := range []string{"get", "set"} {
		for _, percent := range []int{10, 25, 50, 75, 90} {
			rows = append(rows, Row{
				Name: fmt.Sprintf("open-%s-%d", work, percent), Group: "open", Data: "100b", Work: work,
				Dist: Uniform, Pipeline: 1, Sync: EverySec, Peer: Volatile, Share: float64(percent) / 100,
			})
		}
	}
	const fiveMinutes = 300.0 / 8
	return append(rows, Row{
		Name: "open-set-50-long", Group: "open", Data: "100b", Work: "set",
		Dist: Uniform, Pipeline: 1, Sync: EverySec, Peer: Volatile, Share: 0.5, Longer: fiveMinutes,
	})
}

func secondRows() (rows []Row) {
	for _, work := range []string{"get", "set"} {
		for _, p := range depths {
			rows = append(rows, Row{
				Name: fmt.Sprintf("rb-%s-p%d", work, p), Group: "second", Data: "100b", Work: work,
				Dist: Uniform, Pipeline: p, Sync: EverySec, Peer: Volatile, Tool: true, Quick: p == 16 && work == "get",
			})
		}
	}
	return rows
}

// Select returns the rows that the patterns name, in the order of the grid: names, groups, globs such as "set-*",
// "all", and with a minus before it what is left out again. No pattern is the group hot.
func Select(rows []Row, patterns []string) ([]Row, error) {
	if len(patterns) == 0 {
		patterns = []string{"hot"}
	}
	chosen := make([]bool, len(rows))
	if strings.HasPrefix(patterns[0], "-") {
		for i := range chosen {
			chosen[i] = true
		}
	}
	for _, pattern := range patterns {
		text, without := strings.CutPrefix(pattern, "-")
		found := false
		for i, r := range rows {
			same, err := path.Match(text, r.Name)
			if err != nil {
				return nil, fmt.Errorf("rows: %q: %w", pattern, err)
			}
			if same || text == r.Group || text == "all" {
				chosen[i], found = !without, true
			}
		}
		if !found {
			return nil, fmt.Errorf("rows: %q names no row and no group; --list shows them", pattern)
		}
	}
	var picked []Row
	for i, r := range rows {
		if chosen[i] {
			picked = append(picked, r)
		}
	}
	return picked, nil
}

// bed is what rows must share to be measured on the same servers.
type bed struct {
	sync, peer Durability
	data       string
}

func (r *Row) bed() bed { return bed{r.Sync, r.Peer, r.Data} }

// byBed orders rows so that those of one bed stand together, beds in the order of their first rows.
func byBed(rows []Row) [][]Row {
	var beds [][]Row
	for _, r := range rows {
		i := slices.IndexFunc(beds, func(b []Row) bool { return b[0].bed() == r.bed() })
		if i < 0 {
			beds = append(beds, nil)
			i = len(beds) - 1
		}
		beds[i] = append(beds[i], r)
	}
	return beds
}
