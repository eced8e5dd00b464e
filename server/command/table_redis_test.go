package command

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// differsFrom70 says where a row is not that of the listing, which is redis-server 7.0.15's, and why.
func differsFrom70() map[string]string {
	const hints, loading = "7.2 gives other hints", "7.2 answers it while loading"
	return map[string]string{
		"client|no-touch": "new in 7.2", "client|setinfo": "new in 7.2", "waitaof": "new in 7.2", "cluster|myshardid": "new in 7.2",
		"client|pause": "7.2 says another version", "client|setname": hints, "config|resetstat": hints, "config|rewrite": hints,
		"latency|reset": hints, "randomkey": hints, "scan": hints,
		"cluster|shards": loading, "cluster|slots": loading,
		"command|getkeys": "7.2 takes commands without arguments", "command|getkeysandflags": "7.2 takes commands without arguments",
		"wait": "7.2 allows it in scripts, where it does not wait",
	}
}

// Each row is what Redis says of the command: arity, flags, keys, categories, hints.
func TestTableIsRedis(t *testing.T) {
	raw, err := os.ReadFile("testdata/commands-7.0.tsv")
	if err != nil {
		t.Fatal(err)
	}
	table, known, differs := NewTable(), map[string]bool{}, differsFrom70()
	lines := strings.Split(strings.TrimRight(string(raw), "\n"), "\n")
	for _, line := range lines[1:] {
		f := strings.Split(line, "\t")
		known[f[0]] = true
		cmd := table.ByFullName(f[0])
		if cmd == nil {
			continue
		}
		got, want := describeRow(cmd), strings.Join(normalized(f), "\t")
		switch why := differs[f[0]]; {
		case got == want && why != "":
			t.Errorf("%s is as in Redis 7.0; take it out of the list of differences", f[0])
		case got != want && why == "":
			t.Errorf("%s:\ngot  %s\nwant %s", f[0], got, want)
		}
	}
	for _, cmd := range table.All() {
		for _, name := range append([]string{cmd.FullName()}, subNames(cmd)...) {
			if !known[name] && differs[name] == "" {
				t.Errorf("%s is not a command of Redis 7.0 and not in the list of differences", name)
			}
		}
	}
}

func subNames(cmd *Command) (names []string) {
	for i := range cmd.Sub {
		names = append(names, cmd.Sub[i].FullName())
	}
	return names
}

// normalized brings a line of the listing into the form of describeRow.
func normalized(f []string) []string {
	out := slices.Clone(f[1:11])
	var specs []string
	for spec := range strings.SplitSeq(f[7], ";") {
		if spec = strings.TrimSpace(spec); spec != "-" {
			specs = append(specs, spec)
		}
	}
	out[6] = strings.Join(specs, ";")
	out[9] = strings.Join(sortedWords(strings.Trim(out[9], "-")), " ")
	out[1] = strings.Join(sortedWords(out[1]), " ")
	return out
}

func sortedWords(s string) []string { return slices.Sorted(strings.FieldsSeq(s)) }

func describeRow(c *Command) string {
	first, last, step := c.LegacyKeys()
	var specs []string
	for _, k := range c.Keys {
		begin := fmt.Sprintf("index=%d", k.BeginIndex)
		if k.BeginKeyword != "" {
			begin = fmt.Sprintf("keyword=%s@%d", strings.ToUpper(k.BeginKeyword), k.StartFrom)
		}
		find := fmt.Sprintf("range(last=%d,step=%d,limit=%d)", k.Last, max(k.Step, 1), k.Limit)
		if k.KeyNum {
			find = fmt.Sprintf("keynum(idx=%d,first=%d,step=%d)", k.NumIndex, k.First, max(k.KStep, 1))
		}
		specs = append(specs, fmt.Sprintf("%s>%s[%s]", begin, find, strings.Join(strings.Fields(k.Flags), ",")))
	}
	return fmt.Sprintf("%d\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s", c.Arity, strings.Join(slices.Sorted(slices.Values(c.FlagNames())), " "),
		first, last, step, strings.Join(c.CategoryNames(), " "), strings.Join(specs, ";"), c.Since, c.Group,
		strings.Join(sortedWords(c.Tips), " "))
}
