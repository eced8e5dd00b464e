package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"cairn/internal/datadir"
	"cairn/internal/testkit"
)

// commandsOf are the lines that a chapter of a page gives to type.
func commandsOf(t *testing.T, page, chapter string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(raw), "\n## "+chapter+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var lines []string
	inside := false
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "```") {
			inside = line == "```sh"
		} else if inside {
			lines = append(lines, line)
		}
	}
	if !found || len(lines) == 0 {
		t.Fatalf("%s has no chapter %q with commands", page, chapter)
	}
	return strings.Join(lines, "\n")
}

// TestClusterByHand types what the page says, with other ports.
func TestClusterByHand(t *testing.T) {
	t.Parallel()
	lookPath(t, "redis-cli")
	const nodes = 6
	script, dir, first := commandsOf(t, "cluster.md", "Six nodes by hand"), t.TempDir(), testkit.FreePorts(t, nodes)
	for i := range nodes {
		port := strconv.Itoa(first + i)
		script = strings.ReplaceAll(script, strconv.Itoa(7001+i), port)
		killAtEnd(t, datadir.Of(filepath.Join(dir, port), ""))
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(built().cairn)+string(filepath.ListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil || strings.Count(text, "cluster_state:ok") != 2*nodes || !strings.Contains(text, "[OK] All 16384 slots covered") || !strings.HasSuffix(text, "hello\n") {
		t.Fatalf("%v\n%s", err, text)
	}
}
