package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const recordName = "cluster.json"

const (
	defaultPrimaries = 3
	defaultReplicas  = 1
	defaultPort      = 7000
	defaultBudget    = "128mb"
)

// record is what the folder's cluster is, kept in cluster.json:
//
//	{"primaries": 3, "replicas": 1, "port": 7000, "memory_budget": "128mb",
//	 "directives": ["--appendfsync", "always"], "formed": true}
type record struct {
	Primaries    int      `json:"primaries"`
	Replicas     int      `json:"replicas"` // of each primary
	Port         int      `json:"port"`     // of the first node
	MemoryBudget string   `json:"memory_budget"`
	Directives   []string `json:"directives,omitempty"`
	Formed       bool     `json:"formed"` // the nodes were once a cluster that worked

	changed bool // settings of nodes differ from those in the file
}

// loadRecord reads it. known is false when there is none.
func loadRecord(dir string) (rec *record, known bool, err error) {
	path := filepath.Join(dir, recordName)
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return &record{}, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the cluster's settings: %w", err)
	}
	rec = &record{}
	if err := json.Unmarshal(raw, rec); err != nil {
		return nil, false, fmt.Errorf("%s: %w", path, err)
	}
	if err := rec.check(); err != nil {
		return nil, false, fmt.Errorf("%s: %w", path, err)
	}
	return rec, true, nil
}

// replace is save. restore brings back what was there before. Of a cluster that is new it leaves where its nodes are, so that
// Down finds what they have left, and not their settings, which may be what was wrong.
func (r *record) replace(dir string) (restore func() error, err error) {
	path := filepath.Join(dir, recordName)
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	restore = func() error {
		if before == nil {
			r.MemoryBudget, r.Directives = defaultBudget, nil
			return r.save(dir)
		}
		return os.WriteFile(path, before, 0o600)
	}
	return restore, r.save(dir)
}

// save writes it. Directives may hold a password, so nobody else reads it.
func (r *record) save(dir string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the cluster's settings: %w", err)
	}
	path := filepath.Join(dir, recordName)
	if err := os.WriteFile(path+".new", append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the cluster's settings: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write the cluster's settings: %w", err)
	}
	return nil
}

func (r *record) copy() *record {
	c := *r
	return &c
}

// settle lays what is asked for over what is there. The number of nodes and their ports are what a cluster is; the
// settings of its nodes may change. Nodes that never became a cluster are none yet.
func (r *record) settle(o *UpOptions, dir string, known bool) error {
	was := *r
	if o.Primaries != 0 || !known {
		r.Primaries = orElse(o.Primaries, defaultPrimaries)
	}
	if o.Port != 0 || !known {
		r.Port = orElse(o.Port, defaultPort)
	}
	if o.MemoryBudget != "" || !known {
		r.MemoryBudget = orElse(o.MemoryBudget, defaultBudget)
	}
	switch {
	case o.Replicas >= 0:
		r.Replicas = o.Replicas
	case !known:
		r.Replicas = defaultReplicas
	}
	if o.Directives != nil {
		r.Directives = o.Directives
	}
	if err := r.check(); err != nil {
		return err
	}
	if !known {
		return nil
	}
	other := r.Primaries != was.Primaries || r.Replicas != was.Replicas || r.Port != was.Port
	if other && r.Formed {
		return fmt.Errorf("%s holds a cluster of %s with %s each, from port %d: leave these flags out to run it, "+
			"choose another --dir, or remove it with: %s down --wipe --dir %s",
			dir, count(was.Primaries, "primary"), count(was.Replicas, "replica"), was.Port, o.Self, dir)
	}
	r.changed = other || r.MemoryBudget != was.MemoryBudget || !slices.Equal(r.Directives, was.Directives)
	return nil
}

func orElse[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// count is the number of nodes.
func (r *record) count() int { return r.Primaries * (1 + r.Replicas) }

func (r *record) check() error {
	const highest = maxPort - busAbove
	switch {
	case r.Primaries < 1 || r.Primaries > maxNodes:
		return fmt.Errorf("primaries: %d, want 1 to %d", r.Primaries, maxNodes)
	case r.Replicas < 0 || r.count() > maxNodes || r.count() < 0:
		return fmt.Errorf("replicas: %d for each of %d primaries, want 0 and more, and at most %d nodes in all", r.Replicas, r.Primaries, maxNodes)
	case r.Port < 1 || r.Port+r.count()-1 > highest:
		return fmt.Errorf("port: %d nodes from port %d on, want 1 to %d: the cluster bus of each is %d above", r.count(), r.Port, highest, busAbove)
	}
	return r.checkDirectives()
}

// checkDirectives refuses what a local cluster decides itself.
func (r *record) checkDirectives() error {
	if len(r.Directives) > 0 && !strings.HasPrefix(r.Directives[0], "--") {
		return fmt.Errorf("directives: %q, want --name value", r.Directives[0])
	}
	for _, d := range r.Directives {
		name, isName := strings.CutPrefix(d, "--")
		name = strings.ToLower(strings.SplitN(name, "=", 2)[0])
		if isName && slices.Contains(ownDirectives(), name) {
			return fmt.Errorf("directives: --%s is what up decides itself", name)
		}
	}
	return nil
}

// ownDirectives are those that the nodes get from Up, or that would put their files or ports elsewhere.
func ownDirectives() []string {
	return []string{
		"port", "dir", "cluster-enabled", "cluster-port", "cluster-config-file", "appenddirname",
		"daemonize", "supervised", "logfile", "pidfile",
	}
}

// directive returns the value that the directives give to name, "" when they do not.
func (r *record) directive(name string) (value string) {
	for i, d := range r.Directives {
		rest, isName := strings.CutPrefix(d, "--")
		key, text, joined := strings.Cut(rest, "=")
		switch {
		case !isName || !strings.EqualFold(key, name):
		case joined:
			value = text
		case i+1 < len(r.Directives):
			value = r.Directives[i+1]
		}
	}
	return value
}
