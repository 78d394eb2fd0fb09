package rsock

import (
	"context"
	"net/netip"
	"syscall"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/rsocket"
)

// resolveTime bounds the resolution of the route to a peer.
const resolveTime = 10 * time.Second

// any is the address of an unbound socket.
func (s *socket) any() netip.AddrPort {
	if s.v6 {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
}

// Bind is rbind.
func (a *Sockets) Bind(h abi.Handle, addr *abi.CMAddr) error {
	s, err := a.find(h)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != idle || s.id != nil {
		return syscall.EINVAL
	}
	return failure(s.bind(addr.AddrPort()))
}

// bind takes an address and a port. Called with the socket locked.
func (s *socket) bind(addr netip.AddrPort) error {
	id, err := s.host.CreateID(nil, cm.PortSpaceTCP, nil)
	if err != nil {
		return err
	}
	if s.options.value[ReuseAddr] != 0 {
		err = id.SetReuseAddr(true)
	}
	if err == nil && s.options.value[V6Only] != 0 {
		err = id.SetAFOnly(true)
	}
	if err == nil {
		err = id.Bind(addr)
	}
	if err != nil {
		id.Destroy()
		return err
	}
	s.id, s.bound = id, addr
	return nil
}

// Listen is rlisten. If the socket listens already, it accepts another backlog and ignores it.
func (a *Sockets) Listen(h abi.Handle, backlog int32) error {
	s, err := a.find(h)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.state == listening:
		return nil
	case s.state != idle:
		return syscall.EINVAL
	case s.id == nil:
		if err := s.bind(s.any()); err != nil {
			return failure(err)
		}
	}
	return failure(s.listen(int(backlog)))
}

// listen listens on the device of the address, or on all. Called with the socket locked.
func (s *socket) listen(backlog int) error {
	devices := s.host.Devices()
	if d := s.id.Device(); d != nil {
		devices = []*roce.Device{d}
	}
	cfg := s.options.config()
	if backlog > 0 {
		cfg.Backlog = backlog
	}
	ctx, stop := context.WithCancel(context.Background())
	var listeners []*rsocket.Listener
	for _, d := range devices {
		l, err := rsocket.Listen(d, s.id.LocalAddr().String(), cfg)
		if err != nil {
			stop()
			for _, l := range listeners {
				l.Close()
			}
			return err
		}
		listeners = append(listeners, l)
	}
	s.state, s.listeners, s.stop, s.accepted = listening, listeners, stop, make(chan *rsocket.Conn, 1)
	for _, l := range listeners {
		s.running.Go(func() { s.serve(ctx, l) })
	}
	return nil
}

// serve passes streams to raccept. One stream waits here; the others wait in the listener.
func (s *socket) serve(ctx context.Context, l *rsocket.Listener) {
	for {
		c, err := l.AcceptContext(ctx)
		if err != nil {
			return
		}
		select {
		case s.accepted <- c:
			s.in.set()
		case <-ctx.Done():
			go c.Close()
			return
		}
	}
}

// endListening ends the background goroutines of a listener.
func (s *socket) endListening() {
	s.mu.Lock()
	listeners, stop := s.listeners, s.stop
	s.listeners = nil
	s.mu.Unlock()
	stop()
	for _, l := range listeners {
		l.Close()
	}
	s.wake()
}

// Accept is raccept. in and out are the descriptors of the new socket, as for Create.
func (a *Sockets) Accept(h abi.Handle, in, out int) (child abi.Handle, err error) {
	s, err := a.find(h)
	if err != nil {
		return 0, err
	}
	var conn *rsocket.Conn
	if _, err = s.in.attempt(func() (int, error) { conn, err = s.next(); return 0, err }); err != nil {
		return 0, err
	}
	made := newSocket(s.host, s.v6, in, out)
	s.mu.Lock()
	made.options = s.options
	s.mu.Unlock()
	made.attach(conn)
	return a.enter(made)
}

func (s *socket) next() (*rsocket.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != listening || len(s.listeners) == 0 {
		return nil, syscall.EINVAL
	}
	select {
	case c := <-s.accepted:
		return c, nil
	default:
		return nil, syscall.EAGAIN
	}
}

// Connect starts rconnect and returns EINPROGRESS. When the socket is writable, [Error] has the outcome. It
// returns EALREADY and EISCONN as connect(2) does.
func (a *Sockets) Connect(h abi.Handle, to *abi.CMAddr) error {
	s, err := a.find(h)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state {
	case connecting:
		return syscall.EALREADY
	case connected:
		return syscall.EISCONN
	case idle:
	default:
		return syscall.EINVAL
	}
	s.out.clear()
	s.in.clear()
	s.failed = nil
	if s.id == nil {
		if s.id, err = s.host.CreateID(nil, cm.PortSpaceTCP, nil); err != nil {
			return failure(err)
		}
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.state = connecting
	dial := &dialing{socket: s, to: to.AddrPort(), cfg: s.options.config()}
	s.running.Go(func() { dial.run(ctx) })
	return syscall.EINPROGRESS
}

// dialing is a connect in progress.
type dialing struct {
	*socket
	to  netip.AddrPort
	cfg rsocket.Config
}

func (d *dialing) run(ctx context.Context) {
	conn, err := d.dial(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.state != connecting && conn != nil: // the socket was closed meanwhile
		go conn.Close()
	case d.state != connecting:
	case err != nil:
		d.state, d.failed = idle, failure(err)
		d.unbind()
		d.wake()
	default:
		d.attach(conn)
	}
}

// dial chooses the device and the address by the route to the peer.
func (d *dialing) dial(ctx context.Context) (*rsocket.Conn, error) {
	d.mu.Lock()
	id := d.id
	d.mu.Unlock()
	if id == nil {
		return nil, syscall.EBADF
	}
	if err := id.ResolveAddr(ctx, netip.AddrPort{}, d.to, resolveTime); err != nil {
		return nil, err
	}
	d.cfg.Local = id.LocalAddr().Addr()
	return rsocket.Dial(ctx, id.Device(), id.PeerAddr().String(), d.cfg)
}

// unbind forgets the route to a peer, so that the program can try another one, and keeps the address that the
// program has bound. Called with the socket locked.
func (s *socket) unbind() {
	if s.id != nil {
		s.id.Destroy()
		s.id = nil
	}
	if s.bound.IsValid() {
		s.bind(s.bound) // it fails if another socket has taken the address
	}
}

// Addr is rgetsockname.
func (a *Sockets) Addr(h abi.Handle) (abi.CMAddr, error) {
	s, err := a.find(h)
	if err != nil {
		return abi.CMAddr{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	addr := s.any()
	switch {
	case s.conn != nil:
		addr = s.conn.LocalAddr().(rsocket.Addr).AddrPort
	case s.id != nil && s.id.LocalAddr().IsValid():
		addr = s.id.LocalAddr()
	}
	return outsideAddr(addr, s.v6), nil
}

// Peer is rgetpeername.
func (a *Sockets) Peer(h abi.Handle) (abi.CMAddr, error) {
	s, err := a.find(h)
	if err != nil {
		return abi.CMAddr{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return abi.CMAddr{}, syscall.ENOTCONN
	}
	return outsideAddr(s.conn.RemoteAddr().(rsocket.Addr).AddrPort, s.v6), nil
}
