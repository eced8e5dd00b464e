package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"cairn/tools/node"
)

// The scene clients. Client libraries as they come, in front of cairn and of redis-server, while slots move and while nodes
// fail in the middle of it. No kind of error may reach the caller that the same library does not show in front of
// redis-server, too; what a failover looks like to callers is counted, and excused.

// outsider is a client under way: the program tools/clients/... says how it behaves.
type outsider struct {
	name string
	stop func() (clientReport, error)
}

// clientReport is what a client has seen.
type clientReport struct {
	Ops    int            `json:"ops"`
	Errors map[string]int `json:"errors"`
	Wrong  []string       `json:"wrong"`
}

// phases are what happens meanwhile. In failovers the last writes may be lost, so the clients do not judge what they read.
const (
	phaseMoves     = "moves"
	phaseFailovers = "failovers"
)

// library is a client library, and how to start it.
type library struct {
	name  string
	start func(phase string, addrs []string) (*outsider, error)
}

func (l *moveLab) libraries() []library {
	all := []library{{"go-redis", l.startGoRedis}}
	commands := [][]string{{python(), "tools/clients/redispy.py"}, {"node", "tools/clients/ioredis.js"}}
	if l.moveOptions.clients != "" {
		all, commands = nil, [][]string{strings.Fields(l.moveOptions.clients)}
		if l.moveOptions.clients == "go-redis" {
			return []library{{"go-redis", l.startGoRedis}}
		}
	}
	for _, c := range commands {
		all = append(all, library{strings.Join(c, " "), func(phase string, addrs []string) (*outsider, error) { return l.startOutsider(c, phase, addrs) }})
	}
	return all
}

// python is an interpreter that has the library: that of the system may not be the first in the path.
func python() string {
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(name, "-c", "import redis.cluster").Run() == nil {
			return name
		}
	}
	return "python3" // which will say what it lacks
}

// startOutsider starts a program, and waits until it is ready.
func (l *moveLab) startOutsider(command []string, phase string, addrs []string) (*outsider, error) {
	cmd := exec.CommandContext(l.ctx, command[0], slices.Concat(command[1:], []string{phase}, addrs)...)
	in, err := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	var said strings.Builder
	cmd.Stderr = &said
	if err = errors.Join(err, err2); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil || line != "ready\n" {
		_ = in.Close() // it has ended, or ends with its input
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("%s: %q, %w, want ready: %s", command, line, err, tail(said.String()))
	}
	return &outsider{name: strings.Join(command, " "), stop: func() (r clientReport, err error) {
		end := time.AfterFunc(settle, func() { _ = cmd.Process.Kill() })
		defer end.Stop()
		_ = in.Close() // tells it to stop
		raw, err := io.ReadAll(lines)
		if err = errors.Join(err, cmd.Wait()); err == nil {
			err = json.Unmarshal(raw, &r)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w: %s%s", command, err, tail(string(raw)), tail(said.String()))
		}
		return r, err
	}}, nil
}

// clientsToo is the scene.
func (l *moveLab) clientsToo() error {
	sides := []struct {
		name                string
		program, directives []string
	}{{"redis-server", []string{"redis-server"}, redisDirectives()}, {"cairn", l.command, l.directives}}
	if l.redis {
		sides[1].name = "redis-server again"
	}
	seen := map[string]map[string]bool{} // kinds of errors by library and phase, in front of redis-server
	var faults error
	for i, side := range sides {
		for n, lib := range l.libraries() {
			for _, phase := range []string{phaseMoves, phaseFailovers} {
				// A cluster of its own: what failovers in the middle leave behind is not always to be mended.
				if err := l.start(fmt.Sprint(side.name, "-", n, "-", phase), side.program, side.directives); err != nil {
					return err
				}
				r, err := l.clientPhase(lib, phase)
				if err != nil && i == 0 && phase == phaseFailovers {
					l.say("redis-server does not go on after it: %.200s", err)
				} else if err != nil {
					return fmt.Errorf("%s in front of %s, %s: %w", lib.name, side.name, phase, err)
				}
				l.close()
				kinds := l.report(lib.name, side.name, phase, r)
				if i == 0 {
					seen[lib.name+phase] = kinds
					continue
				}
				for kind := range kinds {
					if !seen[lib.name+phase][kind] && (phase != phaseFailovers || !replaced.MatchString(kind)) {
						faults = errors.Join(faults, fmt.Errorf("%s, %s: an error that redis-server does not show: %s", lib.name, phase, kind))
					}
				}
				if len(r.Wrong) > 0 {
					faults = errors.Join(faults, fmt.Errorf("%s, %s: %s", lib.name, phase, strings.Join(r.Wrong, "\n")))
				}
			}
		}
	}
	return faults
}

// report prints what a client has seen, and returns the kinds of errors.
func (l *moveLab) report(lib, side, phase string, r clientReport) map[string]bool {
	kinds := map[string]int{}
	sum := 0
	for text, n := range r.Errors {
		kinds[kindOf(text)] += n
		sum += n
	}
	l.say("%s in front of %s, %s: %d operations, %d errors, %d wrong values", lib, side, phase, r.Ops, sum, len(r.Wrong))
	all := map[string]bool{}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		l.say("    %d times: %s", kinds[kind], kind)
		all[kind] = true
	}
	return all
}

var (
	anyAddress = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+(:\d+)?`)
	anyNumber  = regexp.MustCompile(`\d+`)
	anyKey     = regexp.MustCompile(`\{?(go|py|js)-[a-z]+-[-{}a-z0-9]*`)
)

// replaced is what callers see of a node that is being replaced, at whatever moment it meets them.
var replaced = regexp.MustCompile(`MOVED|CLUSTERDOWN|EXECABORT|a connection was lost`)

// lostConnection is what the libraries say of a connection that ends or is refused.
var lostConnection = regexp.MustCompile(`(?i)refused|EOF|reset by peer|broken pipe|timeout|closed|timed out|ConnectionError`)

// kindOf leaves out of an error's text what differs from one to the next.
func kindOf(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	if lostConnection.MatchString(text) {
		return "a connection was lost"
	}
	text = anyKey.ReplaceAllString(anyAddress.ReplaceAllString(text, "ADDRESS"), "KEY")
	return fmt.Sprintf("%.120s", anyNumber.ReplaceAllString(text, "N"))
}

// clientPhase lets a client work while things happen.
func (l *moveLab) clientPhase(lib library, phase string) (r clientReport, err error) {
	if err := l.cluster.AwaitSteady(settle); err != nil {
		return r, err
	}
	o, err := lib.start(phase, l.cluster.Addrs())
	if err != nil {
		return r, err
	}
	for i := range 2 * l.moveOptions.rounds {
		if phase == phaseMoves {
			err = l.moveOnce()
		} else {
			err = l.brokenMove(i)
		}
		if err != nil {
			break
		}
	}
	r, stopErr := o.stop()
	if stopErr != nil {
		r = clientReport{}
	}
	return r, errors.Join(err, stopErr)
}

// brokenMove is a move in whose middle one end fails over: the source and the target in turn, killed and asked in turn.
func (l *moveLab) brokenMove(i int) error {
	tool, from, to, err := l.startMove()
	if err != nil {
		return err
	}
	defer tool.Kill()
	if err := l.wait(sometime(time.Second), tool.Done()); err != nil {
		return err
	}
	victim := from
	if i/2%2 == 1 {
		victim = to
	}
	if i%2 == 0 {
		err = l.killAndReplace(tool, victim)
	} else {
		err = l.handOver(victim)
	}
	if err != nil {
		return err
	}
	_ = tool.Wait(toolLimit) // it may have failed
	if err := l.calm(); err != nil {
		return err
	}
	_, err = node.RunTool(toolLimit, "fix", to.Addr)
	return err
}
