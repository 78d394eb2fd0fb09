//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goroce/roce/interop/proc"
)

// netns is a network namespace of this run.
type netns string

// netnsName matches the namespaces made here; the number is the pid of the run.
var netnsName = regexp.MustCompile(`^roce-(\d+)-vm[\w.-]*$`)

func newNetns(ctx context.Context, kernel string) (netns, error) {
	n := netns(fmt.Sprintf("roce-%d-vm%s", os.Getpid(), kernel))
	if _, err := proc.Run(ctx, "ip", "netns", "add", string(n)); err != nil {
		return "", err
	}
	return n, n.ip(ctx, "link set lo up")
}

// ip runs an ip command, given as one line, in the namespace.
func (n netns) ip(ctx context.Context, line string) error {
	_, err := proc.Run(ctx, append([]string{"ip", "-n", string(n)}, strings.Fields(line)...)...)
	return err
}

// argv prefixes a command line so that it runs in the namespace.
func (n netns) argv(argv ...string) []string {
	return append([]string{"ip", "netns", "exec", string(n)}, argv...)
}

// remove deletes the namespace; the processes in it have ended by then.
func (n netns) remove() {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	proc.Run(ctx, "ip", "netns", "del", string(n))
}

// sweep deletes namespaces of earlier runs that were killed before they could.
func sweep(ctx context.Context) {
	out, err := proc.Run(ctx, "ip", "netns", "list")
	if err != nil {
		return
	}
	for line := range strings.Lines(out) {
		m := netnsName.FindStringSubmatch(strings.Fields(line)[0])
		if m == nil {
			continue
		}
		pid, err := strconv.Atoi(m[1])
		if err == nil && syscall.Kill(pid, 0) == syscall.ESRCH {
			netns(m[0]).remove()
		}
	}
}
