package local

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Who has a port, and which nodes run of a folder that is gone, as /proc tells. Where there is no /proc, and of other
// people's processes, nothing is known; so what is said here only helps to find out.

const procDir = "/proc"

// holders finds the processes that listen on these ports.
func holders(ports []int) map[int]int {
	sockets := map[string]int{} // what a descriptor of the socket is called, and the port
	for _, table := range []string{"tcp", "tcp6"} {
		raw, err := os.ReadFile(filepath.Join(procDir, "net", table))
		if err != nil {
			continue
		}
		for inode, port := range listening(raw) {
			if slices.Contains(ports, port) {
				sockets["socket:["+inode+"]"] = port
			}
		}
	}
	found := map[int]int{}
	if len(sockets) == 0 {
		return found
	}
	for _, pid := range processes() {
		folder := filepath.Join(procDir, strconv.Itoa(pid), "fd")
		descriptors, err := os.ReadDir(folder)
		if err != nil {
			continue // another user's, or gone
		}
		for _, d := range descriptors {
			name, err := os.Readlink(filepath.Join(folder, d.Name()))
			if port, ok := sockets[name]; err == nil && ok {
				found[port] = pid
			}
		}
	}
	return found
}

// listening reads a table of sockets: of those that listen, the inode and the port.
//
//	sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
//	 0: 0100007F:1B58 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 412345 1 ...
func listening(table []byte) map[string]int {
	const listens = "0A"
	found := map[string]int{}
	lines := bufio.NewScanner(bytes.NewReader(table))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[3] != listens {
			continue
		}
		port, err := strconv.ParseUint(f[1][strings.LastIndexByte(f[1], ':')+1:], 16, 16)
		if err == nil {
			found[f[9]] = int(port)
		}
	}
	return found
}

func processes() (pids []int) {
	entries, err := os.ReadDir(procDir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// commandOf is how a process was called; nil when that is not known.
func commandOf(pid int) []string {
	raw, err := os.ReadFile(filepath.Join(procDir, strconv.Itoa(pid), "cmdline"))
	if err != nil || len(raw) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(raw), "\x00"), "\x00")
}

// folderOfNode is the folder of a node that some Up has started, "" when the process is none.
func folderOfNode(pid int) string {
	args := commandOf(pid)
	if len(args) < 2 || args[1] != "server" {
		return ""
	}
	port, dir := valueOf(args, "--port"), valueOf(args, "--dir")
	if filepath.IsAbs(dir) && filepath.Base(dir) == port {
		return dir
	}
	return ""
}

func valueOf(args []string, name string) string {
	if i := slices.Index(args, name); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// strays are the processes of nodes that an Up has started in dir, but for those that are known.
func strays(dir string, known []*localNode) (pids []int) {
	for _, pid := range processes() {
		node := folderOfNode(pid)
		if node == "" || filepath.Dir(node) != dir {
			continue
		}
		if !slices.ContainsFunc(known, func(n *localNode) bool { return n.pid == pid }) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// whose describes a process for people.
func whose(pid int) string {
	text := fmt.Sprintf("pid %d", pid)
	node := folderOfNode(pid)
	if node == "" {
		if args := commandOf(pid); args != nil {
			text += " (" + filepath.Base(args[0]) + ")"
		}
		return text
	}
	text += ", the node in " + node
	if _, err := os.Stat(node); err != nil {
		text += ", which was removed while it ran"
	}
	return text
}

// killLine is a command that ends processes.
func killLine(pids []int) string {
	text := "kill"
	for _, pid := range pids {
		text += " " + strconv.Itoa(pid)
	}
	return text
}

// inUse says who has ports that a cluster needs.
func inUse(ports []int) string {
	who := holders(ports)
	of := map[string][]int{} // holder, and its ports
	pids := map[int]bool{}
	for _, port := range ports {
		by := ""
		if pid, ok := who[port]; ok {
			by, pids[pid] = whose(pid), true
		}
		of[by] = append(of[by], port)
	}
	var lines []string
	for _, by := range slices.SortedFunc(maps.Keys(of), func(a, b string) int { return of[a][0] - of[b][0] }) {
		line := "port"
		if len(of[by]) > 1 {
			line += "s"
		}
		line += " " + strings.Trim(strings.ReplaceAll(fmt.Sprint(of[by]), " ", ", "), "[]") + " in use"
		if by != "" {
			line += " by " + by
		}
		lines = append(lines, line)
	}
	text := strings.Join(lines, "\n  ")
	stop := "stop who listens there"
	if len(pids) > 0 {
		stop += " (" + killLine(slices.Sorted(maps.Keys(pids))) + ")"
	}
	return fmt.Sprintf("nothing was started:\n  %s\n%s, or choose another --port; each node needs its port and the one %d above", text, stop, busAbove)
}
