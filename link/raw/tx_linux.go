package raw

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/gso"
	"github.com/goroce/roce/internal/mmsg"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/internal/txpolicy"
	"github.com/goroce/roce/link"
)

// message is the data of one sendmsg: a frame, or a super-packet of several packets. In
// tx.room it consists of a virtio_net_hdr, the headers, and the bodies of its
// packets, back to back.
type message struct {
	path   *frame.Path
	at     int        // start of its Ethernet header
	header int        // bytes of headers, Ethernet to UDP
	size   int        // of each body but the last, which may be shorter
	body   int        // bytes of all bodies
	count  int        // packets
	open   bool       // another packet may join
	dest   share.Dest // of its packets
}

// tx is the transmit side of a Port. It belongs to the owner.
//
// If a packet may join the last committed one in a super-packet, Begin lends the room right
// after that one, without headers. If the caller calls Lent, Lent writes the headers
// in front of that room, over the end of the previous packet; Commit or the next Begin restores
// that end.
type tx struct {
	vnet bool
	mtu  int

	gso        bool            // runs of packets leave as one super-packet
	most       int             // limit of the packets of a super-packet; decreases if the kernel accepts fewer
	supers     txpolicy.Trials // peers and super-packets
	plainPeers atomic.Int32    // number of peers without super-packets at present
	suspect    suspect

	direct txpolicy.Trial // whether super-packets bypass the queueing discipline
	proven bool           // super-packets have bypassed it with success
	bypass atomic.Bool    // the socket bypasses the queueing discipline

	room  []byte    // of all messages, in order
	end   int       // of the last message in room
	queue []message // [sent:] are committed and not sent
	sent  int

	lent    []byte                   // headers and body; nil: none. Unless shown is set, the headers may be missing
	path    *frame.Path              // of the packet lent
	spread  share.Spread             // of the queue pairs at the other end of that path
	header  int                      // bytes of headers of the packet lent
	joins   bool                     // Commit will add lent to the last message
	late    bool                     // the messages before lent were sent
	over    bool                     // lent is in scratch
	shown   bool                     // Lent was called, so a wrapper may have changed the headers of the packet
	made    [frame.MaxHeaderLen]byte // the headers as they were shown
	covered [frame.MaxHeaderLen]byte // the bytes that the headers replaced

	base     bth.CRC     // what Put returns for Identification 0 and packets of baseSize bytes of basePath that join a message
	basePath *frame.Path // nil: there was none
	baseSize int

	scratch []byte // room for frames beyond the MTU
	id      uint16 // Identification of the next IPv4 packet
	failure error  // of a Flush inside Begin, for the next Flush

	sendmmsg func(fd int, msgs []unix.Mmsghdr) (int, unix.Errno)
	clock    func() time.Time
	patience txpolicy.Patience

	msgs [link.Batch]unix.Mmsghdr
	iov  [link.Batch]unix.Iovec
}

// suspect is a super-packet that was refused and divided: if its packets leave, the
// kernel or the device does not support the super-packet.
type suspect struct {
	errno unix.Errno
	count int // of packets
	left  int // of them in the queue, at its front
}

// txRoom is the room for all messages of a flush. It is small enough to stay
// in the cache until the kernel copies it.
const txRoom = 256 << 10

func (t *tx) init(mtu int) {
	t.mtu, t.most = mtu, gso.MaxSegments
	t.sendmmsg, t.clock = mmsg.Send, time.Now
	t.room = make([]byte, max(txRoom, link.Batch*(gso.VnetLen+frame.MaxHeaderLen+mtu)))
	t.queue = make([]message, 0, link.Batch)
}

// waiting returns the number of unsent messages.
func (t *tx) waiting() int { return len(t.queue) - t.sent }

// Begin implements frame.Sink.
func (p *Port) Begin(path *frame.Path, n int) (body []byte, crc bth.CRC, ok bool) {
	t := &p.tx
	if path != t.path {
		t.spread = share.Spread{}
	}
	t.abandon()
	if n < 0 || p.Gate.Closed() {
		return nil, 0, false
	}
	if t.follows(path, n) {
		t.joins = true
		t.lent = t.room[t.end-t.header : t.end+n : t.end+n]
		if path != t.basePath || n != t.baseSize {
			_, t.base = path.Put(t.lent[t.header:], frame.LayoutUDP, n, 0)
			t.basePath, t.baseSize = path, n
		}
		return t.lent[t.header:], path.WithID(t.base, t.id), true
	}
	t.path, t.header, t.joins = path, path.HeaderLen(frame.LayoutEthernet), false
	size := t.header + n
	if t.over = path.HeaderLen(frame.LayoutIP)+n > t.mtu; t.over {
		if len(t.scratch) < size {
			t.scratch = make([]byte, size)
		}
		t.lent = t.scratch[:size:size]
	} else {
		if !t.fits(size) {
			if err := p.send(); err != nil && t.failure == nil {
				t.failure = err
			}
			if !t.fits(size) {
				return nil, 0, false // send has recorded that we wait for room
			}
		}
		at := t.end + gso.VnetLen
		t.lent = t.room[at : at+size : at+size]
	}
	body, crc = path.Put(t.lent, frame.LayoutEthernet, n, t.id)
	return body, crc, true
}

// abandon drops the lent packet.
func (t *tx) abandon() {
	if t.shown {
		t.cover()
	}
	t.lent, t.late = nil, false
}

// follows reports whether a packet may become part of the last message. It
// then has the path and the header length of that message.
func (t *tx) follows(path *frame.Path, n int) bool {
	if t.sent == len(t.queue) {
		return false
	}
	m := &t.queue[len(t.queue)-1]
	if !m.open || len(t.queue) >= link.Batch || n > m.size || n == 0 || m.count >= t.most ||
		m.header+m.body+n > gso.MaxSuper || t.end+gso.VnetLen+m.header+n > len(t.room) || // room to part
		!m.path.Equal(path) {
		return false
	}
	t.path, t.header, t.over = path, m.header, false
	return true
}

// fits reports whether there is room for one more message.
func (t *tx) fits(size int) bool {
	if t.sent == len(t.queue) {
		t.queue, t.sent, t.end = t.queue[:0], 0, 0
	}
	return len(t.queue) < link.Batch && t.end+gso.VnetLen+size <= len(t.room)
}

// Lent implements link.Port.
func (p *Port) Lent() []byte {
	t := &p.tx
	if t.lent != nil && !t.shown {
		t.show()
	}
	return t.lent
}

// show writes the headers of the lent packet, if they are missing.
func (t *tx) show() {
	t.shown = true
	if t.joins {
		copy(t.covered[:], t.lent[:t.header])
		t.path.Put(t.lent, frame.LayoutEthernet, len(t.lent)-t.header, t.id)
	}
	copy(t.made[:], t.lent[:t.header])
}

// cover restores the bytes that the headers replaced.
func (t *tx) cover() {
	t.shown = false
	if t.joins {
		copy(t.lent[:t.header], t.covered[:])
	}
}

// changed reports whether a wrapper changed the headers of the lent packet.
func (t *tx) changed() bool {
	return t.shown && string(t.lent[:t.header]) != string(t.made[:t.header])
}

// Commit implements frame.Sink.
func (p *Port) Commit() {
	t := &p.tx
	if t.lent == nil {
		return
	}
	changed := t.changed()
	switch {
	case t.over:
		p.Count.TxOversize.Add(1)
	case t.joins && !t.late && !changed:
		n := len(t.lent) - t.header
		m := &t.queue[len(t.queue)-1]
		if body := t.lent[t.header:]; !m.dest.Is(body) && t.spread.Apart(m.dest.Part, share.Part(body)) {
			p.part(true)
			break
		}
		m.count++
		m.body += n
		m.open = n == m.size // a shorter packet is the last one
		t.end += n
		if t.shown {
			t.cover()
		}
	case t.joins || t.late:
		p.part(false)
	default:
		t.add(!changed && t.gso && t.supersGo(t.path))
	}
	t.id++
	t.lent, t.shown = nil, false
}

// supersGo reports whether the Port tries super-packets on a path.
func (t *tx) supersGo(path *frame.Path) bool {
	return !t.supers.Any() || t.supers.Allowed(t.clock(), path.Config().Dst)
}

// add queues the lent packet as a message.
func (t *tx) add(open bool) {
	at, n := t.end+gso.VnetLen, len(t.lent)-t.header
	dest := share.DestOf(t.room[at+t.header : at+len(t.lent)]) // the lent packet may have been moved here
	open = open && dest.Part != share.ManagementPart
	t.queue = append(t.queue, message{path: t.path, at: at, header: t.header, size: n, body: n, count: 1, open: open, dest: dest})
	t.end = at + len(t.lent)
}

// part queues the lent packet as a separate message, although it was to join the last one:
// its headers were changed, or the last message was sent, or is for another part of the
// peer. If open is set, others may join it.
func (p *Port) part(open bool) {
	t := &p.tx
	if len(t.queue) >= link.Batch {
		if err := p.send(); err != nil && t.failure == nil {
			t.failure = err
		}
	}
	if t.sent == len(t.queue) {
		t.queue, t.sent = t.queue[:0], 0
	}
	at := t.end + gso.VnetLen
	if len(t.queue) >= link.Batch || at+len(t.lent) > len(t.room) {
		p.Count.TxDrops.Add(1)
		return
	}
	if !t.shown {
		t.show()
	}
	copy(t.room[at:], t.lent)
	t.cover()
	t.add(open)
}

// Flush implements link.Port.
func (p *Port) Flush() error {
	t := &p.tx
	if p.Gate.Closed() {
		return link.ErrClosed
	}
	if t.lent != nil {
		if t.shown {
			t.cover()
		}
		t.late = true
	}
	err := p.send()
	if err == nil {
		err, t.failure = t.failure, nil
	}
	return err
}
