//go:build linux

// Package netns makes network namespaces for a run, runs commands and functions in
// them, and removes namespaces of earlier runs that were killed.
package netns

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netns"

	"github.com/goroce/roce/interop/proc"
)

// Netns is a network namespace of this run.
type Netns string

// made matches the names of namespaces of this package; the number is the pid of the run.
var made = regexp.MustCompile(`^roce-(\d+)-[\w.-]+$`)

// New makes a namespace; name distinguishes it from others of the run. After an error there is no
// namespace: New does not interrupt its commands, because a killed command may leave a namespace.
func New(ctx context.Context, name string) (Netns, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer stop()
	n := Netns(fmt.Sprintf("roce-%d-%s", os.Getpid(), name))
	if _, err := proc.Run(ctx, "ip", "netns", "add", string(n)); err != nil {
		return "", err
	}
	if err := n.IP(ctx, "link set lo up"); err != nil {
		n.Remove()
		return "", err
	}
	return n, nil
}

// IP runs an ip command, given as one line, in the namespace.
func (n Netns) IP(ctx context.Context, line string) error {
	_, err := proc.Run(ctx, append([]string{"ip", "-n", string(n)}, strings.Fields(line)...)...)
	return err
}

// Argv prefixes a command line so that it runs in the namespace.
func (n Netns) Argv(argv ...string) []string {
	return append([]string{"ip", "netns", "exec", string(n)}, argv...)
}

// Do runs f with the calling thread inside the namespace: sockets that f opens
// stay in the namespace. f must not start goroutines that open sockets.
func (n Netns) Do(f func() error) error {
	to, err := netns.GetFromName(string(n))
	if err != nil {
		return fmt.Errorf("namespace %s: %w", n, err)
	}
	defer to.Close()
	runtime.LockOSThread()
	back, err := netns.Get()
	if err == nil {
		defer back.Close()
		err = netns.Set(to)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("entering namespace %s: %w", n, err)
	}
	err = f()
	if lost := netns.Set(back); lost != nil {
		return fmt.Errorf("leaving namespace %s: %w", n, lost) // the thread stays locked, and dies with the goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// Remove deletes the namespace. The caller has ended all processes in it.
func (n Netns) Remove() {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	proc.Run(ctx, "ip", "netns", "del", string(n))
}

// Sweep deletes the namespaces of earlier runs that were killed.
func Sweep(ctx context.Context) {
	out, err := proc.Run(ctx, "ip", "netns", "list")
	if err != nil {
		return
	}
	for line := range strings.Lines(out) {
		m := made.FindStringSubmatch(strings.Fields(line)[0])
		if m == nil {
			continue
		}
		pid, err := strconv.Atoi(m[1])
		if err == nil && syscall.Kill(pid, 0) == syscall.ESRCH {
			Netns(m[0]).Remove()
		}
	}
}
