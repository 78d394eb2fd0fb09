//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/goroce/roce/interop/netns"
	"github.com/goroce/roce/interop/vm"
)

const (
	ourIP4, guestIP4 = "10.77.0.1", "10.77.0.2"
	ourIP6, guestIP6 = "fd77::1", "fd77::2"
)

var ourAddrs = []string{ourIP4 + "/24", ourIP6 + "/64 nodad"}

// bed is what the cases of one kernel run on: a network namespace, a tap device, a
// guest behind it, and rocectl or (in the self-test) a second guest on our side.
type bed struct {
	o      options
	kernel string
	ns     netns.Netns
	tap    string // where the traffic can be seen
	linux  *guest
	peer   endpoint
	vms    []*vm.VM
	port   int
	dir    string

	captures []string // of rocectl, which tshark has not read yet
	kept     int      // how many there have been
}

func newBed(ctx context.Context, o options, kernel string) (_ *bed, err error) {
	b := &bed{o: o, kernel: kernel, tap: "tap0", port: 7200, dir: filepath.Join(o.out, kernel)}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return nil, err
	}
	if b.ns, err = netns.New(ctx, "vm"+kernel); err != nil {
		return nil, err
	}
	if err := b.addTap(ctx, "tap0"); err != nil {
		return nil, err
	}
	boot := func(tap string, host int) (*guest, error) {
		ctx, stop := context.WithTimeout(ctx, bootLimit)
		defer stop()
		g := &guest{
			name: fmt.Sprintf("linux%d", host), mtu: defaultMTU,
			ip4: fmt.Sprintf("10.77.0.%d", host), ip6: fmt.Sprintf("fd77::%d", host),
		}
		v, err := vm.Boot(ctx, vm.Config{
			Scripts: o.scripts, Image: o.images[kernel], Netns: string(b.ns), Tap: tap, MTU: defaultMTU,
			IP4: g.ip4 + "/24", IP6: g.ip6 + "/64", MAC: fmt.Sprintf("52:54:00:77:00:%02x", host),
			Console: filepath.Join(b.dir, g.name+".console"), Files: o.files,
		})
		if err != nil {
			return nil, err
		}
		b.vms = append(b.vms, v)
		g.vm = v
		return g, nil
	}
	if o.selfTest {
		if err := b.bridge(ctx); err != nil {
			return nil, err
		}
		second, err := boot("tap1", 1)
		if err != nil {
			return nil, err
		}
		b.peer = second
	} else {
		for _, a := range ourAddrs {
			if err := b.ns.IP(ctx, "addr add "+a+" dev tap0"); err != nil {
				return nil, err
			}
		}
		b.peer = &ours{ns: b.ns, binary: o.rocectl, tap: "tap0", dev: "tap0", mtu: defaultMTU, seed: o.seed}
	}
	if b.linux, err = boot("tap0", 2); err != nil {
		return nil, err
	}
	return b, b.greet(ctx)
}

// prepare gets both sides ready for a case.
func (b *bed) prepare(ctx context.Context, c testCase) error {
	if err := b.linux.prepare(ctx, c); err != nil {
		return err
	}
	o, ok := b.peer.(*ours)
	if !ok {
		return b.peer.prepare(ctx, c)
	}
	before := o.dev
	if err := o.prepare(ctx, c); err != nil || o.dev == before {
		return err
	}
	// We have another MAC address now.
	if _, err := b.linux.vm.Run(ctx, "ip", "neigh", "flush", "dev", "eth0"); err != nil {
		return err
	}
	return b.greet(ctx)
}

// greet lets the two sides find each other's MAC addresses, so that no case begins
// with the seconds that rdma_resolve_addr loses when it has to wait for them.
func (b *bed) greet(ctx context.Context) error {
	for _, v6 := range []bool{false, true} {
		if _, err := b.linux.vm.Run(ctx, "ping", "-c", "1", "-w", "10", b.peer.addr(v6)); err != nil {
			return err
		}
	}
	return nil
}

func (b *bed) addTap(ctx context.Context, name string) error {
	if err := b.ns.IP(ctx, "tuntap add dev "+name+" mode tap"); err != nil {
		return err
	}
	return b.ns.IP(ctx, "link set "+name+" up")
}

// bridge joins tap0 and a second tap; frames of jumboMTU pass it.
func (b *bed) bridge(ctx context.Context) error {
	if err := b.addTap(ctx, "tap1"); err != nil {
		return err
	}
	for _, line := range []string{
		"link add br0 type bridge mcast_snooping 0",
		"link set tap0 master br0", "link set tap1 master br0",
		fmt.Sprintf("link set tap0 mtu %d", jumboMTU), fmt.Sprintf("link set tap1 mtu %d", jumboMTU),
		"link set br0 up",
	} {
		if err := b.ns.IP(ctx, line); err != nil {
			return err
		}
	}
	return nil
}

// obituary says why a guest is gone, and keeps the console of the n-th that is.
// Nil if all are there.
func (b *bed) obituary(n int) error {
	for _, v := range b.vms {
		if console, why := v.Gone(); why != nil {
			os.WriteFile(filepath.Join(b.dir, fmt.Sprintf("died-%d.console", n)), []byte(console), 0o644)
			return why
		}
	}
	return nil
}

// close stops the guests and removes the namespace.
func (b *bed) close() {
	for _, v := range b.vms {
		v.Close()
	}
	b.vms = nil
	if b.ns != "" {
		b.ns.Remove()
		b.ns = ""
	}
}

// oops matches what a kernel prints when it has caught itself in a mistake.
var oops = regexp.MustCompile(`(?m)^.*(BUG:|WARNING:|Oops|general protection|hung_task|soft lockup).*$`)

// kernelLog is the last case of every kernel: nothing we sent made it complain.
func (b *bed) kernelLog(ctx context.Context) result {
	start := time.Now()
	r := result{kernel: b.kernel, name: "kernel-log", usual: kernelLogUsual}
	log, err := b.linux.vm.Run(ctx, "dmesg")
	switch found := oops.FindAllString(log, 5); {
	case err != nil:
		r.err = err
	case found != nil:
		r.err = fmt.Errorf("the guest's kernel complains: %s", strings.Join(found, "; "))
		os.WriteFile(filepath.Join(b.dir, "dmesg.log"), []byte(log), 0o644)
	}
	r.took = time.Since(start)
	return r
}
