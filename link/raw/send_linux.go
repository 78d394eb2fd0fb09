package raw

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/order"
	"github.com/goroce/roce/link"
)

// maxRetries is how often a send without room in the device is repeated before
// its packets are given up: the transport repeats them anyway.
const maxRetries = 8

// send sends what is committed. What the socket has no room for stays.
func (p *Port) send() (err error) {
	t := &p.tx
	if t.sent == len(t.queue) {
		return nil
	}
	if !p.gate.Enter() {
		return link.ErrClosed
	}
	defer p.gate.Leave()
	for retries := 0; t.sent < len(t.queue); {
		n, errno := p.sendBatch(t.build())
		if n > 0 {
			p.starved.Store(false)
			p.count.SetDown(false)
			continue
		}
		first := &t.queue[t.sent]
		switch errno {
		case unix.EINTR:
		case unix.EAGAIN:
			p.count.TxRetries.Add(1)
			p.starve()
			return err
		case unix.ENOBUFS:
			// No room in the device, or no carrier behind it.
			p.count.TxRetries.Add(1)
			if retries++; retries <= maxRetries {
				runtime.Gosched()
				break
			}
			retries = 0
			if down := p.linkState("send"); down != nil {
				return p.giveUp(down)
			}
			if first.count > 1 && t.bypass.Load() {
				// Or the device cannot segment: the kernel then can, but not
				// on the bypass.
				p.useQdisc()
				break
			}
			p.count.TxDrops.Add(uint64(first.count))
			t.sent++
		case unix.ENETDOWN, unix.ENXIO, unix.ENODEV:
			down := p.linkState("send")
			if down == nil {
				down = p.failed("send", errno)
			}
			return p.giveUp(down)
		default:
			if first.count > 1 { // the kernel or device cannot do GSO here, or not so many
				if first.count > fewSegments {
					t.most = fewSegments
				} else {
					t.gso.Store(false)
				}
				t.split()
				break
			}
			if err == nil {
				err = p.failed("send", errno)
			}
			p.count.TxErrors.Add(1)
			t.sent++
		}
	}
	return err
}

// starve lets Wait look for room too, also one that is in progress.
func (p *Port) starve() {
	if !p.starved.Swap(true) {
		p.Wake()
	}
}

// useQdisc ends the bypass.
func (p *Port) useQdisc() {
	p.tx.bypass.Store(false)
	unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 0)
}

// giveUp drops everything because the link is down or gone.
func (p *Port) giveUp(err error) error {
	t := &p.tx
	p.count.SetDown(true)
	for ; t.sent < len(t.queue); t.sent++ {
		p.count.TxDrops.Add(uint64(t.queue[t.sent].count))
	}
	return err
}

// build prepares the messages that are not sent, and returns how many.
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
			at -= vnetLen
			var h vnetHeader
			if m.count > 1 {
				h = t.finish(m)
			}
			h.put(t.room[at:])
		}
		t.iov[i] = buffer(t.room[at : m.at+m.header+m.body])
		t.msgs[i].Hdr.Iov = &t.iov[i]
		t.msgs[i].Hdr.SetIovlen(1)
	}
	return len(left)
}

// headers is where those of the message are.
func (m *message) headers() envelope {
	return envelope{
		ip: m.header - m.path.HeaderLen(frame.LayoutIP), udp: m.header - udpLen, body: m.header, v6: !m.path.Is4(),
	}
}

// finish makes the headers of a super-packet of those of its first packet.
func (t *tx) finish(m *message) vnetHeader {
	e := m.headers()
	superHeader(t.room[m.at:], e, m.body)
	return vnetHeader{
		flags: vnetNeedsCsum, gsoType: vnetGSOUDP4,
		hdrLen: uint16(e.body), gsoSize: uint16(m.size),
		csumStart: uint16(e.udp), csumOff: 6,
	}
}

// split takes the super-packets that are not sent apart again.
func (t *tx) split() {
	need, count := 0, 0
	for i := range t.queue[t.sent:] {
		m := &t.queue[t.sent+i]
		need += m.count*(vnetLen+m.header) + m.body
		count += m.count
	}
	room := make([]byte, max(need, len(t.room)))
	queue := make([]message, 0, max(count, link.Batch))
	end := 0
	for i := range t.queue[t.sent:] {
		m := &t.queue[t.sent+i]
		whole := t.room[m.at : m.at+m.header+m.body]
		for k := range m.count {
			at := end + vnetLen
			n := m.header + min(m.size, m.body-k*m.size)
			if m.count == 1 { // as somebody may have wanted it
				copy(room[at:], whole)
			} else {
				segment(room[at:], whole, m.headers(), m.size, k)
			}
			queue = append(queue, message{path: m.path, at: at, header: m.header, size: n - m.header, body: n - m.header, count: 1})
			end = at + n
		}
	}
	t.room, t.queue, t.sent, t.end = room, queue, 0, end
}

// sendBatch sends the messages built, counts, and returns how many went.
func (p *Port) sendBatch(messages int) (int, unix.Errno) {
	t := &p.tx
	order.Sent()
	r, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(p.fd),
		uintptr(unsafe.Pointer(&t.msgs)), uintptr(messages), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	packets, bytes := 0, 0
	for range int(r) {
		m := &t.queue[t.sent]
		packets += m.count
		bytes += m.count*m.header + m.body
		t.sent++
	}
	p.count.Sent(packets, uint64(bytes))
	return int(r), 0
}

// buffer is an element of a scatter list.
func buffer(b []byte) unix.Iovec {
	v := unix.Iovec{Base: &b[0]}
	v.SetLen(len(b))
	return v
}
