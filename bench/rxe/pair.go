//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/roce/interop/netns"
	"github.com/goroce/roce/interop/proc"
)

// end is one end of a pair: an interface, its address and, for rxe, the device on it.
type end struct {
	name   string // of the interface, and of the rxe device
	addr   netip.Addr
	mac    string
	table  int         // routing table
	netns  netns.Netns // "" for the initial one
	gid    int         // index of the address in the rxe device's GID table
	remote *end
}

// pairs are the three veth pairs. Each end of the first has an rxe device. rxe of most kernels works only in the
// initial network namespace, so both ends are in it. Each end of the second pair is in a separate namespace. The third
// has an rxe device at end 0, in the initial namespace, and end 1 in a separate one.
type pairs struct {
	rxe, ours, mixed [2]*end
	undo             []func(context.Context)
}

// newPairs makes the pairs. If it fails, it removes them again.
func newPairs(ctx context.Context) (p *pairs, err error) {
	if _, err := exec.LookPath("ib_write_bw"); err != nil {
		return nil, errors.New("perftest is missing: apt install perftest rdma-core")
	}
	p = &pairs{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	for i := range 2 {
		side := string("ab"[i])
		p.rxe[i] = &end{name: fmt.Sprintf("rx%d%s", os.Getpid(), side), addr: netip.AddrFrom4([4]byte{198, 18, 191, byte(i + 1)}),
			mac: fmt.Sprintf("02:00:00:47:91:0%d", i+1), table: 47911 + i}
		p.ours[i] = &end{name: "roce0", addr: netip.AddrFrom4([4]byte{198, 18, 192, byte(i + 1)})}
		p.mixed[i] = &end{name: "roce0", addr: netip.AddrFrom4([4]byte{198, 18, 193, byte(i + 1)})}
	}
	p.mixed[0].name = fmt.Sprintf("rx%dm", os.Getpid())
	for _, pair := range p.all() {
		pair[0].remote, pair[1].remote = pair[1], pair[0]
	}
	netns.Sweep(ctx)
	if err = p.makeRXE(ctx); err != nil {
		return p, err
	}
	if err = p.join(ctx, p.ours, "a", "b"); err != nil {
		return p, err
	}
	if err = p.join(ctx, p.mixed, "", "m"); err != nil {
		return p, err
	}
	return p, p.addRXE(ctx, p.mixed[0])
}

func (p *pairs) all() [][2]*end { return [][2]*end{p.rxe, p.ours, p.mixed} }

// close removes everything.
func (p *pairs) close() {
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	for _, undo := range slices.Backward(p.undo) {
		undo(ctx)
	}
}

// makeRXE makes the pair in this namespace. If the kernel finds the peer's address in the local
// table, it sends over the loopback. So makeRXE removes both addresses from that table and makes
// them local only for packets that the interfaces receive. It changes no other address of the
// machine.
func (p *pairs) makeRXE(ctx context.Context) error {
	if _, err := proc.Run(ctx, "modprobe", "rdma_rxe"); err != nil {
		return fmt.Errorf("this kernel has no rxe: %w", err)
	}
	a, b := p.rxe[0], p.rxe[1]
	if err := a.netns.IP(ctx, fmt.Sprintf("link add %s address %s type veth peer name %s address %s", a.name, a.mac, b.name, b.mac)); err != nil {
		return err
	}
	p.undo = append(p.undo, func(ctx context.Context) { a.netns.IP(ctx, "link del "+a.name) })
	for _, e := range p.rxe {
		rule := fmt.Sprintf("pref %d iif %s lookup %d", e.table%10000, e.name, e.table)
		if err := e.netns.IP(ctx,
			fmt.Sprintf("addr add %v/32 dev %s", e.addr, e.name),
			fmt.Sprintf("link set %s up", e.name),
			fmt.Sprintf("route add %v/32 dev %s src %v", e.remote.addr, e.name, e.addr),
			fmt.Sprintf("route del local %v dev %s table local", e.addr, e.name),
			fmt.Sprintf("route add local %v dev %s table %d", e.addr, e.name, e.table),
			fmt.Sprintf("neigh replace %v lladdr %s dev %s nud permanent", e.remote.addr, e.remote.mac, e.name),
			"rule add "+rule); err != nil {
			return err
		}
		p.undo = append(p.undo, func(ctx context.Context) { e.netns.IP(ctx, "rule del "+rule) })
	}
	for _, e := range p.rxe {
		if err := p.addRXE(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// addRXE makes the rxe device of an end.
func (p *pairs) addRXE(ctx context.Context, e *end) error {
	if _, err := proc.Run(ctx, "rdma", "link", "add", e.name, "type", "rxe", "netdev", e.name); err != nil {
		return err
	}
	p.undo = append(p.undo, func(ctx context.Context) { proc.Run(ctx, "rdma", "link", "delete", e.name) })
	return e.findGID(ctx)
}

// carried returns how many bytes the ends of the rxe pair have sent.
func (p *pairs) carried() (sum uint64) {
	for _, e := range p.rxe {
		b, _ := os.ReadFile("/sys/class/net/" + e.name + "/statistics/tx_bytes")
		n, _ := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		sum += n
	}
	return sum
}

// findGID waits until the address is in the device's GID table.
func (e *end) findGID(ctx context.Context) error {
	want := netip.AddrFrom16(e.addr.As16()).String()
	for range 100 {
		files, _ := filepath.Glob("/sys/class/infiniband/" + e.name + "/ports/1/gids/*")
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				continue
			}
			if a, err := netip.ParseAddr(strings.TrimSpace(string(b))); err == nil && a.String() == want {
				e.gid, err = strconv.Atoi(filepath.Base(f))
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s has no GID for %v", e.name, e.addr)
}

// join makes the veth pair of two ends. An end whose place in spaces is not empty is in a new namespace.
func (p *pairs) join(ctx context.Context, ends [2]*end, spaces ...string) (err error) {
	for i, e := range ends {
		if spaces[i] == "" {
			continue
		}
		if e.netns, err = netns.New(ctx, "rxe-"+spaces[i]); err != nil {
			return err
		}
		p.undo = append(p.undo, func(context.Context) { e.netns.Remove() })
	}
	a, b := ends[0], ends[1]
	if err := a.netns.IP(ctx, fmt.Sprintf("link add %s type veth peer name %s netns %s", a.name, b.name, b.netns)); err != nil {
		return err
	}
	for _, e := range ends {
		if err := e.netns.IP(ctx, fmt.Sprintf("addr add %v/24 dev %s", e.addr, e.name), fmt.Sprintf("link set %s up", e.name)); err != nil {
			return err
		}
	}
	_, err = proc.Run(ctx, b.netns.Argv("ping", "-c", "1", "-w", "10", a.addr.String())...)
	return err
}

func (p *pairs) setMTU(ctx context.Context, mtu int) error {
	for _, pair := range p.all() {
		for _, e := range pair {
			if err := e.netns.IP(ctx, fmt.Sprintf("link set %s mtu %d", e.name, mtu)); err != nil {
				return err
			}
		}
	}
	// rxe learns the new path MTU from a notification.
	select {
	case <-ctx.Done():
	case <-time.After(200 * time.Millisecond):
	}
	return ctx.Err()
}
