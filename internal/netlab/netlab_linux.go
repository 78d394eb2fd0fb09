package netlab

import (
	"errors"
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

// system has the parts of a Side on Linux.
type system struct {
	ns   netns.NsHandle
	nl   *netlink.Handle
	link netlink.Link
}

var serial atomic.Uint32

// Pair makes a network of two sides. Their addresses are usable at once, without duplicate address
// detection.
func Pair(t testing.TB, c Config) (a, b *Side) {
	t.Helper()
	c = c.withDefaults()
	n := serial.Add(1)
	a, b = newSide(n, 88, "a", 1), newSide(n, 88, "b", 2)
	a.makeNamespace(t)
	b.makeNamespace(t)
	if _, _, ok := Cards(); ok {
		must(t, connectCards(t, a, b, c))
	} else {
		must(t, connect(a, b, c))
	}
	return a, b
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("netlab: %v", err)
	}
}

// Routed makes a network of a client and a server with a router between them. The client is 10.88.0.1,
// its gateway 10.88.0.2; the server is 10.89.0.1, its gateway 10.89.0.2. The IPv6 addresses are in
// fd88:: and fd89::. gateway is the router's interface towards the client.
func Routed(t testing.TB, c Config) (client, gateway, server *Side) {
	t.Helper()
	client, gateway = Pair(t, c)
	n := serial.Add(1)
	server, back := newSide(n, 89, "a", 1), newSide(n, 89, "b", 2)
	server.makeNamespace(t)
	back.ns, back.nl = gateway.ns, gateway.nl
	must(t, connect(server, back, c.withDefaults()))
	gateway.Sysctl(t, "net/ipv4/ip_forward", "1")
	gateway.Sysctl(t, "net/ipv6/conf/all/forwarding", "1")
	for _, end := range []struct{ at, to, by *Side }{{client, server, gateway}, {server, client, back}} {
		must(t, end.at.AddRoute(netip.PrefixFrom(end.to.IP4, 24), end.by.IP4))
		must(t, end.at.AddRoute(netip.PrefixFrom(end.to.IP6, 64), end.by.IP6))
	}
	return client, gateway, server
}

// Bridged makes a network of two sides with a namespace between them, with the interfaces near towards a and far
// towards b. These have no addresses, and the kernel forwards nothing: the test forwards.
func Bridged(t testing.TB, c Config) (a, b, near, far *Side) {
	t.Helper()
	c = c.withDefaults()
	n := serial.Add(1)
	a, near = newSide(n, 88, "a", 1), newSide(n, 88, "m", 3)
	b, far = newSide(n, 88, "b", 2), newSide(n, 88, "n", 4)
	for _, s := range []*Side{a, b, near} {
		s.makeNamespace(t)
	}
	far.ns, far.nl = near.ns, near.nl
	near.IP4, far.IP4 = netip.Addr{}, netip.Addr{}
	for _, pair := range [][2]*Side{{a, near}, {b, far}} {
		must(t, connect(pair[0], pair[1], c))
	}
	return a, b, near, far
}

// Netns returns a path that leads to the namespace of the side, while the test runs.
func (s *Side) Netns() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(s.ns)) }

// newSide returns one end of network n, with addresses in 10.x.0.0/24 and fdxx::/64.
func newSide(n uint32, net byte, letter string, last byte) *Side {
	s := &Side{
		Interface: fmt.Sprintf("rl%d%s%d", os.Getpid(), letter, n%100),
		MAC:       frame.MAC{2, net, 0, 0, byte(n), last},
		IP4:       netip.AddrFrom4([4]byte{10, net, 0, last}),
		IP6:       netip.AddrFrom16([16]byte{0: 0xFD, 1: net/10<<4 | net%10, 15: last}),
	}
	s.LinkLocal = frame.DefaultGID(s.MAC).Addr()
	return s
}

// makeNamespace makes a namespace for the side, which is removed when the test ends.
func (s *Side) makeNamespace(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		unavailable(t, "not root")
	}
	if err := s.make(); err != nil {
		unavailable(t, err.Error())
	}
	t.Cleanup(func() {
		s.nl.Close()
		s.ns.Close() // the last handle: the kernel removes the namespace with its interfaces
	})
}

func (c Config) withDefaults() Config {
	if c.MTU == 0 {
		c.MTU = 1500
	}
	c.Queues = max(1, c.Queues)
	return c
}

// Sysctl sets a kernel parameter of the namespace by its path below /proc/sys. It skips the test if the
// parameter cannot be set.
func (s *Side) Sysctl(t testing.TB, path, value string) {
	t.Helper()
	s.Do(t, func() {
		if err := os.WriteFile("/proc/sys/"+path, []byte(value), 0); err != nil {
			t.Skipf("cannot set %s: %v", path, err)
		}
	})
}

// AddRoute routes a network through a gateway. It replaces an existing route to that network.
func (s *Side) AddRoute(to netip.Prefix, gateway netip.Addr) error {
	to = to.Masked()
	err := s.nl.RouteReplace(&netlink.Route{LinkIndex: s.link.Attrs().Index, Gw: gateway.AsSlice(), Dst: ipNet(to)})
	if err != nil {
		return fmt.Errorf("route %v by %v: %w", to, gateway, err)
	}
	return nil
}

// Do runs f on a thread inside the namespace. Sockets that f opens stay in the namespace. f must not
// start goroutines that open sockets.
func (s *Side) Do(t testing.TB, f func()) {
	t.Helper()
	must(t, returning(func() error {
		if err := netns.Set(s.ns); err != nil {
			return fmt.Errorf("enter namespace: %w", err)
		}
		f()
		return nil
	}))
}

// returning runs f, which may enter another namespace, and then returns to that of the thread.
func returning(f func() error) (err error) {
	runtime.LockOSThread()
	back, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() { // also if f ends the goroutine
		defer back.Close()
		if lost := netns.Set(back); lost != nil {
			err = errors.Join(err, fmt.Errorf("leave namespace: %w", lost))
			return // the thread stays locked, and dies with the goroutine
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// SetUp sets the interface up, or down if up is false. An interface that goes down loses its IPv6
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

// Netlink returns a netlink handle in the namespace, for routes, neighbours and VLANs.
func (s *Side) Netlink() *netlink.Handle { return s.nl }

// Link returns the interface.
func (s *Side) Link() netlink.Link { return s.link }

// make creates the namespace.
func (s *Side) make() error {
	err := returning(func() (err error) {
		s.ns, err = netns.New()
		return err
	})
	if err == nil {
		s.nl, err = netlink.NewHandleAt(s.ns, unix.NETLINK_ROUTE)
	}
	return err
}

// connect makes the veth pair and adds the addresses.
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
	return bringAllUp(a, b)
}

// bringAllUp sets both interfaces up and waits until they can be used.
func bringAllUp(a, b *Side) error {
	for _, s := range []*Side{a, b} {
		if err := s.bringUp(); err != nil {
			return err
		}
	}
	for _, s := range []*Side{a, b} {
		if err := s.awaitUsable(); err != nil {
			return err
		}
	}
	return nil
}

// bringUp sets the interface up and adds the addresses, if the side has some.
func (s *Side) bringUp() error {
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
	if err := s.nl.LinkSetIP6AddrGenMode(s.link, 1); err != nil { // none: the link-local address is added below
		return fmt.Errorf("IPv6 address mode: %w", err)
	}
	if err := s.nl.LinkSetUp(s.link); err != nil {
		return err
	}
	for _, a := range s.addrs() {
		if err := s.AddAddr(a.Addr(), a.Bits()); err != nil {
			return err
		}
	}
	return nil
}

// addrs returns the addresses with the lengths of their networks.
func (s *Side) addrs() []netip.Prefix {
	if !s.IP4.IsValid() {
		return nil
	}
	return []netip.Prefix{netip.PrefixFrom(s.IP4, 24), netip.PrefixFrom(s.IP6, 64), netip.PrefixFrom(s.LinkLocal, 64)}
}

// awaitUsable waits until packets can be sent and received.
func (s *Side) awaitUsable() error {
	if err := s.awaitRunning(); err != nil {
		return err
	}
	for _, a := range s.addrs() {
		if a.Addr().Is4() {
			continue
		}
		if err := s.awaitLocal(a.Addr()); err != nil {
			return err
		}
	}
	return nil
}

// AwaitCarrier waits until the interface has a carrier and the kernel has noticed it: see awaitRunning.
func (s *Side) AwaitCarrier(t testing.TB) {
	t.Helper()
	must(t, s.awaitRunning())
}

// awaitRunning waits until the driver has reported the carrier (IFF_LOWER_UP) and the kernel has noticed it (IFF_RUNNING).
// Before that the kernel silently drops packets in the queueing discipline. IFF_RUNNING alone may be old: the kernel
// notices a change up to a second later.
func (s *Side) awaitRunning() error {
	const both = unix.IFF_LOWER_UP | unix.IFF_RUNNING
	return await(usableTime, func() (bool, error) {
		l, err := s.nl.LinkByName(s.Interface)
		return err == nil && l.Attrs().RawFlags&both == both, fmt.Errorf("%s has no carrier (%v)", s.Interface, err)
	})
}

// awaitLocal waits until the kernel accepts packets to an IPv6 address of the interface. It does so a
// moment after the interface came up.
func (s *Side) awaitLocal(addr netip.Addr) error {
	return await(usableTime, func() (bool, error) {
		r, err := s.nl.RouteGetWithOptions(addr.AsSlice(), &netlink.RouteGetOptions{OifIndex: s.link.Attrs().Index})
		return err == nil && len(r) > 0 && r[0].Type == unix.RTN_LOCAL, fmt.Errorf("%s: %v is not a local address: %v, %v", s.Interface, addr, r, err)
	})
}

// usableTime is how long an interface may take until it can be used.
const usableTime = 30 * time.Second

// await calls done until it returns true, for some time. After that it returns the error of done.
func await(limit time.Duration, done func() (bool, error)) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		if ok, err := done(); ok {
			return nil
		} else if time.Now().After(deadline) {
			return err
		}
	}
}

// ipNet returns a prefix in the form of package netlink.
func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// AddAddr adds an address to the interface.
func (s *Side) AddAddr(addr netip.Addr, bits int) error {
	if err := s.nl.AddrAdd(s.link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(addr, bits)), Flags: unix.IFA_F_NODAD}); err != nil {
		return fmt.Errorf("add address %v: %w", addr, err)
	}
	return nil
}
