package main

import (
	"os/exec"
	"testing"
)

// partition runs one way to cut a network of tools/chaos, without its times. make partitions holds them.
func partition(t *testing.T, name, timeout string) {
	t.Helper()
	t.Parallel()
	p := built()
	out, err := exec.CommandContext(t.Context(), p.chaos, "partitions", "--untimed", "--program", p.cairn+" server", "--dir", t.TempDir(),
		"--only", name, "--node-timeout", timeout).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log("\n" + string(out))
}

// A primary that is cut off closes, another one takes over, and all agree when it is back.
func TestMinorityCloses(t *testing.T) { partition(t, "isolated", "2s") }

// A primary that a majority sees is not replaced, whoever else does not see it.
func TestBridgeReplacesNobody(t *testing.T) { partition(t, "bridge", "3s") }
