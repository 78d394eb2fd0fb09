package raw

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/gso"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
)

// start opens a Port on one side of a lab.
func start(t testing.TB, s *netlab.Side, c Config) (p *Port) {
	t.Helper()
	c.Interface = s.Interface
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

// path makes a path between two sides of a lab.
func path(t testing.TB, from, to *netlab.Side, v6 bool, vlan uint16) *frame.Path {
	t.Helper()
	c := frame.PathConfig{
		Src: bth.GIDFrom(from.IP4), Dst: bth.GIDFrom(to.IP4),
		SrcMAC: from.MAC, DstMAC: to.MAC, VLAN: vlan, SrcPort: 0xC123,
	}
	if v6 {
		c.Src, c.Dst = bth.GIDFrom(from.IP6), bth.GIDFrom(to.IP6)
	}
	p, err := frame.NewPath(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// super reports whether a Port has received a super-packet.
func super(p *Port) bool { return p.rx.envs != [link.Batch]frame.Envelope{} }

func TestContract(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	for _, test := range []struct {
		name   string
		config Config
	}{{"gso", Config{}}, {"single", Config{NoGSO: true}}, {"qdisc", Config{Qdisc: true}}} {
		t.Run(test.name, func(t *testing.T) {
			linktest.TestPort(t, func(t *testing.T) (link.Port, link.Port) {
				return start(t, a, test.config), start(t, b, test.config)
			})
		})
	}
}

func TestInfo(t *testing.T) {
	a, _ := netlab.Pair(t, netlab.Config{MTU: 4200})
	first := start(t, a, Config{})
	i := first.Info()
	first.Close()
	if i.Driver != "raw" || i.Interface != a.Interface || i.MAC != a.MAC || i.MTU != 4200 || i.Layout != frame.LayoutEthernet || i.Mode == "" {
		t.Errorf("Info() = %+v", i)
	}
	// The kernel reports 10 Gb/s for a veth.
	if i.Index != a.Link().Attrs().Index || i.Speed != 10000 {
		t.Errorf("interface %d at %d Mb/s, want %d at 10000", i.Index, i.Speed, a.Link().Attrs().Index)
	}
	if got := start(t, a, Config{SrcPort: 0xC0DE}).Info().SrcPort; i.SrcPort != 0 || got != 0xC0DE {
		t.Errorf("source ports %d and %#x, want 0 and 0xc0de", i.SrcPort, got)
	}
	if len(i.Notes) != 0 {
		t.Errorf("as root, on this kernel: notes %q", i.Notes)
	}
}

// TestFewerSegments: if the kernel refuses super-packets with too many packets (Linux before 6.9:
// more than 64), the Port sends smaller ones, and no packet is lost.
func TestFewerSegments(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	from, to := start(t, a, Config{}), start(t, b, Config{})
	if !from.tx.gso {
		t.Skipf("no GSO on this kernel: %q", from.Info().Notes)
	}
	const n = 200
	from.tx.most = n // more than any kernel takes
	p := path(t, a, b, false, 0)
	for turn := range 2 {
		for i := range n {
			linktest.Send(t, from, p, bth.PSN(i), make([]byte, 64))
		}
		if err := from.Flush(); err != nil {
			t.Fatal(err)
		}
		linktest.InOrder(t, to, n)
		if s := from.Stats(); !from.tx.gso || from.tx.most != gso.FewSegments || s.TxPackets != uint64(turn+1)*n || s.TxErrors+s.TxDrops != 0 {
			t.Fatalf("turn %d: GSO %v, %d packets of one, %+v", turn, from.tx.gso, from.tx.most, s)
		}
	}
}

// TestSuperPackets: consecutive packets leave as a super-packet, and the receiver of the
// super-packet returns every packet exactly as the sender made it.
func TestSuperPackets(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		a, b := netlab.Pair(t, netlab.Config{MTU: 4200})
		from, to := start(t, a, Config{}), start(t, b, Config{})
		if !from.tx.gso || !to.rx.vnet {
			t.Skipf("no GSO on this kernel: %q", from.Info().Notes)
		}
		p := path(t, a, b, v6, 0)
		var lent [][]byte
		for i := range 40 {
			if !linktest.Put(from, p, bth.PSN(i), bytes.Repeat([]byte{byte(i)}, 1024)) {
				t.Fatal("no room")
			}
			lent = append(lent, bytes.Clone(from.Lent()))
			from.Commit()
		}
		if err := from.Flush(); err != nil {
			t.Fatal(err)
		}
		var got [][]byte
		inPlace := false
		fr := make([]link.Frame, 7)
		for deadline := time.Now().Add(linktest.Patience); len(got) < len(lent); {
			n, err := to.Recv(fr)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range fr[:n] {
				want := lent[len(got)]
				if f.Env != nil {
					inPlace = true
					want = want[p.HeaderLen(frame.LayoutEthernet):]
				}
				if !bytes.Equal(f.Data, want) {
					t.Fatalf("v6=%v: packet %d arrived as\n% x, want\n% x", v6, len(got), f.Data, want)
				}
				if psn, _ := linktest.Check(t, frame.LayoutEthernet, f); psn != bth.PSN(len(got)) {
					t.Fatalf("v6=%v: packet %d has PSN %v", v6, len(got), psn)
				}
				got = append(got, f.Data)
			}
			if n == 0 {
				if time.Now().After(deadline) {
					t.Fatalf("%d of %d packets arrived", len(got), len(lent))
				}
				to.Wait(10 * time.Millisecond)
			}
		}
		if !inPlace || !from.tx.gso {
			t.Errorf("v6=%v: no super-packet arrived", v6)
		}
	}
}

// TestSegmentedByKernel: for a receiver without super-packets the kernel divides them. The ICRCs of
// the packets are right, so each has the Identification that the sender has assumed.
func TestSegmentedByKernel(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	from := start(t, a, Config{})
	var fd int
	b.Do(t, func() {
		var err error
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: bth.UDPPort}); err != nil {
			t.Fatal(err)
		}
	})
	defer unix.Close(fd)
	tv := unix.Timeval{Sec: 2}
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	p := path(t, a, b, false, 0)
	for i := range 5 {
		linktest.Send(t, from, p, bth.PSN(i), make([]byte, 512))
	}
	if err := from.Flush(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for i := range 5 {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			t.Fatalf("packet %d: %v", i, err) // the kernel checks the UDP checksum
		}
		var q bth.Packet
		if err := q.Parse(buf[:n]); err != nil || q.PSN() != bth.PSN(i) {
			t.Errorf("packet %d: PSN %v, %v", i, q.PSN(), err)
		}
	}
}

// TestKernelSegments: if the sender's kernel divides a super-packet, it gives the packets the
// Identifications that their ICRCs were computed for.
func TestKernelSegments(t *testing.T) {
	for _, config := range []Config{{}, {Qdisc: true}} {
		a, b := netlab.Pair(t, netlab.Config{})
		from, to := start(t, a, config), start(t, b, Config{})
		for _, limit := range []func(netlink.Link, int) error{a.Netlink().LinkSetGSOMaxSize, a.Netlink().LinkSetGSOIPv4MaxSize} {
			if err := limit(a.Link(), 4000); err != nil {
				t.Skipf("cannot limit segmentation offload: %v", err)
			}
		}
		for _, v6 := range []bool{false, true} {
			p := path(t, a, b, v6, 0)
			for i := range 40 {
				linktest.Send(t, from, p, bth.PSN(i), make([]byte, 1024))
			}
			if err := from.Flush(); err != nil {
				t.Fatal(err)
			}
			psns, _ := linktest.Collect(t, to, 40) // checks the ICRCs
			if psns[39] != 39 {
				t.Errorf("v6=%v: PSNs %v", v6, psns)
			}
		}
		if mode := from.Info().Mode; super(to) || mode != "sendmmsg/recvmmsg, GSO" {
			t.Errorf("mode %q; super-packets arrived: %v", mode, super(to))
		}
	}
}

// TestKernelSender: packets of a UDP socket cross a veth with an incomplete UDP checksum. The Port
// must receive them, and also a super-packet of such a socket.
func TestKernelSender(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		a, b := netlab.Pair(t, netlab.Config{})
		to := start(t, b, Config{})
		src, dst := a.IP4, b.IP4
		if v6 {
			src, dst = a.IP6, b.IP6
		}
		var conn *net.UDPConn
		a.Do(t, func() {
			var err error
			conn, err = net.DialUDP("udp", &net.UDPAddr{IP: src.AsSlice()}, &net.UDPAddr{IP: dst.AsSlice(), Port: bth.UDPPort})
			if err != nil {
				t.Fatal(err)
			}
		})
		defer conn.Close()
		raw, _ := conn.SyscallConn()
		send := func(n, segment int) {
			raw.Control(func(fd uintptr) {
				if err := unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, segment); err != nil {
					t.Fatal(err)
				}
			})
			b := make([]byte, n)
			for i := 0; i < n; i += 200 {
				bth.PutBTH(b[i:], bth.RCSendOnly, 0, 0, bth.DefaultPKey, 5, 5)
			}
			if _, err := conn.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		send(200, 0)
		send(5*200, 200)
		send(3*200+40, 200)
		var sizes []int
		fr := make([]link.Frame, 4)
		for tries := 0; len(sizes) < 10 && tries < 20; tries++ {
			to.Wait(time.Second)
			n, err := to.Recv(fr)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range fr[:n] {
				var q frame.Packet
				if err := f.Parse(&q, frame.LayoutEthernet); err != nil {
					t.Fatalf("v6=%v: % x: %v", v6, f.Data[:60], err)
				}
				sizes = append(sizes, len(q.Data))
			}
		}
		if got, want := fmt.Sprint(sizes), fmt.Sprint([]int{200, 200, 200, 200, 200, 200, 200, 200, 200, 40}); got != want {
			t.Errorf("v6=%v: packets of %v bytes arrived, want %v", v6, got, want)
		}
	}
}

// TestVLAN: a Port receives frames of its VLAN. A Port without a VLAN receives untagged frames and
// frames with a tag that has only a priority.
func TestVLAN(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	linktest.VLANs(t, func(t *testing.T, vlan uint16) (from, to link.Port) {
		return start(t, a, Config{}), start(t, b, Config{VLAN: vlan})
	}, func(t *testing.T, v6 bool, vlan uint16) *frame.Path { return path(t, a, b, v6, vlan) })
}

// TestVLANInterface: a Port without a VLAN works on an interface for a VLAN.
func TestVLANInterface(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	side := *b
	side.Interface = "v" + b.Interface
	vlan := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: side.Interface, ParentIndex: b.Link().Attrs().Index}, VlanId: 7}
	if err := b.Netlink().LinkAdd(vlan); err != nil {
		netlab.Lacking(t, "VLAN interfaces", err)
	}
	if err := b.Netlink().LinkSetUp(vlan); err != nil {
		t.Fatal(err)
	}
	testVLAN(t, a, b, start(t, &side, Config{}), 0)
}

// testVLAN sends from a in VLAN 7 and expects packets with a tag at to.
func testVLAN(t *testing.T, a, b *netlab.Side, to *Port, want uint16) {
	from := start(t, a, Config{})
	for _, v6 := range []bool{false, true} {
		const n = 5
		for i := range n {
			linktest.Send(t, from, path(t, a, b, v6, 7), bth.PSN(i), make([]byte, 1024))
		}
		if err := from.Flush(); err != nil {
			t.Fatal(err)
		}
		fr := make([]link.Frame, link.Batch)
		for got, tries := 0, 0; got < n; tries++ {
			if tries > 20 {
				t.Fatalf("v6=%v: %d of %d packets arrived", v6, got, n)
			}
			to.Wait(time.Second)
			k, _ := to.Recv(fr)
			for _, f := range fr[:k] {
				var q frame.Packet
				if err := f.Parse(&q, frame.LayoutEthernet); err != nil || !q.CheckICRC() || q.VLAN != want {
					t.Errorf("v6=%v: %v, VLAN %d, want %d", v6, err, q.VLAN, want)
				}
			}
			got += k
		}
	}
}

// TestNoICMP: the kernel of a host answers packets to UDP port 4791 with ICMP errors, but not while
// a Port is open.
func TestNoICMP(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	ask := func(dst netip.Addr, wait time.Duration) error {
		var conn net.Conn
		a.Do(t, func() {
			var err error
			if conn, err = net.DialUDP("udp", nil, &net.UDPAddr{IP: dst.AsSlice(), Port: bth.UDPPort}); err != nil {
				t.Fatal(err)
			}
		})
		defer conn.Close()
		if _, err := conn.Write(make([]byte, 32)); err != nil {
			return err
		}
		conn.SetReadDeadline(time.Now().Add(wait))
		_, err := conn.Read(make([]byte, 64))
		return err
	}
	for _, dst := range []netip.Addr{b.IP4, b.IP6} {
		if err := ask(dst, linktest.Patience); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%v without a Port: %v, want connection refused", dst, err)
		}
	}
	p := start(t, b, Config{})
	for _, dst := range []netip.Addr{b.IP4, b.IP6} {
		if err := ask(dst, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v with a Port: %v, want silence", dst, err)
		}
	}
	if notes := p.Info().Notes; len(notes) != 0 {
		t.Errorf("notes %q", notes)
	}
}

// TestPortInUse: another socket has UDP port 4791, as it is with the rdma_rxe module.
func TestPortInUse(t *testing.T) {
	_, b := netlab.Pair(t, netlab.Config{})
	var other net.PacketConn
	b.Do(t, func() {
		var err error
		if other, err = net.ListenPacket("udp4", fmt.Sprintf(":%d", bth.UDPPort)); err != nil {
			t.Fatal(err)
		}
	})
	defer other.Close()
	b.Do(t, func() {
		if _, err := Open(Config{Interface: b.Interface}); !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), "SharePort") {
			t.Errorf("Open: %v, want EADDRINUSE and what to do", err)
		}
	})
	notes := start(t, b, Config{SharePort: true}).Info().Notes
	if len(notes) != 1 || !strings.Contains(notes[0], "4791") || !strings.Contains(notes[0], "IPv4") {
		t.Errorf("notes %q, want one on UDP port 4791", notes)
	}
}

// TestOwnPacketsStayOut: two Ports on one interface receive neither their own packets nor those of
// the other Port.
func TestOwnPacketsStayOut(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	one, two, peer := start(t, a, Config{}), start(t, a, Config{SharePort: true}), start(t, b, Config{})
	linktest.Send(t, one, path(t, a, b, false, 0), 1, nil)
	one.Flush()
	linktest.Collect(t, peer, 1)
	for _, p := range []*Port{one, two} {
		p.Wait(10 * time.Millisecond)
		if n, err := p.Recv(make([]link.Frame, 4)); n != 0 || err != nil {
			t.Errorf("Recv = %d, %v, want nothing", n, err)
		}
	}
}

// TestOtherTrafficStaysOut: the filter in the kernel accepts only RoCE packets, and no packets for
// another host.
func TestOtherTrafficStaysOut(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	to := start(t, b, Config{})
	if err := b.Netlink().SetPromiscOn(b.Link()); err != nil {
		t.Fatal(err)
	}
	from := start(t, a, Config{})
	stranger := *b
	stranger.MAC[5]++
	linktest.Send(t, from, path(t, a, &stranger, false, 0), 1, nil)
	from.Flush()
	a.Do(t, func() {
		c, err := net.Dial("udp", netip.AddrPortFrom(b.IP4, 9).String())
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte("not RoCE"))
		c.Close()
	})
	linktest.Send(t, from, path(t, a, b, false, 0), 2, nil)
	from.Flush()
	if psns, _ := linktest.Collect(t, to, 1); psns[0] != 2 {
		t.Errorf("PSN %v arrived, want 2", psns[0])
	}
}

// TestLinkDown: while the link is down, Flush and Recv return ErrDown. When it is up again, the
// Port works.
func TestLinkDown(t *testing.T) {
	for _, config := range []Config{{}, {Qdisc: true}} {
		a, b := netlab.Pair(t, netlab.Config{})
		pa, pb := start(t, a, config), start(t, b, config)
		p := path(t, a, b, false, 0)
		fr := make([]link.Frame, 4)
		var told []bool
		pa.OnLink(func(up bool) { told = append(told, up) })

		a.SetUp(t, false)
		linktest.Send(t, pa, p, 1, nil)
		if err := pa.Flush(); !errors.Is(err, link.ErrDown) {
			t.Errorf("Flush: %v, want ErrDown", err)
		}
		if err := pa.Wait(-1); err != nil {
			t.Errorf("Wait: %v", err)
		}
		if n, err := pa.Recv(fr); n != 0 || !errors.Is(err, link.ErrDown) {
			t.Errorf("Recv = %d, %v, want ErrDown", n, err)
		}
		if n, err := pa.Recv(fr); n != 0 || err != nil {
			t.Errorf("second Recv = %d, %v, want nothing", n, err)
		}
		if s := pa.Stats(); s.LinkUp || s.LinkDowns != 1 || s.TxDrops != 1 {
			t.Errorf("Stats() = %+v", s)
		}
		// The other end has lost its carrier.
		linktest.Send(t, pb, path(t, b, a, false, 0), 1, nil)
		if err := pb.Flush(); err != nil && !errors.Is(err, link.ErrDown) {
			t.Errorf("Flush without carrier: %v", err)
		}

		a.SetUp(t, true)
		deadline := time.Now().Add(linktest.Patience)
		for psn := bth.PSN(2); ; psn++ { // until the carrier is back
			linktest.Send(t, pa, p, psn, nil)
			pa.Flush()
			pb.Wait(10 * time.Millisecond)
			if n, _ := pb.Recv(fr); n > 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("nothing arrives after the link came up")
			}
		}
		if s := pa.Stats(); !s.LinkUp {
			t.Errorf("Stats() = %+v after the link came up", s)
		}
		if !slices.Equal(told, []bool{false, true}) {
			t.Errorf("changes of the link %v, want down and up", told)
		}
	}
}

// TestInterfaceRemoved: after the interface was removed, Recv and Flush return ErrNoDevice.
func TestInterfaceRemoved(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	p := start(t, a, Config{})
	if err := a.Netlink().LinkDel(a.Link()); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(-1); err != nil {
		t.Errorf("Wait: %v", err)
	}
	if _, err := p.Recv(make([]link.Frame, 1)); !errors.Is(err, link.ErrNoDevice) {
		t.Errorf("Recv: %v, want ErrNoDevice", err)
	}
	linktest.Send(t, p, path(t, a, b, false, 0), 1, nil)
	if err := p.Flush(); !errors.Is(err, link.ErrNoDevice) {
		t.Errorf("Flush: %v, want ErrNoDevice", err)
	}
}

func TestOpenErrors(t *testing.T) {
	a, _ := netlab.Pair(t, netlab.Config{})
	a.Do(t, func() {
		for name, want := range map[string]error{
			"no-such-if": link.ErrNoDevice, "": link.ErrNoDevice,
			"a-name-that-is-too-long-for-linux": link.ErrNoDevice,
			"lo":                                link.ErrUnsupported,
		} {
			p, err := Open(Config{Interface: name})
			if !errors.Is(err, want) {
				t.Errorf("Open(%q): %v, want %v", name, err, want)
			}
			if err == nil {
				p.Close()
			}
		}
	})
	if err := failure("open", "eth0", unix.EPERM); !errors.Is(err, link.ErrPermission) || !strings.Contains(err.Error(), "CAP_NET_RAW") {
		t.Errorf("EPERM becomes %v", err)
	}
}

// TestDescriptors: Close closes all file descriptors that Open has opened, and so does a failed
// Open.
func TestDescriptors(t *testing.T) {
	a, _ := netlab.Pair(t, netlab.Config{})
	count := func() int {
		d, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(d)
	}
	before := count()
	for range 10 {
		start(t, a, Config{}).Close()
		a.Do(t, func() { Open(Config{Interface: "lo"}) })
	}
	if after := count(); after > before {
		t.Errorf("%d file descriptors before, %d after", before, after)
	}
}

// TestQueues: each queue receives the packets for its queue pairs, once, and no packet that
// the host itself sends.
func TestQueues(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	const n = 3
	var queues []link.Port
	b.Do(t, func() {
		var err error
		if queues, err = OpenQueues(Config{Interface: b.Interface}, n); err != nil {
			t.Fatal(err)
		}
	})
	for _, q := range queues {
		defer q.Close()
	}
	from := start(t, a, Config{})
	send := func(p link.Port, path *frame.Path, qpn bth.QPN) {
		body, _, ok := p.Begin(path, 100)
		if !ok {
			t.Fatal("no room")
		}
		bth.PutBTH(body, bth.RCSendOnly, 0, 0, bth.DefaultPKey, qpn, 0)
		p.Commit()
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range queues {
		send(q, path(t, b, a, false, 0), 0x11)
	}
	const each = 4
	for _, v6 := range []bool{false, true} {
		for qpn := bth.QPN(0x12); qpn < 0x12+each*n; qpn++ {
			send(from, path(t, a, b, v6, 0), qpn)
		}
	}
	for i, q := range queues {
		fr := make([]link.Frame, link.Batch)
		for got, tries := 0, 0; got < 2*each; tries++ {
			if tries > 20 {
				t.Fatalf("queue %d got %d packets, want %d", i, got, 2*each)
			}
			k, err := q.Recv(fr)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range fr[:k] {
				var p frame.Packet
				if err := f.Parse(&p, frame.LayoutEthernet); err != nil || int(p.DestQPN())%n != i {
					t.Errorf("queue %d got a packet for %v, %v", i, p.DestQPN(), err)
				}
			}
			if got += k; got < 2*each {
				q.Wait(time.Second)
			}
		}
		if k, _ := q.Recv(fr); k != 0 {
			t.Errorf("queue %d got %d packets more", i, k)
		}
	}
	if _, err := OpenQueues(Config{Interface: b.Interface}, 0); err == nil {
		t.Error("no queues were opened")
	}
}

// TestReceiveQueueOverrun: packets for which the socket buffer has no room are counted.
func TestReceiveQueueOverrun(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	from, to := start(t, a, Config{NoGSO: true}), start(t, b, Config{RxBuffer: 16 << 10})
	p := path(t, a, b, false, 0)
	for i := range 2 * link.Batch {
		linktest.Send(t, from, p, bth.PSN(i), make([]byte, 1024))
	}
	from.Flush()
	to.Wait(time.Second)
	deadline := time.Now().Add(linktest.Patience)
	for {
		to.Recv(make([]link.Frame, link.Batch))
		s := to.Stats()
		if s.RxDrops > 0 && s.RxPackets > 0 && s.RxPackets+s.RxDrops == 2*link.Batch {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("Stats() = %+v, want %d packets received or dropped", s, 2*link.Batch)
		}
		to.Wait(time.Millisecond)
	}
}

func BenchmarkPort(b *testing.B) {
	for _, config := range []Config{{}, {NoGSO: true}} {
		b.Run(fmt.Sprintf("gso=%v", !config.NoGSO), func(b *testing.B) {
			linktest.BenchmarkPort(b, func(b *testing.B) (link.Port, link.Port) {
				x, y := netlab.Pair(b, netlab.Config{MTU: 4200})
				return start(b, x, config), start(b, y, config)
			})
		})
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	linktest.BenchmarkRoundTrip(b, func(b *testing.B) (link.Port, link.Port) {
		x, y := netlab.Pair(b, netlab.Config{})
		return start(b, x, Config{}), start(b, y, Config{})
	})
}

// TestQueuedBeforeDown: see linktest. The peer pulls the cable, or the interface is down.
func TestQueuedBeforeDown(t *testing.T) {
	for _, far := range []bool{false, true} {
		a, b := netlab.Pair(t, netlab.Config{})
		linktest.QueuedBeforeDown(t, start(t, a, Config{}), start(t, b, Config{}), func(up bool) {
			if far {
				a.SetUp(t, up)
			} else {
				b.SetUp(t, up)
			}
		})
	}
}
