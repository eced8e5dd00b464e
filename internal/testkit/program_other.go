//go:build !linux

package testkit

import "os/exec"

// dieWithParent does nothing: this system cannot tie a process to its parent.
func dieWithParent(*exec.Cmd) {}
