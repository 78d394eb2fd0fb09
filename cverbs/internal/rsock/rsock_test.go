package rsock

import (
	"bytes"
	"errors"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/rdmacm"
)

// calls are all calls on a socket.
var calls = map[string]func(*Sockets, abi.Handle) error{
	"Accept":  func(a *Sockets, h abi.Handle) error { _, err := a.Accept(h, -1, -1); return err },
	"Addr":    func(a *Sockets, h abi.Handle) error { _, err := a.Addr(h); return err },
	"Bind":    func(a *Sockets, h abi.Handle) error { return a.Bind(h, address(addrA)) },
	"Close":   func(a *Sockets, h abi.Handle) error { return a.Close(h) },
	"Connect": func(a *Sockets, h abi.Handle) error { return a.Connect(h, address(addrA)) },
	"Listen":  func(a *Sockets, h abi.Handle) error { return a.Listen(h, 1) },
	"Map": func(a *Sockets, h abi.Handle) error {
		_, err := a.Map(h, unsafe.Pointer(&mapped[0]), 1, true, 0)
		return err
	},
	"Option":    func(a *Sockets, h abi.Handle) error { _, err := a.Option(h, SendBuffer); return err },
	"Peer":      func(a *Sockets, h abi.Handle) error { _, err := a.Peer(h); return err },
	"Ready":     func(a *Sockets, h abi.Handle) error { _, err := a.Ready(h, pollIn); return err },
	"Recv":      func(a *Sockets, h abi.Handle) error { _, err := a.Recv(h, make([]byte, 1), false); return err },
	"Send":      func(a *Sockets, h abi.Handle) error { _, err := a.Send(h, make([]byte, 1)); return err },
	"SetOption": func(a *Sockets, h abi.Handle) error { return a.SetOption(h, SendBuffer, 1<<16) },
	"Shutdown":  func(a *Sockets, h abi.Handle) error { return a.Shutdown(h, shutBoth) },
	"Unmap":     func(a *Sockets, h abi.Handle) error { return a.Unmap(h, unsafe.Pointer(&mapped[0])) },
	"WriteAt":   func(a *Sockets, h abi.Handle) error { _, err := a.WriteAt(h, make([]byte, 1), 0); return err },
}

var mapped [8]byte

// TestNoSocket: every call returns EBADF for a handle that is no socket or was closed.
func TestNoSocket(t *testing.T) {
	a, _ := processes(t)
	closed := create(t, a)
	want(t, "Close", a.Close(closed.h), nil)
	for name, call := range calls {
		for what, h := range map[string]abi.Handle{"zero": 0, "unknown": 12345, "huge": ^abi.Handle(0), "closed": closed.h} {
			want(t, name+" of a handle that is "+what, call(a, h), syscall.EBADF)
		}
	}
}

func TestNoDevices(t *testing.T) {
	a := New(func() (*rdmacm.Host, error) { return nil, syscall.ENODEV })
	_, err := a.Create(false, -1, -1)
	want(t, "Create", err, syscall.ENODEV)
}

// TestStates: a call that does not fit the state of the socket returns the errno of sockets.
func TestStates(t *testing.T) {
	server, client := streams(t)
	sockets := map[string]*rs{"idle": create(t, server.Sockets), "connected": client, "listening": create(t, server.Sockets)}
	want(t, "Listen", sockets["listening"].Listen(sockets["listening"].h, 1), nil)
	for _, c := range []struct {
		state, call string
		err         error
	}{
		{"idle", "Accept", syscall.EINVAL},
		{"idle", "Map", syscall.ENOTCONN},
		{"idle", "Peer", syscall.ENOTCONN},
		{"idle", "Recv", syscall.ENOTCONN},
		{"idle", "Send", syscall.EPIPE},
		{"idle", "Shutdown", syscall.ENOTCONN},
		{"idle", "Unmap", syscall.EINVAL},
		{"idle", "WriteAt", syscall.ENOTCONN},
		{"listening", "Accept", syscall.EAGAIN},
		{"listening", "Bind", syscall.EINVAL},
		{"listening", "Connect", syscall.EINVAL},
		{"listening", "Listen", nil},
		{"listening", "Peer", syscall.ENOTCONN},
		{"listening", "Recv", syscall.ENOTCONN},
		{"listening", "Send", syscall.EPIPE},
		{"connected", "Accept", syscall.EINVAL},
		{"connected", "Bind", syscall.EINVAL},
		{"connected", "Connect", syscall.EISCONN},
		{"connected", "Listen", syscall.EINVAL},
		{"connected", "Peer", nil},
		{"connected", "Recv", syscall.EAGAIN},
		{"connected", "Unmap", syscall.EINVAL},
	} {
		s := sockets[c.state]
		want(t, c.call+" of a socket that is "+c.state, calls[c.call](s.Sockets, s.h), c.err)
	}
	want(t, "Shutdown of no direction", client.Shutdown(client.h, 3), syscall.EINVAL)
	for name, err := range map[string]error{
		"of no option":    client.SetOption(client.h, Error, 0),
		"of a negative":   client.SetOption(client.h, SendBuffer, -1),
		"of a used queue": client.SetOption(client.h, SendDepth, 100),
		"of no time":      client.SetOption(client.h, KeepIdle, 0),
		"of a wide TOS":   client.SetOption(client.h, TOS, 256),
	} {
		if err != syscall.EINVAL && err != syscall.ENOPROTOOPT {
			t.Errorf("SetOption %s: %v", name, err)
		}
	}
}

// TestReadAgain: a call that finds nothing makes the descriptor unreadable; new data make it readable.
func TestReadAgain(t *testing.T) {
	server, client := streams(t)
	p := make([]byte, 100)
	for _, text := range []string{"one", "two", "three"} {
		_, err := server.Recv(server.h, p, false)
		want(t, "Recv of nothing", err, syscall.EAGAIN)
		if readable(server.in) {
			t.Error("it is readable after EAGAIN")
		}
		if n, err := client.Send(client.h, []byte(text)); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
		server.wait(server.in)
		for _, peek := range []bool{true, false} {
			if n, err := server.Recv(server.h, p, peek); err != nil || string(p[:n]) != text {
				t.Errorf("%q, %v, want %q", p[:n], err, text)
			}
		}
	}
	want(t, "Shutdown", client.Shutdown(client.h, shutWrite), nil)
	for range 2 { // the end stays
		if n, err := server.recv(p); n != 0 || err != nil {
			t.Errorf("%d, %v at the end", n, err)
		}
	}
	_, err := client.Send(client.h, p)
	want(t, "Send after Shutdown", err, syscall.EPIPE)
}

// TestWriteAgain: writing to a full stream returns EAGAIN until the peer has read.
func TestWriteAgain(t *testing.T) {
	server, client := streams(t)
	piece := bytes.Repeat([]byte("0123456789"), 1000)
	sent := 0
	for {
		n, err := client.Send(client.h, piece)
		if err == syscall.EAGAIN {
			break
		}
		if sent += n; err != nil {
			t.Fatal(err)
		}
	}
	if readable(client.out) {
		t.Error("it is writable though it was full, and nobody has read")
	}
	p := make([]byte, len(piece))
	for got := 0; got < sent; {
		n, err := server.recv(p)
		if got += n; n == 0 || err != nil {
			t.Fatal(got, err)
		}
	}
	client.wait(client.out)
	if n, err := client.blocking(client.out, func() (int, error) { return client.Send(client.h, piece) }); n == 0 || err != nil {
		t.Errorf("%d, %v after the peer has read", n, err)
	}
}

// TestConnect: the errors of a socket while it connects. After a failure Connect may be called again.
func TestConnect(t *testing.T) {
	a, b := processes(t)
	s := create(t, b)
	want(t, "connection that nobody takes", s.connect(addrA), syscall.ECONNREFUSED)
	want(t, "SO_ERROR again", s.pending(), nil)
	l := listen(t, a)
	want(t, "Connect", s.Connect(s.h, address(addrA)), syscall.EINPROGRESS)
	if err := s.Connect(s.h, address(addrA)); err != syscall.EALREADY && err != syscall.EISCONN {
		t.Errorf("second Connect: %v", err)
	}
	l.accept()
	s.wait(s.out)
	want(t, "SO_ERROR", s.pending(), nil)
	want(t, "Connect of a stream", s.Connect(s.h, address(addrA)), syscall.EISCONN)
}

// TestReady: Ready returns the events of poll(2) that the socket has.
func TestReady(t *testing.T) {
	server, client := streams(t)
	check := func(what string, s *rs, want int) {
		t.Helper()
		if got, err := s.Ready(s.h, pollIn|pollOut); got != want || err != nil {
			t.Errorf("%s: events %#x, %v, want %#x", what, got, err, want)
		}
	}
	check("stream", server, pollOut)
	if got, err := server.Ready(server.h, pollIn); got != 0 || err != nil || readable(server.in) {
		t.Errorf("events %#x of POLLIN, %v, readable %v, of a stream without data", got, err, readable(server.in))
	}
	must[int](t)(client.Send(client.h, []byte("x")))
	server.wait(server.in)
	check("data", server, pollIn|pollOut)
	if got, _ := server.Ready(server.h, pollIn); got != pollIn {
		t.Errorf("events %#x of POLLIN", got)
	}
	check("idle", create(t, server.Sockets), pollOut|pollHup)
}

// TestCloseInCalls: threads that are in calls, or wait for the descriptors, return when another thread closes
// the socket.
func TestCloseInCalls(t *testing.T) {
	server, client := streams(t)
	var waiting, calling sync.WaitGroup
	begun := make(chan bool, 4)
	for range cap(begun) {
		waiting.Go(func() {
			p := make([]byte, 10)
			begun <- true
			if _, err := server.recv(p); err != syscall.EBADF {
				t.Errorf("Recv of a thread that waits: %v", err)
			}
		})
	}
	for name, call := range calls {
		if name == "Close" || name == "Shutdown" || name == "Accept" {
			continue
		}
		calling.Go(func() {
			for err := error(nil); err != syscall.EBADF; {
				err = call(server.Sockets, server.h)
				server.Recv(server.h, make([]byte, 1), false)
			}
		})
	}
	for range cap(begun) {
		<-begun
	}
	want(t, "Close", server.Close(server.h), nil)
	waiting.Wait()
	calling.Wait()
	if !readable(server.in) || !readable(server.out) {
		t.Error("the descriptors of a closed socket are unreadable: a thread may wait for ever")
	}
	// The peer sees the end: an orderly one, or an error because data were in flight.
	p := make([]byte, 1<<16)
	for {
		n, err := client.recv(p)
		if err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("Recv of the peer: %v", err)
		}
		if n == 0 || err != nil {
			return
		}
	}
}

// TestCloseOnce: if many threads close a socket, one succeeds.
func TestCloseOnce(t *testing.T) {
	server, _ := streams(t)
	results := make(chan error)
	const threads = 8
	for range threads {
		go func() { results <- server.Close(server.h) }()
	}
	closed := 0
	for range threads {
		switch err := <-results; err {
		case nil:
			closed++
		case syscall.EBADF:
		default:
			t.Error(err)
		}
	}
	if closed != 1 {
		t.Errorf("%d have closed it", closed)
	}
}

// TestCloseConnecting: closing an unanswered connect, or a listener, returns at once.
func TestCloseConnecting(t *testing.T) {
	a, b := processes(t)
	s, l := create(t, b), listen(t, a)
	want(t, "Connect", s.Connect(s.h, address(nobody)), syscall.EINPROGRESS)
	want(t, "Close", s.Close(s.h), nil)
	accepted := make(chan error)
	go func() {
		_, err := l.blocking(l.in, func() (int, error) { _, err := l.Accept(l.h, -1, -1); return 0, err })
		accepted <- err
	}()
	want(t, "Close", l.Close(l.h), nil)
	if err := <-accepted; err != syscall.EBADF && err != syscall.EINVAL {
		t.Errorf("Accept of a thread that waits: %v", err)
	}
	want(t, "connection to what has closed", create(t, b).connect(addrA), syscall.ECONNREFUSED)
}

// TestCloseUnaccepted: closing a listener ends its unaccepted streams.
func TestCloseUnaccepted(t *testing.T) {
	a, b := processes(t)
	l := listen(t, a)
	client := create(t, b)
	want(t, "connection", client.connect(addrA), nil)
	l.wait(l.in)
	want(t, "Close", l.Close(l.h), nil)
	if n, err := client.recv(make([]byte, 1)); n != 0 || err != nil && err != syscall.ECONNRESET {
		t.Errorf("%d, %v of a stream that nobody has accepted", n, err)
	}
}

// TestBadDescriptors: a socket with invalid descriptors, or descriptors that the program has closed, works
// without their signals.
func TestBadDescriptors(t *testing.T) {
	server, client := streams(t)
	bad := must[abi.Handle](t)(client.Create(false, -1, 1<<20))
	_, err := client.Recv(bad, make([]byte, 1), false)
	want(t, "Recv", err, syscall.ENOTCONN)
	want(t, "Close", client.Close(bad), nil)

	// /dev/null in their places: the program has closed the descriptors and reused their numbers.
	null := must[int](t)(unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0))
	defer unix.Close(null)
	for _, fd := range []int{server.in, server.out} {
		if err := unix.Dup3(null, fd, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
	must[int](t)(client.Send(client.h, []byte("x")))
	want(t, "Close", server.Close(server.h), nil)
}
