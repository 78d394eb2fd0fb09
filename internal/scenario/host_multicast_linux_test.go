package scenario_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/netlab"
)

// TestMulticastOnInterfaces: two devices on a pair of network interfaces. The
// kernel joins the group, with the network (IGMP, MLD) and in the filter of the
// card, while a queue pair is attached; a datagram to it crosses the wire once
// and comes back to the sender.
func TestMulticastOnInterfaces(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	open := func(s *netlab.Side) (d *roce.Device) {
		s.Do(t, func() { d = ok(roce.OpenInterface(s.Interface, roce.InterfaceConfig{}))(t) })
		t.Cleanup(func() { d.Close() })
		return d
	}
	da, db := open(a), open(b)
	// joined reports whether the kernel has joined a group and its Ethernet address.
	joined := func(s *netlab.Side, g roce.GID) (member, filter bool) {
		file, want := "/proc/thread-self/net/igmp6", hex.EncodeToString(g[:])
		mac := "3333" + hex.EncodeToString(g[12:])
		if g.Is4() {
			file, want = "/proc/thread-self/net/igmp", fmt.Sprintf("%08X", binary.NativeEndian.Uint32(g[12:]))
			mac = "01005e" + hex.EncodeToString(g[13:])
		}
		read := func(file string) string { return string(ok(os.ReadFile(file))(t)) }
		s.Do(t, func() {
			member = strings.Contains(read(file), want)
			for line := range strings.Lines(read("/proc/thread-self/net/dev_mcast")) {
				filter = filter || strings.Contains(line, s.Interface) && strings.Contains(line, mac)
			}
		})
		return member, filter
	}
	wantJoined := func(what string, s *netlab.Side, g roce.GID, want bool) {
		t.Helper()
		if member, filter := joined(s, g); member != want || filter != want {
			t.Errorf("%s: member of %v: %v, in the filter: %v, want %v", what, g.Addr(), member, filter, want)
		}
	}
	for _, g := range []roce.GID{groupGID("239.1.2.3"), groupGID("ff0e::7")} {
		from, one, two := newUD(t, da), newUD(t, db), newUD(t, db)
		for _, u := range []*udEnd{from, one, two} {
			check(t, u.qp.AttachMulticast(g))
			u.recv()
		}
		wantJoined("attached", a, g, true)
		wantJoined("attached", b, g, true)
		before := da.Counters().Link.TxPackets
		from.cast(g, "hello, group")
		for _, u := range []*udEnd{from, one, two} {
			u.want(from, "hello, group")
		}
		if sent := da.Counters().Link.TxPackets - before; sent != 1 {
			t.Errorf("%d packets sent, want 1", sent)
		}
		check(t, one.qp.DetachMulticast(g))
		wantJoined("one of two detached", b, g, true)
		check(t, two.qp.DetachMulticast(g))
		wantJoined("both detached", b, g, false)
		check(t, from.qp.DetachMulticast(g))
	}
	u := newUD(t, da)
	g := groupGID("239.9.9.9")
	check(t, u.qp.AttachMulticast(g))
	wantJoined("attached", a, g, true)
	check(t, da.Close())
	wantJoined("device closed", a, g, false)
}

// TestMulticastOnce: a datagram to a group reaches a queue pair once, however many queues the
// device has, and whether it shares the interface or not.
func TestMulticastOnce(t *testing.T) {
	x, y := netlab.Pair(t, netlab.Config{Queues: 3})
	for _, exclusive := range []bool{false, true} {
		for _, driver := range []string{"raw", "udp", "xdp"} {
			c := roce.InterfaceConfig{Driver: driver, Queues: 3, Exclusive: exclusive}
			t.Run(nameOf(c), func(t *testing.T) {
				dx, dy := openOn(t, x, c), openOn(t, y, c)
				defer dx.Close()
				defer dy.Close()
				for _, g := range []roce.GID{groupGID("239.1.2.3"), groupGID("ff0e::7")} {
					to, from, other := newUD(t, dx), newUD(t, dy), newUD(t, dy)
					check(t, to.qp.AttachMulticast(g))
					for range 8 {
						to.recv()
					}
					for range 2 {
						from.cast(g, "once")
						to.want(from, "once")
						other.cast(g, "and once")
						to.want(other, "and once")
					}
				}
			})
		}
	}
}
