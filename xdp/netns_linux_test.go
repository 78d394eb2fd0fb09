package xdp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	bpflink "github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/ethtool"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
)

// addrs returns the addresses of a side, and those that linktest uses.
func addrs(s *netlab.Side) []netip.Addr {
	last := s.MAC[5]
	return []netip.Addr{s.IP4, s.IP6, s.LinkLocal, netip.AddrFrom4([4]byte{10, 0, 0, last}), netip.AddrFrom16([16]byte{0: 0xFD, 15: last})}
}

// start opens a Port on one side of a lab.
func start(t testing.TB, s *netlab.Side, c Config) (p *Port) {
	t.Helper()
	return startAll(t, s, c, 1)[0]
}

func startAll(t testing.TB, s *netlab.Side, c Config, n int) (ports []*Port) {
	t.Helper()
	c.Interface, c.Addrs = s.Interface, addrs(s)
	c = trusted(c)
	s.Do(t, func() {
		all, err := OpenQueues(c, n)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range all {
			ports = append(ports, q.(*Port))
			t.Cleanup(func() { q.Close() })
		}
	})
	awaitCard(t, s, ports[0])
	return ports
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

func TestContract(t *testing.T) {
	for _, test := range []struct {
		name   string
		lab    netlab.Config
		config Config
	}{
		{"native", netlab.Config{}, Config{}},
		{"generic", netlab.Config{}, Config{Generic: true}},
		{"pieces", netlab.Config{MTU: 4200}, Config{}},
		{"small rings", netlab.Config{}, Config{RingSize: 256}},
		{"two queues, one port", netlab.Config{Queues: 2}, Config{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := netlab.Pair(t, test.lab)
			linktest.TestPort(t, func(t *testing.T) (link.Port, link.Port) {
				return start(t, a, test.config), start(t, b, test.config)
			})
		})
	}
}

func TestInfo(t *testing.T) {
	for _, test := range []struct {
		mtu    int
		config Config
		mode   string
		want   int // MTU
		notes  int
	}{
		{1500, Config{}, "native, copy", 1500, 0},
		{1500, Config{ZeroCopy: ZeroCopyOn}, "native, copy", 1500, 1}, // veth has none, and a note says so
		{1500, Config{Generic: true}, "generic, copy", 1500, 0},
		{1500, Config{ZeroCopy: ZeroCopyOff, BusyPoll: time.Microsecond}, "native, copy, busy poll", 1500, 0},
		{4200, Config{}, "native, scatter-gather, copy", 4200, 0},
		{4200, Config{Generic: true}, "generic, copy", 3822, 1},
	} {
		a, _ := netlab.Pair(t, netlab.Config{MTU: test.mtu})
		i := start(t, a, test.config).Info()
		if i.Driver != "xdp" || i.Interface != a.Interface || i.MAC != a.MAC || i.Layout != frame.LayoutEthernet ||
			i.Index != a.Link().Attrs().Index || i.Speed != 10000 {
			t.Errorf("Info() = %+v", i)
		}
		if i.Mode != test.mode || i.MTU != test.want || len(i.Notes) != test.notes {
			t.Errorf("mode %q, MTU %d, notes %q; want %q, %d and %d notes", i.Mode, i.MTU, i.Notes, test.mode, test.want, test.notes)
		}
	}
}

// TestPieces: frames around the sizes that need one more descriptor, in both directions. A Port on a card without frames in
// pieces (igb) carries only the smallest of them.
func TestPieces(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{MTU: 9000})
	from, to := start(t, a, Config{}), start(t, b, Config{})
	way := path(t, a, b, true, 0)
	h := way.HeaderLen(frame.LayoutEthernet) + linktest.Overhead
	var sizes []int
	for _, edge := range []int{3840, 4096, 7680, 8192, 8900} {
		for d := -8; d <= 8; d += 4 {
			if n := (edge-h)&^3 + d; n+way.HeaderLen(frame.LayoutIP)+linktest.Overhead <= from.Info().MTU {
				sizes = append(sizes, n)
			}
		}
	}
	payload := make([]byte, 9000)
	for i := range payload {
		payload[i] = byte(i * 7)
	}
	for i, n := range sizes {
		linktest.Send(t, from, way, bth.PSN(i), payload[i:i+n])
	}
	if err := from.Flush(); err != nil {
		t.Fatal(err)
	}
	_, got := linktest.Collect(t, to, len(sizes))
	if len(sizes) == 0 {
		t.Errorf("the MTU of %d is too small", from.Info().MTU)
	}
	for i, n := range sizes {
		if !bytes.Equal(got[i], payload[i:i+n]) {
			t.Errorf("payload of %d bytes arrived as %d others", n, len(got[i]))
		}
	}
	if s := to.Stats(); s.RxDrops+s.RxErrors != 0 {
		t.Errorf("Stats() = %+v", s)
	}
}

// TestVLAN: a Port receives frames of its VLAN. A Port without a VLAN receives untagged frames and
// frames with a tag that has only a priority.
func TestVLAN(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	for _, generic := range []bool{false, true} {
		linktest.VLANs(t, func(t *testing.T, vlan uint16) (from, to link.Port) {
			return start(t, a, Config{}), start(t, b, Config{VLAN: vlan, Generic: generic})
		}, func(t *testing.T, v6 bool, vlan uint16) *frame.Path { return path(t, a, b, v6, vlan) })
	}
}

// TestKernelSender: the Port receives packets of a kernel socket, with incomplete UDP checksums,
// and the segments of a large send.
func TestKernelSender(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	for _, v6 := range []bool{false, true} {
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
		raw.Control(func(fd uintptr) {
			if err := unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, 200); err != nil {
				t.Fatal(err)
			}
		})
		body := make([]byte, 5*200)
		for i := 0; i < len(body); i += 200 {
			bth.PutBTH(body[i:], bth.RCSendOnly, 0, 0, bth.DefaultPKey, 5, 5)
		}
		if _, err := conn.Write(body); err != nil {
			t.Fatal(err)
		}
		fr := make([]link.Frame, 8)
		got := 0
		for tries := 0; got < 5 && tries < 20; tries++ {
			to.Wait(time.Second)
			n, err := to.Recv(fr)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range fr[:n] {
				var q frame.Packet
				if err := q.Parse(f.Data, frame.LayoutEthernet); err != nil || len(q.Data) != 200 {
					t.Errorf("v6=%v: % x: %v, %d bytes", v6, f.Data[:60], err, len(q.Data))
				}
			}
			got += n
		}
		if got != 5 {
			t.Errorf("v6=%v: %d packets arrived, want 5", v6, got)
		}
		to.Close()
	}
}

// TestOtherTraffic: packets that are not RoCE, or not for the device, go to the kernel as without
// the program.
func TestOtherTraffic(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	from, to := start(t, a, Config{}), start(t, b, Config{})
	var conn net.PacketConn
	b.Do(t, func() {
		var err error
		if conn, err = net.ListenPacket("udp4", "10.88.0.2:9"); err != nil {
			t.Fatal(err)
		}
	})
	defer conn.Close()
	stranger := *b
	stranger.MAC[5]++
	linktest.Send(t, from, path(t, a, &stranger, false, 0), 1, nil)
	from.Flush()
	a.Do(t, func() { // the kernel resolves the address first
		c, err := net.Dial("udp", "10.88.0.2:9")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("not RoCE")); err != nil {
			t.Fatal(err)
		}
	})
	conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	buf := make([]byte, 100)
	if n, _, err := conn.ReadFrom(buf); err != nil || string(buf[:n]) != "not RoCE" {
		t.Errorf("the kernel's socket got %q, %v", buf[:n], err)
	}
	linktest.Send(t, from, path(t, a, b, false, 0), 2, nil)
	from.Flush()
	if psns, _ := linktest.Collect(t, to, 1); psns[0] != 2 {
		t.Errorf("PSN %v arrived, want 2", psns[0])
	}
}

// TestQueues: several Ports on one interface, each with its own queues, among them a Port with
// several queues.
func TestQueues(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{Queues: 3})
	from, to := startAll(t, a, Config{}, 3), startAll(t, b, Config{}, 2)
	way := path(t, a, b, false, 0)
	for turn := range 20 {
		for i, p := range from {
			for n := range 30 {
				linktest.Send(t, p, way, bth.PSN(turn*1000+i*100+n), make([]byte, 4*n))
			}
			if err := p.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		// Queue 0 and 2 come together, each in order.
		psns, _ := linktest.Collect(t, to[0], 60)
		other, _ := linktest.Collect(t, to[1], 30)
		last := map[bth.PSN]bth.PSN{0: 0, 1: 0, 2: 0}
		for _, psn := range append(psns, other...) {
			q := psn % 1000 / 100
			if psn%100 != last[q] {
				t.Fatalf("turn %d: PSN %d from queue %d, want %d", turn, psn, q, last[q])
			}
			last[q]++
		}
	}
	if m := to[1].Info().Mode; m != "native, copy, queue 1 of 2" {
		t.Errorf("mode %q", m)
	}
	// One is closed: the others go on.
	to[1].Close()
	linktest.Send(t, from[0], way, 7, nil)
	from[0].Flush()
	linktest.Collect(t, to[0], 1)
	a.Do(t, func() {
		if _, err := OpenQueues(Config{Interface: b.Interface}, 1); !errors.Is(err, link.ErrNoDevice) {
			t.Errorf("other side's interface: %v", err)
		}
	})
	b.Do(t, func() {
		for _, n := range []int{0, 4} {
			if _, err := OpenQueues(Config{Interface: b.Interface}, n); !errors.Is(err, unix.EINVAL) {
				t.Errorf("%d ports on three queues: %v", n, err)
			}
		}
	})
}

// TestQueuesOfProgram: a Port also serves the receive queues that the driver adds when the program
// is attached, as virtio_net does.
func TestQueuesOfProgram(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{Queues: 3})
	from := startAll(t, a, Config{}, 3)
	var p *Port
	b.Do(t, func() {
		k := &card{cfg: Config{Interface: b.Interface, Addrs: addrs(b), RingSize: 256}, past: new(attempts), ctl: -1, users: 1}
		k.channels = func(fd int, name string) ethtool.Channels {
			c := ethtool.Queues(fd, name)
			if k.hook == nil { // the program is not there yet
				c.RX, c.TX = 1, 1
			}
			return c
		}
		ports, err := k.open(1)
		if err != nil {
			t.Fatal(err)
		}
		p = ports[0]
		t.Cleanup(func() { p.Close() })
	})
	way := path(t, a, b, false, 0)
	for i, f := range from {
		linktest.Send(t, f, way, bth.PSN(i), nil)
		if err := f.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	linktest.Collect(t, p, len(from))
	if i := p.Info(); i.Mode != "native, copy" || len(p.card.info.Notes) != 1 {
		t.Errorf("mode %q, notes %q", i.Mode, p.card.info.Notes)
	}
}

// TestReopen: Close frees the queue and the interface for the next Open, and closes all file
// descriptors. So does an Open that fails.
func TestReopen(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{Queues: 2})
	peer := start(t, b, Config{})
	count := func() int {
		d, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(d)
	}
	start(t, a, Config{}).Close() // the first Open makes libraries open descriptors that they keep
	before := count()
	for i := range 10 {
		p := startAll(t, a, Config{}, 1+i%2)
		linktest.Send(t, p[0], path(t, a, b, false, 0), bth.PSN(i), nil)
		p[0].Flush()
		linktest.Collect(t, peer, 1)
		linktest.Send(t, peer, path(t, b, a, false, 0), bth.PSN(i), nil)
		peer.Flush()
		arrives(t, p)
		for _, q := range p {
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
		}
		a.Do(t, func() {
			Open(Config{Interface: "lo"})
			if _, err := OpenQueues(Config{Interface: a.Interface}, 1000); err == nil {
				t.Error("1000 ports are open on one interface")
			}
		})
	}
	if after := count(); after > before {
		t.Errorf("%d file descriptors before, %d after", before, after)
	}
	if id := programOf(t, a); id != 0 {
		t.Errorf("program %d is still there", id)
	}
}

// arrives waits until a packet arrives at any of the Ports of an interface: the card chooses the queue, igb by a hash
// whose key is new in each boot.
func arrives(t *testing.T, ports []*Port) {
	t.Helper()
	fr := make([]link.Frame, 1)
	for deadline := time.Now().Add(linktest.Patience); time.Now().Before(deadline); {
		for _, p := range ports {
			n, err := p.Recv(fr)
			if err != nil {
				t.Fatal(err)
			}
			if n > 0 {
				return
			}
		}
		if err := ports[0].Wait(time.Millisecond); err != nil { // it does not notice packets for other Ports
			t.Fatal(err)
		}
	}
	t.Fatal("nothing arrived")
}

// programOf returns the XDP program on an interface, 0 if there is none.
func programOf(t *testing.T, s *netlab.Side) uint32 {
	t.Helper()
	l, err := s.Netlink().LinkByName(s.Interface)
	if err != nil {
		t.Fatal(err)
	}
	if x := l.Attrs().Xdp; x != nil {
		return x.ProgId
	}
	return 0
}

// TestForeignProgram: Open without Force does not remove the program of another program, and the
// error names it.
func TestForeignProgram(t *testing.T) {
	for _, how := range []string{"netlink", "netlink, generic", "bpf_link"} {
		t.Run(how, func(t *testing.T) {
			a, _ := netlab.Pair(t, netlab.Config{})
			a.Do(t, func() {
				prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "not_ours", Type: ebpf.XDP, License: "GPL",
					Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
				if err != nil {
					t.Fatal(err)
				}
				defer prog.Close()
				switch how {
				case "bpf_link":
					l, err := bpflink.AttachXDP(bpflink.XDPOptions{Program: prog, Interface: a.Link().Attrs().Index, Flags: bpflink.XDPDriverMode})
					if err != nil {
						t.Fatal(err)
					}
					defer l.Close()
				default:
					mode := map[bool]int{true: unix.XDP_FLAGS_SKB_MODE, false: unix.XDP_FLAGS_DRV_MODE}[how == "netlink, generic"]
					if err := netlink.LinkSetXdpFdWithFlags(a.Link(), prog.FD(), mode); err != nil {
						t.Fatal(err)
					}
				}
				theirs := programOf(t, a)
				_, err = Open(Config{Interface: a.Interface})
				var e *errs.Error
				if !errors.Is(err, ErrProgram) || !errors.Is(err, unix.EBUSY) || !errors.As(err, &e) || !strings.Contains(err.Error(), "not_ours") {
					t.Errorf("%s: Open: %v, want ErrProgram about not_ours", how, err)
				}
				if got := programOf(t, a); got != theirs {
					t.Errorf("%s: program %d is on the interface, was %d", how, got, theirs)
				}
			})
			var p link.Port
			a.Do(t, func() {
				var err error
				if p, err = Open(Config{Interface: a.Interface, Force: true}); err != nil {
					t.Fatalf("%s: %v", how, err)
				}
			})
			if notes := p.Info().Notes; how != "bpf_link" && !slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, "removed the XDP program") }) {
				t.Errorf("%s: notes %q", how, notes)
			}
			p.Close()
		})
	}
}

// TestForced: Open with Force removes another program, and notes it.
func TestForced(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	first := start(t, a, Config{})
	a.Do(t, func() {
		if _, err := Open(Config{Interface: a.Interface}); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("second Open: %v, want EADDRINUSE", err)
		}
		if _, err := Open(Config{Interface: a.Interface, SharePort: true}); !errors.Is(err, ErrProgram) {
			t.Errorf("second Open that shares the port: %v, want ErrProgram", err)
		}
	})
	if notes := first.Info().Notes; len(notes) != 0 {
		t.Errorf("notes %q", notes)
	}
	first.Close()
	p := start(t, a, Config{Force: true})
	if len(p.Info().Notes) != 0 {
		t.Errorf("nothing had to be removed: %q", p.Info().Notes)
	}
	_ = b
}

// TestKill: a process that is killed leaves neither program nor socket behind.
func TestKill(t *testing.T) {
	if name := os.Getenv("ROCE_XDP_CHILD"); name != "" {
		if _, err := Open(trusted(Config{Interface: name, AnyAddr: true})); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("open")
		select {}
	}
	a, b := netlab.Pair(t, netlab.Config{})
	cmd := exec.Command(os.Args[0], "-test.run=^TestKill$")
	cmd.Env = append(os.Environ(), "ROCE_XDP_CHILD="+a.Interface)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	a.Do(t, func() { // the child is in the namespace, too
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	})
	defer cmd.Wait()
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "open\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	if programOf(t, a) == 0 {
		t.Error("the child has no program on the interface")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	p, peer := start(t, a, Config{}), start(t, b, Config{})
	linktest.Send(t, peer, path(t, b, a, false, 0), 3, nil)
	peer.Flush()
	linktest.Collect(t, p, 1)
}

// TestSendBeforeCarrier: a packet that is sent as soon as the link is reported as up arrives, although its owner calls only
// Flush and Wait. igb reports the link some milliseconds before it sends: until then the packet is in the TX ring.
func TestSendBeforeCarrier(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	peer := start(t, b, Config{})
	var p *Port
	a.Do(t, func() {
		q, err := Open(trusted(Config{Interface: a.Interface, Addrs: addrs(a)}))
		if err != nil {
			t.Fatal(err)
		}
		p = q.(*Port)
	})
	t.Cleanup(func() { p.Close() })
	deadline := time.Now().Add(linktest.Patience)
	for !p.Stats().LinkUp && time.Now().Before(deadline) {
		if err := p.Wait(time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	linktest.Send(t, p, path(t, a, b, false, 0), 7, nil)
	fr := make([]link.Frame, 1)
	for time.Now().Before(deadline) {
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		n, err := peer.Recv(fr)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			if psn, _ := linktest.Check(t, frame.LayoutEthernet, fr[0]); psn != 7 {
				t.Errorf("PSN %v arrives, want 7", psn)
			}
			return
		}
		// The packet is gone, or Wait returns when there is room.
		if err := p.Wait(10 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	t.Errorf("nothing arrived; sender %+v", p.Stats())
}

// TestLinkDown: while the link is down, Flush returns ErrDown and drops packets. When it is up
// again, the Port works, and the dropped packets are not sent.
func TestLinkDown(t *testing.T) {
	for _, mtu := range []int{1500, 4200} {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) {
			a, b := netlab.Pair(t, netlab.Config{MTU: mtu})
			pa, pb := start(t, a, Config{}), start(t, b, Config{})
			way := path(t, a, b, false, 0)
			fr := make([]link.Frame, 4)
			var told []bool
			pa.OnLink(func(up bool) { told = append(told, up) })

			a.SetUp(t, false)
			const lost = 700 // more than the ring takes
			for i := 0; i < lost; i++ {
				linktest.Send(t, pa, way, bth.PSN(1000+i), make([]byte, pa.Info().MTU-100))
			}
			if err := pa.Flush(); !errors.Is(err, link.ErrDown) {
				t.Errorf("Flush: %v, want ErrDown", err)
			}
			if err := pa.Flush(); err != nil {
				t.Errorf("second Flush: %v", err)
			}
			if s := pa.Stats(); s.LinkUp || s.LinkDowns != 1 || s.TxDrops != lost || s.TxErrors+s.TxPackets != 0 {
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
				linktest.Send(t, pa, way, psn, nil)
				pa.Flush()
				pb.Wait(10 * time.Millisecond)
				if n, _ := pb.Recv(fr); n > 0 {
					if got, _ := linktest.Check(t, frame.LayoutEthernet, fr[0]); got >= 1000 {
						t.Errorf("PSN %v arrives, which was given up", got)
					}
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("nothing arrives after the link came up")
				}
			}
			if s := pa.Stats(); !s.LinkUp || s.TxErrors != 0 {
				t.Errorf("Stats() = %+v after the link came up", s)
			}
			if !slices.Equal(told, []bool{false, true}) {
				t.Errorf("changes of the link %v, want down and up", told)
			}
		})
	}
}

// TestInterfaceRemoved: after the interface was removed, Recv and Flush return ErrNoDevice.
func TestInterfaceRemoved(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	p := start(t, a, Config{})
	if err := a.Netlink().LinkDel(a.Link()); err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s.LinkUp { // the program calls Stats, for instance after a netlink message
		t.Errorf("Stats() = %+v", s)
	}
	if err := p.Wait(time.Second); err != nil {
		t.Errorf("Wait: %v", err)
	}
	if _, err := p.Recv(make([]link.Frame, 1)); !errors.Is(err, link.ErrNoDevice) {
		t.Errorf("Recv: %v, want ErrNoDevice", err)
	}
	linktest.Send(t, p, path(t, a, b, false, 0), 1, nil)
	if err := p.Flush(); !errors.Is(err, link.ErrNoDevice) {
		t.Errorf("Flush: %v, want ErrNoDevice", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
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
		for _, size := range []int{32, 500, 8192} {
			if _, err := Open(Config{Interface: a.Interface, RingSize: size}); err == nil {
				t.Errorf("rings of %d", size)
			}
		}
	})
	if err := failure("open", "eth0", unix.EPERM); !errors.Is(err, link.ErrPermission) || !strings.Contains(err.Error(), "CAP_BPF") {
		t.Errorf("EPERM becomes %v", err)
	}
}

// TestReceiveQueueOverrun: packets for which the rings have no room are counted.
func TestReceiveQueueOverrun(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	from, to := start(t, a, Config{}), start(t, b, Config{RingSize: 64})
	way := path(t, a, b, false, 0)
	const n = 200
	for i := range n {
		linktest.Send(t, from, way, bth.PSN(i), make([]byte, 1024))
	}
	from.Flush()
	deadline := time.Now().Add(5 * time.Second)
	fr := make([]link.Frame, link.Batch)
	for {
		s := to.Stats()
		if s.RxDrops > 0 && s.RxPackets+s.RxDrops == n {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("Stats() = %+v, want %d packets received or dropped", s, n)
		}
		to.Wait(time.Millisecond)
		to.Recv(fr)
	}
	to.Close()
	if s := to.Stats(); s.RxPackets+s.RxDrops != n || s.RxErrors != 0 {
		t.Errorf("Stats() = %+v after Close", s)
	}
}

// TestBusyPoll: with busy polling Recv returns packets without a call of Wait.
func TestBusyPoll(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	from, to := start(t, a, Config{}), start(t, b, Config{BusyPoll: 20 * time.Microsecond})
	linktest.Send(t, from, path(t, a, b, false, 0), 1, nil)
	from.Flush()
	fr := make([]link.Frame, 4)
	for deadline := time.Now().Add(5 * time.Second); ; {
		if n, err := to.Recv(fr); n == 1 || err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing arrived")
		}
	}
}

func BenchmarkPort(b *testing.B) {
	linktest.BenchmarkPort(b, func(b *testing.B) (link.Port, link.Port) {
		x, y := netlab.Pair(b, netlab.Config{MTU: 4200})
		return start(b, x, Config{}), start(b, y, Config{})
	})
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
		t.Run(map[bool]string{false: "near", true: "far"}[far], func(t *testing.T) {
			a, b := netlab.Pair(t, netlab.Config{})
			linktest.QueuedBeforeDown(t, start(t, a, Config{}), start(t, b, Config{}), func(up bool) {
				if far {
					a.SetUp(t, up)
				} else {
					b.SetUp(t, up)
				}
			})
		})
	}
}

// TestMemlock: the limit of locked memory is raised only if load fails with EPERM.
func TestMemlock(t *testing.T) {
	other := errors.New("something else")
	for _, test := range []struct {
		errs   []error // of load
		raise  error
		raised bool
		want   error
	}{
		{[]error{nil}, nil, false, nil},
		{[]error{other}, nil, false, other},
		{[]error{unix.EPERM, nil}, nil, true, nil},
		{[]error{unix.EPERM, other}, nil, true, other},
		{[]error{unix.EPERM}, unix.EPERM, false, unix.EPERM},
	} {
		loads, raises := 0, 0
		raised, err := withMemlock(func() error { raises++; return test.raise }, func() error {
			loads++
			return test.errs[loads-1]
		})
		if raised != test.raised || err != test.want || loads != len(test.errs) || raises > 0 != (test.errs[0] == unix.EPERM) {
			t.Errorf("%+v: raised %v, %v, after %d loads and %d raises", test, raised, err, loads, raises)
		}
	}
}
