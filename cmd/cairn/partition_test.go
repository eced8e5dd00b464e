package main

import (
	"os/exec"
	"strings"
	"testing"
)

// partition runs one way to cut a network of tools/chaos, without its times. make partitions holds them.
func partition(t *testing.T, name, timeout string, more ...string) {
	t.Helper()
	t.Parallel()
	p := built()
	args := append([]string{
		"partitions", "--untimed", "--program", p.cairn + " server", "--dir", t.TempDir(), "--only", name, "--node-timeout", timeout,
	}, more...)
	out, err := exec.CommandContext(t.Context(), p.chaos, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "SKIPPED") {
		t.Skipf("%s", out)
	}
	t.Log("\n" + string(out))
}

// A primary that is cut off closes, another one takes over, and all agree when it is back.
func TestMinorityCloses(t *testing.T) { partition(t, "isolated", "2s") }

// A primary that a majority sees is not replaced, whoever else does not see it.
func TestBridgeReplacesNobody(t *testing.T) { partition(t, "bridge", "3s") }

// The same with a cable that is pulled, where this process may make one.
func TestUnpluggedCloses(t *testing.T) { partition(t, "unplugged", "2s", "--netns") }
