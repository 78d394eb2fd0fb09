//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/roce/interop/netns"
	"github.com/goroce/roce/interop/proc"
	"github.com/goroce/roce/interop/vm"
)

// command is a program to run on one side: a tool, a role, and the flags that rdma-core's program
// and rocectl have in common.
type command struct {
	tool *tool
	role role
	v6   bool
	args []string
}

// endpoint is one side of a case.
type endpoint interface {
	label() string
	addr(v6 bool) string
	// prepare sets impairment and MTU for one case.
	prepare(ctx context.Context, c testCase) error
	// start starts a program; the guest ends it after limit, in case the harness
	// cannot.
	start(ctx context.Context, c command, capture string, limit time.Duration) (*proc.Proc, error)
	// listening returns when a server started on port can be connected to.
	listening(ctx context.Context, p *proc.Proc, t *tool, port int) error
	// linux reports whether this side runs rdma-core's programs, whose output is checked, too.
	linux() bool
}

// addresses are those of a side.
type addresses struct{ ip4, ip6 string }

func (a addresses) addr(v6 bool) string {
	if v6 {
		return a.ip6
	}
	return a.ip4
}

// linux returns the arguments of rdma-core's program.
func (c command) linux() []string {
	if c.v6 {
		return slices.Concat(c.args, c.tool.linuxArgs6)
	}
	return slices.Concat(c.args, c.tool.linuxArgs)
}

// guest is a Linux kernel with rxe.
type guest struct {
	addresses
	vm       *vm.VM
	impaired bool
	mtu      int
}

func (g *guest) label() string { return "linux" }
func (g *guest) linux() bool   { return true }

func (g *guest) prepare(ctx context.Context, c testCase) error {
	if c.mtu != g.mtu {
		if _, err := g.vm.Run(ctx, "ip", "link", "set", "eth0", "mtu", strconv.Itoa(c.mtu)); err != nil {
			return err
		}
		g.mtu = c.mtu
	}
	if g.impaired {
		g.impaired = false
		if _, err := g.vm.Run(ctx, "tc", "qdisc", "del", "dev", "eth0", "root"); err != nil {
			return err
		}
	}
	if c.impair.netem == "" {
		return nil
	}
	g.impaired = true
	argv := append([]string{"tc", "qdisc", "replace", "dev", "eth0", "root", "netem"}, strings.Fields(c.impair.netem)...)
	_, err := g.vm.Run(ctx, argv...)
	return err
}

func (g *guest) start(_ context.Context, c command, _ string, limit time.Duration) (*proc.Proc, error) {
	var argv []string
	if c.tool.preload != "" {
		argv = []string{"env", "LD_PRELOAD=" + c.tool.preloaded()}
	}
	return g.vm.Start(limit, append(append(argv, c.tool.program(c.role)), c.linux()...)...)
}

func (g *guest) listening(ctx context.Context, p *proc.Proc, t *tool, port int) error {
	if t.up != nil {
		return p.WaitFor(ctx, t.up)
	}
	w, err := g.vm.Await(time.Minute, port, t.oob)
	if err != nil {
		return err
	}
	if e, err := w.Wait(ctx); err != nil || !e.OK() {
		return cmp.Or(err, fmt.Errorf("%s: does not listen on port %d: %s", p.Line, port, p.Output()))
	}
	return nil
}

// rocectl has the common parts of the endpoints that run rocectl.
type rocectl struct {
	seed   uint64
	faults []string
}

func (r *rocectl) linux() bool { return false }

// faultFlags returns the flags for the faults of a case, with another seed each time.
func (r *rocectl) faultFlags() []string {
	if len(r.faults) == 0 {
		return nil
	}
	r.seed++
	return append([]string{"--seed", strconv.FormatUint(r.seed-1, 10)}, r.faults...)
}

// with adds the flags of a case to a command line.
func (r *rocectl) with(argv []string, c command) []string {
	argv = slices.Concat(argv, r.faultFlags(), c.tool.oursArgs)
	if c.v6 {
		argv = append(argv, c.tool.oursArgs6...)
	}
	return append(argv, c.args...)
}

// ready matches the line that every server of rocectl prints when clients can connect.
var ready = regexp.MustCompile(`(?m)^listening on `)

func (r *rocectl) listening(ctx context.Context, p *proc.Proc, _ *tool, _ int) error {
	ctx, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	return p.WaitFor(ctx, ready)
}

// ours is rocectl in the namespace that has the tap.
type ours struct {
	rocectl
	addresses
	ns     netns.Netns
	binary string
	tap    string
	link   string
	dev    string   // tap, or a veth that is bridged to it
	joined []string // other taps of that bridge
	mtu    int      // of tap and dev
}

func (o *ours) label() string { return "rocectl" }

func (o *ours) prepare(ctx context.Context, c testCase) error {
	o.faults = c.impair.faults
	o.link = cmp.Or(c.link, "raw")
	dev := o.tap
	switch {
	case c.onCard():
		dev, o.link = vethName, "raw"
	case o.link == inPlace:
		dev = vethName
	}
	if err := o.moveTo(ctx, dev); err != nil {
		return err
	}
	if c.mtu == o.mtu {
		return nil
	}
	o.mtu = c.mtu
	devs := []string{o.tap}
	if dev != o.tap {
		devs = append(devs, dev, vethPeer)
	}
	var lines []string
	for _, d := range devs {
		lines = append(lines, fmt.Sprintf("link set %s mtu %d", d, c.mtu))
	}
	return o.ns.IP(ctx, lines...)
}

// inPlace is the link xdp with payload sent in place. A tap device does not support that, so
// rocectl uses a veth, bridged to the tap device.
const (
	inPlace  = "xdp-in-place"
	vethName = "veth0"
	vethPeer = "veth1"
)

// moveTo gives our addresses to the tap device or to the veth.
func (o *ours) moveTo(ctx context.Context, dev string) error {
	if o.dev == dev {
		return nil
	}
	lines := []string{"link del " + vethName, "link del br0"}
	if dev == vethName {
		lines = []string{
			"link add br0 type bridge mcast_snooping 0",
			"link add " + vethName + " type veth peer name " + vethPeer,
			"link set " + vethPeer + " master br0 up", "link set " + vethName + " up",
			"link set " + o.tap + " master br0", "link set br0 arp off up", // a second answer to ARP would race with that of the veth
		}
		for _, tap := range o.joined {
			lines = append(lines, "link set "+tap+" master br0")
		}
		for _, a := range ourAddrs { // not the link-local address, which is the first GID
			lines = append(lines, "addr del "+strings.TrimSuffix(a, " nodad")+" dev "+o.tap)
		}
	}
	for _, a := range ourAddrs {
		lines = append(lines, "addr add "+a+" dev "+dev)
	}
	if err := o.ns.IP(ctx, lines...); err != nil {
		return err
	}
	o.dev, o.mtu = dev, 0
	return nil
}

func (o *ours) start(ctx context.Context, c command, capture string, _ time.Duration) (*proc.Proc, error) {
	argv := append([]string{o.binary}, c.tool.command(c.role)...)
	argv = append(argv, "--dev", o.dev)
	if o.link == inPlace { // without a capture, which would prevent sending in place
		argv = append(argv, "--link", "xdp", "--in-place", "16", "--counters")
	} else {
		argv = append(argv, "--link", o.link, "--capture", capture)
	}
	return proc.Start(ctx, o.ns.Argv(o.with(argv, c)...)...)
}
