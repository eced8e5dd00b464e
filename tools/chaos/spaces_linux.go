package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"cairn/tools/node"
)

// spaces connects nodes as machines are connected: each has a network namespace, and a cable from there to a bridge in one
// more namespace.
//
//	node 0                          hub                         node 1
//	eth0 10.77.0.10 ── veth ── port0 ─ bridge ─ port1 ── veth ── eth0 10.77.0.11
//
// No namespace has a name, and nothing is made in that of the machine. They last as long as this process holds them, or
// a node runs there; so nothing is left behind, however this process ends.
//
// What node i says to node j is cut in the neighbour table of i, which then has a hardware address for j that is nobody's:
// the frames leave and arrive nowhere, in this direction alone, and nobody gets an error.
type spaces struct {
	hub    *os.File   // the namespaces
	nodes  []*os.File // of each node
	unslow string     // ends slow; "": nothing to end
}

const (
	subnet  = "10.77.0."
	portUp  = "link set port%d up"
	portOff = "link set port%d down"
)

func (w *spaces) address(i int) string { return subnet + strconv.Itoa(firstSource+i) }

// hardware is the address of a node's end of the cable. Nodes know these addresses from the start, and never ask.
func hardware(i int) string { return fmt.Sprintf("02:00:00:00:00:%02x", firstSource+i) }

// nobody is the hardware address that stands for a node that cannot be reached.
func nobody(i int) string { return fmt.Sprintf("02:00:00:00:ff:%02x", firstSource+i) }

// newSpaces makes the namespaces. errCannot: this process may not, or the tool ip is missing.
func newSpaces(nodes int) (fabric, error) {
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, fmt.Errorf("%w: the tool ip (iproute2) is not installed", errCannot)
	}
	w := &spaces{}
	err := w.build(nodes)
	if err == nil {
		return w, nil
	}
	w.close()
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: network namespaces need root: %w", errCannot, err)
	}
	return nil, err
}

func (w *spaces) build(nodes int) (err error) {
	if w.hub, err = newSpace(); err != nil {
		return err
	}
	if err := ip(w.hub, "link set lo up", "link add bridge type bridge", "link set bridge up"); err != nil {
		return err
	}
	for i := range nodes {
		space, err := newSpace()
		if err != nil {
			return err
		}
		w.nodes = append(w.nodes, space)
		port := fmt.Sprintf("port%d", i)
		err = ip(w.hub,
			fmt.Sprintf("link add %s type veth peer name eth0 address %s netns /proc/%d/fd/%d", port, hardware(i), os.Getpid(), space.Fd()),
			fmt.Sprintf("link set %s master bridge", port), fmt.Sprintf(portUp, i))
		if err != nil {
			return err
		}
		lines := []string{"link set lo up", "address add " + w.address(i) + "/24 dev eth0", "link set eth0 up"}
		for j := range nodes {
			lines = append(lines, w.neighbour(j, true))
		}
		if err := ip(space, lines...); err != nil {
			return err
		}
	}
	return nil
}

// neighbour is the line by which a node reaches another one, or does not.
func (w *spaces) neighbour(i int, reached bool) string {
	to := hardware(i)
	if !reached {
		to = nobody(i)
	}
	return "neighbour replace " + w.address(i) + " lladdr " + to + " dev eth0 nud permanent"
}

func (w *spaces) place(i int) node.Place {
	return node.Place{Host: w.address(i), Enter: func(do func() error) error { return enter(w.nodes[i], do) }}
}

func (w *spaces) directives(i, _ int) ([]string, error) {
	return []string{"--bind", w.address(i), "127.0.0.1", "--protected-mode", "no", "--cluster-announce-ip", w.address(i)}, nil
}

func (w *spaces) block(ways []way, on bool) error {
	lines := make([][]string, len(w.nodes))
	for _, x := range ways {
		lines[x.from] = append(lines[x.from], w.neighbour(x.to, !on))
	}
	for i, some := range lines {
		if len(some) == 0 {
			continue
		}
		if err := ip(w.nodes[i], some...); err != nil {
			return err
		}
	}
	return nil
}

// jolt takes a node's cable out and puts it in again.
func (w *spaces) jolt(i int) error {
	if err := w.unplug(i, true); err != nil {
		return err
	}
	time.Sleep(slowDelay) // for those who look at the carrier
	return w.unplug(i, false)
}

// unplug takes a node's cable out of the bridge, or puts it in. The node sees its carrier go.
func (w *spaces) unplug(i int, out bool) error {
	line := portUp
	if out {
		line = portOff
	}
	return ip(w.hub, fmt.Sprintf(line, i))
}

// slow has the kernel delay packets and lose some. Where it cannot delay, it loses some.
func (w *spaces) slow() (how string, err error) {
	if _, err := exec.LookPath("tc"); err != nil {
		return "", fmt.Errorf("%w: the tool tc (iproute2) is not installed", errCannot)
	}
	how = fmt.Sprintf("%v more each way, %d%% of the packets lost", slowDelay, slowLoss)
	lines := []string{fmt.Sprintf("qdisc add dev eth0 root netem delay %dms loss %d%%", slowDelay.Milliseconds(), slowLoss)}
	if noNetem := inSpace(w.nodes[0], "tc", lines...); noNetem == nil {
		w.unslow = "qdisc delete dev eth0 root"
		return how, w.tc(w.nodes[1:], lines...)
	}
	how = fmt.Sprintf("%d%% of the packets lost, none delayed, since this kernel has no netem", slowLoss)
	lines = []string{"qdisc add dev eth0 clsact", "filter add dev eth0 egress bpf direct-action bytecode '" + lossy() + "'"}
	if err := inSpace(w.nodes[0], "tc", lines...); err != nil {
		return "", fmt.Errorf("%w: this kernel has neither netem nor filters: %w", errCannot, err)
	}
	w.unslow = "qdisc delete dev eth0 clsact"
	return how, w.tc(w.nodes[1:], lines...)
}

// lossy is a program for the kernel's filter that drops packets by chance: its length, and instructions with two jumps and
// an operand.
//
//	load a random word; at least slowLoss % of all: skip one; return drop; return go on
func lossy() string {
	const random, drop, goOn = 0xfffff000 + 56, 2, math.MaxUint32
	return fmt.Sprintf("4,32 0 0 %d,53 1 0 %d,6 0 0 %d,6 0 0 %d", uint32(random), math.MaxUint32/100*slowLoss, drop, uint32(goOn))
}

// fast ends slow.
func (w *spaces) fast() error {
	if w.unslow == "" {
		return nil
	}
	line := w.unslow
	w.unslow = ""
	return w.tc(w.nodes, line)
}

func (w *spaces) tc(nodes []*os.File, lines ...string) (err error) {
	for _, space := range nodes {
		err = errors.Join(err, inSpace(space, "tc", lines...))
	}
	return err
}

func (w *spaces) close() {
	for _, space := range append(w.nodes, w.hub) {
		if space != nil {
			_ = space.Close() // the kernel removes what is in it
		}
	}
	w.nodes, w.hub = nil, nil
}

// newSpace makes a network namespace.
func newSpace() (space *os.File, err error) {
	err = away(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		space, err = here()
		return err
	})
	return space, err
}

// here is the namespace of this thread.
func here() (*os.File, error) { return os.Open("/proc/thread-self/ns/net") }

// enter runs do on a thread that is in the namespace. Processes that do starts are there, and sockets that it makes.
func enter(space *os.File, do func() error) error {
	return away(func() error {
		if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return do()
	})
}

// away runs do on a thread of its own, which may leave its namespace and is brought back.
func away(do func() error) error {
	done := make(chan error, 1)
	go func() { // ends with do
		runtime.LockOSThread()
		home, err := here()
		if err == nil {
			err = do()
			if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back == nil {
				runtime.UnlockOSThread()
			} else if err == nil { // the thread ends with this goroutine
				err = fmt.Errorf("come back from a network namespace: %w", back)
			}
			_ = home.Close()
		}
		done <- err
	}()
	return <-done
}

// ip runs lines of the tool of that name in a namespace.
func ip(space *os.File, lines ...string) error { return inSpace(space, "ip", lines...) }

func inSpace(space *os.File, tool string, lines ...string) error {
	var out bytes.Buffer
	cmd := exec.Command(tool, "-batch", "-")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Join(lines, "\n")+"\n"), &out, &out
	err := enter(space, cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("%s: %.200q: %w: %s", tool, lines, err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}
