package udp

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
	"github.com/goroce/roce/link/raw"
)

// start opens a Port on the interface of one side of a lab.
func start(t testing.TB, s *netlab.Side, c Config) (p *Port) {
	t.Helper()
	if !c.Addr.IsValid() {
		c.Interface = s.Interface
	}
	s.Do(t, func() {
		q, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		p = q.(*Port)
	})
	t.Cleanup(func() { p.Close() })
	return p
}

// startRaw opens a packet socket on the interface of one side: it shows whole packets, so that the
// ICRC check is complete.
func startRaw(t testing.TB, s *netlab.Side) (p link.Port) {
	t.Helper()
	s.Do(t, func() {
		var err error
		if p, err = raw.Open(raw.Config{Interface: s.Interface}); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { p.Close() })
	return p
}

// path makes a path between two sides of a lab.
func path(t testing.TB, from, to *netlab.Side, v6 bool, change func(*frame.PathConfig)) *frame.Path {
	t.Helper()
	c := frame.PathConfig{
		Src: bth.GIDFrom(from.IP4), Dst: bth.GIDFrom(to.IP4),
		SrcMAC: from.MAC, DstMAC: to.MAC, SrcPort: srcPort,
	}
	if v6 {
		c.Src, c.Dst = bth.GIDFrom(from.IP6), bth.GIDFrom(to.IP6)
	}
	if change != nil {
		change(&c)
	}
	p, err := frame.NewPath(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestContract(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			linktest.TestPort(t, func(t *testing.T) (link.Port, link.Port) {
				var c Config
				if v.change != nil {
					v.change(&c)
				}
				return linktest.At(start(t, a, c), a.IP4, a.IP6), linktest.At(start(t, b, c), b.IP4, b.IP6)
			})
		})
	}
	t.Run("without IPv6", func(t *testing.T) {
		linktest.TestPort(t, func(t *testing.T) (link.Port, link.Port) {
			return linktest.At(start(t, a, Config{noIPv6: true}), a.IP4, netip.Addr{}),
				linktest.At(start(t, b, Config{noIPv6: true}), b.IP4, netip.Addr{})
		})
	})
	t.Run("address", func(t *testing.T) {
		linktest.TestPort(t, func(t *testing.T) (link.Port, link.Port) {
			return linktest.At(start(t, a, Config{Addr: a.IP6}), netip.Addr{}, a.IP6),
				linktest.At(start(t, b, Config{Addr: b.IP6}), netip.Addr{}, b.IP6)
		})
	})
}

func TestInfo(t *testing.T) {
	a, _ := netlab.Pair(t, netlab.Config{MTU: 4200})
	for _, c := range []Config{{}, {Addr: a.IP4}, {Addr: a.IP6}} {
		p := start(t, a, c)
		i := p.Info()
		if i.Driver != "udp" || i.Interface != a.Interface || i.Index != a.Link().Attrs().Index || !i.MAC.IsZero() || i.MTU != 4200 ||
			i.Layout != frame.LayoutUDP || i.SrcPort != 4791 || i.Speed != 10000 || i.Mode != "sendmmsg/recvmmsg, GSO, GRO" {
			t.Errorf("Info() = %+v", i)
		}
		if len(i.Notes) != 0 {
			t.Errorf("as root, on this kernel: notes %q", i.Notes)
		}
		p.Close()
	}
}

// TestOnTheWire: a receiver that sees whole packets finds a right ICRC in every packet of a
// super-packet, whether the kernel has divided it or not.
func TestOnTheWire(t *testing.T) {
	for _, limited := range []bool{false, true} {
		a, b := netlab.Pair(t, netlab.Config{MTU: 4200})
		if limited { // the kernel divides super-packets before the device
			if a.Netlink().LinkSetGSOMaxSize(a.Link(), 9000) != nil || a.Netlink().LinkSetGSOIPv4MaxSize(a.Link(), 9000) != nil {
				t.Skip("the kernel has no limit for segmentation offload")
			}
		}
		to := startRaw(t, b)
		for _, v := range variants[:3] {
			var c Config
			if v.change != nil {
				v.change(&c)
			}
			from := start(t, a, c)
			for _, v6 := range []bool{false, true} {
				p := path(t, a, b, v6, func(c *frame.PathConfig) { c.TrafficClass, c.HopLimit = 0x4A, 33 })
				linktest.Send(t, from, p, 0, nil) // until the neighbour is resolved, the kernel queues only few packets
				from.Flush()
				linktest.Collect(t, to, 1)
				n := 0
				for _, size := range []int{1024, 4096, 4, 0} {
					for range 70 {
						linktest.Send(t, from, p, bth.PSN(n), bytes.Repeat([]byte{byte(n)}, size))
						n++
					}
				}
				if err := from.Flush(); err != nil {
					t.Fatal(err)
				}
				fr := make([]link.Frame, link.Batch)
				for got := 0; got < n; {
					k, err := to.Recv(fr)
					if err != nil {
						t.Fatal(err)
					}
					if k == 0 {
						if to.Wait(linktest.Patience); k == 0 && to.Stats().RxDrops > 0 {
							t.Fatalf("%s, v6=%v: %d of %d packets arrived", v.name, v6, got, n)
						}
					}
					for i := range fr[:k] {
						var q frame.Packet
						err := fr[i].Parse(&q, to.Info().Layout)
						if err != nil || !q.CheckICRC() || q.PSN() != bth.PSN(got) {
							t.Fatalf("%s, v6=%v, limited=%v: packet %d: PSN %v, ICRC good %v, %v", v.name, v6, limited, got, q.PSN(), q.CheckICRC(), err)
						}
						if q.TrafficClass != 0x4A || q.HopLimit != 33 || q.SrcPort != 4791 {
							t.Fatalf("traffic class %#x, hop limit %d, port %d", q.TrafficClass, q.HopLimit, q.SrcPort)
						}
						got++
					}
				}
			}
			from.Close()
		}
	}
}

// TestFromTheWire: a Port receives packets like those of a NIC, with any Identification and without
// UDP checksum, as single packets and in super-packets.
func TestFromTheWire(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{MTU: 4200})
	from, to := startRaw(t, a), start(t, b, Config{})
	fr := make([]link.Frame, link.Batch)
	for _, v6 := range []bool{false, true} {
		p := path(t, a, b, v6, func(c *frame.PathConfig) {
			c.SrcPort, c.TrafficClass, c.HopLimit, c.FlowLabel = 0xC123, 0x4B, 33, 0x12345
		})
		label := uint32(0)
		if v6 {
			label = 0x12345
		}
		for _, count := range []int{1, 40} {
			for i := range count {
				linktest.Send(t, from, p, bth.PSN(i), bytes.Repeat([]byte{byte(i)}, 1024))
			}
			if err := from.Flush(); err != nil {
				t.Fatal(err)
			}
			for got := 0; got < count; {
				if to.Wait(linktest.Patience) != nil || to.Stats().RxErrors > 0 {
					t.Fatalf("%+v", to.Stats())
				}
				k, err := to.Recv(fr)
				if err != nil || k == 0 {
					t.Fatalf("v6=%v: %d of %d arrived, %v", v6, got, count, err)
				}
				for _, f := range fr[:k] {
					psn, payload := linktest.Check(t, to.Info().Layout, f)
					e := f.Env
					if psn != bth.PSN(got) || len(payload) != 1024 || payload[7] != byte(got) || e.SrcPort != 0xC123 || e.TrafficClass != 0x4B || e.HopLimit != 33 || e.FlowLabel != label {
						t.Fatalf("packet %d: PSN %v, %d bytes, %+v", got, psn, len(payload), e)
					}
					f.Data[len(f.Data)-1] ^= 1
					var q frame.Packet
					if f.Parse(&q, to.Info().Layout); q.CheckICRC() {
						t.Fatal("a damaged packet passes") // only one damage in 65536 would
					}
					got++
				}
			}
		}
	}
}

// TestQueues: packets arrive at the Port for their queue pair.
func TestQueues(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	from := startRaw(t, a)
	const n = 3
	var ports []link.Port
	b.Do(t, func() {
		var err error
		if ports, err = OpenQueues(Config{Interface: b.Interface}, n); err != nil {
			t.Fatal(err)
		}
	})
	for _, p := range ports {
		defer p.Close()
	}
	for _, v6 := range []bool{false, true} {
		p := path(t, a, b, v6, nil)
		for _, q := range []bth.QPN{1, 17, 18, 19, 0x123456, bth.QPNMulticast} {
			body, crc, _ := from.Begin(p, bth.BTHLen+bth.ICRCLen)
			bth.PutBTH(body, bth.RCSendOnly, 0, 0, bth.DefaultPKey, q, 5)
			bth.PutICRC(body[bth.BTHLen:], crc.UpdateBTH(body[:bth.BTHLen]))
			from.Commit()
			if err := from.Flush(); err != nil {
				t.Fatal(err)
			}
			want := int(q % n)
			if q == 1 || q == bth.QPNMulticast {
				want = 0
			}
			if ports[want].Wait(linktest.Patience); ports[want].Info().Mode == "" {
				t.Error("no mode")
			}
			if k, err := ports[want].Recv(make([]link.Frame, 2)); k != 1 || err != nil {
				t.Errorf("queue pair %v: %d packets at port %d, %v", q, k, want, err)
			}
		}
	}
}

// TestLinkLocalAndGroups: link-local and multicast addresses, which are valid only together with an
// interface.
func TestLinkLocalAndGroups(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	pa, pb := start(t, a, Config{}), start(t, b, Config{})
	linktest.Send(t, pa, path(t, a, b, true, func(c *frame.PathConfig) {
		c.Src, c.Dst = bth.GIDFrom(a.LinkLocal), bth.GIDFrom(b.LinkLocal)
	}), 1, nil)
	if err := pa.Flush(); err != nil {
		t.Fatal(err)
	}
	linktest.Collect(t, pb, 1)

	// Packets to groups that the host has joined arrive. The sender does not receive its own.
	for psn, group := range map[bth.PSN]string{2: "239.1.2.3", 3: "ff0e::7"} {
		g := netip.MustParseAddr(group)
		for _, s := range []*netlab.Side{a, b} {
			join(t, s, g)
		}
		linktest.Send(t, pa, path(t, a, b, g.Is6(), func(c *frame.PathConfig) { c.Dst = bth.GIDFrom(g) }), psn, nil)
		if err := pa.Flush(); err != nil {
			t.Fatal(err)
		}
		if got, _ := linktest.Collect(t, pb, 1); got[0] != psn {
			t.Errorf("PSN %v from %s", got[0], group)
		}
		if n, err := pa.Recv(make([]link.Frame, 1)); n != 0 || err != nil {
			t.Errorf("the sender got %d, %v", n, err)
		}
	}
}

// join makes the host a member of a group for the rest of the test.
func join(t *testing.T, s *netlab.Side, group netip.Addr) {
	t.Helper()
	s.Do(t, func() {
		family := unix.AF_INET
		if group.Is6() {
			family = unix.AF_INET6
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		index := s.Link().Attrs().Index
		if group.Is6() {
			err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(index)})
		} else {
			err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(index)})
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestDown: while the link is down, Flush returns an error. When it is up again, the Port works.
func TestDown(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	pa, pb := start(t, a, Config{}), start(t, b, Config{})
	var changes []bool
	pa.OnLink(func(up bool) { changes = append(changes, up) })
	p := path(t, a, b, false, nil)
	a.SetUp(t, false)
	linktest.Send(t, pa, p, 1, make([]byte, 64))
	linktest.Send(t, pa, p, 2, make([]byte, 64))
	if err := pa.Flush(); !errors.Is(err, link.ErrDown) || !errors.Is(err, unix.ENETDOWN) {
		t.Errorf("Flush on a link that is down: %v", err)
	}
	if s := pa.Stats(); s.LinkUp || s.TxDrops != 2 || s.LinkDowns != 1 {
		t.Errorf("%+v", s)
	}
	a.SetUp(t, true)
	for deadline := time.Now().Add(linktest.Patience); !pa.Stats().LinkUp && time.Now().Before(deadline); {
		pa.Wait(time.Millisecond)
	}
	if len(changes) != 2 || changes[0] || !changes[1] {
		t.Errorf("the link changed: %v", changes)
	}
	linktest.Send(t, pa, p, 3, nil)
	if err := pa.Flush(); err != nil {
		t.Fatal(err)
	}
	if psns, _ := linktest.Collect(t, pb, 1); psns[0] != 3 {
		t.Errorf("PSN %v arrived", psns[0])
	}

	if err := a.Netlink().LinkDel(a.Link()); err != nil {
		t.Fatal(err)
	}
	linktest.Send(t, pa, p, 4, nil)
	if err := pa.Flush(); !errors.Is(err, link.ErrNoDevice) {
		t.Errorf("Flush on an interface that was removed: %v", err)
	}
}

// TestNoWay: packets that the kernel cannot send are counted as errors. Other packets are not
// affected.
func TestNoWay(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	pa, pb := start(t, a, Config{}), start(t, b, Config{})
	// The kernel sends to any address on the link, but accepts only its own addresses as source.
	for _, stranger := range []string{"10.88.0.9", "fd88::9"} {
		src := netip.MustParseAddr(stranger)
		p := path(t, a, b, src.Is6(), func(c *frame.PathConfig) { c.Src = bth.GIDFrom(src) })
		before := pa.Stats().TxErrors
		for i := range 5 {
			linktest.Send(t, pa, p, bth.PSN(i), make([]byte, 64))
		}
		linktest.Send(t, pa, path(t, a, b, false, nil), 9, nil)
		if err := pa.Flush(); err == nil {
			t.Error("Flush returns no error for packets that the kernel cannot send")
		}
		if psns, _ := linktest.Collect(t, pb, 1); psns[0] != 9 {
			t.Errorf("PSN %v arrived", psns[0])
		}
		if s := pa.Stats(); s.TxErrors-before != 5 || !s.LinkUp {
			t.Errorf("%+v", s)
		}
	}
	if pa.tx.supers.Any() {
		t.Error("GSO was given up for a peer that cannot be reached")
	}
}

// TestTooLong: if the MTU of the interface has become smaller, packets that are too long are lost. A shorter packet behind
// them in a super-packet is not.
func TestTooLong(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{MTU: 4200})
	pa, pb := start(t, a, Config{}), start(t, b, Config{})
	if err := a.Netlink().LinkSetMTU(a.Link(), 1500); err != nil {
		t.Fatal(err)
	}
	for _, v6 := range []bool{false, true} {
		there := path(t, a, b, v6, nil)
		for _, test := range []struct {
			name  string
			sizes []int // of payloads; the PSN is the index
			want  []bth.PSN
		}{
			{"a request", []int{2048}, nil},
			{"a request and an acknowledgement", []int{2048, 4}, []bth.PSN{1}},
			{"requests and an acknowledgement", []int{2048, 2048, 2048, 4}, []bth.PSN{3}},
			{"the shorter one is too long, too", []int{2048, 2048, 1600}, nil},
			{"in the middle", []int{1024, 1024, 4, 2048, 2048, 4, 1024}, []bth.PSN{0, 1, 2, 5, 6}},
		} {
			before := pa.Stats()
			for i, n := range test.sizes {
				linktest.Send(t, pa, there, bth.PSN(i), make([]byte, n))
			}
			if err := pa.Flush(); err != nil {
				t.Errorf("v6 %v, %s: %v", v6, test.name, err)
			}
			linktest.Send(t, pa, there, 99, nil) // so that there is always one to wait for
			if err := pa.Flush(); err != nil {
				t.Fatal(err)
			}
			var got []bth.PSN
			for len(got) == 0 || got[len(got)-1] != 99 {
				psns, _ := linktest.Collect(t, pb, 1)
				got = append(got, psns...)
			}
			if want := append(slices.Clone(test.want), 99); !slices.Equal(got, want) {
				t.Errorf("v6 %v, %s: PSNs %v arrived, want %v", v6, test.name, got, want)
			}
			s := pa.Stats()
			if lost := s.TxOversize - before.TxOversize; int(lost) != len(test.sizes)-len(test.want) || s.TxErrors+s.TxDrops != 0 {
				t.Errorf("v6 %v, %s: %d too long, %+v", v6, test.name, lost, s)
			}
		}
	}
	if pa.tx.supers.Any() {
		t.Error("super-packets count as refused, although the packets were too long")
	}
}

func BenchmarkVeth(b *testing.B) {
	x, y := netlab.Pair(b, netlab.Config{MTU: 4200})
	linktest.BenchmarkPort(b, func(b *testing.B) (link.Port, link.Port) {
		return linktest.At(start(b, x, Config{}), x.IP4, x.IP6), linktest.At(start(b, y, Config{}), y.IP4, y.IP6)
	})
}

// TestQueuedBeforeDown: see linktest. The peer pulls the cable, or the interface is down.
func TestQueuedBeforeDown(t *testing.T) {
	for _, far := range []bool{false, true} {
		a, b := netlab.Pair(t, netlab.Config{})
		pa, pb := linktest.At(start(t, a, Config{}), a.IP4, a.IP6), linktest.At(start(t, b, Config{}), b.IP4, b.IP6)
		linktest.QueuedBeforeDown(t, pa, pb, func(up bool) {
			if far {
				a.SetUp(t, up)
			} else {
				b.SetUp(t, up)
			}
		})
	}
}
