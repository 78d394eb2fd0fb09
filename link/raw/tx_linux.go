package raw

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// slot is a frame that is being built or waits to be sent.
type slot struct {
	b []byte
	n int
}

// tx is the transmit side of a Port. It belongs to the owner.
type tx struct {
	vnet bool
	mtu  int

	// Both may be given up for good when the kernel cannot: see send.
	gso    atomic.Bool // runs of packets go as one super-packet
	bypass atomic.Bool // the socket passes the queueing discipline by

	slots   [link.Batch]slot // [sent:queued] are committed and not sent
	sent    int
	queued  int
	lent    []byte
	scratch []byte // room for frames beyond the MTU
	over    bool   // lent is in scratch
	id      uint16 // Identification of the next IPv4 packet
	failure error  // of a Flush inside Begin, for the next Flush

	// One message for each frame or super-packet.
	msgs    [link.Batch]unix.Mmsghdr
	frames  [link.Batch]int // how many frames the message carries
	iov     [3 * link.Batch]unix.Iovec
	vnets   [link.Batch][vnetLen]byte
	headers [link.Batch][14 + 4 + 40 + udpLen]byte // of super-packets
}

func (t *tx) init(mtu int) {
	t.mtu = mtu
	size := mtu + 14 + 4
	room := make([]byte, len(t.slots)*size)
	for i := range t.slots {
		t.slots[i].b = room[i*size : (i+1)*size : (i+1)*size]
	}
}

// Begin implements frame.Sink.
func (p *Port) Begin(path *frame.Path, n int) (body []byte, crc bth.CRC, ok bool) {
	t := &p.tx
	t.lent = nil
	if n < 0 || p.gate.Closed() {
		return nil, 0, false
	}
	if t.queued == len(t.slots) {
		if err := p.send(); err != nil && t.failure == nil {
			t.failure = err
		}
		if t.queued == len(t.slots) {
			return nil, 0, false // and send has noted that we starve
		}
	}
	size := path.HeaderLen(frame.LayoutEthernet) + n
	room := t.slots[t.queued].b
	t.over = path.HeaderLen(frame.LayoutIP)+n > t.mtu
	if t.over {
		if len(t.scratch) < size {
			t.scratch = make([]byte, size)
		}
		room = t.scratch
	}
	t.lent = room[:size:size]
	body, crc = path.Put(t.lent, frame.LayoutEthernet, n, t.id)
	return body, crc, true
}

// Lent implements link.Port.
func (p *Port) Lent() []byte { return p.tx.lent }

// Commit implements frame.Sink.
func (p *Port) Commit() {
	t := &p.tx
	if t.lent == nil {
		return
	}
	t.id++
	if t.over {
		p.count.TxOversize.Add(1)
	} else {
		t.slots[t.queued].n = len(t.lent)
		t.queued++
	}
	t.lent = nil
}

// Flush implements link.Port.
func (p *Port) Flush() error {
	t := &p.tx
	if p.gate.Closed() {
		return link.ErrClosed
	}
	err := p.send()
	if err == nil {
		err, t.failure = t.failure, nil
	}
	return err
}

// maxRetries is how often a send without room in the device is repeated before
// its packets are given up: the transport repeats them anyway.
const maxRetries = 8

// send sends what is committed. What the socket has no room for stays, at the
// front of the slots.
func (p *Port) send() (err error) {
	t := &p.tx
	if t.queued == 0 {
		return nil
	}
	if !p.gate.Enter() {
		return link.ErrClosed
	}
	defer p.gate.Leave()
	for retries := 0; t.sent < t.queued; {
		n, errno := p.sendBatch(t.build())
		if n > 0 {
			p.starved.Store(false)
			p.count.SetDown(false)
			continue
		}
		switch errno {
		case unix.EINTR:
		case unix.EAGAIN:
			p.count.TxRetries.Add(1)
			t.settle()
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
			if t.frames[0] > 1 && t.bypass.Load() {
				// Or the device cannot segment: the kernel then can, but not
				// on the bypass.
				p.useQdisc()
				break
			}
			t.drop(p, &p.count.TxDrops)
		case unix.ENETDOWN, unix.ENXIO, unix.ENODEV:
			down := p.linkState("send")
			if down == nil {
				down = p.failed("send", errno)
			}
			return p.giveUp(down)
		default:
			if t.frames[0] > 1 { // the kernel or device cannot do GSO here
				t.gso.Store(false)
				break
			}
			if err == nil {
				err = p.failed("send", errno)
			}
			t.drop(p, &p.count.TxErrors)
		}
	}
	t.settle()
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
	p.count.TxDrops.Add(uint64(t.queued - t.sent))
	t.sent, t.queued = 0, 0
	return err
}

// sendBatch sends the messages built, counts, and returns how many went.
func (p *Port) sendBatch(messages int) (int, unix.Errno) {
	t := &p.tx
	r, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(p.fd),
		uintptr(unsafe.Pointer(&t.msgs)), uintptr(messages), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	packets, bytes := 0, 0
	for i := range int(r) {
		for range t.frames[i] {
			bytes += t.slots[t.sent].n
			t.sent++
		}
		packets += t.frames[i]
	}
	p.count.Sent(packets, uint64(bytes))
	return int(r), 0
}

// drop gives up the frames of the first message.
func (t *tx) drop(p *Port, counter interface{ Add(uint64) uint64 }) {
	counter.Add(uint64(t.frames[0]))
	t.sent += t.frames[0]
}

// settle moves what is left to the front of the slots.
func (t *tx) settle() {
	n := 0
	for i := t.sent; i < t.queued; i++ {
		t.slots[n], t.slots[i] = t.slots[i], t.slots[n]
		n++
	}
	t.sent, t.queued = 0, n
}

// build makes messages of the frames that are not sent, and returns how many.
func (t *tx) build() (messages int) {
	iov := t.iov[:0]
	gso := t.gso.Load()
	for at := t.sent; at < t.queued; messages++ {
		first := len(iov)
		if t.vnet {
			iov = append(iov, buffer(t.vnets[messages][:]))
		}
		run, e, body := 1, envelope{}, 0
		if gso {
			run, e, body = t.run(at)
		}
		f := &t.slots[at]
		var h vnetHeader
		if run == 1 {
			iov = append(iov, buffer(f.b[:f.n]))
		} else {
			header := t.headers[messages][:e.body]
			superHeader(header, f.b, e, body)
			iov = append(iov, buffer(header))
			for i := at; i < at+run; i++ {
				iov = append(iov, buffer(t.slots[i].b[e.body:t.slots[i].n]))
			}
			h = vnetHeader{
				flags: vnetNeedsCsum, gsoType: vnetGSOUDP4,
				hdrLen: uint16(e.body), gsoSize: uint16(f.n - e.body),
				csumStart: uint16(e.udp), csumOff: 6,
			}
		}
		h.put(t.vnets[messages][:])
		m := &t.msgs[messages].Hdr
		m.Iov = &iov[first]
		m.SetIovlen(len(iov) - first)
		t.frames[messages] = run
		at += run
	}
	return messages
}

// run finds how many frames from slot at on can go as one super-packet, where
// the headers of the first are, and how many payload bytes they have.
func (t *tx) run(at int) (n int, e envelope, body int) {
	first := &t.slots[at]
	if at+1 >= t.queued || t.slots[at+1].n > first.n {
		return 1, e, 0
	}
	e, ok := look(first.b[:first.n])
	if !ok || first.n == e.body {
		return 1, e, 0
	}
	n, body = 1, first.n-e.body
	for i := at + 1; i < t.queued && n < maxSegments; i++ {
		f := &t.slots[i]
		size := f.n - e.body
		if f.n > first.n || size <= 0 || e.body-e.ip+body+size > maxSuper || !follows(first.b, f.b[:f.n], e, n) {
			break
		}
		n++
		body += size
		if f.n < first.n {
			break // a shorter one is the last
		}
	}
	return n, e, body
}

// buffer is an element of a scatter list.
func buffer(b []byte) unix.Iovec {
	v := unix.Iovec{Base: &b[0]}
	v.SetLen(len(b))
	return v
}
