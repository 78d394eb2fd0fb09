package raw

import (
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/driver"
	"github.com/goroce/roce/internal/gso"
	"github.com/goroce/roce/internal/order"
	"github.com/goroce/roce/link"
)

// maxRetries is the number of immediate repetitions of a send if there is no
// room in the device.
const maxRetries = 8

// send sends committed messages. Messages without room stay queued.
func (p *Port) send() (err error) {
	t := &p.tx
	if t.sent == len(t.queue) {
		return nil
	}
	if !p.Gate.Enter() {
		return link.ErrClosed
	}
	err = p.sendQueued()
	p.Gate.Leave() // not deferred: that costs each packet time
	return err
}

// sendQueued is send while the socket is in use.
func (p *Port) sendQueued() (err error) {
	t := &p.tx
	if t.direct.Doubted() && !t.bypass.Load() && t.direct.Allowed(t.clock()) {
		p.useQdisc(false)
	}
	for retries := 0; t.sent < len(t.queue); {
		n, errno := p.sendBatch(t.build())
		if n > 0 {
			retries = 0
			p.Unblock()
			t.patience.Went()
			p.Alive()
			continue
		}
		first := &t.queue[t.sent]
		switch errno {
		case unix.EINTR:
		case unix.EAGAIN:
			p.Count.TxRetries.Add(1)
			p.Await(driver.Starved)
			return err
		case unix.ENOBUFS, unix.ENOMEM:
			// No room in the device, in memory, or in the queueing discipline; no carrier;
			// or the device cannot segment: the kernel can, but not on the bypass. For the
			// first super-packet on the bypass this last cause is assumed.
			p.Count.TxRetries.Add(1)
			if retries++; retries <= maxRetries {
				runtime.Gosched()
				break
			}
			retries = 0
			if down := p.LinkState("send"); down != nil {
				return p.giveUp(down)
			}
			switch {
			case first.count > 1 && t.bypass.Load() && !t.proven:
				if t.direct.GiveUp(t.clock()); !p.useQdisc(true) {
					t.split(errno)
				}
			case t.patience.Refused(t.clock()):
				p.Await(driver.Crowded)
				return err
			case first.count > 1:
				t.split(errno)
			default:
				t.drop(&p.Count.TxDrops)
			}
		case unix.ENETDOWN, unix.ENXIO, unix.ENODEV:
			down := p.LinkState("send")
			if down == nil {
				down = p.Fail("send", errno)
			}
			return p.giveUp(down)
		case unix.EMSGSIZE:
			t.drop(&p.Count.TxOversize) // the MTU of the interface was reduced
		default:
			if first.count > 1 && errno != unix.EPERM && errno != unix.EACCES {
				t.split(errno)
				break
			}
			if err == nil {
				err = p.Fail("send", errno)
			}
			t.drop(&p.Count.TxErrors)
		}
	}
	p.Unblock() // no message waits for room any more
	return err
}

// drop drops the first message.
func (t *tx) drop(counter *atomic.Uint64) {
	counter.Add(uint64(t.queue[t.sent].count))
	t.sent++
	t.suspect = suspect{}
}

// giveUp drops all messages because the link is down or the interface was
// removed.
func (p *Port) giveUp(err error) error {
	t := &p.tx
	p.Look()
	for t.sent < len(t.queue) {
		t.drop(&p.Count.TxDrops)
	}
	p.Unblock()
	return err
}

// useQdisc selects sending through the queueing discipline or past it. It returns
// false if the kernel refuses.
func (p *Port) useQdisc(use bool) bool {
	v := 1
	if use {
		v = 0
	}
	if unix.SetsockoptInt(p.FD, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, v) != nil {
		return false
	}
	p.tx.bypass.Store(!use)
	return true
}

// went is called when a message has left, and records what this proves about
// super-packets.
func (p *Port) went(m *message) {
	t := &p.tx
	if m.count > 1 {
		if t.bypass.Load() {
			t.direct.Worked()
			t.proven = true
		}
		if !t.supers.Any() {
			return
		}
		t.supers.Worked(m.path.Config().Dst)
		t.plainPeers.Store(int32(t.supers.Paused(t.clock())))
		return
	}
	s := &t.suspect
	if s.left == 0 {
		return
	}
	if s.left--; s.left > 0 {
		return
	}
	switch {
	case s.errno == unix.ENOMEM:
	case s.errno == unix.ENOBUFS:
		if t.bypass.Load() && t.direct.Failed(t.clock()) {
			p.useQdisc(true)
		}
	case s.errno == unix.EINVAL && s.count > gso.FewSegments && t.most > gso.FewSegments:
		t.most = gso.FewSegments
	default:
		t.supers.Failed(t.clock(), m.path.Config().Dst)
		t.plainPeers.Store(int32(t.supers.Paused(t.clock())))
	}
}

// build prepares the unsent messages, and returns their number.
func (t *tx) build() int {
	left := t.queue[t.sent:]
	if len(left) > len(t.msgs) {
		left = left[:len(t.msgs)]
	}
	for i := range left {
		m := &left[i]
		m.open = false
		at := m.at
		if t.vnet {
			at -= gso.VnetLen
			var h gso.VnetHeader
			if m.count > 1 {
				h = t.finish(m)
			}
			h.Put(t.room[at:])
		}
		t.iov[i] = buffer(t.room[at : m.at+m.header+m.body])
		t.msgs[i].Hdr.Iov = &t.iov[i]
		t.msgs[i].Hdr.SetIovlen(1)
	}
	return len(left)
}

// headers returns the places of the message's headers.
func (m *message) headers() gso.Headers {
	return gso.Headers{
		IP: m.header - m.path.HeaderLen(frame.LayoutIP), UDP: m.header - udpLen, Body: m.header, V6: !m.path.Is4(),
	}
}

// finish turns the headers of the first packet into those of the
// super-packet.
func (t *tx) finish(m *message) gso.VnetHeader {
	e := m.headers()
	m.path.PutSuper(t.room[m.at:], m.body)
	return gso.VnetHeader{
		Flags: gso.NeedsCsum, Type: gso.UDP4,
		HeaderLen: uint16(e.Body), Size: uint16(m.size),
		CsumStart: uint16(e.UDP), CsumOffset: 6,
	}
}

// split divides the unsent super-packets into packets, because the kernel refused the
// first of them with an errno.
func (t *tx) split(errno unix.Errno) {
	first := t.queue[t.sent].count
	t.suspect = suspect{errno: errno, count: first, left: first}
	need, count := 0, 0
	for i := range t.queue[t.sent:] {
		m := &t.queue[t.sent+i]
		need += m.count*(gso.VnetLen+m.header) + m.body
		count += m.count
	}
	room := make([]byte, max(need, len(t.room)))
	queue := make([]message, 0, max(count, link.Batch))
	end := 0
	for i := range t.queue[t.sent:] {
		m := &t.queue[t.sent+i]
		whole := t.room[m.at : m.at+m.header+m.body]
		for k := range m.count {
			at := end + gso.VnetLen
			n := m.header + min(m.size, m.body-k*m.size)
			if m.count == 1 { // a wrapper may have changed its headers
				copy(room[at:], whole)
			} else {
				gso.Segment(room[at:], whole, m.headers(), m.size, k)
			}
			queue = append(queue, message{path: m.path, at: at, header: m.header, size: n - m.header, body: n - m.header, count: 1})
			end = at + n
		}
	}
	t.room, t.queue, t.sent, t.end = room, queue, 0, end
}

// sendBatch sends the built messages, counts them, and returns the number of
// sent ones.
func (p *Port) sendBatch(messages int) (int, unix.Errno) {
	t := &p.tx
	order.Sent()
	n, errno := t.sendmmsg(p.FD, t.msgs[:messages])
	if errno != 0 {
		return 0, errno
	}
	packets, bytes := 0, 0
	doubt := !t.proven || t.suspect.left > 0 || t.supers.Any() || t.direct.Doubted()
	for range n {
		m := &t.queue[t.sent]
		packets += m.count
		bytes += m.count*m.header + m.body
		t.sent++
		if doubt {
			p.went(m)
		}
	}
	p.Count.Sent(packets, uint64(bytes))
	return n, 0
}

// buffer is an element of a scatter list.
func buffer(b []byte) unix.Iovec {
	v := unix.Iovec{Base: &b[0]}
	v.SetLen(len(b))
	return v
}
