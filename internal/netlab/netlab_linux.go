package netlab

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth/frame"
)

// system is what a Side is made of on Linux.
type system struct {
	ns   netns.NsHandle
	nl   *netlink.Handle
	link netlink.Link
}

var serial atomic.Uint32

// Pair makes a network. Addresses are usable at once, without duplicate address
// detection.
func Pair(t testing.TB, c Config) (a, b *Side) {
	t.Helper()
	if os.Geteuid() != 0 {
		unavailable(t, "not root")
	}
	if c.MTU == 0 {
		c.MTU = 1500
	}
	c.Queues = max(1, c.Queues)
	n := serial.Add(1)
	side := func(letter string, last byte) *Side {
		s := &Side{
			Interface: fmt.Sprintf("rl%d%s%d", os.Getpid(), letter, n%100),
			MAC:       frame.MAC{2, 0x88, 0, 0, byte(n), last},
			IP4:       netip.AddrFrom4([4]byte{10, 88, 0, last}),
			IP6:       netip.AddrFrom16([16]byte{0: 0xFD, 1: 0x88, 15: last}),
		}
		m := s.MAC
		s.LinkLocal = netip.AddrFrom16([16]byte{0: 0xFE, 1: 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xFF, 12: 0xFE, 13: m[3], 14: m[4], 15: m[5]})
		if err := s.make(); err != nil {
			unavailable(t, err.Error())
		}
		t.Cleanup(func() {
			s.nl.Close()
			s.ns.Close() // the last handle: the kernel removes all that is in it
		})
		return s
	}
	a, b = side("a", 1), side("b", 2)
	if err := connect(a, b, c); err != nil {
		t.Fatalf("netlab: %v", err)
	}
	return a, b
}

// Do runs f with the calling thread inside the namespace: sockets opened in it
// belong there for good. f must not start goroutines that open some.
func (s *Side) Do(t testing.TB, f func()) {
	t.Helper()
	runtime.LockOSThread()
	back, err := netns.Get()
	if err == nil {
		err = netns.Set(s.ns)
	}
	if err != nil {
		t.Fatalf("netlab: enter namespace: %v", err)
	}
	defer func() {
		if err := netns.Set(back); err != nil {
			t.Errorf("netlab: leave namespace: %v", err)
			return // the thread stays locked, and dies with the goroutine
		}
		back.Close()
		runtime.UnlockOSThread()
	}()
	f()
}

// SetUp brings the interface up or down. Going down, it loses its IPv6
// addresses.
func (s *Side) SetUp(t testing.TB, up bool) {
	t.Helper()
	set := s.nl.LinkSetDown
	if up {
		set = s.nl.LinkSetUp
	}
	if err := set(s.link); err != nil {
		t.Fatalf("netlab: set %s up %v: %v", s.Interface, up, err)
	}
}

// Netlink and Link give tests the rest: routes, neighbours, VLANs.
func (s *Side) Netlink() *netlink.Handle { return s.nl }
func (s *Side) Link() netlink.Link       { return s.link }

// make creates the namespace and leaves it again.
func (s *Side) make() error {
	runtime.LockOSThread()
	back, err := netns.Get()
	if err != nil {
		return err
	}
	defer back.Close()
	if s.ns, err = netns.New(); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	if err := netns.Set(back); err != nil {
		return err // the thread stays locked
	}
	runtime.UnlockOSThread()
	s.nl, err = netlink.NewHandleAt(s.ns, unix.NETLINK_ROUTE)
	return err
}

// connect makes the veth pair and gives it addresses.
func connect(a, b *Side, c Config) error {
	veth := &netlink.Veth{
		LinkAttrs:        netlink.LinkAttrs{Name: a.Interface, MTU: c.MTU, HardwareAddr: a.MAC[:], NumTxQueues: c.Queues, NumRxQueues: c.Queues},
		PeerName:         b.Interface,
		PeerHardwareAddr: b.MAC[:],
		PeerMTU:          uint32(c.MTU),
		PeerNumTxQueues:  uint32(c.Queues),
		PeerNumRxQueues:  uint32(c.Queues),
		PeerNamespace:    netlink.NsFd(int(b.ns)),
	}
	if err := a.nl.LinkAdd(veth); err != nil {
		return fmt.Errorf("add veth pair: %w", err)
	}
	for _, s := range []*Side{a, b} {
		lo, err := s.nl.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := s.nl.LinkSetUp(lo); err != nil {
			return err
		}
		if s.link, err = s.nl.LinkByName(s.Interface); err != nil {
			return err
		}
		if err := s.nl.LinkSetIP6AddrGenMode(s.link, 1); err != nil { // none: we add it
			return fmt.Errorf("IPv6 address mode: %w", err)
		}
		if err := s.nl.LinkSetUp(s.link); err != nil {
			return err
		}
		for addr, bits := range map[netip.Addr]int{s.IP4: 24, s.IP6: 64, s.LinkLocal: 64} {
			if err := s.AddAddr(addr, bits); err != nil {
				return err
			}
		}
	}
	for _, s := range []*Side{a, b} {
		if err := s.awaitRunning(); err != nil {
			return err
		}
	}
	for _, s := range []*Side{a, b} {
		for _, addr := range []netip.Addr{s.IP6, s.LinkLocal} {
			if err := s.awaitLocal(addr); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitRunning waits until the kernel has taken note of the carrier. Before, it
// drops what goes through the queueing discipline, and says nothing.
func (s *Side) awaitRunning() error {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		l, err := s.nl.LinkByName(s.Interface)
		if err != nil {
			return err
		}
		if l.Attrs().RawFlags&unix.IFF_RUNNING != 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s has no carrier", s.Interface)
		}
	}
}

// awaitLocal waits until the kernel takes packets to an IPv6 address of its own: it
// does so a moment after the interface came up, and says nothing before.
func (s *Side) awaitLocal(addr netip.Addr) error {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		r, err := s.nl.RouteGetWithOptions(addr.AsSlice(), &netlink.RouteGetOptions{OifIndex: s.link.Attrs().Index})
		if err == nil && len(r) > 0 && r[0].Type == unix.RTN_LOCAL {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %v is not taken for its own: %v, %v", s.Interface, addr, r, err)
		}
	}
}

// AddAddr adds an address to the interface.
func (s *Side) AddAddr(addr netip.Addr, bits int) error {
	err := s.nl.AddrAdd(s.link, &netlink.Addr{
		IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(bits, addr.BitLen())},
		Flags: unix.IFA_F_NODAD,
	})
	if err != nil {
		return fmt.Errorf("add address %v: %w", addr, err)
	}
	return nil
}
