package netlab

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth/frame"
)

// Over makes an interface on top of the side's, for instance a netlink.Vlan, and moves the addresses of the side to it.
// It skips the test if the kernel has no such interfaces.
func (s *Side) Over(t testing.TB, l netlink.Link) *Side {
	t.Helper()
	over := *s
	over.Interface = "o" + s.Interface
	l.Attrs().ParentIndex = s.link.Attrs().Index
	s.flush(t)
	over.add(t, s.nl, l)
	return &over
}

// Container makes an interface on top of the side's in a separate namespace, as containers have it. Its addresses end
// in last. It skips the test if the kernel has no such interfaces.
func (s *Side) Container(t testing.TB, l netlink.Link, last byte) *Side {
	t.Helper()
	c := newSide(serial.Add(1), 88, "c", last)
	c.makeNamespace(t)
	l.Attrs().ParentIndex, l.Attrs().Namespace = s.link.Attrs().Index, netlink.NsFd(int(c.ns))
	c.add(t, s.nl, l)
	return c
}

// Bond makes a bond of interfaces of one namespace, of which one is active, and moves the addresses of the
// first one to it. It skips the test if the kernel has no bonds.
func Bond(t testing.TB, slaves []*Side, mac netlink.BondFailOverMac) *Side {
	t.Helper()
	first := slaves[0]
	bond := netlink.NewLinkBond(netlink.LinkAttrs{MTU: first.link.Attrs().MTU})
	bond.Mode, bond.Miimon, bond.FailOverMac = netlink.BOND_MODE_ACTIVE_BACKUP, 10, mac
	over := *first
	over.Interface = "o" + first.Interface
	first.flush(t)
	over.create(t, first.nl, bond)
	for _, s := range slaves {
		s.SetUp(t, false) // the kernel refuses an interface that is up
		if err := s.nl.LinkSetMaster(s.link, bond); err != nil {
			t.Fatalf("netlab: %s into the bond: %v", s.Interface, err)
		}
	}
	over.start(t)
	return &over
}

// flush removes the addresses of the side from its interface.
func (s *Side) flush(t testing.TB) {
	t.Helper()
	for _, a := range s.addrs() {
		if err := s.nl.AddrDel(s.link, &netlink.Addr{IPNet: ipNet(a)}); err != nil {
			t.Fatalf("netlab: remove address %v: %v", a, err)
		}
	}
}

// add makes the interface of the side, with the netlink handle of the namespace that has the lower interface, and
// brings it up.
func (s *Side) add(t testing.TB, nl *netlink.Handle, l netlink.Link) {
	t.Helper()
	s.create(t, nl, l)
	s.start(t)
}

// create makes the interface of the side, and does not bring it up.
func (s *Side) create(t testing.TB, nl *netlink.Handle, l netlink.Link) {
	t.Helper()
	l.Attrs().Name = s.Interface
	err := nl.LinkAdd(l)
	if errors.Is(err, unix.EOPNOTSUPP) {
		Lacking(t, "interfaces of type "+l.Type(), err)
	}
	if err != nil {
		t.Fatalf("netlab: add interface of type %s: %v", l.Type(), err)
	}
}

// start brings up an interface that was made. The kernel has chosen its Ethernet address.
func (s *Side) start(t testing.TB) {
	t.Helper()
	l, err := s.nl.LinkByName(s.Interface)
	if err == nil {
		s.MAC = frame.MAC(l.Attrs().HardwareAddr)
		err = s.bringUp()
	}
	if err == nil {
		err = s.awaitUsable()
	}
	must(t, err)
}

// LosesCarrier reports whether the kernel soon finds that the interface has no carrier.
func (s *Side) LosesCarrier() bool {
	err := await(200*time.Millisecond, func() (bool, error) {
		l, err := s.nl.LinkByName(s.Interface)
		return err == nil && l.Attrs().RawFlags&unix.IFF_RUNNING == 0, unix.ETIMEDOUT
	})
	return err == nil
}

// Netem makes the kernel delay, lose, reorder or duplicate the outgoing packets of the interface, as `tc qdisc add
// dev NAME root netem` does. It skips the test if the kernel has no such queueing discipline.
func (s *Side) Netem(t testing.TB, n netlink.NetemQdiscAttrs) {
	t.Helper()
	attrs := netlink.QdiscAttrs{LinkIndex: s.link.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)}
	err := s.nl.QdiscReplace(netlink.NewNetem(attrs, n))
	if errors.Is(err, unix.ENOENT) {
		Lacking(t, "netem", err)
	}
	if err != nil {
		t.Fatalf("netlab: netem on %s: %v", s.Interface, err)
	}
}

// Switch is a namespace with a bridge that connects hosts.
type Switch struct {
	side   *Side
	bridge *netlink.Bridge
	config Config
}

// NewSwitch makes a switch. It skips the test if the kernel has no bridges.
func NewSwitch(t testing.TB, c Config) *Switch {
	t.Helper()
	w := &Switch{side: newSide(serial.Add(1), 88, "s", 0), config: c.withDefaults()}
	w.side.makeNamespace(t)
	snoop := false
	w.bridge = &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{MTU: w.config.MTU}, MulticastSnooping: &snoop}
	w.side.create(t, w.side.nl, w.bridge)
	if err := w.side.nl.LinkSetUp(w.bridge); err != nil {
		t.Fatalf("netlab: bridge: %v", err)
	}
	return w
}

// Host makes a namespace with interfaces that are connected to the switch. The first of them has addresses, which end
// in last. ports are the other ends of the veth pairs.
func (w *Switch) Host(t testing.TB, last byte, cables int) (interfaces, ports []*Side) {
	t.Helper()
	host := newSide(0, 88, "h", last)
	host.makeNamespace(t)
	for i := range cables {
		n := serial.Add(1)
		s, port := newSide(n, 88, "a", last), newSide(n, 88, "b", last|0x80)
		s.ns, s.nl, port.ns, port.nl = host.ns, host.nl, w.side.ns, w.side.nl
		port.forgetAddrs()
		if i > 0 {
			s.forgetAddrs()
		}
		err := connect(s, port, w.config)
		if err == nil {
			err = port.nl.LinkSetMaster(port.link, w.bridge)
		}
		if err != nil {
			t.Fatalf("netlab: cable to the switch: %v", fmt.Errorf("%s: %w", s.Interface, err))
		}
		interfaces, ports = append(interfaces, s), append(ports, port)
	}
	return interfaces, ports
}

// forgetAddrs clears the addresses in the side, after its interface has lost them.
func (s *Side) forgetAddrs() { s.IP4, s.IP6, s.LinkLocal = Side{}.IP4, Side{}.IP6, Side{}.LinkLocal }
