//go:build linux

// Package netns makes network namespaces for a run, runs commands and functions in
// them, and removes namespaces of earlier runs that were killed.
package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netns"

	"github.com/goroce/roce/interop/proc"
)

// Netns is a network namespace of this run, or "" for the namespace of this process.
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

// IP runs ip commands, each given as one line, in the namespace, up to the first one that fails.
func (n Netns) IP(ctx context.Context, lines ...string) error {
	argv := []string{"ip"}
	if n != "" {
		argv = append(argv, "-n", string(n))
	}
	for _, line := range lines {
		if _, err := proc.Run(ctx, slices.Concat(argv, strings.Fields(line))...); err != nil {
			return err
		}
	}
	return nil
}

// Argv prefixes a command line so that it runs in the namespace.
func (n Netns) Argv(argv ...string) []string {
	if n == "" {
		return argv
	}
	return append([]string{"ip", "netns", "exec", string(n)}, argv...)
}

// AwaitCarrier waits until the kernel has noticed the carrier of an interface in the namespace. Before that it silently
// drops packets in the queueing discipline.
func (n Netns) AwaitCarrier(ctx context.Context, device string) error {
	return n.Do(func() error {
		for {
			ifi, err := net.InterfaceByName(device)
			if err != nil || ifi.Flags&net.FlagRunning != 0 {
				return err
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s has no carrier: %w", device, ctx.Err())
			case <-time.After(2 * time.Millisecond):
			}
		}
	})
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

// Remove deletes the namespace, unless it is that of this process. The caller has ended all processes in it.
func (n Netns) Remove() {
	if n == "" {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	proc.Run(ctx, "ip", "netns", "del", string(n))
}

// Pair is two namespaces, each with one end of a veth pair.
type Pair [2]Netns

// NewPair makes a Pair; name distinguishes it from others of the run. Both ends of the veth pair are called device. One end
// has the addresses 10.79.0.1 and 10.79.1.1, the other 10.79.0.2 and 10.79.1.2.
func NewPair(ctx context.Context, name, device string) (p Pair, err error) {
	defer func() {
		if err != nil {
			p.Remove()
			p = Pair{}
		}
	}()
	for i := range p {
		if p[i], err = New(ctx, fmt.Sprintf("%s-%c", name, "ab"[i])); err != nil {
			return p, err
		}
	}
	if err = p[0].IP(ctx, fmt.Sprintf("link add %s type veth peer name %[1]s netns %s", device, p[1])); err != nil {
		return p, err
	}
	for i, n := range p {
		if err = n.IP(ctx, fmt.Sprintf("addr add 10.79.0.%d/24 dev %s", i+1, device), fmt.Sprintf("addr add 10.79.1.%d/24 dev %s", i+1, device),
			"link set "+device+" up"); err != nil {
			return p, err
		}
	}
	return p, p.AwaitCarrier(ctx, device)
}

// AwaitCarrier waits until the kernel has noticed the carrier of both ends.
func (p Pair) AwaitCarrier(ctx context.Context, device string) error {
	return errors.Join(p[0].AwaitCarrier(ctx, device), p[1].AwaitCarrier(ctx, device))
}

// Remove deletes both namespaces.
func (p Pair) Remove() {
	p[0].Remove()
	p[1].Remove()
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
