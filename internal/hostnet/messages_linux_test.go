package hostnet

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth/frame"
)

// message makes a netlink message.
func message(typ uint16, body ...byte) []byte {
	b := native.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	b = native.AppendUint16(b, typ)
	b = append(b, make([]byte, unix.SizeofNlMsghdr-6)...)
	b = append(b, body...)
	return append(b, make([]byte, -len(b)&3)...)
}

// about returns the start of the body of a message about an interface.
func about(index uint32) []byte { return native.AppendUint32(make([]byte, 4), index) }

// neighbourBody returns the body of a message about a neighbour.
func neighbourBody(family byte, index uint32, state uint16, addr netip.Addr, lladdr ...byte) []byte {
	b := native.AppendUint32([]byte{family, 0, 0, 0}, index)
	b = native.AppendUint16(b, state)
	b = append(b, 0, 0)
	for _, a := range []struct {
		typ   uint16
		value []byte
	}{{unix.NDA_DST, addr.AsSlice()}, {unix.NDA_LLADDR, lladdr}, {unix.NDA_PROBES, []byte{1, 0, 0, 0}}} {
		b = native.AppendUint16(b, uint16(unix.SizeofRtAttr+len(a.value)))
		b = native.AppendUint16(b, a.typ)
		b = append(b, a.value...)
		b = append(b, make([]byte, -len(b)&3)...)
	}
	return b
}

var (
	peer4 = netip.MustParseAddr("10.1.2.3")
	peer6 = netip.MustParseAddr("fd00::3")
	mac   = frame.MAC{2, 1, 2, 3, 4, 5}
)

// TestChange: note adds exactly the messages about the interface.
func TestChange(t *testing.T) {
	const index = 7
	join := func(ms ...[]byte) (b []byte) {
		for _, m := range ms {
			b = append(b, m...)
		}
		return b
	}
	neigh := message(unix.RTM_NEWNEIGH, neighbourBody(unix.AF_INET, index, unix.NUD_REACHABLE, peer4, mac[:]...)...)
	for _, test := range []struct {
		name              string
		b                 []byte
		interface_, route bool
		neighbour         netip.Addr
	}{
		{"link", message(unix.RTM_NEWLINK, about(index)...), true, false, netip.Addr{}},
		{"link removed", message(unix.RTM_DELLINK, about(index)...), true, false, netip.Addr{}},
		{"address", message(unix.RTM_NEWADDR, about(index)...), true, false, netip.Addr{}},
		{"address removed", message(unix.RTM_DELADDR, about(index)...), true, false, netip.Addr{}},
		{"another link", message(unix.RTM_NEWLINK, about(index+1)...), false, false, netip.Addr{}},
		{"short", message(unix.RTM_NEWLINK, about(index)[:7]...), false, false, netip.Addr{}},
		{"route", message(unix.RTM_NEWROUTE), false, true, netip.Addr{}},
		{"route removed", message(unix.RTM_DELROUTE), false, true, netip.Addr{}},
		{"rule", message(unix.RTM_NEWRULE), false, true, netip.Addr{}},
		{"next hop", message(unix.RTM_DELNEXTHOP), false, true, netip.Addr{}},
		{"neighbour", neigh, false, false, peer4},
		{"IPv6 neighbour removed", message(unix.RTM_DELNEIGH, neighbourBody(unix.AF_INET6, index, 0, peer6)...), false, false, peer6},
		{"neighbour of another", message(unix.RTM_NEWNEIGH, neighbourBody(unix.AF_INET, index+1, 0, peer4)...), false, false, netip.Addr{}},
		{"entry of a bridge", message(unix.RTM_NEWNEIGH, neighbourBody(unix.AF_BRIDGE, index, 0, peer4)...), false, false, netip.Addr{}},
		{"several", join(message(unix.RTM_NEWTFILTER, 1), message(unix.RTM_NEWLINK, about(index)...), neigh), true, false, peer4},
		{"the second cut off", join(message(unix.RTM_NEWLINK, about(index)...), neigh[:len(neigh)-5]), true, false, netip.Addr{}},
	} {
		var c Change
		c.note(test.b, index)
		_, has := c.Neighbours[test.neighbour]
		if c.Interface != test.interface_ || c.Routes != test.route || has != test.neighbour.IsValid() || len(c.Neighbours) > 1 || c.All {
			t.Errorf("%s: %+v", test.name, c)
		}
	}
	// With more neighbours than a Change lists, it sets All.
	var c Change
	for a := peer4; !c.All; a = a.Next() {
		c.note(message(unix.RTM_NEWNEIGH, neighbourBody(unix.AF_INET, index, 0, a)...), index)
		if len(c.Neighbours) > maxNeighbours {
			t.Fatalf("%d neighbours", len(c.Neighbours))
		}
	}
	if !c.Interface || !c.Routes {
		t.Errorf("%+v", c)
	}
}

func TestParseNeighbour(t *testing.T) {
	e, ok := parseNeighbour(neighbourBody(unix.AF_INET6, 7, unix.NUD_STALE, peer6, mac[:]...))
	if want := (entry{index: 7, state: unix.NUD_STALE, addr: peer6, mac: mac}); !ok || e != want || !e.usable() {
		t.Errorf("%+v, %v, want %+v", e, ok, want)
	}
	e, ok = parseNeighbour(neighbourBody(unix.AF_INET, 7, unix.NUD_FAILED, peer4, 1, 2, 3, 4))
	if !ok || !e.alien || e.usable() {
		t.Errorf("%+v, %v", e, ok)
	}
	if e, ok := parseNeighbour(neighbourBody(unix.AF_INET, 7, unix.NUD_STALE, peer6)); ok {
		t.Errorf("an IPv6 address in an IPv4 entry: %+v", e)
	}
}

// FuzzMessages: the parsers return only valid results for any datagram.
func FuzzMessages(f *testing.F) {
	f.Add(message(unix.RTM_NEWLINK, about(7)...))
	f.Add(message(unix.RTM_NEWNEIGH, neighbourBody(unix.AF_INET, 7, unix.NUD_REACHABLE, peer4, mac[:]...)...))
	f.Add(append(message(unix.RTM_DELNEIGH, neighbourBody(unix.AF_INET6, 7, 0, peer6)...), message(unix.RTM_NEWROUTE, 1, 2, 3)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Change
		c.note(b, 7)
		if len(c.Neighbours) > maxNeighbours || len(c.Neighbours) > len(b)/unix.SizeofNlMsghdr {
			t.Errorf("%d neighbours of %d bytes", len(c.Neighbours), len(b))
		}
		for a := range c.Neighbours {
			if !a.IsValid() {
				t.Error("an address that is none")
			}
		}
		if e, ok := parseNeighbour(b); ok && !e.addr.IsValid() {
			t.Errorf("%+v", e)
		}
	})
}
