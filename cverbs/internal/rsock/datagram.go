package rsock

import (
	"context"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/internal/fifo"
	"github.com/goroce/roce/rdmacm"
)

// Datagrams are the datagram rsockets of a process. Make them with [NewDatagrams]. Any goroutine may call the
// methods. Except for Close, they do not wait for a peer.
type Datagrams struct {
	host func() (*rdmacm.Host, error)
	table[*datagram]
}

// NewDatagrams returns the datagram rsockets of a process. host opens its devices, once.
func NewDatagrams(host func() (*rdmacm.Host, error)) *Datagrams { return &Datagrams{host: host} }

// Create is rsocket of datagrams. in and out are as in [Sockets.Create]. udp is a duplicate of the descriptor of a UDP
// socket, which Create closes if it fails, and Close closes otherwise. The caller binds and connects the UDP socket, and
// sets its options; the datagram rsocket has its addresses.
//
// ENODEV: there are no devices.
func (a *Datagrams) Create(v6 bool, in, out, udp int) (abi.Handle, error) {
	host, err := a.host()
	if err != nil {
		unix.Close(udp)
		return 0, failure(err)
	}
	s, err := newDatagram(host, v6, in, out, udp)
	if err != nil {
		return 0, failure(err)
	}
	return a.enter(s)
}

// Connect is rconnect, before the caller connects the UDP socket. It makes the queue pair at the address that the UDP
// socket then has. Nil dissolves the association, as AF_UNSPEC does, and all that is known of peers: the UDP socket may
// get another port. ENODEV: the address is not one of a device.
func (a *Datagrams) Connect(h abi.Handle, to *abi.CMAddr) error {
	s, err := a.find(h)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if to == nil {
		s.connected, s.peers = netip.AddrPort{}, newPeers()
		return nil
	}
	addr := plainAddr(to)
	if !addr.IsValid() {
		return syscall.EAFNOSUPPORT
	}
	if _, err := s.peer(addr); err != nil {
		return failure(err)
	}
	s.connected = addr
	return nil
}

// Send is rsendto with MSG_DONTWAIT. An invalid to is the peer of Connect.
//
// EMSGSIZE: the data is longer than a datagram of librdmacm. EDESTADDRREQ: there is no peer. Like Recv, it also returns
// the pending error of a connected socket, such as ECONNREFUSED: the peer's host has no such port.
func (a *Datagrams) Send(h abi.Handle, p []byte, to *abi.CMAddr) (int, error) {
	s, err := a.find(h)
	if err != nil {
		return 0, err
	}
	addr := plainAddr(to)
	return s.out.attempt(func() (int, error) { return s.send(p, addr) })
}

// Recv is rrecvfrom with MSG_DONTWAIT, and with MSG_PEEK if peek is set. n is the length of the datagram, which may
// be longer than p. After Shutdown of this direction n is 0 if there is no datagram.
func (a *Datagrams) Recv(h abi.Handle, p []byte, peek bool) (n int, from abi.CMAddr, err error) {
	s, err := a.find(h)
	if err != nil {
		return 0, from, err
	}
	n, err = s.in.attempt(func() (n int, err error) {
		n, from, err = s.recv(p, peek)
		return n, err
	})
	return n, from, err
}

// Shutdown is rshutdown. As for UDP sockets, ENOTCONN: the socket is not connected. It is shut down nevertheless: that
// is how a thread wakes another one that waits for a datagram.
func (a *Datagrams) Shutdown(h abi.Handle, how int) error {
	s, err := a.find(h)
	if err != nil {
		return err
	}
	if how < shutRead || how > shutBoth {
		return syscall.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readShut = s.readShut || how != shutWrite
	s.writeShut = s.writeShut || how != shutRead
	s.wake()
	if !s.connected.IsValid() {
		return syscall.ENOTCONN
	}
	return nil
}

// Ready is [Sockets.Ready] of a datagram rsocket.
func (a *Datagrams) Ready(h abi.Handle, want uint32) (int, error) {
	s, err := a.find(h)
	if err != nil {
		return 0, err
	}
	return s.ready(want, s.events), nil
}

// Close is rclose. It waits a moment until sent datagrams have left. When it returns, the descriptors are readable,
// and the socket does not touch them any more.
func (a *Datagrams) Close(h abi.Handle) error {
	return a.end(h)
}

// datagram is a datagram rsocket.
type datagram struct {
	host *rdmacm.Host
	v6   bool
	signals
	udp     *udpSocket
	now     func() time.Time
	ctx     context.Context // ended by close
	stop    context.CancelFunc
	running sync.WaitGroup // goroutines

	mu                  sync.Mutex // guards the fields below
	closed              bool
	readShut, writeShut bool
	options             datagramOptions
	pending                            // one call returns it
	connected           netip.AddrPort // the peer of Connect
	peers               peers
	resolving           int // peers whose address handle is being made
	pairs               []*pair
	inbox               fifo.Queue[arrived]
	taken               int   // datagrams that the program has taken since the queue pairs were polled
	copied              int   // entries of the inbox that came over UDP
	drops               int64 // datagrams that were dropped: invalid ones, and ones over UDP without room; the device counts the others
}

// arrived is a datagram that the program has not read: a message in a receive buffer, or a copy of data that came
// over UDP.
type arrived struct {
	pair *pair // nil: it came over UDP
	slot int   // of the receive buffer
	data []byte
	from netip.AddrPort
}

func newDatagram(host *rdmacm.Host, v6 bool, in, out, udp int) (*datagram, error) {
	u, err := newUDPSocket(udp)
	if err != nil {
		return nil, err
	}
	s := &datagram{host: host, v6: v6, signals: newSignals(in, out), udp: u, now: time.Now,
		options: defaultDatagramOptions, peers: newPeers()}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.running.Go(s.serve)
	return s, nil
}

// send sends a datagram through the queue pair if that of the peer is known, and over UDP otherwise. A message that
// is longer than the MTU travels over UDP, too, which fragments it, and so does one to a peer that has been silent.
func (s *datagram) send(p []byte, to netip.AddrPort) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return 0, syscall.EBADF
	case s.failed != nil:
		return 0, s.takeError()
	case s.writeShut:
		return 0, syscall.EPIPE
	case !to.IsValid():
		to = s.connected
	}
	if !to.IsValid() {
		return 0, syscall.EDESTADDRREQ
	}
	to = unmapped(to)
	if len(p) > maxData(to.Addr()) {
		return 0, syscall.EMSGSIZE
	}
	peer, err := s.peer(to)
	if err != nil {
		return 0, failure(err)
	}
	if peer.ah == nil || !peer.pair.fits(len(p)) || s.silent(peer) {
		if err := s.udp.send(peer.pair.header(opData), p, to, s.v6); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	if len(peer.pair.free) == 0 {
		s.poll(peer.pair)
	}
	if len(peer.pair.free) == 0 && peer.pair.arm() {
		s.poll(peer.pair)
	}
	return peer.pair.send(p, peer)
}

// recv takes the oldest datagram.
func (s *datagram) recv(p []byte, peek bool) (n int, from abi.CMAddr, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return 0, from, syscall.EBADF
	case s.failed != nil:
		return 0, from, s.takeError()
	case s.arrivals():
	case s.readShut:
		return 0, from, nil
	default:
		return 0, from, syscall.EAGAIN
	}
	oldest := s.inbox.At(0)
	copy(p, oldest.data)
	n, from = len(oldest.data), outsideAddr(oldest.from, s.v6)
	if !peek {
		s.drop()
	}
	return n, from, nil
}

// pollEvery is how many datagrams the program takes from the inbox before the queue pairs are polled again, although
// the inbox is not empty. Without this bound a stranger that keeps the inbox filled, over UDP or through one queue
// pair, would keep all datagrams of the other queue pairs from the program.
const pollEvery = 32

// arrivals reports whether the inbox has a datagram. If it has none, all queue pairs will signal the next one. The
// caller has locked the socket.
func (s *datagram) arrivals() bool {
	if s.inbox.Len() > 0 && s.taken < pollEvery {
		return true
	}
	s.taken = 0
	for _, q := range s.pairs {
		s.poll(q)
	}
	for i := 0; i < len(s.pairs) && s.inbox.Len() == 0; i++ {
		if s.pairs[i].arm() {
			s.poll(s.pairs[i])
		}
	}
	return s.inbox.Len() > 0
}

// drop removes the oldest datagram from the inbox. The caller has locked the socket.
func (s *datagram) drop() {
	oldest, _ := s.inbox.Pop()
	s.taken++
	if oldest.pair == nil {
		s.copied--
		return
	}
	oldest.pair.postRecv(oldest.slot)
}

// events returns the events of poll(2). If arm is set, missing ones will be signaled.
func (s *datagram) events(arm bool) (e uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return pollErr | pollHup
	}
	if s.failed != nil {
		e |= pollErr
	}
	if s.readShut || s.arrivals() {
		e |= pollIn
	}
	room := true
	for _, q := range s.pairs {
		if len(q.free) > 0 {
			continue
		}
		if !arm || q.arm() {
			s.poll(q)
		}
		room = room && len(q.free) > 0
	}
	if s.writeShut || room {
		e |= pollOut
	}
	if s.readShut && s.writeShut {
		e |= pollHup
	}
	return e
}

// close ends the socket. It returns nil.
func (s *datagram) close() error {
	s.mu.Lock()
	s.closed = true
	pairs := s.pairs
	s.mu.Unlock()
	s.stop()
	s.udp.close()
	s.running.Wait()
	for _, q := range pairs {
		s.drain(q)
		q.close()
	}
	s.signals.close()
	return nil
}
