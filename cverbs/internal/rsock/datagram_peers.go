package rsock

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
)

// Strangers can send datagrams from any number of addresses. These limits bound what a datagram rsocket keeps for
// them.
const (
	maxPeers     = 4096
	maxResolving = 8

	// neighbourTime bounds how long a neighbour may take to answer.
	neighbourTime = 2 * time.Second
)

// silence is how long a peer may send nothing before a datagram goes to it over UDP again. A peer that has ended and
// comes back at its address and port has another queue pair, and nothing reports messages to the old one. Its answer
// to the datagram over UDP names the new one.
const silence = time.Second

// peer is another datagram rsocket.
type peer struct {
	addr      netip.AddrPort
	pair      *pair    // the local end
	ah        *roce.AH // nil: unknown, so datagrams travel over UDP
	qpn       roce.QPN
	resolving bool
	heard     bool      // something came from it since checked
	checked   time.Time // when silent last looked
}

// peers are the known peers. When there are too many, a new one replaces the oldest. The replaced peer's next
// datagram over UDP makes it known again.
type peers struct {
	known map[netip.AddrPort]*peer
	order []netip.AddrPort // a ring of maxPeers; the oldest is at next
	next  int
}

func newPeers() peers { return peers{known: make(map[netip.AddrPort]*peer)} }

func (t *peers) add(p *peer) {
	t.known[p.addr] = p
	if len(t.order) < maxPeers {
		t.order = append(t.order, p.addr)
		return
	}
	delete(t.known, t.order[t.next])
	t.order[t.next] = p.addr
	t.next = (t.next + 1) % maxPeers
}

// peer returns the peer at an address and makes it known. The local end is the address of the UDP socket or, if
// that is unspecified, the address that the kernel's routes choose. The caller has locked the socket.
func (s *datagram) peer(addr netip.AddrPort) (*peer, error) {
	if p := s.peers.known[addr]; p != nil {
		return p, nil
	}
	local, err := s.udp.localFor(addr, s.v6)
	if err != nil {
		return nil, err
	}
	q, err := s.pairAt(local)
	if err != nil {
		return nil, err
	}
	p := &peer{addr: addr, pair: q}
	s.peers.add(p)
	return p, nil
}

// silent reports whether nothing came from a peer for at least the time of silence. It does so once per such time, so
// that a peer that only receives gets the other datagrams through the queue pair. The caller has locked the socket.
func (s *datagram) silent(p *peer) bool {
	now := s.now()
	if now.Sub(p.checked) < silence {
		return false
	}
	silent := !p.heard
	p.heard, p.checked = false, now
	return silent
}

// serve handles what arrives over UDP until the socket is closed.
func (s *datagram) serve() {
	buffer := make([]byte, maxMessage+1) // a longer datagram is invalid
	for {
		n, from, said, open := s.udp.receive(buffer)
		switch {
		case !open:
			return
		case said != nil:
			s.fail(said)
		default:
			s.datagram(buffer[:n], from)
		}
	}
}

// fail notes the pending error of a connected socket, and wakes the threads that wait.
func (s *datagram) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
	s.wake()
}

// datagram handles a UDP datagram: it answers data, learns the peer's queue pair and delivers the data.
func (s *datagram) datagram(b []byte, from netip.AddrPort) {
	m, ok := parseUDP(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if !ok {
		s.drops++
		return
	}
	p, err := s.peer(from)
	if err != nil {
		s.drops++
		return
	}
	if m.op == opData {
		s.udp.send(p.pair.header(opControl), nil, from, s.v6)
	}
	s.learn(p, m.qpn)
	if m.op == opData {
		s.deliver(m.data, from)
	}
}

// deliver copies data that came over UDP to the inbox. The limit is that of the receive buffers of a queue pair.
func (s *datagram) deliver(data []byte, from netip.AddrPort) {
	if _, limit := s.options.depths(); s.copied >= limit {
		s.drops++
		return
	}
	*s.inbox.Push() = arrived{data: slices.Clone(data), from: from}
	s.copied++
	s.in.set()
}

// learn notes the peer's queue pair and makes the address handle for it in the background. The caller has locked
// the socket.
func (s *datagram) learn(p *peer, qpn roce.QPN) {
	p.heard = true
	switch {
	case p.resolving:
		p.qpn = qpn
		return
	case p.ah != nil && p.qpn == qpn:
		return
	}
	p.ah, p.qpn = nil, qpn // nothing more goes to a queue pair that the peer does not have any more
	if s.resolving >= maxResolving {
		return // the answer to the next datagram over UDP repeats it
	}
	p.resolving = true
	s.resolving++
	s.running.Go(func() { s.resolve(p) })
}

// resolve makes the address handle of a peer. Without one, datagrams continue to travel over UDP.
func (s *datagram) resolve(p *peer) {
	ctx, stop := context.WithTimeout(s.ctx, neighbourTime)
	defer stop()
	ah, err := p.pair.dev.CreateAH(ctx, roce.AHAttr{DGID: bth.GIDFrom(p.addr.Addr().WithZone("")), SGIDIndex: p.pair.gid})
	s.mu.Lock()
	defer s.mu.Unlock()
	p.resolving = false
	s.resolving--
	if err == nil {
		p.ah = ah
	}
}
