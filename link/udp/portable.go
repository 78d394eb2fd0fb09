package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/claim"
	"github.com/goroce/roce/internal/notify"
	"github.com/goroce/roce/link"
)

// portable is a Port on package net: it has a socket for each address, and for each socket a
// goroutine that reads one packet with each call. It works on every system, and is used on all but
// Linux.
type portable struct {
	cfg     Config
	info    link.Info
	sockets []*socket
	count   link.Counters
	closed  atomic.Bool
	done    chan struct{} // closed with the Port
	readers sync.WaitGroup

	wake   notify.Chan    // makes Wait return
	timer  *time.Timer    // of Wait
	inbox  chan *datagram // received by the readers
	spare  chan *datagram // room for more
	given  []*datagram    // returned by the last Recv
	queue  []packet       // committed, not sent
	queued int
	lent   *packet
	lost   *atomic.Uint64
}

// socket is bound to one address.
type socket struct {
	addr bth.GID
	conn *net.UDPConn
}

// packet is a packet to send.
type packet struct {
	data []byte
	to   netip.AddrPort
	from *socket
}

// datagram is a received datagram.
type datagram struct {
	data []byte
	env  frame.Envelope
}

// manyFailures is the number of failures in a row after which a reader pauses
// between attempts.
const manyFailures = 100

// inboxLimit is the number of packets that wait for Recv. Each reader may hold one more; further
// packets wait in the kernel.
const inboxLimit = 256

// openPortable opens a Port on addresses of an interface.
func openPortable(c Config, ifi *net.Interface, addrs []netip.Addr) (link.Port, error) {
	p := &portable{cfg: c, wake: notify.New(), timer: time.NewTimer(time.Hour), queue: make([]packet, link.Batch),
		inbox: make(chan *datagram, inboxLimit), spare: make(chan *datagram, inboxLimit+link.Batch), done: make(chan struct{})}
	p.info = link.Info{Driver: "udp", Layout: frame.LayoutUDP, SrcPort: srcPort, Mode: "package net, a packet a call", MTU: 1500}
	if ifi != nil {
		p.info.Interface, p.info.Index, p.info.MTU = ifi.Name, ifi.Index, min(ifi.MTU, maxMTU)
	} else {
		p.info.Notes = append(p.info.Notes, fmt.Sprintf("no interface has the address: an MTU of %d is assumed", p.info.MTU))
	}
	for _, a := range addrs {
		if err := p.listen(a); err != nil {
			p.Close()
			return nil, err
		}
	}
	for _, s := range p.sockets {
		p.readers.Go(func() { p.read(s) })
	}
	return p, nil
}

// listen opens the socket of an address.
func (p *portable) listen(a netip.Addr) error {
	if a.IsLinkLocalUnicast() && a.Is6() && a.Zone() == "" {
		a = a.WithZone(p.info.Interface)
	}
	network := "udp6"
	if a.Is4() {
		network = "udp4"
	}
	conn, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, bth.UDPPort)))
	if err != nil {
		e := p.cfg.fail("open", err)
		if errors.Is(err, syscall.EADDRINUSE) {
			e.Detail = claim.Hint
		}
		if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
			e.Err = errs.Kind(link.ErrPermission, e.Err)
		}
		return e
	}
	p.sockets = append(p.sockets, &socket{addr: bth.GIDFrom(a.WithZone("")), conn: conn})
	raw, err := conn.SyscallConn()
	if err == nil {
		var failed error
		if err = raw.Control(func(fd uintptr) { failed = dontFragment(fd, a.Is4()) }); err == nil {
			err = failed
		}
	}
	if err != nil {
		p.info.Notes = append(p.info.Notes, fmt.Sprintf("%v: packets may be fragmented, and over IPv4 only peers that do not see the Identification accept their ICRC: %v", a, err))
	}
	// The system limits the size.
	conn.SetReadBuffer(p.cfg.RxBuffer)
	conn.SetWriteBuffer(p.cfg.TxBuffer)
	return nil
}

// read receives until the socket is closed.
func (p *portable) read(s *socket) {
	for failures := 0; ; {
		d := p.empty()
		n, from, err := s.conn.ReadFromUDPAddrPort(d.data[:cap(d.data)])
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			// One error may come from an ICMP message about a sent packet, or from a packet that
			// is too long. Errors in a row have another cause.
			if failures++; failures > manyFailures {
				time.Sleep(time.Millisecond)
			}
			n = 0
			fallthrough
		case n == 0:
			p.count.RxErrors.Add(1)
			p.recycle(d)
			continue
		}
		failures = 0
		d.data = d.data[:n]
		src := bth.GIDFrom(from.Addr().WithZone(""))
		if d.env.Src != src || d.env.Dst != s.addr || d.env.SrcPort != from.Port() {
			d.env = frame.Envelope{Src: src, Dst: s.addr, SrcPort: from.Port(), HopLimit: hopLimit}
			d.env.Seal()
		}
		select {
		case p.inbox <- d:
			p.Wake()
		case <-p.done:
			return
		}
	}
}

// empty returns room for a datagram.
func (p *portable) empty() *datagram {
	select {
	case d := <-p.spare:
		return d
	default:
		return &datagram{data: make([]byte, maxMTU)}
	}
}

// recycle takes back the room of a datagram.
func (p *portable) recycle(d *datagram) {
	select {
	case p.spare <- d:
	default:
	}
}

// Recv implements link.Port.
func (p *portable) Recv(fr []link.Frame) (int, error) {
	if p.closed.Load() {
		return 0, link.ErrClosed
	}
	for _, d := range p.given {
		p.recycle(d)
	}
	p.given = p.given[:0]
	n, bytes := 0, uint64(0)
	for ; n < len(fr) && len(p.inbox) > 0; n++ {
		d := <-p.inbox
		p.given = append(p.given, d)
		fr[n] = link.Frame{Data: d.data, Env: &d.env}
		bytes += uint64(len(d.data))
	}
	if len(p.inbox) > 0 {
		p.Wake()
	}
	p.count.Received(n, bytes)
	return n, nil
}

// Begin implements frame.Sink.
func (p *portable) Begin(path *frame.Path, n int) (body []byte, crc bth.CRC, ok bool) {
	p.lent = nil
	if n < 0 || p.closed.Load() {
		return nil, 0, false
	}
	if p.queued == len(p.queue) {
		p.send()
	}
	out := &p.queue[p.queued]
	if cap(out.data) < n {
		out.data = make([]byte, max(n, min(p.info.MTU, 4352)))
	}
	out.data = out.data[:n]
	c := path.Config()
	out.from = p.socketOf(&c.Src)
	p.lost = nil
	switch {
	case out.from == nil || c.SrcPort != srcPort:
		p.lost = &p.count.TxErrors
	case n > bodyOf(p.info.MTU, path):
		p.lost = &p.count.TxOversize
	}
	p.lent = out
	if p.lost != nil {
		return out.data, 0, true
	}
	to := netip.AddrFrom16(c.Dst).Unmap()
	if to.Is6() && (to.IsLinkLocalUnicast() || to.IsMulticast()) {
		to = to.WithZone(p.info.Interface)
	}
	out.to = netip.AddrPortFrom(to, bth.UDPPort)
	body, crc = path.Put(out.data, frame.LayoutUDP, n, 0)
	return body, crc, true
}

// socketOf returns the socket of an address, or nil.
func (p *portable) socketOf(src *bth.GID) *socket {
	for _, s := range p.sockets {
		if s.addr == *src {
			return s
		}
	}
	return nil
}

// Lent implements link.Port.
func (p *portable) Lent() []byte {
	if p.lent == nil {
		return nil
	}
	return p.lent.data
}

// Commit implements frame.Sink.
func (p *portable) Commit() {
	switch {
	case p.lent == nil:
		return
	case p.lost != nil:
		p.lost.Add(1)
	default:
		p.queued++
	}
	p.lent = nil
}

// Flush implements link.Port.
func (p *portable) Flush() error {
	if p.closed.Load() {
		return link.ErrClosed
	}
	p.lent = nil
	return p.send()
}

// send sends committed packets. Package net waits if a socket has no room.
func (p *portable) send() (err error) {
	packets, bytes := 0, uint64(0)
	for i := range p.queue[:p.queued] {
		out := &p.queue[i]
		_, werr := out.from.conn.WriteToUDPAddrPort(out.data, out.to)
		switch {
		case werr == nil:
			packets++
			bytes += uint64(len(out.data))
		case errors.Is(werr, net.ErrClosed):
			p.queued = 0
			return link.ErrClosed
		case errors.Is(werr, syscall.EMSGSIZE):
			p.count.TxOversize.Add(1)
		default:
			p.count.TxErrors.Add(1)
			if err == nil {
				err = p.cfg.fail("send", werr)
			}
		}
	}
	p.queued = 0
	p.count.Sent(packets, bytes)
	return err
}

// Wait implements link.Port.
func (p *portable) Wait(d time.Duration) error {
	var limit <-chan time.Time
	switch {
	case p.closed.Load():
		return link.ErrClosed
	case d == 0:
		select {
		case <-p.wake:
		default:
		}
		return nil
	case d > 0:
		p.timer.Reset(d)
		defer p.timer.Stop()
		limit = p.timer.C
	}
	select {
	case <-p.wake:
	case <-limit:
	}
	if p.closed.Load() {
		p.Wake() // the next Wait must return, too
		return link.ErrClosed
	}
	return nil
}

// Wake implements link.Port.
func (p *portable) Wake() {
	p.wake.Notify()
}

// Close implements link.Port.
func (p *portable) Close() error {
	if p.closed.Swap(true) {
		return link.ErrClosed
	}
	close(p.done)
	for _, s := range p.sockets {
		s.conn.Close()
	}
	p.readers.Wait()
	p.Wake()
	return nil
}

// Info implements link.Port.
func (p *portable) Info() link.Info { return p.info }

// Stats implements link.Port.
func (p *portable) Stats() link.Stats {
	if p.info.Interface != "" && !p.closed.Load() {
		ifi, err := net.InterfaceByIndex(p.info.Index) // not by name, which may change
		p.count.SetDown(err != nil || ifi.Flags&net.FlagUp == 0)
	}
	return p.count.Stats()
}

// OnLink implements link.Port.
func (p *portable) OnLink(f func(up bool)) { p.count.OnLink(f) }
