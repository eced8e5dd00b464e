package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"cairn/internal/resp"
	"cairn/internal/slot"
	"cairn/tools/node"
)

// calm waits until all nodes run and agree who owns what. Open slots, and slots that nobody owns, are not looked at. Writers
// may be at work.
func (l *moveLab) calm() error {
	return l.cluster.Await(settle, func() error {
		first := ""
		for i, m := range l.cluster.Members {
			if err := m.Links(len(l.cluster.Members)); err != nil {
				return err
			}
			if err := serves(m); err != nil {
				return err
			}
			text, err := owners(m)
			if err != nil {
				return err
			}
			if i == 0 {
				first = text
			} else if text != first {
				return fmt.Errorf("%s and %s do not agree:\n%s\n%s", l.cluster.Members[0].Name, m.Name, first, text)
			}
		}
		for k := range shards {
			if _, _, err := l.cluster.Primary(k); err != nil {
				return err
			}
		}
		return nil
	})
}

// serves says what keeps a node from serving, but for slots that nobody owns.
func serves(m *node.Member) error {
	info, err := m.Text("CLUSTER", "INFO")
	if err != nil {
		return err
	}
	if state := node.Field(info, "cluster_state"); state != "ok" && node.Field(info, "cluster_slots_assigned") == strconv.Itoa(slot.Count) {
		return fmt.Errorf("%s: cluster_state is %q", m.Name, state)
	}
	return nil
}

// owners is who owns what and who follows whom, as a node says.
func owners(m *node.Member) (string, error) {
	nodes, err := m.Nodes()
	if err != nil {
		return "", err
	}
	var lines []string
	for _, n := range nodes {
		lines = append(lines, fmt.Sprint(n.ID, n.Primary, n.Ranges))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}

// sound waits until all is well, which it must become without help, and looks at everything that must hold while nobody
// writes: all slots are covered and none is open, on primaries and replicas, each key is on one primary alone, and replicas
// have what their primaries have.
func (l *moveLab) sound(keys int) error {
	if err := l.cluster.AwaitSteady(settle); err != nil {
		return err
	}
	if err := l.cluster.Await(settle, func() error {
		for _, m := range l.cluster.Members {
			if err := noOpenSlot(m); err != nil {
				return err
			}
		}
		return node.Content(l.cluster.Members[0].Addr, toolLimit)
	}); err != nil {
		return err
	}
	if err := l.calm(); err != nil {
		return err
	}
	var sum, size int64
	seen := map[string]bool{}
	for k := range shards {
		primary, replicas, err := l.cluster.Primary(k)
		if err != nil {
			return err
		}
		n, err := ownKeysOnly(primary)
		if err != nil {
			return err
		}
		sum += n
		if n, err = dbsize(primary); err != nil {
			return err
		}
		size += n
		if err := scanAll(primary, seen); err != nil {
			return err
		}
		for _, r := range replicas {
			if err := sameData(primary, r); err != nil {
				return err
			}
		}
	}
	if want := int64(keys); sum != want || size != want || len(seen) != keys {
		return fmt.Errorf("by COUNTKEYSINSLOT there are %d keys, by DBSIZE %d, by SCAN %d, want %d", sum, size, len(seen), want)
	}
	return nil
}

// noOpenSlot looks into what the node says, and what it has written down, which for a replica is all that can be seen.
func noOpenSlot(m *node.Member) error {
	mine, err := m.Mine()
	if err != nil {
		return err
	}
	if len(mine.Open) > 0 {
		return fmt.Errorf("%s has open slots: %s", m.Name, mine.Open)
	}
	files, err := filepath.Glob(filepath.Join(m.Dir, "nodes.conf"))
	deeper, err2 := filepath.Glob(filepath.Join(m.Dir, "*", "nodes.conf"))
	if files = append(files, deeper...); len(files) == 0 {
		return errors.Join(err, err2, fmt.Errorf("%s: no nodes.conf below %s", m.Name, m.Dir))
	}
	for _, path := range files {
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if at := strings.IndexByte(string(raw), '['); at >= 0 {
			return fmt.Errorf("%s has an open slot written down: %.60q", m.Name, raw[at:])
		}
	}
	return nil
}

// ownKeysOnly wants no keys in slots of others, and returns how many there are in the node's own.
func ownKeysOnly(m *node.Member) (sum int64, err error) {
	mine, err := m.Mine()
	if err != nil {
		return 0, err
	}
	c, err := node.Dial(m.Addr, time.Second)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for s := range slot.Count {
		c.Append("CLUSTER", "COUNTKEYSINSLOT", strconv.Itoa(s))
	}
	if err := c.Flush(); err != nil {
		return 0, err
	}
	for s := range slot.Count {
		reply, err := c.Receive()
		if err != nil || reply.Kind != resp.KindInt {
			return 0, errors.Join(err, fmt.Errorf("%s: COUNTKEYSINSLOT %d: %c%.60s", m.Name, s, reply.Kind, reply.Str))
		}
		if reply.Int > 0 && !mine.Owns(uint16(s)) {
			return 0, fmt.Errorf("%s has %d keys in slot %d, which is not its own", m.Name, reply.Int, s)
		}
		sum += reply.Int
	}
	return sum, nil
}

func dbsize(m *node.Member) (int64, error) {
	c, err := node.Dial(m.Addr, time.Second)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.Int("DBSIZE")
}

// scanAll adds all keys that SCAN shows to seen. A key of a slot that was not the node's at any time meanwhile is an error.
func scanAll(m *node.Member, seen map[string]bool) error {
	c, err := node.Dial(m.Addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	before, err := m.Mine()
	if err != nil {
		return err
	}
	for cursor := "0"; ; {
		reply, err := c.Do("SCAN", cursor, "COUNT", "1000")
		if err != nil || len(reply.Elems) != 2 {
			return errors.Join(err, fmt.Errorf("%s: SCAN: %.60s", m.Name, reply.Str))
		}
		cursor = string(reply.Elems[0].Str)
		var page []string
		for _, e := range reply.Elems[1].Elems {
			page = append(page, string(e.Str))
		}
		after, err := m.Mine()
		if err != nil {
			return err
		}
		for _, key := range page {
			if s := slot.Of([]byte(key)); !before.Owns(s) && !after.Owns(s) {
				return fmt.Errorf("%s shows %q of slot %d, which is not its own", m.Name, key, s)
			}
			seen[key] = true
		}
		if before = after; cursor == "0" {
			return nil
		}
	}
}

// sameData wants the same digest of all data from both.
func sameData(a, b *node.Member) error {
	x, err := a.Text("DEBUG", "DIGEST")
	if err != nil {
		return err
	}
	y, err := b.Text("DEBUG", "DIGEST")
	if err == nil && x != y {
		err = fmt.Errorf("%s and %s hold different data: digests %.12s and %.12s", a.Name, b.Name, x, y)
	}
	return err
}
