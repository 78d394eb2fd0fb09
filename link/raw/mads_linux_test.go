package raw

import (
	"bytes"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/driver"
	"github.com/goroce/roce/internal/gso"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/internal/scarce"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/link/linktest"
)

// drops returns a function that returns how many packets the kernel dropped at each of the two
// sockets of a Port.
func drops(t *testing.T, p *Port) func() (data, mads uint64) {
	count := func(p *Port) uint64 {
		s, err := unix.GetsockoptTpacketStats(p.FD, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err != nil {
			t.Error(err)
			return 0
		}
		p.Count.RxDrops.Add(uint64(s.Drops)) // reading has reset the kernel's count
		return uint64(s.Drops)
	}
	var data, mads uint64
	return func() (uint64, uint64) {
		data += count(p)
		if p.mads != nil {
			mads += count(p.mads)
		}
		return data, mads
	}
}

// TestMADs: see linktest. Packets come one by one and as super-packets, with and without a
// VLAN tag, over both IP versions.
func TestMADs(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	for _, v := range []struct {
		name      string
		v6, plain bool
		vlan      uint16
	}{
		{name: "IPv4"}, {name: "IPv6", v6: true}, {name: "IPv4 plain", plain: true}, {name: "IPv6 plain", v6: true, plain: true},
		{name: "IPv4 in a VLAN", vlan: 5}, {name: "IPv6 in a VLAN", v6: true, vlan: 5},
	} {
		t.Run(v.name, func(t *testing.T) {
			linktest.TestMADs(t, func(t *testing.T, buffer int) linktest.MADs {
				to := start(t, b, Config{VLAN: v.vlan, RxBuffer: buffer})
				return linktest.MADs{From: start(t, a, Config{NoGSO: v.plain, VLAN: v.vlan}), To: to, Drops: drops(t, to),
					Path: path(t, a, b, v.v6, v.vlan)}
			})
		})
	}
}

// TestSplitFails: see linktest.
func TestSplitFails(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	for _, c := range append(scarce.Setsockopts([]int{unix.SOL_SOCKET}, []int{unix.SO_ATTACH_FILTER}),
		scarce.Call{Name: "bind", Number: unix.SYS_BIND, Arg1: -1, Arg2: -1, Errno: unix.ENOMEM}) {
		t.Run(c.Name, func(t *testing.T) {
			to := start(t, b, Config{})
			m := linktest.MADs{From: start(t, a, Config{}), To: to, Drops: drops(t, to), Path: path(t, a, b, false, 0)}
			linktest.TestSplitFails(t, m, func(f func()) { scarce.Without(t, c, func(f func()) { f() }, f) })
		})
	}
}

// TestFilterOfSlots: the two filters of a process that shares the interface together accept the
// packets that the filter of an exclusive process accepts, if they are for the slots of the
// process.
func TestFilterOfSlots(t *testing.T) {
	slots := []share.Slot{5, 9}
	run := func(take kind, s []share.Slot, b []byte) bool {
		t.Helper()
		vm, err := bpf.NewVM(roceFilter(take, s, nil))
		if err != nil {
			t.Fatal(err)
		}
		n, err := vm.Run(b)
		if err != nil {
			t.Fatal(err)
		}
		return n != 0
	}
	const body = 12 + 8 + 256 + 4
	for name, b := range map[string][]byte{
		"IPv4": packet(t, false, 0, body), "IPv6": packet(t, true, 0, body), "options": options(packet(t, false, 0, body), 3),
		"other port": at(packet(t, false, 0, body), 37, 0xB8),
	} {
		for _, qpn := range []bth.QPN{0, bth.QPNGSI, 5, 64 + 9, 128 + 5, 10, 64 + 10, bth.QPNMulticast} {
			for _, attribute := range []byte{0x10, 0x13, 0x17, 0x18} {
				for _, id := range []byte{64 + 5, 64 + 9, 10} {
					p := bytes.Clone(b)
					bth.PutBTH(p[len(p)-body:], bth.UDSendOnly, 0, 0, bth.DefaultPKey, qpn, 0)
					mad := p[len(p)-body+20:]
					mad[16], mad[17] = 0, attribute
					mad[24+3], mad[24+7] = 1, id
					if attribute == 0x18 {
						mad[24+3], mad[24+7] = id, 1
					}
					want := run(everything, nil, p)
					switch {
					case qpn == bth.QPNGSI:
						want = want && (attribute == 0x10 || attribute == 0x17 || id == 64+5)
					case qpn != bth.QPNMulticast:
						want = want && slices.Contains(slots, share.SlotOf(qpn))
					}
					if all := run(everything, slots, p); all != want {
						t.Errorf("%s, QPN %v, attribute %#x, ID %d: taken %v, want %v", name, qpn, attribute, id, all, want)
					}
					if got := run(onlyMADs, slots, p); got != (want && qpn == bth.QPNGSI) {
						t.Errorf("%s, QPN %v, attribute %#x, ID %d: a management datagram %v", name, qpn, attribute, id, got)
					}
					if got := run(noMADs, slots, p); got != (want && qpn != bth.QPNGSI) {
						t.Errorf("%s, QPN %v: data %v", name, qpn, got)
					}
				}
			}
		}
		for n := range len(b) {
			if n > len(b)-body+8 && n < len(b)-4 {
				continue
			}
			p := bytes.Clone(b)
			bth.PutBTH(p[len(p)-body:], bth.RCSendOnly, 0, 0, bth.DefaultPKey, 5, 0)
			if got, want := run(noMADs, slots, p[:n]), name != "other port" && n >= len(b)-body+8; got != want {
				t.Errorf("%s: first %d of %d bytes: taken %v, want %v", name, n, len(b), got, want)
			}
		}
	}
	if _, err := bpf.Assemble(roceFilter(everything, slots, new(driver.Screened))); err != nil {
		t.Error(err)
	}
}

// TestManagementFilter: each packet that the filter for all packets accepts is accepted by exactly
// one of the other two filters.
func TestManagementFilter(t *testing.T) {
	run := func(take kind, b []byte) bool {
		vm, err := bpf.NewVM(roceFilter(take, nil, nil))
		if err != nil {
			t.Fatal(err)
		}
		n, err := vm.Run(b)
		if err != nil {
			t.Fatal(err)
		}
		if n != 0 && n < gso.MaxSuper+18 {
			t.Errorf("the filter cuts frames to %d bytes", n)
		}
		return n != 0
	}
	for name, b := range map[string][]byte{
		"IPv4": packet(t, false, 0, 64), "IPv6": packet(t, true, 0, 64),
		"options": options(packet(t, false, 0, 64), 1), "most options": options(packet(t, false, 0, 64), 10),
		"other port": at(packet(t, false, 0, 64), 37, 0xB8), "fragment": at(packet(t, false, 0, 64), 21, 1), "VLAN": packet(t, true, 5, 64),
	} {
		for _, qpn := range []bth.QPN{0, bth.QPNGSI, 2, 0x11, 0x010001, 0x000100, bth.QPNMulticast} {
			body := b[len(b)-64:]
			bth.PutBTH(body, bth.RCSendOnly, 0, 0, bth.DefaultPKey, qpn, 0)
			body[4] = 0xFF // reserved
			for n := len(b) - 64 - 8; n <= len(b); n++ {
				all := run(everything, b[:n])
				mads := all && qpn == bth.QPNGSI && n >= len(b)-64+8
				if got := run(onlyMADs, b[:n]); got != mads {
					t.Errorf("%s, QPN %v, first %d of %d bytes: a management datagram %v, want %v", name, qpn, n, len(b), got, mads)
				}
				if got := run(noMADs, b[:n]); got != (all && !mads) {
					t.Errorf("%s, QPN %v, first %d of %d bytes: data %v, want %v", name, qpn, n, len(b), got, all && !mads)
				}
			}
		}
	}
}
