package xdp

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/netlab"
)

// TestProgram runs the program on frames, without any traffic.
func TestProgram(t *testing.T) {
	_, b := netlab.Pair(t, netlab.Config{})
	p := start(t, b, Config{})
	any := new(filter)
	b.Do(t, func() {
		var err error
		if any, err = loadFilter(1, 0, true, false); err != nil {
			t.Fatal(err)
		}
	})
	defer any.Close()
	if err := any.xsks.Put(uint32(0), uint32(p.rx.socks[0].FD)); err != nil {
		t.Fatal(err)
	}

	const pass, redirect = xdpPass, 4
	own, stranger := b.MAC, frame.MAC{2, 9, 9, 9, 9, 9}
	type c struct {
		name     string
		dst      netip.Addr
		mac      frame.MAC
		vlan     uint16
		edit     func(f []byte, ip int) []byte
		own, any int
	}
	set := func(off int, v byte) func(f []byte, ip int) []byte {
		return func(f []byte, ip int) []byte { f[ip+off] = v; return f }
	}
	cut := func(n int) func(f []byte, ip int) []byte {
		return func(f []byte, ip int) []byte { return f[:ip+n] }
	}
	v4, v6 := b.IP4, b.IP6
	other4, other6 := netip.MustParseAddr("10.88.0.99"), netip.MustParseAddr("fd88::99")
	group4, group6 := netip.MustParseAddr("239.1.2.3"), netip.MustParseAddr("ff0e::7")
	tests := []c{
		{"IPv4", v4, own, 0, nil, redirect, redirect},
		{"IPv6", v6, own, 0, nil, redirect, redirect},
		{"IPv6 link-local", b.LinkLocal, own, 0, nil, redirect, redirect},
		{"IPv4 in a VLAN", v4, own, 7, nil, pass, pass},
		{"IPv6 in a VLAN", v6, own, 7, nil, pass, pass},
		{"IPv4, tagged for its priority", v4, own, 7, func(f []byte, _ int) []byte { f[14], f[15] = 0xA0, 0; return f }, redirect, redirect},
		{"IPv6, tagged for its priority", v6, own, 7, func(f []byte, _ int) []byte { f[14], f[15] = 0xA0, 0; return f }, redirect, redirect},
		{"IPv4 in an outer VLAN", v4, own, 7, func(f []byte, _ int) []byte { f[12], f[13] = 0x88, 0xA8; return f }, pass, pass},
		{"two tags", v4, own, 7, func(f []byte, _ int) []byte { f[16], f[17] = 0x81, 0x00; return f }, pass, pass},
		{"IPv4, other address", other4, own, 0, nil, pass, redirect},
		{"IPv6, other address", other6, own, 0, nil, pass, redirect},
		{"IPv4, other Ethernet address", v4, stranger, 0, nil, pass, redirect},
		{"IPv6, other Ethernet address", v6, stranger, 0, nil, pass, redirect},
		{"IPv4 group", group4, frame.MAC{0x01, 0x00, 0x5E, 1, 2, 3}, 0, nil, redirect, redirect},
		{"IPv6 group", group6, frame.MAC{0x33, 0x33, 0, 0, 0, 7}, 0, nil, redirect, redirect},
		{"IPv4, other port", v4, own, 0, set(22, 1), pass, pass},
		{"IPv6, other port", v6, own, 0, set(42, 1), pass, pass},
		{"IPv4, TCP", v4, own, 0, set(9, 6), pass, pass},
		{"IPv6, TCP", v6, own, 0, set(6, 6), pass, pass},
		{"IPv6, hop-by-hop options", v6, own, 0, set(6, 0), pass, pass},
		{"IPv6, fragment", v6, own, 0, set(6, 44), pass, pass},
		{"IPv4, options", v4, own, 0, set(0, 0x46), pass, pass},
		{"IPv4, version 6", v4, own, 0, set(0, 0x65), pass, pass},
		{"IPv6, version 4", v6, own, 0, set(0, 0x45), pass, pass},
		{"IPv4, first fragment", v4, own, 0, set(6, 0x20), pass, pass},
		{"IPv4, later fragment", v4, own, 0, set(7, 0x01), pass, pass},
		{"IPv4, may be fragmented", v4, own, 0, set(6, 0x00), redirect, redirect},
		{"ARP", v4, own, 0, func(f []byte, _ int) []byte { f[13] = 0x06; return f }, pass, pass},
		{"IPv4, headers only", v4, own, 0, cut(28), redirect, redirect},
		{"IPv4, cut in the UDP header", v4, own, 0, cut(27), pass, pass},
		{"IPv6, headers only", v6, own, 0, cut(48), redirect, redirect},
		{"IPv6, cut in the UDP header", v6, own, 0, cut(47), pass, pass},
		{"cut in the tag", v4, own, 7, func(f []byte, _ int) []byte { return f[:17] }, pass, pass},
		{"Ethernet header only", v4, own, 0, cut(0), pass, pass},
	}
	for _, test := range tests {
		src := netip.MustParseAddr("10.88.0.1")
		if test.dst.Is6() {
			src = netip.MustParseAddr("fd88::1")
		}
		way, err := frame.NewPath(frame.PathConfig{
			Src: bth.GIDFrom(src), Dst: bth.GIDFrom(test.dst), SrcMAC: frame.MAC{2, 5: 7}, DstMAC: test.mac, VLAN: test.vlan,
		})
		if err != nil {
			t.Fatal(err)
		}
		f := make([]byte, way.HeaderLen(frame.LayoutEthernet)+32)
		way.Put(f, frame.LayoutEthernet, 32, 0)
		ip := way.HeaderLen(frame.LayoutEthernet) - way.HeaderLen(frame.LayoutIP)
		if test.edit != nil {
			f = test.edit(f, ip)
		}
		for _, run := range []struct {
			name string
			prog *ebpf.Program
			want int
		}{{"own addresses", p.card.filter.prog, test.own}, {"any address", any.prog, test.any}} {
			got, err := run.prog.Run(&ebpf.RunOptions{Data: f})
			if err != nil {
				t.Fatalf("%s, %s: %v", test.name, run.name, err)
			}
			if int(got) != run.want {
				t.Errorf("%s, %s: action %d, want %d", test.name, run.name, got, run.want)
			}
		}
	}

	// Without a socket the program passes everything to the kernel, and SetAddrs can remove
	// addresses.
	way := path(t, b, b, false, 0)
	f := make([]byte, way.HeaderLen(frame.LayoutEthernet)+32)
	way.Put(f, frame.LayoutEthernet, 32, 0)
	run := func(what string, want int) {
		t.Helper()
		if got, err := p.card.filter.prog.Run(&ebpf.RunOptions{Data: f}); err != nil || int(got) != want {
			t.Errorf("%s: action %d, %v, want %d", what, got, err, want)
		}
	}
	run("before", redirect)
	b.Do(t, func() {
		if err := p.SetAddrs([]netip.Addr{b.IP6}); err != nil {
			t.Fatal(err)
		}
		run("without the address", pass)
		if err := p.SetAddrs([]netip.Addr{b.IP6, b.IP4}); err != nil {
			t.Fatal(err)
		}
	})
	run("with the address again", redirect)
	mac := frame.MAC{2, 0x88, 0, 0, 0xAA, 2}
	if err := b.Netlink().LinkSetHardwareAddr(b.Link(), mac[:]); err != nil {
		t.Fatal(err)
	}
	if err := p.SetAddrs([]netip.Addr{b.IP4}); err != nil {
		t.Fatal(err)
	}
	run("to the Ethernet address it had", pass)
	copy(f, mac[:])
	run("to the Ethernet address it has", redirect)
	if err := p.card.filter.xsks.Delete(uint32(0)); err != nil {
		t.Fatal(err)
	}
	run("without a socket", pass)
}

func TestClearChecksum(t *testing.T) {
	a := &netlab.Side{IP4: netip.MustParseAddr("10.0.0.1"), IP6: netip.MustParseAddr("fd00::1")}
	for _, v6 := range []bool{false, true} {
		for _, vlan := range []uint16{0, 5} {
			way := path(t, a, a, v6, vlan)
			b := make([]byte, way.HeaderLen(frame.LayoutEthernet)+16)
			way.Put(b, frame.LayoutEthernet, 16, 0)
			want := string(b)
			h := way.HeaderLen(frame.LayoutEthernet)
			b[h-2], b[h-1] = 0x12, 0x34
			if clearChecksum(b); string(b) != want {
				t.Errorf("v6=%v, VLAN %d: % x", v6, vlan, b)
			}
			for n := range h {
				clearChecksum(b[:n:n]) // does not panic
			}
		}
	}
}

func TestWays(t *testing.T) {
	for _, test := range []struct {
		mtu                     int
		generic, whole, scatter bool
		driver                  string
		want                    string
	}{
		{1500, false, false, false, "veth", "native; native, scatter-gather; generic"},
		{3498, false, false, false, "veth", "native; native, scatter-gather; generic"},
		{3499, false, false, false, "veth", "native, scatter-gather; generic"},
		{9000, false, false, false, "", "native, scatter-gather; generic"},
		{9000, true, false, false, "veth", "generic"},
		{1500, false, false, true, "veth", "native, scatter-gather; native; generic"},
		{1500, false, false, true, "tun", "native; generic"},
		{9000, false, true, false, "veth", "native; generic"},
		{1500, false, false, false, "tun", "native; generic"},
		{9000, false, false, false, "tun", "native; generic"},
		{1500, false, false, true, "bonding", "generic"},
	} {
		var names []string
		for _, w := range ways(test.mtu, test.generic, test.whole, test.scatter, test.driver) {
			names = append(names, w.name)
			if w.frags && w.name == "generic" {
				t.Error("a frags program in generic mode")
			}
		}
		if got := strings.Join(names, "; "); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

// TestWhole: on a kernel without frames in pieces Open limits the MTU and does not
// fail.
func TestWhole(t *testing.T) {
	a, _ := netlab.Pair(t, netlab.Config{MTU: 4200})
	a.Do(t, func() {
		k, ports, err := openCard(Config{Interface: a.Interface, AnyAddr: true, RingSize: 64}, 1, &attempts{lack: lacks{pieces: true}})
		if err != nil {
			t.Fatal(err)
		}
		defer ports[0].Close()
		if k.way.name != "generic" || k.info.MTU != 3822 || len(k.info.Notes) != 2 {
			t.Errorf("%s, MTU %d, notes %q", k.way.name, k.info.MTU, k.info.Notes)
		}
	})
}

// TestAddressesFull: when the map of addresses is full, new addresses can still replace old ones.
// One address too many causes an error, but the map has all others.
func TestAddressesFull(t *testing.T) {
	netlab.Pair(t, netlab.Config{}) // skips without privilege
	f, err := loadFilter(1, 0, false, false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	addrs := make([]netip.Addr, 2*maxAddrs)
	for i := range addrs {
		addrs[i] = netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
	}
	known := func(a netip.Addr) (mac [8]byte) {
		f.addrs.Lookup(a.Unmap().As16(), &mac)
		return mac
	}
	mac := frame.MAC{2, 0, 0, 0, 0, 1}
	for from := 0; from <= maxAddrs; from += maxAddrs / 4 {
		if err := f.setAddrs(mac, addrs[from:from+maxAddrs]); err != nil {
			t.Fatalf("addresses %d to %d: %v", from, from+maxAddrs, err)
		}
		for i, a := range addrs {
			if want := i >= from && i < from+maxAddrs; (known(a) != [8]byte{}) != want {
				t.Fatalf("addresses %d to %d: %v is known: %v", from, from+maxAddrs, a, !want)
			}
		}
	}
	mac[5] = 2
	if err := f.setAddrs(mac, addrs[maxAddrs-1:]); err == nil {
		t.Error("no error with more than it holds")
	}
	if got := known(addrs[2*maxAddrs-1]); got[5] != mac[5] {
		t.Errorf("one that stayed has the Ethernet address %v", got)
	}
}
