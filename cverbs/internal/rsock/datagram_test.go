package rsock

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/rdmacm"
)

// Addresses of devices that the kernel has, too: for the UDP sockets. No device has the third.
const (
	localA  = "127.0.0.2"
	localB  = "127.0.0.3"
	localNo = "127.0.0.9"
)

// dg is a datagram rsocket, and what the C side has for it.
type dg struct {
	*Datagrams
	t       *testing.T
	h       abi.Handle
	in, out int
	udp     int
	addr    abi.CMAddr
}

// datagramHost makes the datagram rsockets of a process on a network with an MTU of Ethernet.
func datagramHost(t *testing.T, hub *mem.Hub, at string) *Datagrams {
	t.Helper()
	addr := netip.MustParseAddr(at)
	p := must[*mem.Port](t)(hub.Port(at, roce.DerivedMAC(addr)))
	dev := must[*roce.Device](t)(roce.Open(roce.Config{Ports: []link.Port{p}, Addrs: []netip.Addr{addr}}))
	t.Cleanup(func() { dev.Close() })
	host := must[*rdmacm.Host](t)(rdmacm.NewHost(dev))
	t.Cleanup(func() { host.Close() })
	return NewDatagrams(func() (*rdmacm.Host, error) { return host, nil })
}

// udpAt returns a UDP socket that is bound to any port of an address.
func udpAt(t *testing.T, at string) int {
	t.Helper()
	fd := must[int](t)(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: netip.MustParseAddr(at).As4()}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// duplicate returns another descriptor of a UDP socket, for Create.
func duplicate(t *testing.T, fd int) int {
	t.Helper()
	return must[int](t)(unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0))
}

// addrOf returns the address of a UDP socket.
func addrOf(t *testing.T, fd int) netip.AddrPort {
	t.Helper()
	return addrPortOf(must[unix.Sockaddr](t)(unix.Getsockname(fd)))
}

// open makes a datagram rsocket at an address.
func (a *Datagrams) open(t *testing.T, at string) *dg {
	t.Helper()
	udp := udpAt(t, at)
	in, out := descriptors(t)
	s := &dg{a, t, must[abi.Handle](t)(a.Create(false, in, out, duplicate(t, udp))), in, out, udp, abi.AddrOf(addrOf(t, udp))}
	s.setTime(time.Time{}.Add(silence)) // it stands still
	t.Cleanup(func() { a.Close(s.h) })
	return s
}

// setTime sets the clock of a socket.
func (s *dg) setTime(at time.Time) {
	s.t.Helper()
	d := s.state()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = func() time.Time { return at }
}

// twoDatagrams makes two datagram rsockets at different hosts.
func twoDatagrams(t *testing.T) (a, b *dg) {
	t.Helper()
	hub := mem.NewHub(mem.Config{MTU: 1500})
	return datagramHost(t, hub, localA).open(t, localA), datagramHost(t, hub, localB).open(t, localB)
}

func (s *dg) state() *datagram { return must[*datagram](s.t)(s.find(s.h)) }

func (s *dg) send(p []byte, to *abi.CMAddr) {
	s.t.Helper()
	n, err := (&rs{t: s.t}).blocking(s.out, func() (int, error) { return s.Send(s.h, p, to) })
	if n != len(p) || err != nil {
		s.t.Fatalf("Send of %d bytes: %d, %v", len(p), n, err)
	}
}

// recv waits for a datagram.
func (s *dg) recv() (data []byte, from abi.CMAddr) {
	s.t.Helper()
	p := make([]byte, maxMessage)
	n, err := (&rs{t: s.t}).blocking(s.in, func() (n int, err error) {
		n, from, err = s.Recv(s.h, p, false)
		return n, err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return p[:n], from
}

// exchange sends datagrams from one socket to the other until their queue pairs know each other, and checks each.
func exchange(t *testing.T, a, b *dg) {
	t.Helper()
	for i, end := byte(0), time.Now().Add(patience); ; i++ {
		a.send([]byte{i}, &b.addr)
		if data, from := b.recv(); !bytes.Equal(data, []byte{i}) || from != a.addr {
			t.Fatalf("%x from %v, want %x from %v", data, from.AddrPort(), i, a.addr.AddrPort())
		}
		b.send([]byte{i, i}, &a.addr)
		if data, from := a.recv(); !bytes.Equal(data, []byte{i, i}) || from != b.addr {
			t.Fatalf("%x from %v, want %x twice from %v", data, from.AddrPort(), i, b.addr.AddrPort())
		}
		if a.knows(b) && b.knows(a) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the queue pairs do not find each other")
		}
	}
}

// knows reports whether a socket sends to another one through its queue pair.
func (s *dg) knows(to *dg) bool {
	d := s.state()
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.peers.known[to.addr.AddrPort()]
	return p != nil && p.ah != nil
}

// overUDP reports how the oldest datagram came, and waits for it.
func (s *dg) overUDP() bool {
	s.t.Helper()
	for {
		if ready := must[int](s.t)(s.Ready(s.h, pollIn)); ready != 0 {
			d := s.state()
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.inbox.At(0).pair == nil
		}
		(&rs{t: s.t}).wait(s.in)
	}
}

// The first datagram travels over UDP, and later ones between the queue pairs, unless they are too long for a packet.
func TestDatagrams(t *testing.T) {
	a, b := twoDatagrams(t)
	want(t, "Recv", second(a.Recv(a.h, nil, false)), syscall.EAGAIN)
	a.send([]byte("first"), &b.addr)
	if !b.overUDP() {
		t.Error("the first datagram did not come over UDP")
	}
	b.recv()
	exchange(t, a, b)
	mtu := a.state().pairs[0].mtu
	for _, tt := range []struct {
		n   int
		udp bool
	}{{0, false}, {1, false}, {mtu - sourceHeader4, false}, {mtu - sourceHeader4 + 1, true}, {maxMessage - udpHeader4, true}} {
		sent := bytes.Repeat([]byte{0xA5}, tt.n)
		a.send(sent, &b.addr)
		if got := b.overUDP(); got != tt.udp {
			t.Errorf("%d bytes came over UDP: %v, want %v", tt.n, got, tt.udp)
		}
		if data, from := b.recv(); !bytes.Equal(data, sent) || from != a.addr {
			t.Errorf("%d bytes from %v came, want %d from %v", len(data), from.AddrPort(), tt.n, a.addr.AddrPort())
		}
	}
	want(t, "Send", second2(a.Send(a.h, make([]byte, maxMessage-udpHeader4+1), &b.addr)), syscall.EMSGSIZE)
}

func second(_ int, _ abi.CMAddr, err error) error { return err }
func second2(_ int, err error) error              { return err }

// Connect makes the peer of Send without an address.
func TestDatagramConnect(t *testing.T) {
	a, b := twoDatagrams(t)
	want(t, "Send", second2(a.Send(a.h, nil, nil)), syscall.EDESTADDRREQ)
	want(t, "Connect", a.Connect(a.h, &b.addr), nil)
	a.send([]byte("x"), nil)
	if _, from := b.recv(); from != a.addr {
		t.Errorf("it came from %v, want %v", from.AddrPort(), a.addr.AddrPort())
	}
	want(t, "Shutdown", a.Shutdown(a.h, shutBoth+1), syscall.EINVAL)
	want(t, "Shutdown", a.Shutdown(a.h, shutWrite), nil)
	want(t, "Send", second2(a.Send(a.h, nil, nil)), syscall.EPIPE)
	want(t, "Recv", second(a.Recv(a.h, nil, false)), syscall.EAGAIN)
	want(t, "Shutdown", a.Shutdown(a.h, shutRead), nil)
	want(t, "Recv", second(a.Recv(a.h, nil, false)), nil)
	if e := must[int](t)(a.Ready(a.h, pollIn|pollOut)); e != pollIn|pollOut|pollHup {
		t.Errorf("Ready: %#x", e)
	}
	want(t, "Close", a.Close(a.h), nil)
	want(t, "Close", a.Close(a.h), syscall.EBADF)
	want(t, "Recv", second(a.Recv(a.h, nil, false)), syscall.EBADF)
}

// A socket whose address is not of a device has no queue pair.
func TestDatagramWithoutDevice(t *testing.T) {
	hub := mem.NewHub(mem.Config{})
	a := datagramHost(t, hub, localA).open(t, localNo)
	want(t, "Connect", a.Connect(a.h, &a.addr), syscall.ENODEV)
	want(t, "Send", second2(a.Send(a.h, nil, &a.addr)), syscall.ENODEV)
	want(t, "Connect", a.Connect(a.h, &abi.CMAddr{}), syscall.EAFNOSUPPORT)
}

// Peek leaves the datagram, and Recv returns its whole length.
func TestDatagramPeek(t *testing.T) {
	a, b := twoDatagrams(t)
	a.send([]byte("hello"), &b.addr)
	b.overUDP()
	p := make([]byte, 2)
	for _, peek := range []bool{true, false} {
		if n, from, err := b.Recv(b.h, p, peek); n != 5 || err != nil || string(p) != "he" || from != a.addr {
			t.Errorf("peek %v: %d, %v, %v, %q", peek, n, from.AddrPort(), err, p)
		}
	}
	want(t, "Recv", second(b.Recv(b.h, p, false)), syscall.EAGAIN)
}

// Datagrams without room are lost, and the socket works on.
func TestDatagramRoom(t *testing.T) {
	a, b := twoDatagrams(t)
	want(t, "SetOption", b.SetOption(b.h, RecvDepth, minDepth), nil)
	exchange(t, a, b)
	want(t, "SetOption", b.SetOption(b.h, RecvDepth, minDepth), syscall.EINVAL)
	want(t, "SetOption", b.SetOption(b.h, RecvBuffer, 1<<20), nil) // a hint
	const flood = 4 * minDepth
	for i := range byte(flood) {
		a.send([]byte{i}, &b.addr)
	}
	for got := 0; ; got++ {
		a.send([]byte("end"), &b.addr) // each time, because it may be lost as well
		data, _ := b.recv()
		if string(data) == "end" {
			break
		}
		if len(data) != 1 || got == flood {
			t.Fatalf("%x came as datagram %d of %d", data, got, flood)
		}
	}
}

// Threads that wait for a datagram, or send, return when another thread closes the socket.
func TestDatagramCloseInCalls(t *testing.T) {
	a, b := twoDatagrams(t)
	exchange(t, a, b)
	var calls sync.WaitGroup
	sent := make(chan bool, 1)
	calls.Go(func() {
		for err := error(nil); err != syscall.EBADF; _, _, err = a.Recv(a.h, nil, false) {
			if err == syscall.EAGAIN {
				unix.Poll([]unix.PollFd{{Fd: int32(a.in), Events: unix.POLLIN}}, int(patience.Milliseconds()))
			}
		}
	})
	calls.Go(func() {
		for err := error(nil); err != syscall.EBADF; _, err = a.Send(a.h, nil, &b.addr) {
			select {
			case sent <- true:
			default:
			}
		}
	})
	<-sent
	want(t, "Close", a.Close(a.h), nil)
	calls.Wait()
	if !readable(a.in) || !readable(a.out) {
		t.Error("the descriptors of a closed socket are unreadable: a thread may wait for ever")
	}
}

// Options have the values of librdmacm: a size is doubled.
func TestDatagramOptions(t *testing.T) {
	a, _ := twoDatagrams(t)
	for _, o := range []Option{SendBuffer, RecvBuffer} {
		want(t, "SetOption", a.SetOption(a.h, o, 1<<15), nil)
		if v := must[int64](t)(a.Option(a.h, o)); v != 1<<16 {
			t.Errorf("option %d: %d", o, v)
		}
	}
	if sends, recvs := a.state().options.depths(); sends != 32 || recvs != 32 {
		t.Errorf("%d send and %d receive buffers, want 32", sends, recvs)
	}
	want(t, "SetOption", a.SetOption(a.h, KeepAlive, 1), syscall.ENOPROTOOPT)
	want(t, "SetOption", a.SetOption(a.h, RecvBuffer, -1), syscall.EINVAL)
	_, err := a.Option(a.h, Maps)
	want(t, "Option", err, syscall.ENOPROTOOPT)
}

// What strangers send is dropped and counted, and what is kept for them is bounded.
func TestDatagramStrangers(t *testing.T) {
	a, b := twoDatagrams(t)
	want(t, "SetOption", b.SetOption(b.h, RecvDepth, minDepth), nil)
	stranger := udpAt(t, localA)
	send := func(p []byte) {
		t.Helper()
		if err := unix.Sendto(stranger, p, 0, sockaddrOf(b.addr.AddrPort(), false)); err != nil {
			t.Fatal(err)
		}
	}
	dropped := func() int64 { return must[int64](t)(b.Option(b.h, Drops)) }
	for _, p := range [][]byte{nil, []byte("hello"), make([]byte, maxMessage), make([]byte, maxMessage+1)} {
		send(p)
	}
	const flood = 3 * minDepth
	for range flood {
		send(append(appendUDPHeader(nil, opData, 7, netip.MustParseAddr(localA)), "data"...))
	}
	a.send([]byte("end"), &b.addr) // behind them in the UDP socket, and without room
	for end := time.Now().Add(patience); dropped() != 4+flood-minDepth+1; {
		if time.Now().After(end) {
			t.Fatalf("%d datagrams were dropped, want %d", dropped(), 4+flood-minDepth+1)
		}
		b.overUDP()
	}
	for range minDepth {
		if data, from := b.recv(); string(data) != "data" || from.AddrPort() != addrOf(t, stranger) {
			t.Errorf("%q from %v came", data, from.AddrPort())
		}
	}
	exchange(t, a, b)
}

// post sends a message without a valid header between the queue pairs.
func (s *dg) post(message []byte, to *dg) {
	s.t.Helper()
	d := s.state()
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.peers.known[to.addr.AddrPort()]
	q := p.pair
	slot := q.free[len(q.free)-1]
	q.free = q.free[:len(q.free)-1]
	n := copy(q.memory[slot*maxMessage:], message)
	if err := q.qp.PostSend(&roce.SendWR{ID: uint64(slot), Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{q.mr.SGE(slot*maxMessage, n)},
		AH: p.ah, RemoteQPN: p.qpn, RemoteQKey: roce.DefaultUDPQKey}); err != nil {
		s.t.Fatal(err)
	}
}

// The queue pair drops and counts messages that no rsocket has sent, and gets its receive buffers back.
func TestDatagramStrangeMessages(t *testing.T) {
	a, b := twoDatagrams(t)
	want(t, "SetOption", b.SetOption(b.h, RecvDepth, minDepth), nil)
	exchange(t, a, b)
	source6 := appendSource(nil, netip.MustParseAddrPort("[fd00::1]:7"))
	strange := [][]byte{nil, {4}, {4, 8, 0, 7, 10, 0, 0}, {5, 8, 0, 7, 10, 0, 0, 1}, {4, 9, 0, 7, 10, 0, 0, 1}, source6, source6[:23]}
	for i := range 2 * minDepth {
		a.post(strange[i%len(strange)], b)
		for end := time.Now().Add(patience); must[int64](t)(b.Option(b.h, Drops)) != int64(i+1); b.ready() {
			if time.Now().After(end) {
				t.Fatalf("message % x was not counted", strange[i%len(strange)])
			}
		}
	}
	exchange(t, a, b)
}

// ready looks for datagrams.
func (s *dg) ready() bool { return must[int](s.t)(s.Ready(s.h, pollIn)) != 0 }

// TestManyPeers checks that new peers replace the oldest.
func TestManyPeers(t *testing.T) {
	known := newPeers()
	at := func(i int) netip.AddrPort {
		var ip [4]byte
		binary.BigEndian.PutUint32(ip[:], uint32(i))
		return netip.AddrPortFrom(netip.AddrFrom4(ip), 1)
	}
	const n = 2*maxPeers + 10
	for i := range n {
		known.add(&peer{addr: at(i)})
	}
	if len(known.known) != maxPeers || known.known[at(n-1)] == nil || known.known[at(n-maxPeers)] == nil || known.known[at(n-maxPeers-1)] != nil {
		t.Errorf("%d peers are known, want the newest %d", len(known.known), maxPeers)
	}
}

// The headers are those of librdmacm: struct ds_udp_header and struct ds_header.
func TestDatagramHeaders(t *testing.T) {
	ip4, ip6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	for _, tt := range []struct {
		got, want []byte
	}{
		{appendUDPHeader(nil, opControl, 0x123456, ip4), []byte{0x55, 0x55, 0x55, 0x55, 4, 7, 16, 0, 0, 0x12, 0x34, 0x56, 10, 0, 0, 1}},
		{appendUDPHeader(nil, opData, 2, ip6), append([]byte{0x55, 0x55, 0x55, 0x55, 6, 0, 28, 0, 0, 0, 0, 2}, ip6.AsSlice()...)},
		{appendSource(nil, netip.AddrPortFrom(ip4, 0x1C06)), []byte{4, 8, 0x1C, 0x06, 10, 0, 0, 1}},
		{appendSource(nil, netip.AddrPortFrom(ip6, 0x1C06)), append([]byte{6, 24, 0x1C, 0x06, 0, 0, 0, 0}, ip6.AsSlice()...)},
	} {
		if !bytes.Equal(tt.got, tt.want) {
			t.Errorf("% x, want % x", tt.got, tt.want)
		}
	}
}

// FuzzDatagram parses what strangers send. Whatever parses has a header that would be written for it.
func FuzzDatagram(f *testing.F) {
	ip4, ip6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	for _, ip := range []netip.Addr{ip4, ip6} {
		f.Add(append(appendUDPHeader(nil, opData, 17, ip), "data"...))
		f.Add(appendUDPHeader(nil, opControl, 17, ip))
		f.Add(append(appendSource(nil, netip.AddrPortFrom(ip, 7174)), "data"...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, ok := parseUDP(b); ok {
			header := b[:len(b)-len(m.data)]
			local, _ := netip.AddrFromSlice(header[12:])
			again := appendUDPHeader(nil, m.op, m.qpn, local)
			again[7], again[8] = header[7], header[8] // reserved
			if !bytes.Equal(again, header) {
				t.Errorf("% x parses as % x", header, again)
			}
		}
		if source, n, ok := parseSource(b); ok {
			again := appendSource(nil, source)
			copy(again[4:], b[4:len(again)-len(source.Addr().AsSlice())]) // the flow information
			if !bytes.Equal(again, b[:n]) {
				t.Errorf("% x parses as % x", b[:n], again)
			}
		}
	})
}
