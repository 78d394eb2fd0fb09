package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/interop/netns"
)

// Process is a child that runs this program.
type Process struct {
	*Client
	cmd *exec.Cmd
}

// Start starts this program again, as [Pin] does, with variables added to its environment. An interrupt from the terminal reaches
// the parent only.
func Start(name string, ns netns.Netns, cores []int, env ...string) (*Process, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := Pin(cmd, ns, cores); err != nil {
		return nil, err
	}
	return &Process{NewClient(name, in, out), cmd}, nil
}

// Pid returns the process ID.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Pin starts a command in a namespace and on the processors cores, or without cores on those of this process: a process
// inherits both from the thread that starts it.
func Pin(cmd *exec.Cmd, ns netns.Netns, cores []int) error {
	return ns.Do(func() error {
		if cores == nil {
			return cmd.Start()
		}
		var before, some unix.CPUSet
		if err := unix.SchedGetaffinity(0, &before); err != nil {
			return err
		}
		for _, c := range cores {
			some.Set(c)
		}
		if err := unix.SchedSetaffinity(0, &some); err != nil {
			return fmt.Errorf("cores %d: %w", cores, err)
		}
		return errors.Join(cmd.Start(), unix.SchedSetaffinity(0, &before))
	})
}

// Kill ends the child by SIGKILL.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// patience is how long Close waits for a child that has answered all calls.
const patience = 10 * time.Second

// Close closes the child's input, at which a child ends by itself, and waits for its end. It kills
// a child that hangs. The error is that of a child that has not ended properly.
func (p *Process) Close() error {
	p.rpc.Close()
	wait := patience
	if p.broken {
		wait = 0
	}
	defer time.AfterFunc(wait, func() { p.cmd.Process.Kill() }).Stop()
	return p.cmd.Wait()
}
