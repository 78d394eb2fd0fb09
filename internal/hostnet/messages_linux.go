package hostnet

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth/frame"
)

var native = binary.NativeEndian

// align rounds a length up as netlink does, for messages and for attributes.
func align(n int) int { return (n + 3) &^ 3 }

// eachMessage calls f for every complete netlink message in a datagram of the kernel. It ignores a truncated one.
func eachMessage(b []byte, f func(typ uint16, body []byte)) {
	for len(b) >= unix.SizeofNlMsghdr {
		n := int(native.Uint32(b))
		if n < unix.SizeofNlMsghdr || n > len(b) {
			return
		}
		f(native.Uint16(b[4:]), b[unix.SizeofNlMsghdr:n:n])
		b = b[min(align(n), len(b)):]
	}
}

// eachAttr calls f for every attribute after the fixed part of a message.
func eachAttr(b []byte, f func(typ uint16, value []byte)) {
	for len(b) >= unix.SizeofRtAttr {
		n := int(native.Uint16(b))
		if n < unix.SizeofRtAttr || n > len(b) {
			return
		}
		f(native.Uint16(b[2:]), b[unix.SizeofRtAttr:n:n])
		b = b[min(align(n), len(b)):]
	}
}

// entry is an entry of the kernel's neighbour table.
type entry struct {
	index int // of the interface
	state uint16
	addr  netip.Addr
	mac   frame.MAC
	alien bool // the neighbour's address is not Ethernet
}

// usable reports whether the entry has an address to send to.
func (e *entry) usable() bool { return e.state&usable != 0 }

// parseNeighbour parses the body of an RTM_NEWNEIGH or RTM_DELNEIGH: struct ndmsg and its attributes. ok is false if it
// is not of IPv4 or IPv6: bridges use these messages for their tables, too.
func parseNeighbour(b []byte) (e entry, ok bool) {
	if len(b) < unix.SizeofNdMsg {
		return e, false
	}
	family := b[0]
	e.index, e.state = int(int32(native.Uint32(b[4:]))), native.Uint16(b[8:])
	eachAttr(b[unix.SizeofNdMsg:], func(typ uint16, value []byte) {
		switch typ {
		case unix.NDA_DST:
			if a, valid := netip.AddrFromSlice(value); valid {
				e.addr = a
			}
		case unix.NDA_LLADDR:
			if e.alien = len(value) != len(e.mac); !e.alien {
				e.mac = frame.MAC(value)
			}
		}
	})
	ok = family == unix.AF_INET && e.addr.Is4() || family == unix.AF_INET6 && e.addr.Is6()
	return e, ok
}

// note adds the changes of an interface in a datagram of the kernel.
func (c *Change) note(b []byte, index int) {
	eachMessage(b, func(typ uint16, body []byte) {
		switch typ {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK, unix.RTM_NEWADDR, unix.RTM_DELADDR:
			// Both kinds have the index at the same place.
			if len(body) >= 8 && int(int32(native.Uint32(body[4:]))) == index {
				c.Interface = true
			}
		case unix.RTM_NEWROUTE, unix.RTM_DELROUTE, unix.RTM_NEWRULE, unix.RTM_DELRULE, unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
			c.Routes = true
		case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
			if e, ok := parseNeighbour(body); ok && e.index == index {
				c.neighbour(e.addr)
			}
		}
	})
}
