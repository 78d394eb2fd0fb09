package rsock

import (
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

// strange delivers data as if a stranger had sent it over UDP.
func (s *dg) strange(data string) {
	s.t.Helper()
	d := s.state()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deliver([]byte(data), netip.MustParseAddrPort(localNo+":9"))
}

// A program that is always behind by a datagram does not make the inbox grow.
func TestDatagramInboxIsBounded(t *testing.T) {
	_, b := twoDatagrams(t)
	const taken = 20000
	b.strange("x")
	for range taken {
		b.strange("x")
		want(t, "Recv", second(b.Recv(b.h, nil, false)), nil)
	}
	if room := b.state().inbox.Cap(); room > defaultDepth {
		t.Errorf("after %d datagrams the inbox of one datagram has room for %d", taken, room)
	}
}

// A stranger who sends so much over UDP that there is always a datagram does not keep those of the queue pair from
// the program.
func TestDatagramFloodOverUDP(t *testing.T) {
	a, b := twoDatagrams(t)
	exchange(t, a, b)
	a.send([]byte("peer"), &b.addr)
	b.strange("flood")
	p := make([]byte, maxMessage)
	for end := time.Now().Add(patience); ; {
		b.strange("flood")
		n, from, err := b.Recv(b.h, p, false)
		if err != nil {
			t.Fatal(err)
		}
		if string(p[:n]) == "peer" && from == a.addr {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the datagram of the queue pair did not come")
		}
	}
}

// A host cannot send with the address of another one: a queue pair's message must come from the address that its
// header names.
func TestDatagramForgedSource(t *testing.T) {
	a, b := twoDatagrams(t)
	exchange(t, a, b)
	for i, forged := range []string{localNo + ":7", "[fd00::1]:7", "[::ffff:127.0.0.9]:7", "0.0.0.0:7", b.addr.AddrPort().String()} {
		a.post(append(appendSource(nil, netip.MustParseAddrPort(forged)), "forged"...), b)
		for end := time.Now().Add(patience); must[int64](t)(b.Option(b.h, Drops)) != int64(i+1); {
			if b.ready() {
				data, from := b.recv()
				t.Fatalf("%q came as from %v", data, from.AddrPort())
			}
			if time.Now().After(end) {
				t.Fatalf("the message of %s was not counted", forged)
			}
		}
	}
	exchange(t, a, b)
}

// As in Linux, a socket that does not read any more keeps what has come, and shutdown wakes a thread that waits even
// if the socket is not connected.
func TestDatagramShutdownKeepsData(t *testing.T) {
	a, b := twoDatagrams(t)
	exchange(t, a, b)
	want(t, "Recv", second(b.Recv(b.h, nil, false)), syscall.EAGAIN)
	want(t, "Shutdown", b.Shutdown(b.h, shutRead), syscall.ENOTCONN)
	if !readable(b.in) {
		t.Error("a thread that waits for a datagram sleeps on")
	}
	a.send([]byte("x"), &b.addr)
	for end := time.Now().Add(patience); ; {
		p := make([]byte, 9)
		n, _, err := b.Recv(b.h, p, false)
		if err != nil || time.Now().After(end) {
			t.Fatalf("no datagram came: %v", err)
		}
		if n == 1 {
			break // before that: 0, as at the end of a file
		}
	}
	want(t, "Shutdown", b.Shutdown(b.h, shutWrite), syscall.ENOTCONN)
	want(t, "Send", second2(b.Send(b.h, nil, &a.addr)), syscall.EPIPE)
}

// again closes a socket and makes another one with its address and port, as a program does that has ended and begins
// again.
func (s *dg) again() *dg {
	s.t.Helper()
	want(s.t, "Close", s.Close(s.h), nil)
	in, out := descriptors(s.t)
	n := &dg{s.Datagrams, s.t, must[abi.Handle](s.t)(s.Create(false, in, out, duplicate(s.t, s.udp))), in, out, s.udp, s.addr}
	s.t.Cleanup(func() { n.Close(n.h) })
	return n
}

// A peer that comes back with another queue pair is served even while strangers keep the socket from finding routes.
func TestDatagramPeerComesBackAmongStrangers(t *testing.T) {
	a, b := twoDatagrams(t)
	exchange(t, a, b)
	d := a.state()
	d.mu.Lock()
	d.resolving += maxResolving
	d.mu.Unlock()
	b = b.again()
	b.send([]byte("back"), &a.addr)
	if data, from := a.recv(); string(data) != "back" || from != b.addr {
		t.Fatalf("%q from %v came", data, from.AddrPort())
	}
	a.send([]byte("answer"), &b.addr)
	if data, from := b.recv(); string(data) != "answer" || from != a.addr {
		t.Fatalf("%q from %v came", data, from.AddrPort())
	}
	d.mu.Lock()
	d.resolving -= maxResolving
	d.mu.Unlock()
	exchange(t, a, b)
}

// knownQPN returns the number of a peer's queue pair, as far as a socket knows.
func (s *dg) knownQPN(to *dg) roce.QPN {
	s.t.Helper()
	d := s.state()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.peers.known[to.addr.AddrPort()].qpn
}

// A peer that comes back with another queue pair is served, although it has sent nothing since then. A peer that sends
// something is not asked over UDP.
func TestDatagramSilentPeerComesBack(t *testing.T) {
	a, b := twoDatagrams(t)
	exchange(t, a, b)
	b.send(make([]byte, maxMessage-udpHeader4), &a.addr) // over UDP, behind all answers of the exchange
	a.recv()
	at := time.Time{}.Add(silence)
	pass := func() {
		at = at.Add(silence)
		a.setTime(at)
	}
	for range 3 {
		b.send([]byte("alive"), &a.addr)
		a.recv()
		pass()
		a.send([]byte("x"), &b.addr)
		if b.overUDP() {
			t.Error("a datagram to a peer that is not silent came over UDP")
		}
		b.recv()
	}
	b = b.again()
	pass()
	a.send([]byte("again"), &b.addr)
	if data, from := b.recv(); string(data) != "again" || from != a.addr {
		t.Fatalf("%q from %v came", data, from.AddrPort())
	}
	for end := time.Now().Add(patience); a.knownQPN(b) != b.state().pairs[0].qp.Num(); runtime.Gosched() { // b has answered
		if time.Now().After(end) {
			t.Fatal("the new queue pair is not found")
		}
	}
	exchange(t, a, b)
}

// Connect to nobody dissolves the association. The UDP socket then has another port, which the next datagrams name.
func TestDatagramDissolves(t *testing.T) {
	a, b := twoDatagrams(t)
	exchange(t, a, b)
	want(t, "Connect", a.Connect(a.h, &b.addr), nil)
	want(t, "Connect", a.Connect(a.h, nil), nil)
	want(t, "Send", second2(a.Send(a.h, nil, nil)), syscall.EDESTADDRREQ)
	d := a.state()
	d.mu.Lock()
	local := d.pairs[0].local
	moved, err := d.pairAt(netip.AddrPortFrom(local.Addr(), local.Port()+1))
	pairs := len(d.pairs)
	d.mu.Unlock()
	if err != nil || pairs != 1 || moved.local.Port() != local.Port()+1 {
		t.Fatalf("%d queue pairs, the last at %v, %v", pairs, moved.local, err)
	}
	if source, _, ok := parseSource(moved.source); !ok || source != moved.local {
		t.Errorf("messages come from %v, want %v", source, moved.local)
	}
}

// As with UDP sockets, a connected socket reports once that nobody has the port of its peer.
func TestDatagramRefused(t *testing.T) {
	a, _ := twoDatagrams(t)
	fd := must[int](t)(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0))
	want(t, "bind", unix.Bind(fd, &unix.SockaddrInet4{Addr: netip.MustParseAddr(localB).As4()}), nil)
	nobody := abi.AddrOf(addrOf(t, fd))
	unix.Close(fd)
	want(t, "Connect", a.Connect(a.h, &nobody), nil)
	want(t, "connect", unix.Connect(a.udp, sockaddrOf(nobody.AddrPort(), false)), nil)
	a.send([]byte("x"), nil)
	_, err := (&rs{t: t}).blocking(a.in, func() (n int, err error) { n, _, err = a.Recv(a.h, nil, false); return n, err })
	want(t, "Recv", err, syscall.ECONNREFUSED)
	want(t, "Recv", second(a.Recv(a.h, nil, false)), syscall.EAGAIN)
	a.send([]byte("x"), nil)
	(&rs{t: t}).wait(a.in)
	if e := must[int](t)(a.Ready(a.h, pollIn)); e != pollErr {
		t.Errorf("Ready: %#x", e)
	}
	if errno := must[int64](t)(a.Option(a.h, Error)); errno != int64(syscall.ECONNREFUSED) {
		t.Errorf("error %d", errno)
	}
	if errno := must[int64](t)(a.Option(a.h, Error)); errno != 0 {
		t.Errorf("error %d is pending still", errno)
	}
}

// A connected socket gets the datagrams of its peer only, also through its queue pair.
func TestDatagramConnectedToAnother(t *testing.T) {
	a, b := twoDatagrams(t)
	exchange(t, a, b)
	other := a.addr
	other.Port++
	want(t, "Connect", b.Connect(b.h, &other), nil)
	a.send([]byte("x"), &b.addr)
	for end := time.Now().Add(patience); must[int64](t)(b.Option(b.h, Drops)) != 1; {
		if b.ready() {
			data, from := b.recv()
			t.Fatalf("%q came from %v", data, from.AddrPort())
		}
		if time.Now().After(end) {
			t.Fatal("the datagram was not counted")
		}
	}
	want(t, "Connect", b.Connect(b.h, &a.addr), nil)
	exchange(t, a, b)
}
