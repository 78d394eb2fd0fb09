//go:build linux

package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Start runs argv on this machine, in a process group of its own; it is killed
// when ctx ends or this program dies.
func Start(ctx context.Context, argv ...string) (*Proc, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := New(Quote(argv), func(s syscall.Signal) error { return syscall.Kill(-cmd.Process.Pid, s) })
	cmd.Stdout, cmd.Stderr = p, p
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Line, err)
	}
	go func() { p.Done(ExitOf(cmd, cmd.Wait())) }()
	return p, nil
}

// ExitOf returns how a command has ended; err is the error of its Wait.
func ExitOf(cmd *exec.Cmd, err error) Exit {
	e := Exit{Code: cmd.ProcessState.ExitCode()}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal = ws.Signal().String()
	}
	if _, exited := errors.AsType[*exec.ExitError](err); !exited && !errors.Is(err, exec.ErrWaitDelay) {
		e.Err = err
	}
	return e
}

// Run runs argv to its end and returns its output, as [Proc.Finish] does.
func Run(ctx context.Context, argv ...string) (string, error) {
	p, err := Start(ctx, argv...)
	if err != nil {
		return "", err
	}
	return p.Finish(ctx)
}

// Build runs argv, which builds something. The error names it, and has the whole output.
func Build(ctx context.Context, what string, argv ...string) error {
	out, err := Run(ctx, argv...)
	if err != nil {
		return fmt.Errorf("building %s: %w\n%s", what, err, out)
	}
	return nil
}

// Listens reports whether a TCP socket listens on a port in the network namespace of a process: its number, or "self".
func Listens(pid string, port int) (bool, error) {
	for _, name := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile("/proc/" + pid + "/net/" + name)
		if err != nil {
			return false, err
		}
		for line := range strings.Lines(string(b)) {
			const listen = "0A"
			if f := strings.Fields(line); len(f) > 3 && f[3] == listen && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				return true, nil
			}
		}
	}
	return false, nil
}
