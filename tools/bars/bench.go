package main

import (
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"cairn/tools/node"
)

const benchHelp = `
Runs redis-benchmark with GET and SET, pipeline 1 and 16, against the node and against a redis-server that keeps
nothing, in turns: A B A B. Prints commands per second, their ratio, and the processor time that the server took for
a command. No bar: the ratio depends on the machine, which redis-benchmark shares.

  go run ./tools/bars bench
  go run ./tools/bars bench --aof                     redis-server with appendonly yes, everysec
  go run ./tools/bars bench --args "--appendfsync always"`

type benchOptions struct {
	requests, clients, size, keys, rounds int
	aof                                   bool
	args                                  string
}

func prepareBench(f *flag.FlagSet) func(l *lab) error {
	var o benchOptions
	f.IntVar(&o.requests, "n", 300_000, "`commands` in a run of pipeline 1; five times as many with pipeline 16")
	f.IntVar(&o.clients, "c", 50, "`connections`")
	f.IntVar(&o.size, "d", 100, "`bytes` of a value")
	f.IntVar(&o.keys, "r", 100_000, "different `keys`")
	f.IntVar(&o.rounds, "rounds", 2, "`turns`; the medians count")
	f.BoolVar(&o.aof, "aof", false, "redis-server with appendonly yes and appendfsync everysec")
	f.StringVar(&o.args, "args", "", "more `directives` for the node")
	return func(l *lab) error { return o.measure(l) }
}

// benchResult is a run.
type benchResult struct {
	rate   float64       // commands a second
	cpuOne time.Duration // processor time of the server for one
}

func (o *benchOptions) measure(l *lab) error {
	for _, program := range []string{"redis-benchmark", "redis-server"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: %w", errMachine, err)
		}
	}
	a, c, err := l.cairn("node", strings.Fields(o.args)...)
	if err != nil {
		return err
	}
	c.Close()
	var args []string
	if o.aof {
		args = []string{"--appendonly", "yes", "--appendfsync", "everysec"}
	}
	b, c, err := l.redis("redis", args...)
	if err != nil {
		return err
	}
	c.Close()
	fmt.Printf("%-16s %12s %12s %8s %14s %14s\n", "", "cairn/s", "redis/s", "ratio", "cairn cpu/op", "redis cpu/op")
	for _, pipeline := range []int{1, 16} {
		for _, test := range []string{"set", "get"} {
			var runs [2][]benchResult
			for round := range o.rounds {
				for i, s := range []*server{a, b} {
					l.progress("%s, pipeline %d, turn %d of %d", test, pipeline, 2*round+i+1, 2*o.rounds)
					r, err := o.run(l, s, test, pipeline)
					if err != nil {
						return err
					}
					runs[i] = append(runs[i], r)
				}
			}
			l.endProgress()
			ra, rb := median(runs[0]), median(runs[1])
			fmt.Printf("%-16s %12.0f %12.0f %8.2f %14v %14v\n", fmt.Sprintf("%s pipeline %d", strings.ToUpper(test), pipeline),
				ra.rate, rb.rate, ra.rate/rb.rate, ra.cpuOne.Round(10*time.Nanosecond), rb.cpuOne.Round(10*time.Nanosecond))
		}
	}
	return nil
}

func (o *benchOptions) run(l *lab, s *server, test string, pipeline int) (r benchResult, err error) {
	n := o.requests
	if pipeline > 1 {
		n *= 5
	}
	before, err := node.CPU(s.Pid())
	if err != nil {
		return r, err
	}
	_, port, _ := strings.Cut(s.Addr, ":")
	cmd := exec.CommandContext(l.ctx, "redis-benchmark", "-p", port, "-t", test, "-n", strconv.Itoa(n), "-c", strconv.Itoa(o.clients),
		"-d", strconv.Itoa(o.size), "-r", strconv.Itoa(o.keys), "-P", strconv.Itoa(pipeline), "--csv")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return r, fmt.Errorf("redis-benchmark: %w: %s", err, exit.Stderr)
		}
		return r, fmt.Errorf("redis-benchmark: %w", err)
	}
	after, err := node.CPU(s.Pid())
	if err != nil {
		return r, err
	}
	r.cpuOne = (after - before) / time.Duration(n)
	r.rate, err = benchRate(string(out), test)
	return r, err
}

// benchRate finds the rate in what redis-benchmark --csv prints: a line for each test, whose first column is
// its name and whose second the rate.
func benchRate(out, test string) (float64, error) {
	rd := csv.NewReader(strings.NewReader(out))
	rd.FieldsPerRecord = -1
	rows, err := rd.ReadAll()
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark: %w", err)
	}
	for _, row := range rows {
		if len(row) >= 2 && strings.EqualFold(row[0], test) {
			return strconv.ParseFloat(row[1], 64)
		}
	}
	return 0, fmt.Errorf("redis-benchmark: no line for %s in %.200q", test, out)
}

// median picks the run with the middle rate.
func median(all []benchResult) benchResult {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b benchResult) int {
		if a.rate < b.rate {
			return -1
		}
		return 1
	})
	return all[len(all)/2]
}
