package raw

import (
	"bytes"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
)

// Commands of ethtool that switch an offload (<linux/ethtool.h>).
const (
	setTxChecksum = 0x17
	setGRO        = 0x2C
)

// offload switches an offload of an interface on or off.
func offload(t *testing.T, s *netlab.Side, command, on uint32) {
	t.Helper()
	s.Do(t, func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		value := [2]uint32{command, on}
		ifr := struct { // struct ifreq
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}{data: unsafe.Pointer(&value)}
		copy(ifr.name[:], s.Interface)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr)))
		runtime.KeepAlive(&value)
		if errno != 0 {
			t.Skipf("%s does not let its offloads be switched: %v", s.Interface, errno)
		}
	})
}

// TestOffloads: with any combination of offloads for segmentation and joining, every packet arrives
// as the sender made it, with its Identification, which the ICRC covers.
func TestOffloads(t *testing.T) {
	for _, test := range []struct {
		name   string
		set    func(t *testing.T, a, b *netlab.Side)
		config Config
	}{
		{"as they are", func(t *testing.T, a, b *netlab.Side) {}, Config{}},
		{"no checksums", func(t *testing.T, a, b *netlab.Side) { offload(t, a, setTxChecksum, 0) }, Config{}},
		{"no checksums, qdisc", func(t *testing.T, a, b *netlab.Side) { offload(t, a, setTxChecksum, 0) }, Config{Qdisc: true}},
		{"no checksums, GRO", func(t *testing.T, a, b *netlab.Side) {
			offload(t, a, setTxChecksum, 0)
			offload(t, b, setGRO, 1)
		}, Config{}},
		{"GRO", func(t *testing.T, a, b *netlab.Side) { offload(t, b, setGRO, 1) }, Config{}},
		{"few segments", func(t *testing.T, a, b *netlab.Side) {
			if err := a.Netlink().LinkSetGSOMaxSegs(a.Link(), 5); err != nil {
				t.Skipf("cannot limit segmentation offload: %v", err)
			}
		}, Config{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := netlab.Pair(t, netlab.Config{})
			from, to := start(t, a, test.config), start(t, b, Config{})
			test.set(t, a, b)
			deadline := time.Now().Add(linktest.Patience)
			for probe := bth.PSN(0); ; probe++ { // GRO on or off stops a veth for a moment
				linktest.Send(t, from, path(t, a, b, false, 0), probe, nil)
				from.Flush()
				to.Wait(10 * time.Millisecond)
				if n, _ := to.Recv(make([]link.Frame, link.Batch)); n > 0 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("nothing arrives")
				}
			}
			for _, v6 := range []bool{false, true} {
				p := path(t, a, b, v6, 0)
				const n = 150
				for i := range n {
					size := 1024
					if i%50 == 49 {
						size = 100
					}
					linktest.Send(t, from, p, bth.PSN(i), make([]byte, size))
				}
				if err := from.Flush(); err != nil {
					t.Fatal(err)
				}
				psns, _ := linktest.Collect(t, to, n) // checks the ICRCs
				for i := range psns {
					if psns[i] != bth.PSN(i) {
						t.Fatalf("v6=%v: packet %d has PSN %v", v6, i, psns[i])
					}
				}
			}
			t.Logf("%s; super-packets arrived: %v", from.Info().Mode, super(to))
			if s := from.Stats(); s.TxDrops+s.TxErrors != 0 || !from.tx.gso {
				t.Errorf("Stats() = %+v, %s", s, from.Info().Mode)
			}
		})
	}
}

// TestGROFixedIDs: a Port receives the packets of a UDP socket that sends every datagram with
// Identification 0, also if the receiver's kernel joins them.
func TestGROFixedIDs(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	offload(t, b, setGRO, 1)
	to := start(t, b, Config{})
	var fd int
	a.Do(t, func() {
		var err error
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
	})
	defer unix.Close(fd)
	unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: 0xC123}); err != nil {
		t.Fatal(err)
	}
	p := path(t, a, b, false, 0)
	const n = 40
	deadline := time.Now().Add(linktest.Patience)
	fr := make([]link.Frame, link.Batch)
	for got := 0; got < n; {
		body := make([]byte, linktest.Overhead+256)
		_, crc := p.Put(body, frame.LayoutUDP, len(body), 0)
		bth.PutBTH(body, bth.RCSendOnly, 0, 0, bth.DefaultPKey, linktest.QPN, 0)
		crc = crc.UpdateBTH(body).Update(body[bth.BTHLen : len(body)-bth.ICRCLen])
		bth.PutICRC(body[len(body)-bth.ICRCLen:], crc)
		for range 10 {
			if err := unix.Sendto(fd, body, 0, &unix.SockaddrInet4{Port: bth.UDPPort, Addr: b.IP4.As4()}); err != nil {
				t.Fatal(err)
			}
		}
		to.Wait(10 * time.Millisecond)
		k, _ := to.Recv(fr)
		for _, f := range fr[:k] {
			linktest.Check(t, frame.LayoutEthernet, f)
		}
		got += k
		if time.Now().After(deadline) {
			t.Fatal("nothing arrives")
		}
	}
	t.Logf("super-packets arrived: %v", super(to))
}

// TestVLANDevice: super-packets can be sent through a VLAN interface.
func TestVLANDevice(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	side := *a
	side.Interface = "v" + a.Interface
	vlan := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: side.Interface, ParentIndex: a.Link().Attrs().Index}, VlanId: 7}
	if err := a.Netlink().LinkAdd(vlan); err != nil {
		netlab.Lacking(t, "VLAN interfaces", err)
	}
	if err := a.Netlink().LinkSetUp(vlan); err != nil {
		t.Fatal(err)
	}
	from, to := start(t, &side, Config{}), start(t, b, Config{VLAN: 7})
	for _, v6 := range []bool{false, true} {
		for i := range 100 {
			linktest.Send(t, from, path(t, a, b, v6, 0), bth.PSN(i), make([]byte, 1024))
		}
		if err := from.Flush(); err != nil {
			t.Fatal(err)
		}
		if psns, _ := linktest.Collect(t, to, 100); psns[99] != 99 {
			t.Errorf("v6=%v: PSNs %v", v6, psns)
		}
	}
}

// TestTap: through a device without segmentation and checksum offload (a tap, as virtual machines
// use it) packets leave one by one, with complete checksums.
func TestTap(t *testing.T) {
	a, _ := netlab.Pair(t, netlab.Config{})
	side := *a
	side.Interface = "t" + a.Interface
	var tap int
	a.Do(t, func() {
		var err error
		if tap, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			t.Skipf("no tap: %v", err)
		}
		ifr, err := unix.NewIfreq(side.Interface)
		if err != nil {
			t.Fatal(err)
		}
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(tap, unix.TUNSETIFF, ifr); err != nil {
			t.Skipf("no tap: %v", err)
		}
	})
	defer unix.Close(tap)
	l, err := a.Netlink().LinkByName(side.Interface)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Netlink().LinkSetUp(l); err != nil {
		t.Fatal(err)
	}
	from := start(t, &side, Config{})
	other := *a
	other.MAC[5], other.IP4, other.IP6 = 9, other.IP4.Next(), other.IP6.Next()
	for _, v6 := range []bool{false, true} {
		p := path(t, a, &other, v6, 0)
		const n = 100
		for i := range n {
			linktest.Send(t, from, p, bth.PSN(i), bytes.Repeat([]byte{byte(i)}, 1024))
		}
		if err := from.Flush(); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1<<16)
		for i := 0; i < n; {
			fds := []unix.PollFd{{Fd: int32(tap), Events: unix.POLLIN}}
			if k, err := unix.Poll(fds, 5000); k != 1 && err != unix.EINTR {
				t.Fatalf("v6=%v: %d of %d packets arrived: %v", v6, i, n, err)
			}
			k, err := unix.Read(tap, buf)
			if err != nil {
				continue
			}
			var q frame.Packet
			if q.Parse(buf[:k], frame.LayoutEthernet) == frame.ErrNotRoCE {
				continue // a packet of the kernel, such as neighbour discovery
			}
			psn, payload := linktest.Check(t, frame.LayoutEthernet, link.Frame{Data: buf[:k]}) // UDP checksum and ICRC
			if psn != bth.PSN(i) || payload[0] != byte(i) {
				t.Fatalf("v6=%v: packet %d has PSN %v", v6, i, psn)
			}
			i++
		}
	}
	if s := from.Stats(); s.TxDrops+s.TxErrors != 0 || from.tx.bypass.Load() || !from.tx.gso {
		t.Errorf("Stats() = %+v, %s", s, from.Info().Mode)
	}
}

func TestRelease(t *testing.T) {
	for s, want := range map[string]int{"6.12.0-rc1": 6<<8 | 12, "6.1.0-18-amd64": 6<<8 | 1, "5.14": 5<<8 | 14, "6.2.0": superRelease, "": 0, "x.y": 0} {
		if got := parseRelease(s); got != want {
			t.Errorf("parseRelease(%q) = %#x, want %#x", s, got, want)
		}
	}
	if release() < 4<<8 {
		t.Errorf("running kernel %#x", release())
	}
}
