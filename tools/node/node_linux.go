package node

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the process when the caller dies without its
// cleanup. A signal from the terminal goes to the caller alone, which then ends its
// processes in order.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
