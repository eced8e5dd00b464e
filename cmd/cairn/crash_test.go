package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestCrash kills a node a dozen times over the three modes of appendfsync, half of
// them as a cluster node; make crash-long does it for long. The checker is a program
// of its own, tools/crash.
func TestCrash(t *testing.T) {
	t.Parallel()
	p := built()
	cmd := exec.CommandContext(t.Context(), p.crash, "kill",
		"--program", p.cairn+" server", "--rounds", "12", "--longest", "800ms", "--writers", "4", "--restart-limit", "1m", "--quiet", "--dir", t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := string(out)
	if !strings.HasSuffix(strings.TrimSpace(text), "PASS") {
		t.Errorf("no PASS at the end:\n%s", text)
	}
	t.Log("\n" + text)
}
