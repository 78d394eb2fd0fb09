package rsock

import (
	"net/netip"
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

// The addresses of the two processes of a test. The third is unused.
const (
	addrA  = "10.0.0.1"
	addrB  = "10.0.0.2"
	nobody = "10.0.0.3"
	port   = 7471
)

// patience is how long tests wait for an expected event.
const patience = 10 * time.Second

// processes makes the rsockets of two processes on one network.
func processes(t *testing.T) (a, b *Sockets) {
	t.Helper()
	hub := mem.NewHub(mem.Config{MTU: 4200})
	return process(t, hub, addrA), process(t, hub, addrB)
}

func process(t *testing.T, hub *mem.Hub, at string) *Sockets {
	t.Helper()
	addr := netip.MustParseAddr(at)
	p := must[*mem.Port](t)(hub.Port(at, roce.DerivedMAC(addr)))
	dev := must[*roce.Device](t)(roce.Open(roce.Config{Ports: []link.Port{p}, Addrs: []netip.Addr{addr}}))
	t.Cleanup(func() { dev.Close() })
	host := must[*rdmacm.Host](t)(rdmacm.NewHost(dev))
	t.Cleanup(func() { host.Close() })
	return New(func() (*rdmacm.Host, error) { return host, nil })
}

// must returns the result of a call that must not fail.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// want checks the error of a call; nil: none.
func want(t *testing.T, what string, err, want error) {
	t.Helper()
	if err != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// rs is an rsocket, and the descriptors that the C side has for it.
type rs struct {
	*Sockets
	t       *testing.T
	h       abi.Handle
	in, out int
}

func descriptors(t *testing.T) (in, out int) {
	t.Helper()
	var fds [2]int
	for i := range fds {
		fds[i] = must[int](t)(unix.Eventfd(0, unix.EFD_NONBLOCK))
		t.Cleanup(func() { unix.Close(fds[i]) })
	}
	return fds[0], fds[1]
}

// create makes a socket that the end of the test closes.
func create(t *testing.T, a *Sockets) *rs {
	t.Helper()
	in, out := descriptors(t)
	s := &rs{a, t, must[abi.Handle](t)(a.Create(false, in, out)), in, out}
	t.Cleanup(func() { a.Close(s.h) })
	return s
}

func address(at string) *abi.CMAddr {
	a := abi.AddrOf(netip.AddrPortFrom(netip.MustParseAddr(at), port))
	return &a
}

// readable reports whether a descriptor is readable now.
func readable(fd int) bool {
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return n == 1
}

// wait waits until a descriptor is readable, as the C side does.
func (s *rs) wait(fd int) {
	s.t.Helper()
	for end := time.Now().Add(patience); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
		if n == 1 {
			return
		}
		if err != syscall.EINTR || time.Now().After(end) {
			s.t.Fatalf("the descriptor stays unreadable: %v", err)
		}
	}
}

// blocking repeats a call whenever the descriptor is readable, until it returns something other than EAGAIN.
func (s *rs) blocking(fd int, call func() (int, error)) (int, error) {
	s.t.Helper()
	for {
		n, err := call()
		if err != syscall.EAGAIN {
			return n, err
		}
		s.wait(fd)
	}
}

func (s *rs) recv(p []byte) (int, error) {
	s.t.Helper()
	return s.blocking(s.in, func() (int, error) { return s.Recv(s.h, p, false) })
}

// listen makes a socket that listens at addrA.
func listen(t *testing.T, a *Sockets) *rs {
	t.Helper()
	l := create(t, a)
	want(t, "Bind", l.Bind(l.h, address(addrA)), nil)
	want(t, "Listen", l.Listen(l.h, 0), nil)
	return l
}

func (s *rs) accept() *rs {
	s.t.Helper()
	in, out := descriptors(s.t)
	var child abi.Handle
	_, err := s.blocking(s.in, func() (_ int, err error) { child, err = s.Accept(s.h, in, out); return 0, err })
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { s.Close(child) })
	return &rs{s.Sockets, s.t, child, in, out}
}

// connect connects, and returns SO_ERROR.
func (s *rs) connect(to string) error {
	s.t.Helper()
	want(s.t, "Connect", s.Connect(s.h, address(to)), syscall.EINPROGRESS)
	s.wait(s.out)
	return s.pending()
}

// pending returns SO_ERROR.
func (s *rs) pending() error {
	s.t.Helper()
	if errno := must[int64](s.t)(s.Option(s.h, Error)); errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}

// streams returns the two ends of a stream.
func streams(t *testing.T) (server, client *rs) {
	t.Helper()
	a, b := processes(t)
	l := listen(t, a)
	client = create(t, b)
	if err := client.connect(addrA); err != nil {
		t.Fatal(err)
	}
	return l.accept(), client
}
