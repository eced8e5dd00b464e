package main

import (
	"os/exec"
	"strings"
	"testing"
)

// bar runs a measurement of tools/bars small and without its times: what is lost, how often everything is sent anew, and
// whether copies differ. make bars holds the times.
func bar(t *testing.T, args ...string) {
	t.Helper()
	t.Parallel()
	p := built()
	args = append(args, "--times=false", "--program", p.cairn+" server", "--dir", t.TempDir())
	out, err := exec.CommandContext(t.Context(), p.bars, args...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PASS\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log("\n" + string(out))
}

func TestKilledPrimaryIsReplaced(t *testing.T) {
	bar(t, "failover", "--kills", "1", "--beside=false")
}

func TestKilledPrimaryComesBack(t *testing.T) { bar(t, "return", "--rounds", "1") }

func TestPrimaryHandsOver(t *testing.T) {
	bar(t, "manual", "--rounds", "1", "--expire", "500", "--lasting", "4s", "--node-timeout", "5s")
}

func TestAwayAndBack(t *testing.T) { bar(t, "lag", "--mb", "2") }

func TestKilledInFullSync(t *testing.T) {
	bar(t, "fullsync", "--mb", "16", "--small", "4", "--rate", "4", "--kills", "6", "--alone", "200ms")
}

func TestBusyNodeIsAlive(t *testing.T) {
	bar(t, "alive", "--gb", "0.01", "--fields", "20000", "--tail", "100ms", "--node-timeout", "15s")
}
