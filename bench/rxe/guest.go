//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/roce/interop/proc"
	"github.com/goroce/roce/interop/vm"
)

// guestRocectl is where rocectl is in the guest.
const guestRocectl = "/usr/bin/rocectl"

// guestIP is iproute2: busybox's programs prefer its own ip.
const guestIP = "/usr/bin/ip"

// guest is the machine everything runs in.
type guest struct {
	vm   *vm.VM
	cpus int
	port int // of the last test's exchange
	mtu  int
}

// setUp makes two veth pairs. The ends of the first have an rxe device each; rxe of
// these kernels lives in the first namespace only, so both ends are there and
// the routes send what is for one out of the other. Those of the second are in
// namespaces of their own.
const setUp = `set -e
modprobe veth
ip link add ra type veth peer name rb
ip link set ra address 02:00:00:00:00:0a; ip link set rb address 02:00:00:00:00:0b
ip addr add 10.99.0.1/32 dev ra; ip addr add 10.99.0.2/32 dev rb
for i in all ra rb; do
	echo 1 >/proc/sys/net/ipv4/conf/$i/accept_local
	echo 0 >/proc/sys/net/ipv4/conf/$i/rp_filter
done
ip link set ra up; ip link set rb up
ip neigh replace 10.99.0.2 lladdr 02:00:00:00:00:0b dev ra nud permanent
ip neigh replace 10.99.0.1 lladdr 02:00:00:00:00:0a dev rb nud permanent
ip route add 10.99.0.2/32 dev ra src 10.99.0.1
ip route add 10.99.0.1/32 dev rb src 10.99.0.2
ip rule add pref 10 iif ra lookup local
ip rule add pref 11 iif rb lookup local
ip rule add pref 12 to 127.0.0.0/8 lookup local
ip rule add pref 13 iif eth0 lookup local
ip rule del pref 0
rdma link delete rxe0
rdma link add rxa type rxe netdev ra
rdma link add rxb type rxe netdev rb
mkdir -p /run/netns
ip netns add na; ip netns add nb
ip link add oa netns na type veth peer name ob netns nb
ip -n na addr add 10.98.0.1/24 dev oa; ip -n nb addr add 10.98.0.2/24 dev ob
ip -n na link set lo up; ip -n nb link set lo up
ip -n na link set oa up; ip -n nb link set ob up
ip netns exec na ping -c 1 -w 10 10.98.0.2
`

func (g *guest) setUp(ctx context.Context) error {
	_, err := g.vm.Run(ctx, "sh", "-c", setUp)
	return err
}

// setMTU sets the MTU of all ends.
func (g *guest) setMTU(ctx context.Context, mtu int) error {
	if mtu == g.mtu {
		return nil
	}
	g.mtu = mtu
	_, err := g.vm.Run(ctx, "sh", "-c", strings.ReplaceAll(`set -e
ip link set ra mtu MTU; ip link set rb mtu MTU
ip -n na link set oa mtu MTU; ip -n nb link set ob mtu MTU
sleep 0.2`, "MTU", strconv.Itoa(mtu)))
	return err
}

// contender is a stack and its program.
type contender interface {
	name() string
	// commands are the server's and the client's; ns is the server's namespace, empty
	// for the first.
	commands(t test, port, seconds int) (server, client []string, ns string)
}

// rxe is the kernel's, with perftest. Its two ends meet over the loopback.
type rxe struct{}

func (rxe) name() string { return "rxe" }

func (rxe) commands(t test, port, seconds int) (server, client []string, ns string) {
	end := func(dev string) []string {
		return append([]string{"ib_" + t.program, "-d", dev, "-x", "1"}, t.args(port, seconds)...)
	}
	return end("rxa"), append(end("rxb"), "127.0.0.1"), ""
}

// ours is rocectl over a link. On the only processor of a machine it does not poll: who
// spins keeps the other end from working. (perftest cannot but spin for a duration.)
type ours struct {
	link string
	poll bool
}

func (o ours) name() string { return "roce " + o.link }

func (o ours) commands(t test, port, seconds int) (server, client []string, ns string) {
	end := func(ns, dev string) []string {
		return append([]string{guestIP, "netns", "exec", ns, guestRocectl, "perf", t.program, "--dev", dev, "--link", o.link, fmt.Sprintf("--poll=%t", o.poll)}, t.args(port, seconds)...)
	}
	return end("na", "oa"), append(end("nb", "ob"), "10.98.0.1"), "na"
}

// measure runs one test of one contender. Each end has a processor, if there are two.
func (g *guest) measure(ctx context.Context, c contender, t test, seconds int) (sample, error) {
	g.port++
	server, client, ns := c.commands(t, g.port, seconds)
	limit := time.Duration(seconds)*time.Second + time.Minute
	ctx, stop := context.WithTimeout(ctx, limit+10*time.Second)
	defer stop()
	pin := func(cpu int, argv []string) []string {
		return append([]string{"taskset", strconv.Itoa(1 << (cpu % g.cpus))}, argv...)
	}
	s, err := g.vm.Start(limit, pin(0, server)...)
	if err != nil {
		return sample{}, err
	}
	defer func() {
		if s.Running() {
			s.Signal(9)
		}
	}()
	wait := fmt.Sprintf("until cat /proc/net/tcp /proc/net/tcp6 | grep -q ':%04X 0*:0000 0A'; do sleep 0.05; done", g.port)
	argv := []string{"sh", "-c", wait}
	if ns != "" {
		argv = append([]string{guestIP, "netns", "exec", ns}, argv...)
	}
	if err := g.listens(ctx, s, argv); err != nil {
		return sample{}, err
	}
	p, err := g.vm.Start(limit, pin(1, client)...)
	if err != nil {
		return sample{}, err
	}
	e, err := p.Wait(ctx)
	if err == nil {
		err = p.Failed(e)
	}
	if err != nil {
		return sample{}, fmt.Errorf("%w; server: %s", err, s.Output())
	}
	if _, err := s.Wait(ctx); err != nil {
		return sample{}, err
	}
	return t.read(p.Output())
}

// patience is how long a server may take to listen.
const patience = 20 * time.Second

// listens waits until a command that waits for the server to listen has ended.
func (g *guest) listens(ctx context.Context, server *proc.Proc, argv []string) error {
	w, err := g.vm.Start(patience, argv...)
	if err != nil {
		return err
	}
	e, err := w.Wait(ctx)
	if err == nil {
		err = w.Failed(e)
	}
	if err != nil {
		return fmt.Errorf("the server does not listen: %w; %s", err, server.Output())
	}
	return nil
}
