package testkit

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the process when the test dies without its
// cleanups: killed itself, or out of time.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
