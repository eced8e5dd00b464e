//go:build !linux

package node

import "os/exec"

// dieWithParent has no means here; the caller's cleanup must do.
func dieWithParent(*exec.Cmd) {}
