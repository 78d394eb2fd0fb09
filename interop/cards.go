//go:build linux

package main

import (
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

// Guests whose kernel supports zero copy for AF_XDP on the emulated cards get cards for it in addition to the interface of rxe: eth1 for
// rocectl inside the guest, in its own network namespace; eth2 and eth3, which are joined, for tests inside the guest.
//
//	  guest                                        our namespace
//	+---------------------------------+          +------------------------+
//	| eth0  rxe            10.77.0.2  |<-------->| tap0 --+               |
//	|                                 |          |        br0 -- veth0    |
//	| eth1  rocectl, xdp   10.77.0.3  |<-------->| tap1 --+   10.77.0.1   |
//	| eth2, eth3  tests               |<-------->| tap2, tap3 -- br1      |
//	+---------------------------------+          +------------------------+
const (
	cardInterface = "eth1"
	cardNetns     = "card"
	cardTap       = "tap1"
	testCards     = "eth2,eth3"

	cardIP4, cardIP6 = "10.77.0.3", "fd77::3"
)

// cardModel is a kind of card that QEMU emulates.
type cardModel struct {
	device string // of vm.Config
	queues int
	mtu    int    // the largest with which the driver runs an XDP program
	newer  bool   // needs a newer QEMU than Debian 12 has
	multi  bool   // each of its queues has one of the tap
	resets bool   // the link is down for some seconds when an XDP program is attached or detached
	off    string // a feature of ethtool that does not work
}

// cardModels are the values of -cards. QEMU's igb does not know segmentation of UDP (eth_get_gso_type): over IPv4 it gives the
// tap one datagram, for which the tap makes fragments, over IPv6 one packet of all segments.
var cardModels = map[string]cardModel{
	"virtio": {queues: 4, mtu: cardMTU, multi: true},
	"igb":    {device: "igb", queues: 4, mtu: 3046, newer: true, resets: true, off: "tx-udp-segmentation"},
}

// zeroCopyKernels lists the kernels whose virtio_net (6.13) and igb (6.14) support zero copy.
var zeroCopyKernels = []string{"7"}

// The links of cases on the card. The other end is rxe, or rocectl over raw sockets on our side of the tap.
const (
	zeroCopy     = "zero-copy"
	zeroCopyHost = "zero-copy-raw"
)

// onCard reports whether rocectl runs in the guest, on its card.
func (c testCase) onCard() bool { return c.link == zeroCopy || c.link == zeroCopyHost }

// cardMTU is the largest MTU with which virtio_net runs an XDP program for whole frames, and so has zero copy.
const cardMTU = 3498

// addCards makes the taps of the guest's cards.
func addCards(ctx context.Context, ns netns.Netns, m cardModel) ([]vm.Card, error) {
	var cards []vm.Card
	lines := []string{"link add br1 type bridge mcast_snooping 0", "link set br1 up"}
	for i := 1; i <= 3; i++ {
		tap := fmt.Sprintf("tap%d", i)
		add := "tuntap add dev " + tap + " mode tap"
		if m.multi {
			add += " multi_queue"
		}
		lines = append(lines, add, "link set "+tap+" mtu 9000 up")
		if tap != cardTap {
			lines = append(lines, "link set "+tap+" master br1")
		}
		cards = append(cards, vm.Card{Tap: tap, MAC: fmt.Sprintf("52:54:00:77:01:%02x", i), Queues: m.queues})
	}
	return cards, ns.IP(ctx, lines...)
}

// card is rocectl in the guest, over xdp with zero copy.
type card struct {
	rocectl
	addresses
	vm    *vm.VM
	model cardModel
	mtu   int
}

// newCard prepares the cards of a guest. It puts all their queues into use. virtio_net then adds no queue for an
// XDP program: with added queues there is no zero copy. igb otherwise uses as many queues as there are processors.
func newCard(ctx context.Context, v *vm.VM, cards []vm.Card, m cardModel, seed uint64) (*card, error) {
	c := &card{rocectl: rocectl{seed: seed}, addresses: addresses{cardIP4, cardIP6}, vm: v, model: m, mtu: defaultMTU}
	if _, err := v.Run(ctx, "ip", "link", "show", cardInterface); err != nil {
		return nil, fmt.Errorf("the guest has no driver for its cards; REFRESH=1 makes build.sh fetch the kernel again, with all drivers: %w", err)
	}
	var lines []string
	for i, card := range cards {
		lines = append(lines, fmt.Sprintf("ethtool -L eth%d combined %d", i+1, card.Queues))
		if m.off != "" {
			lines = append(lines, fmt.Sprintf("ethtool -K eth%d %s off", i+1, m.off))
		}
	}
	lines = append(lines, "ip netns add "+cardNetns, "ip link set "+cardInterface+" netns "+cardNetns)
	in := "ip -n " + cardNetns
	lines = append(lines, in+" link set lo up", in+" link set "+cardInterface+" up",
		in+" addr add "+cardIP4+"/24 dev "+cardInterface, in+" addr add "+cardIP6+"/64 nodad dev "+cardInterface)
	for _, line := range lines {
		if _, err := v.Run(ctx, strings.Fields(line)...); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// counters returns the counters of the cards' driver and the state of their queues, for the log of a failed case.
func (c *card) counters(ctx context.Context) string {
	var text strings.Builder
	for _, argv := range [][]string{c.inside("ethtool", "-S", cardInterface), {"ethtool", "-S", "eth2"}, {"ethtool", "-S", "eth3"}} {
		out, err := c.vm.Run(ctx, argv...)
		fmt.Fprintf(&text, "# %s\n", proc.Quote(argv))
		for line := range strings.Lines(out) {
			if !strings.HasSuffix(line, ": 0\n") {
				text.WriteString(line)
			}
		}
		if err != nil {
			fmt.Fprintln(&text, err)
		}
	}
	queues, err := c.vm.Queues(ctx)
	text.WriteString(queues)
	if err != nil {
		fmt.Fprintln(&text, err)
	}
	return text.String()
}

// isZeroCopy checks that a Port on the card has zero copy.
func (c *card) isZeroCopy(ctx context.Context) error {
	out, err := c.vm.Run(ctx, c.inside("rocectl", "dev", "--link", "xdp", "--zero-copy", "on", cardInterface)...)
	if err == nil && !grantsZeroCopy.MatchString(out) {
		err = fmt.Errorf("the card has no zero copy: %s", out)
	}
	return err
}

var grantsZeroCopy = regexp.MustCompile(`(?m)^\s*mode:\s+native, zero copy`)

// inside returns the command line for a command in the namespace of the card.
func (c *card) inside(argv ...string) []string {
	return append([]string{"ip", "netns", "exec", cardNetns}, argv...)
}

func (c *card) label() string { return "rocectl on the card" }

func (c *card) prepare(ctx context.Context, t testCase) error {
	c.faults = t.impair.faults
	if mtu := min(t.mtu, c.model.mtu); mtu != c.mtu {
		if _, err := c.vm.Run(ctx, "ip", "-n", cardNetns, "link", "set", cardInterface, "mtu", strconv.Itoa(mtu)); err != nil {
			return err
		}
		c.mtu = mtu
	}
	return c.isZeroCopy(ctx)
}

func (c *card) start(_ context.Context, cmd command, _ string, limit time.Duration) (*proc.Proc, error) {
	argv := append([]string{"rocectl"}, cmd.tool.command(cmd.role)...)
	argv = append(argv, "--dev", cardInterface, "--link", "xdp", "--zero-copy", "on")
	return c.vm.Start(limit, c.inside(c.with(argv, cmd)...)...)
}

// hasCards reports whether a kernel's guest has cards.
func hasCards(kernel string) bool { return slices.Contains(zeroCopyKernels, kernel) }
