//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/interop/conformance/hostile"
	"github.com/goroce/roce/interop/conformance/rxe"
	"github.com/goroce/roce/interop/conformance/suite"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/interop/netns"
	"github.com/goroce/roce/interop/vm"
	"github.com/goroce/roce/link/fault"
)

// device is either end of the veth pair of a netns.Pair.
const device = "veth0"

// rawVictim is roce on one end of a veth pair, with the attacker on the other.
func rawVictim(attacker, target namespace, ifA, ifT, own, addr string) victim {
	return victimOf("raw", "", ourInterface(target, ifT, unfaulty), func() (*hostile.Attacker, error) {
		return attackerOn(attacker, ifA, own, addr, quiet, true)
	})
}

const (
	ourAddr, guestAddr = "10.78.0.1", "10.78.0.2"
	agentPort          = "7010"
	nextPort           = "7011" // of the agent with the newer libibverbs
	bootLimit          = 4 * time.Minute
	linkMTU            = 1500
)

// vmBed is a guest with rxe behind a tap device in a namespace.
type vmBed struct {
	kernel   string // series
	linux    string // release
	scripts  string
	image    string
	out      string          // folder for the console
	network  fault.Config    // the faults of the network
	options  roce.Options    // of our devices
	refusals map[string]bool // by name of a test: whether a side answers with a NAK of an error
	ns       netns.Netns
	vm       *vm.VM
	next     bool // there is an agent with the newer libibverbs
}

// newVMBed makes a network, boots a kernel on it and starts the verbs agent.
func newVMBed(ctx context.Context, o *options, kernel string) (_ *vmBed, err error) {
	b := &vmBed{kernel: kernel, scripts: filepath.Join(o.root, "interop", "vm"), out: o.out, options: roce.Options{Recovery: o.recovery}, refusals: map[string]bool{}}
	if o.harm {
		b.network = fault.Config{Seed: 1, Tx: harm, Rx: harm}
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.image, err = vm.Image(ctx, b.scripts, kernel); err != nil {
		return nil, err
	}
	if b.ns, err = netns.New(ctx, "conf"+kernel); err != nil {
		return nil, err
	}
	if err = b.ns.IP(ctx, "tuntap add dev tap0 mode tap", "addr add "+ourAddr+"/24 dev tap0", "link set tap0 up"); err != nil {
		return nil, err
	}
	return b, b.boot(ctx)
}

// boot boots the guest, and starts the verbs agents in it.
func (b *vmBed) boot(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, bootLimit)
	defer stop()
	var err error
	b.vm, err = vm.Boot(ctx, vm.Config{
		Scripts: b.scripts, Image: b.image, Netns: string(b.ns), Tap: "tap0", MTU: linkMTU,
		IP4: guestAddr + "/24", IP6: "fd78::2/64", MAC: "52:54:00:78:00:02", Console: b.console(),
	})
	if err != nil {
		return err
	}
	release, err := b.vm.Run(ctx, "uname", "-r")
	if err != nil {
		return err
	}
	b.linux = regexp.MustCompile(`\S+`).FindString(release)
	if _, err = b.vm.Run(ctx, "ping", "-c", "1", "-w", "10", ourAddr); err != nil {
		return err
	}
	if err := b.startAgent(ctx, "verbs-agent", agentPort); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(b.image, "verbs-agent-next")); err != nil {
		fmt.Fprintln(os.Stderr, "conformance: the guest has no newer libibverbs (it was not available to interop/vm/next.sh): no tests of FLUSH with rxe as the requester")
		return nil
	}
	b.next = true
	return b.startAgent(ctx, "verbs-agent-next", nextPort)
}

func (b *vmBed) startAgent(ctx context.Context, program, port string) error {
	p, err := b.vm.Start(0, program, "rxe0", port)
	if err != nil {
		return err
	}
	return p.WaitFor(ctx, regexp.MustCompile("listening"))
}

func (b *vmBed) console() string { return filepath.Join(b.out, "console-"+b.kernel) }

func (b *vmBed) close() {
	if b.vm != nil {
		b.vm.Close()
	}
	b.ns.Remove()
}

// rxeOffers has the features of rxe beyond the basics, by kernel series.
var rxeOffers = map[string]verbs.Feature{
	"6.1":  rxeAlways,
	"6.12": rxeAlways | verbs.HasAtomicWrite | verbs.HasFlush,
	"7":    rxeAlways | verbs.HasAtomicWrite | verbs.HasFlush,
}

const rxeAlways = verbs.HasSRQ | verbs.HasMW | verbs.HasLocalInv | verbs.HasResizeCQ | verbs.HasChannels | verbs.HasMulticast |
	verbs.HasExtendedPost | verbs.HasGRHFlag

// varies returns the features that rxe of only some kernels has.
func varies() (f verbs.Feature) {
	for _, offers := range rxeOffers {
		f |= offers ^ rxeAlways
	}
	return f
}

// guest opens a device context in the guest, with Debian 12's libibverbs, or with a newer
// one for tests that post operations for which that one has no call.
func (b *vmBed) guest(test suite.Test) (n verbs.Node, err error) {
	port, offers := agentPort, rxeOffers[b.kernel]
	if test.NeedsRequester&verbs.HasFlushPost != 0 && b.next && offers&verbs.HasFlush != 0 {
		port, offers = nextPort, offers|verbs.HasFlushPost
	}
	var conn net.Conn
	err = b.ns.Do(func() error {
		conn, err = net.DialTimeout("tcp", net.JoinHostPort(guestAddr, port), 20*time.Second)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("verbs agent: %w", err)
	}
	r, err := rxe.Open(conn, b.kernel, offers)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// columns returns the columns of the guest's kernel; asks selects their tests.
func (b *vmBed) columns(asks func(suite.Test) bool) []column {
	us := func(requests bool) suite.Opener {
		return func(test suite.Test) (verbs.Node, error) {
			return ourDevice(b.ns.Do, "tap0", roce.InterfaceConfig{Options: b.options}, b.harms(test, requests))(test)
		}
	}
	name := "rxe " + b.kernel
	return []column{
		{name: name + " requests", heading: "rxe " + b.kernel + " → roce", asks: asks, usual: testRXEUsual, open: pairOf(b.guest, us(true))},
		{name: name + " responds", heading: "roce → rxe " + b.kernel, second: true, asks: asks, usual: testRXEUsual, open: pairOf(us(false), b.guest)},
	}
}

// harms returns the faults of the network for a test. requests: rxe is the requester.
func (b *vmBed) harms(test suite.Test, requests bool) (c fault.Config) {
	if !b.network.Enabled() || b.refused(test) {
		return c
	}
	if !requests && test.Name == "TestQPEx/RCReadZeroSize" {
		return c // rxe checks the key of a repeated READ of no bytes, and drops the READ
	}
	b.network.Seed++ // so that the next run loses other packets
	c = b.network
	if posts := test.Needs | test.NeedsRequester; requests && posts&(verbs.HasAtomicWrite|verbs.HasFlushPost) != 0 {
		// rxe repeats an ATOMIC_WRITE and a FLUSH with address 0, so nothing may be lost.
		c.Tx, c.Rx = fault.Rates{Dup: harm.Dup}, fault.Rates{Dup: harm.Dup}
	}
	return c
}

// refused reports whether in a test a side answers with a NAK of an error. To find out it runs the
// test in this process, once.
func (b *vmBed) refused(test suite.Test) bool {
	known, tried := b.refusals[test.Name]
	if !tried {
		mem := memColumn()
		known = mem.run(test).Refused
		b.refusals[test.Name] = known
	}
	return known
}

// victim is rxe, with the attacker on the tap.
func (b *vmBed) victim() victim {
	v := victimOf(rxeName(b.kernel), b.kernel, b.guest, func() (*hostile.Attacker, error) {
		return attackerOn(b.ns.Do, "tap0", ourAddr, guestAddr, quietRXE, true)
	})
	v.complaints, v.revive = b.complaints, b.revive
	return v
}

// rxeName names the rxe of a kernel in the tables of hostile packets.
func rxeName(kernel string) string { return "rxe " + kernel }

// complaints returns the messages of the guest's kernel about its own faults since the previous
// call.
func (b *vmBed) complaints(ctx context.Context) ([]string, error) {
	log, err := b.vm.Run(ctx, "dmesg", "-c")
	return vm.Complaints(log), err
}

// panicked matches the last message of a kernel that has died.
var panicked = regexp.MustCompile(`(?m)^.*(Kernel panic|BUG: kernel NULL pointer|Oops:).*$`)

// revive checks whether the guest's kernel has died, and if so boots it again.
func (b *vmBed) revive(ctx context.Context) (dead bool, err error) {
	if _, err := b.vm.Run(ctx, "true"); err == nil {
		return false, nil
	}
	b.vm.Close()
	text, err := os.ReadFile(b.console())
	if err != nil {
		return false, err
	}
	if !panicked.Match(text) {
		return false, fmt.Errorf("the guest has ended, but its kernel has printed no reason; console: %s", b.console())
	}
	return true, b.boot(ctx)
}
