package udp

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/internal/scarce"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
)

// joins reports whether another socket of the user can take the port of an address, too.
func joins(t *testing.T, s *netlab.Side, addr netip.Addr) (joined bool) {
	t.Helper()
	s.Do(t, func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			t.Fatal(err)
		}
		joined = unix.Bind(fd, &unix.SockaddrInet4{Port: bth.UDPPort, Addr: addr.As4()}) == nil
	})
	return joined
}

// dial opens n sockets of one side that send to an address, each from a port of its own.
func dial(t *testing.T, from *netlab.Side, to netip.Addr, n int) (flows []*net.UDPConn) {
	t.Helper()
	from.Do(t, func() {
		for range n {
			f, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, bth.UDPPort)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			flows = append(flows, f)
		}
	})
	return flows
}

// TestAlone: no socket of another process of the user can join a Port that is the only queue and has not divided off its
// management datagrams, nor one that could not.
func TestAlone(t *testing.T) {
	_, b := netlab.Pair(t, netlab.Config{})
	p := start(t, b, Config{Addr: b.IP4})
	if joins(t, b, b.IP4) {
		t.Error("another socket joins the Port")
	}
	scarce.Without(t, scarce.Call{Number: unix.SYS_BIND, Arg1: -1, Arg2: -1, Errno: unix.ENOMEM}, func(f func()) { f() }, p.SplitMADs)
	if p.MADMode() == "" {
		t.Fatal("SplitMADs has not failed")
	}
	if joins(t, b, b.IP4) {
		t.Error("another socket joins the Port that could not divide off its management datagrams")
	}
}

// TestDataStays: while the Port divides off its management datagrams, the kernel delivers no data to their socket, which has
// less room and is read later.
func TestDataStays(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	flows := dial(t, a, b.IP4, 16)
	m := make([]byte, 64)
	bth.PutBTH(m, bth.RCSendOnly, 0, 0, bth.DefaultPKey, linktest.QPN, 1)
	stop, stopped := make(chan bool), make(chan bool)
	defer func() { close(stop); <-stopped }()
	go func() {
		defer close(stopped)
		for {
			for _, f := range flows {
				f.Write(m)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for range 60 {
		p := start(t, b, Config{Addr: b.IP4, NoGRO: true})
		fr := make([]link.Frame, link.Batch)
		read := func() {
			for n := 0; n < 200 && p.Wait(-1) == nil; {
				k, err := p.recv(fr)
				if err != nil {
					t.Fatal(err)
				}
				n += k
			}
		}
		read()
		p.SplitMADs()
		read()
		if p.mads == nil {
			t.Fatalf("mode %q", p.MADMode())
		}
		if n, err := p.mads.recv(fr); n > 0 || err != nil {
			t.Fatalf("the socket of the management datagrams got %d packets of the data or more, %v", n, err)
		}
		p.Close()
	}
}

// TestDivideDown: a device may send its first management datagram while the host does not have the address: an interface that
// is down has no IPv6 address.
func TestDivideDown(t *testing.T) {
	for v, addr := range map[string]func(*netlab.Side) netip.Addr{
		"IPv4": func(s *netlab.Side) netip.Addr { return s.IP4 }, "IPv6": func(s *netlab.Side) netip.Addr { return s.IP6 },
	} {
		t.Run(v, func(t *testing.T) {
			_, b := netlab.Pair(t, netlab.Config{})
			p := start(t, b, Config{Addr: addr(b)})
			b.SetUp(t, false)
			p.SplitMADs()
			b.SetUp(t, true)
			if mode := p.MADMode(); mode != "" {
				t.Errorf("mode %q", mode)
			}
		})
	}
}

// TestOpenWithoutSteering: if the kernel refuses the program that chooses the socket, it distributes the packets among the
// queues only, and notes say so.
func TestOpenWithoutSteering(t *testing.T) {
	_, b := netlab.Pair(t, netlab.Config{})
	steering := scarce.Setsockopts([]int{unix.SOL_SOCKET}, []int{unix.SO_ATTACH_REUSEPORT_CBPF})[0]
	for n, want := range map[int][]string{1: {"management datagrams share"}, 2: {"management datagrams share", "by address"}} {
		scarce.Without(t, steering, func(f func()) { b.Do(t, f) }, func() {
			ports, err := OpenQueues(Config{Addr: b.IP4}, n)
			if err != nil {
				t.Error(err)
				return
			}
			defer all(ports).Close()
			first := ports[0].(*Port)
			if notes := first.Info().Notes; !slices.EqualFunc(notes, want, strings.Contains) {
				t.Errorf("%d queues: notes %q, want %q", n, notes, want)
			}
			if first.SplitMADs(); first.MADs != nil {
				t.Errorf("%d queues: the socket of the management datagrams is open, and gets a part of the data", n)
			}
		})
	}
}
