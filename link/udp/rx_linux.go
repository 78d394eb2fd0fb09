package udp

import (
	"bytes"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/mmsg"
	"github.com/goroce/roce/internal/order"
	"github.com/goroce/roce/link"
)

// rxRoom is the size of the largest datagram or super-packet, plus one.
const rxRoom = 65536

// rx is the receive side of a Port. It belongs to the owner.
type rx struct {
	gro bool

	calls    mmsg.Receiver
	room     []byte // rxRoom bytes for each message; unused pages cost nothing
	msgs     [link.Batch]unix.Mmsghdr
	iov      [link.Batch]unix.Iovec
	names    [link.Batch]unix.RawSockaddrInet6
	controls [link.Batch]control
	senders  envelopes

	most        int             // capacity in messages
	next, count int             // messages [next:count] are not returned yet
	data        []byte          // rest of the message before next
	size        int             // of the segments of that message
	env         *frame.Envelope // of that message
	segment     uint16          // the next one of that message
	density     int             // packets in a message of the last batch
	info        received
	last        raws // of the last message, whose properties info has
}

// init allocates room for the given number of messages in one receive, at
// most link.Batch.
func (r *rx) init(messages int) {
	r.most = messages
	r.room = make([]byte, messages*rxRoom)
	r.density = 1
	for i := range r.msgs[:messages] {
		m := &r.msgs[i].Hdr
		r.iov[i].Base = &r.room[i*rxRoom]
		r.iov[i].SetLen(rxRoom)
		m.Iov = &r.iov[i]
		m.SetIovlen(1)
		m.Name = (*byte)(unsafe.Pointer(&r.names[i]))
		m.Control = (*byte)(unsafe.Pointer(&r.controls[i]))
		r.offer(i)
	}
}

// offer sets the buffers of message i to their full size.
func (r *rx) offer(i int) {
	h := &r.msgs[i].Hdr
	h.Namelen = unix.SizeofSockaddrInet6
	h.SetControllen(controlRoom)
}

// Recv implements link.Port. It returns the data first, then a few management datagrams.
func (p *Port) Recv(fr []link.Frame) (n int, err error) {
	if p.Gate.Closed() {
		return 0, link.ErrClosed
	}
	switch {
	case p.mads == nil:
		n, err = p.recv(fr)
	case p.Reads.DataOnly():
		n, err = p.recv(fr)
		p.Reads.GotData(n)
	default:
		n, err = p.Reads.Recv(fr, p.recv, p.mads.recv)
	}
	p.Left()
	return n, err
}

// recv fills fr from the Port's own socket.
func (p *Port) recv(fr []link.Frame) (n int, err error) {
	r := &p.rx
	if len(r.data) == 0 && r.next == r.count {
		if err := p.receive(len(fr)); err != nil {
			return 0, err
		}
	}
	bytes := uint64(0)
	for n < len(fr) {
		if len(r.data) == 0 {
			if r.next == r.count {
				break
			}
			p.open()
			continue
		}
		size := min(r.size, len(r.data))
		f := &fr[n] // set field by field: the compiler would build a composite literal elsewhere and copy it
		f.Data, f.Env, f.Segment = r.data[:size:size], r.env, r.segment
		r.data = r.data[size:]
		r.segment++
		bytes += uint64(size)
		n++
	}
	p.Count.Received(n, bytes)
	if left := len(r.data) > 0 || r.next < r.count; left != p.Backlog.Load() {
		p.Backlog.Store(left)
	}
	return n, nil
}

// receive gets the next messages from the kernel: as many as will fill most
// frames if they resemble the last ones. More messages would evict them from
// the cache.
func (p *Port) receive(most int) error {
	if !p.Gate.Enter() {
		return link.ErrClosed
	}
	err := p.receiveOpen(most)
	p.Gate.Leave() // not deferred: that costs each poll time
	return err
}

// receiveOpen is receive while the socket is in use.
func (p *Port) receiveOpen(most int) error {
	r := &p.rx
	if most == 0 {
		return nil
	}
	most = r.calls.Most(min(max(most/r.density, 1), r.most))
	for i := range r.msgs[:r.count] { // set the fields that the kernel has changed
		r.offer(i)
	}
	r.next, r.count = 0, 0
	got, errno := r.calls.Receive(p.FD, r.msgs[:most])
	switch errno {
	case 0:
		order.Received()
		r.count = got
		r.density = 1
		r.senders.turn()
		p.Alive()
		p.Sleeper.Busy()
	case unix.EAGAIN, unix.EINTR, unix.ENOMEM, unix.ENOBUFS,
		unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EMSGSIZE, unix.EPROTO:
		// The latter are errors of ICMP messages about sent packets.
	case unix.ENETDOWN:
		p.Look()
		if err := p.LinkState("receive"); err != nil {
			return err
		}
	default:
		return p.Fail("receive", errno)
	}
	return nil
}

// open starts to return the packets of the next message.
func (p *Port) open() {
	r := &p.rx
	i := r.next
	r.next++
	m, n := &r.msgs[i].Hdr, int(r.msgs[i].Len)
	in := &r.info
	again := r.last.is(&r.names[i], &r.controls[i], int(m.Controllen))
	if !again {
		in.take(&r.names[i], &r.controls[i], int(m.Controllen))
		if in.dst.IsZero() {
			in.dst = p.bound
		}
	}
	if n == 0 || n > rxRoom || m.Flags&unix.MSG_TRUNC != 0 || in.dst.IsZero() {
		r.last.size = 0
		p.Count.RxErrors.Add(1)
		return
	}
	r.data, r.size, r.segment = r.room[i*rxRoom:i*rxRoom+n], n, 0
	if in.segment > 0 && in.segment < n {
		r.size = in.segment
		r.density = max(r.density, (n+in.segment-1)/in.segment)
	}
	if again {
		r.env = r.senders.last()
		return
	}
	r.env = r.senders.find(in)
	r.last.set(&r.names[i], &r.controls[i], int(m.Controllen))
}

// raws are the address and the control messages of a message, as the kernel gave them.
type raws struct {
	name    unix.RawSockaddrInet6
	control control
	size    int // of control; 0: there was no message
}

// is reports whether a message has the same ones.
func (w *raws) is(name *unix.RawSockaddrInet6, c *control, size int) bool {
	return size > 0 && size == w.size && *name == w.name && bytes.Equal(c.bytes()[:size], w.control.bytes()[:size])
}

func (w *raws) set(name *unix.RawSockaddrInet6, c *control, size int) {
	w.name, w.size = *name, min(max(size, 0), controlRoom)
	copy(w.control.bytes()[:w.size], c.bytes())
}

// envelopes caches the envelopes of recent senders: making an envelope costs as much time as
// handling a small packet.
type envelopes struct {
	// slots[:used] are the envelopes of the current batch. Messages of one sender share a
	// slot. A slot is a copy, because the receiver of the frames stores the last
	// Identification in it.
	slots [link.Batch + 1]frame.Envelope
	used  int
	known [64]frame.Envelope // by source address, complete
}

// turn begins a new batch. It keeps the last used envelope.
func (e *envelopes) turn() {
	if e.used > 1 {
		e.slots[0] = e.slots[e.used-1]
		e.used = 1
	}
}

// last returns the envelope that find returned last.
func (e *envelopes) last() *frame.Envelope { return &e.slots[e.used-1] }

// find returns the envelope of a message.
func (e *envelopes) find(in *received) *frame.Envelope {
	if e.used > 0 {
		if last := e.last(); same(last, in) && last.TrafficClass == in.trafficClass && last.HopLimit == in.hopLimit && last.FlowLabel == in.flowLabel {
			return last
		}
	}
	k := &e.known[(uint(in.src[15])^uint(in.dst[15])<<3^uint(in.port))%uint(len(e.known))]
	if !same(k, in) {
		*k = frame.Envelope{Src: in.src, Dst: in.dst, SrcPort: in.port}
		k.Seal()
	}
	slot := &e.slots[e.used]
	e.used++
	*slot = *k
	slot.TrafficClass, slot.HopLimit, slot.FlowLabel = in.trafficClass, in.hopLimit, in.flowLabel
	return slot
}

// same reports whether an envelope has the fields of a message that the ICRC
// covers.
func same(e *frame.Envelope, in *received) bool {
	return e.SrcPort == in.port && e.Src == in.src && e.Dst == in.dst && e.Src != bth.GID{}
}
