package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/machine"
)

// insideVar is the environment variable that says that unshare has started this program, in a user namespace.
const insideVar = "ROCECTL_INSIDE"

// Values of insideVar.
const (
	insideCheck = "check" // mount everything, and end
	insideRun   = "run"   // mount everything, and become the program
)

func execute(program string, args, env []string) error { return syscall.Exec(program, args, env) }

// show makes the devices visible to the program in /sys and /dev. If that needs a user namespace, show becomes the program.
// The calling thread has the namespace, so the same thread must become the program later.
func (c Config) show(program string, env []string) error {
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		return mountAll(c.Devices)
	}
	if c.Privileged {
		return fmt.Errorf("a mount namespace needs CAP_SYS_ADMIN (%w), and in a user namespace only --link udp works", err)
	}
	if os.Geteuid() == overflowUID() {
		return fmt.Errorf("a mount namespace needs CAP_SYS_ADMIN (%w), and in a user namespace user nobody cannot share an address, because its number also stands for all other users", err)
	}
	return showUnprivileged(program, c.Args, env)
}

// overflowUID returns the user ID that the kernel shows for users that a user namespace does not know.
func overflowUID() int {
	text, _ := os.ReadFile("/proc/sys/kernel/overflowuid")
	if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		return n
	}
	return 65534
}

// showUnprivileged becomes the program, in a user namespace. A process with threads, like one with the Go runtime, cannot
// enter a user namespace. The program unshare has one thread and keeps the process ID. It starts this program again,
// which continues in [Inside].
func showUnprivileged(program string, args, env []string) error {
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return errors.New("a mount namespace needs CAP_SYS_ADMIN, or the program unshare of util-linux")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// Keep the user ID: processes share an address with those of the same user, and users that the namespace does
	// not know appear as nobody.
	line := []string{unshare, "--user", "--mount", "--propagation", "slave", "--keep-caps",
		"--map-user=" + strconv.Itoa(os.Geteuid()), "--map-group=" + strconv.Itoa(os.Getegid()), "--", self}
	check := exec.Command(line[0], line[1:]...)
	check.Env = append(env, insideVar+"="+insideCheck)
	var errs bytes.Buffer
	check.Stderr = &errs
	if err := check.Run(); err != nil {
		if why := strings.TrimSpace(errs.String()); why != "" {
			err = errors.New(strings.ReplaceAll(why, "\n", "; "))
		}
		return fmt.Errorf("a mount namespace needs CAP_SYS_ADMIN, or a user namespace: %w", err)
	}
	return execute(unshare, append(append(line, program), args...), append(env, insideVar+"="+insideRun))
}

// A program that uses [Run] must call Inside when it starts. If unshare has started the program for Run, in a user
// namespace, Inside becomes the program to run. Otherwise it does nothing.
func Inside() {
	how := os.Getenv(insideVar)
	if how == "" {
		return
	}
	os.Unsetenv(insideVar)
	err := inside(how, os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "rocectl: %v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// inside performs the action in insideVar. args are the file of the program, its name and its arguments.
func inside(how string, args []string) error {
	runtime.LockOSThread()
	m, err := machine.FromEnv()
	if err != nil {
		return err
	}
	devices, err := m.List()
	if err != nil {
		return err
	}
	if err := mountAll(devices); err != nil || how == insideCheck {
		return err
	}
	// Drop the capabilities, which were for mounting.
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if len(args) < 2 {
		return errors.New("no program to run")
	}
	return &ExecError{args[1], execute(args[0], args[1:], os.Environ())}
}
