//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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

// bed is the test bed for the cases of one kernel: a network namespace, a tap device, a guest at
// the other end of the tap, and rocectl in the namespace.
type bed struct {
	o      options
	kernel string
	ns     netns.Netns
	linux  *guest
	second *guest // nil until a case needs two

	secondTap bool // the second tap device exists
	peer      *ours
	card      *card // nil if the guest has none
	port      int
	dir       string

	captures []string // of rocectl, not yet read by tshark
	kept     int      // number of captures so far
}

func newBed(ctx context.Context, o options, kernel string) (_ *bed, err error) {
	b := &bed{o: o, kernel: kernel, port: 7200, dir: filepath.Join(o.out, kernel)}
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
	lines := []string{"tuntap add dev tap0 mode tap", "link set tap0 up"}
	for _, a := range ourAddrs {
		lines = append(lines, "addr add "+a+" dev tap0")
	}
	if err := b.ns.IP(ctx, lines...); err != nil {
		return nil, err
	}
	var cards []vm.Card
	if hasCards(kernel) {
		if cards, err = addCards(ctx, b.ns, o.cards); err != nil {
			return nil, err
		}
	}
	b.peer = &ours{rocectl: rocectl{seed: o.seed}, addresses: addresses{ourIP4, ourIP6}, ns: b.ns, binary: o.rocectl, tap: "tap0", dev: "tap0", mtu: defaultMTU}
	limited, stop := context.WithTimeout(ctx, bootLimit)
	defer stop()
	b.linux, err = b.boot(limited, "linux", addresses{guestIP4, guestIP6}, vm.Config{Tap: "tap0", MAC: "52:54:00:77:00:02",
		Files: o.files, Cards: cards, Model: o.cards.device, QEMU: o.qemu})
	if err != nil {
		return nil, err
	}
	if len(cards) > 0 {
		if b.card, err = newCard(ctx, b.linux.vm, cards, o.cards, o.seed); err != nil {
			return nil, err
		}
		b.peer.joined = []string{cardTap}
	}
	return b, b.greet(ctx)
}

// boot boots a guest. c has the parameters in which the guests differ.
func (b *bed) boot(ctx context.Context, name string, a addresses, c vm.Config) (*guest, error) {
	c.Scripts, c.Image, c.Netns, c.MTU = b.o.scripts, b.o.images[b.kernel], string(b.ns), defaultMTU
	c.IP4, c.IP6, c.Console = a.ip4+"/24", a.ip6+"/64", filepath.Join(b.dir, name+".console")
	v, err := vm.Boot(ctx, c)
	if err != nil {
		return nil, err
	}
	return &guest{vm: v, mtu: defaultMTU, addresses: a}, nil
}

// prepare gets both sides ready for a case.
func (b *bed) prepare(ctx context.Context, c testCase) error {
	if err := b.linux.prepare(ctx, c); err != nil {
		return err
	}
	before := b.peer.dev
	if err := b.peer.prepare(ctx, c); err != nil {
		return err
	}
	if c.onCard() {
		if err := b.card.prepare(ctx, c); err != nil {
			return err
		}
	}
	if b.peer.dev == before {
		return nil
	}
	// We have another MAC address now.
	if _, err := b.linux.vm.Run(ctx, "ip", "neigh", "flush", "dev", "eth0"); err != nil {
		return err
	}
	if b.card != nil {
		if _, err := b.linux.vm.Run(ctx, b.card.inside("ip", "neigh", "flush", "dev", cardInterface)...); err != nil {
			return err
		}
	}
	return b.greet(ctx)
}

// greet makes the two sides resolve each other's MAC addresses. Otherwise rdma_resolve_addr could
// wait seconds for them at the beginning of a case.
func (b *bed) greet(ctx context.Context) error {
	for _, v6 := range []bool{false, true} {
		if _, err := b.linux.vm.Run(ctx, "ping", "-c", "1", "-w", "10", b.peer.addr(v6)); err != nil {
			return err
		}
	}
	return nil
}

// obituary returns the reason why the guest has died, and writes its console to a file with the
// number n. It returns nil if the guest is running.
func (b *bed) obituary(n int) error {
	console, why := b.linux.vm.Gone()
	if why != nil {
		os.WriteFile(filepath.Join(b.dir, fmt.Sprintf("died-%d.console", n)), []byte(console), 0o644)
	}
	return why
}

// close stops the guests and removes the namespace.
func (b *bed) close() {
	for _, g := range []**guest{&b.linux, &b.second} {
		if *g != nil {
			(*g).vm.Close()
			*g = nil
		}
	}
	b.ns.Remove()
	b.ns = ""
}

// kernelLog is the last case of every kernel: the kernel has logged no fault of its own.
func (b *bed) kernelLog(ctx context.Context) result {
	start := time.Now()
	r := result{kernel: b.kernel, name: kernelLog, usual: kernelLogUsual}
	log, err := b.linux.vm.Run(ctx, "dmesg")
	switch found := vm.Complaints(log); {
	case err != nil:
		r.err = err
	case found != nil:
		r.err = fmt.Errorf("the guest's kernel complains: %s", strings.Join(found, "; "))
		os.WriteFile(filepath.Join(b.dir, "dmesg.log"), []byte(log), 0o644)
	}
	r.took = time.Since(start)
	return r
}
