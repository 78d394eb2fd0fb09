package udp

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/mmsg"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/internal/txpolicy"
	"github.com/goroce/roce/link"
)

const (
	// maxSegments is the largest number of packets in a super-packet (UDP_MAX_SEGMENTS).
	// fewSegments is that limit before Linux 6.9.
	maxSegments = 128
	fewSegments = 64

	// arenaSize is the room for one sendmmsg: four full super-packets, which
	// stay in the cache until the kernel copies them.
	arenaSize = 4*65536 + alignment

	// alignment is the alignment of messages in the arena.
	alignment = 64
)

// message is a packet, or several packets of equal size, the last one perhaps shorter, that
// leave as one super-packet. All are for one part of the peer, because the peer's kernel
// delivers a super-packet by its first packet.
type message struct {
	at, end int        // in the arena
	size    int        // bytes of every packet but the last
	count   int        // of packets
	dest    share.Dest // of the first packet
	split   bool
	errno   unix.Errno  // reason of the split, if super-packets may not work
	path    *frame.Path // of its first packet
	to      destination
}

// packet returns the offsets of packet k of the message in the arena.
func (m *message) packet(k int) (at, end int) {
	at = m.at + k*m.size
	return at, min(at+m.size, m.end)
}

// tx is the transmit side of a Port. It belongs to the owner.
type tx struct {
	mtu  int
	gso  bool // GSO is supported and wanted
	most int  // packets of a super-packet; decreases if the kernel accepts fewer

	arena  []byte
	tail   int // end of the used part of arena
	queue  [link.Batch]message
	queued int  // queue[:queued] are committed
	sent   int  // queue[:sent] have left
	part   int  // so many packets of queue[sent] have left, too
	open   bool // queue[queued-1] may grow, by packets for dest

	path  *frame.Path // of the last Begin
	stale bool        // the next Begin must check dest again
	dest  destination // of that path
	bad   bool        // packets cannot be sent on that path
	alone bool        // no super-packets on that path
	like  int         // bytes of the last packet of that path, if the next may have the same headers
	base  bth.CRC     // the CRC that Put returned for that packet, for Identification 0

	undivided bool // one process has all queue pairs at dest

	spread share.Spread // of the queue pairs at dest
	recent share.Dest   // of the first packet of the last message

	lent    []byte
	appends bool // lent continues the open message
	lost    *atomic.Uint64
	scratch []byte // room for packets that are counted in lost instead of sent

	failure error // of a Flush inside Begin, for the next Flush

	sendmmsg   func(fd int, msgs []unix.Mmsghdr) (int, unix.Errno)
	clock      func() time.Time
	patience   txpolicy.Patience
	supers     txpolicy.Trials // peers and super-packets
	plainPeers atomic.Int32    // number of peers without super-packets at present

	// Arguments of sendmmsg: messages or, for split ones, packets.
	msgs    [link.Batch]unix.Mmsghdr
	iov     [link.Batch]unix.Iovec
	packets [link.Batch]int // in each message
}

func (t *tx) init(mtu int) {
	t.mtu, t.most = mtu, maxSegments
	t.sendmmsg, t.clock = mmsg.Send, time.Now
	t.arena = make([]byte, arenaSize)
	for i := range t.msgs {
		t.msgs[i].Hdr.Iov = &t.iov[i]
		t.msgs[i].Hdr.SetIovlen(1)
	}
}

// Begin implements frame.Sink.
func (p *Port) Begin(path *frame.Path, n int) (body []byte, crc bth.CRC, ok bool) {
	t := &p.tx
	t.lent = nil
	if n < 0 || p.Gate.Closed() {
		return nil, 0, false
	}
	if path == t.path && n == t.like && t.open && !t.stale && t.queued < len(t.queue) {
		// The fast path: another packet like the last, as usual in a stream.
		m := &t.queue[t.queued-1]
		if end := m.end + n; n == m.size && m.count < t.most && end-m.at <= maxBody && end <= len(t.arena) {
			t.lost, t.appends = nil, true
			t.lent = t.arena[m.end:end:end]
			return t.lent, path.WithID(t.base, uint16(m.count)), true
		}
	}
	if path != t.path || t.stale {
		p.turn(path)
	}
	t.lost = nil
	switch {
	case t.bad:
		t.lost = &p.Count.TxErrors
	case n > bodyOf(t.mtu, path):
		t.lost = &p.Count.TxOversize
	}
	if t.lost != nil {
		if len(t.scratch) < n {
			t.scratch = make([]byte, n)
		}
		t.lent = t.scratch[:n:n]
		return t.lent, 0, true
	}
	if t.open && t.queued < len(t.queue) { // the packet may need a new message
		m := &t.queue[t.queued-1]
		if end := m.end + n; n <= m.size && m.count < t.most && end-m.at <= maxBody && end <= len(t.arena) {
			t.appends = true
			t.lent = t.arena[m.end:end:end]
			body, crc = path.Put(t.lent, frame.LayoutUDP, n, 0)
			t.like, t.base = n, crc
			return body, path.WithID(crc, uint16(m.count)), true
		}
	}
	if t.full(n) {
		if err := p.send(); err != nil && t.failure == nil {
			t.failure = err
		}
		if t.full(n) {
			return nil, 0, false // send has recorded that we wait for room
		}
	}
	t.appends = false
	t.lent = t.arena[t.tail : t.tail+n : t.tail+n]
	body, crc = path.Put(t.lent, frame.LayoutUDP, n, 0)
	t.like, t.base = n, crc
	return body, crc, true
}

// full reports whether there is no room for a new message of n bytes.
func (t *tx) full(n int) bool { return t.queued == len(t.queue) || t.tail+n > len(t.arena) }

// turn sets the destination for another path.
func (p *Port) turn(path *frame.Path) {
	t := &p.tx
	c := path.Config()
	before := t.dest
	t.path, t.stale, t.undivided, t.like = path, false, c.Undivided, 0
	t.dest.set(p, &c)
	t.alone = !t.gso || t.supers.Any() && !t.supers.Allowed(t.clock(), c.Dst)
	t.bad = c.SrcPort != srcPort || !p.v6 && !c.Dst.Is4() || !p.bound.IsZero() && c.Src != p.bound
	if before != t.dest {
		t.open, t.spread = false, share.Spread{}
	}
}

// Lent implements link.Port.
func (p *Port) Lent() []byte { return p.tx.lent }

// Commit implements frame.Sink.
func (p *Port) Commit() {
	t := &p.tx
	n := len(t.lent)
	switch {
	case t.lent == nil:
		return
	case t.lost != nil:
		t.lost.Add(1)
	case t.appends:
		m := &t.queue[t.queued-1]
		if !m.dest.Is(t.lent) && t.apartFor(m.dest.Part, share.Part(t.lent)) {
			t.begin(m.end, n)
			repair(t.path, t.lent, uint16(m.count), 0)
			break
		}
		m.count++
		m.end += n
		t.open = n == m.size // a shorter packet is the last one
		t.tail = (m.end + alignment - 1) &^ (alignment - 1)
	default:
		t.begin(t.tail, n)
	}
	t.lent = nil
}

// apartFor reports whether a packet for part b of the peer must not share a super-packet with a
// packet for part a.
func (t *tx) apartFor(a, b uint8) bool {
	if t.undivided && a != share.ManagementPart {
		return b == share.ManagementPart
	}
	return t.spread.Apart(a, b)
}

// begin makes the lent packet of n bytes the first of a message.
func (t *tx) begin(at, n int) {
	m := &t.queue[t.queued]
	m.at, m.end, m.size, m.count, m.split, m.errno, m.path = at, at+n, n, 1, false, 0, t.path
	m.to.take(&t.dest)
	if !t.recent.Is(t.lent) {
		t.recent = share.DestOf(t.lent)
	}
	m.dest = t.recent
	t.queued++
	t.open = n > 0 && !t.alone && m.dest.Part != share.ManagementPart
	t.tail = (m.end + alignment - 1) &^ (alignment - 1)
}

// Flush implements link.Port.
func (p *Port) Flush() error {
	t := &p.tx
	if p.Gate.Closed() {
		return link.ErrClosed
	}
	t.lent = nil
	err := p.send()
	if err == nil {
		err, t.failure = t.failure, nil
	}
	return err
}

// build prepares the arguments of sendmmsg for unsent messages, and returns
// their number.
func (t *tx) build() (n int) {
	for i, k := t.sent, t.part; i < t.queued && n < len(t.msgs); n++ {
		m := &t.queue[i]
		at, end, segment, count := m.at, m.end, m.size, m.count
		switch {
		case m.split:
			at, end = m.packet(k)
			segment, count = 0, 1
		case m.count == 1:
			segment = 0
		}
		h := &t.msgs[n].Hdr
		h.Iov.Base = nil
		if end > at {
			h.Iov.Base = &t.arena[at]
		}
		h.Iov.SetLen(end - at)
		m.to.header(h, segment)
		t.packets[n] = count
		if k += count; k == m.count {
			i, k = i+1, 0
		}
	}
	return n
}

// split makes the packets of a super-packet leave one by one. errno is the reason if it
// may concern super-packets. Each packet then has IPv4 Identification 0.
func (t *tx) split(m *message, errno unix.Errno) {
	m.split, m.errno = true, errno
	if !m.path.Is4() {
		return
	}
	for k := 1; k < m.count; k++ {
		at, end := m.packet(k)
		repair(m.path, t.arena[at:end], uint16(k), 0)
	}
}

// repair changes the ICRC of a packet from Identification made to Identification has. It applies
// only the difference, so that an ICRC that a wrapper has made wrong stays wrong.
func repair(path *frame.Path, b []byte, made, has uint16) {
	tail := len(b) - bth.ICRCLen
	if tail < bth.BTHLen || !path.Is4() {
		return
	}
	sum := func(id uint16) uint32 {
		_, crc := path.Put(b, frame.LayoutUDP, len(b), id)
		return crc.UpdateBTH(b).Update(b[bth.BTHLen:tail]).Sum()
	}
	icrc := b[tail:]
	binary.LittleEndian.PutUint32(icrc, binary.LittleEndian.Uint32(icrc)^sum(made)^sum(has))
}
