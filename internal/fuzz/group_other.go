//go:build !unix

package main

import (
	"os/exec"
	"syscall"
)

func group(*exec.Cmd) {}

func kill(cmd *exec.Cmd, _ syscall.Signal) error { return cmd.Process.Kill() }
