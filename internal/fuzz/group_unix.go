//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// group puts a command into a new process group, which it interrupts when the context ends.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return kill(cmd, syscall.SIGINT) }
}

// kill signals the whole group.
func kill(cmd *exec.Cmd, s syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, s) }
