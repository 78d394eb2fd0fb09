package rsock

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
)

// drainTime bounds how long rclose waits until sent datagrams have left.
const drainTime = time.Second

// pair is the queue pair of a datagram rsocket at one address of a device. The lock of the socket guards it.
type pair struct {
	dev     *roce.Device
	local   netip.AddrPort
	gid     int // the index of the address
	mtu     int
	source  []byte // the source header of its messages
	channel *roce.CompChannel
	cq      *roce.CQ
	pd      *roce.PD
	qp      *roce.QP
	mr      *roce.MR
	memory  []byte       // send buffers, then receive buffers
	sends   int          // number of send buffers
	free    []int        // send buffers that no work request uses
	armed   *atomic.Bool // the next completion will signal
	wcs     [32]roce.WC
	sge     [1]roce.SGE
}

// recvBuffer is the size of a receive buffer. The engine stores the datagram's IP header in front of it.
const recvBuffer = roce.GRHLen + maxMessage

// isRecv marks the IDs of receives.
const isRecv = 1 << 32

// pairAt returns the queue pair at a local address and makes it if necessary. The caller has locked the socket.
func (s *datagram) pairAt(local netip.AddrPort) (*pair, error) {
	if i := slices.IndexFunc(s.pairs, func(q *pair) bool { return q.local.Addr() == local.Addr() }); i >= 0 {
		q := s.pairs[i]
		if q.local != local { // the UDP socket got another port when its association was dissolved
			q.local, q.source = local, appendSource(nil, local)
		}
		return q, nil
	}
	gid := bth.GIDFrom(local.Addr().WithZone(""))
	for _, d := range s.host.Devices() {
		if i := slices.Index(d.GIDs(), gid); i >= 0 {
			q, err := newPair(d, local, i, &s.options, s.wake)
			if err != nil {
				return nil, err
			}
			s.pairs = append(s.pairs, q)
			return q, nil
		}
	}
	return nil, syscall.ENODEV
}

// newPair makes a queue pair in state RTS, with all receives posted. The device calls signal for a completion after
// arm.
func newPair(d *roce.Device, local netip.AddrPort, gid int, o *datagramOptions, signal func()) (_ *pair, err error) {
	sends, recvs := o.depths()
	q := &pair{dev: d, local: local, gid: gid, source: appendSource(nil, local), pd: d.AllocPD(), sends: sends,
		memory: make([]byte, sends*maxMessage+recvs*recvBuffer), armed: new(atomic.Bool)}
	defer func() {
		if err != nil {
			q.close()
		}
	}()
	attr, err := d.QueryPort(1)
	if err != nil {
		return nil, err
	}
	q.mtu = attr.ActiveMTU.Bytes()
	if q.mr, err = q.pd.RegMR(q.memory, roce.LocalWrite); err != nil {
		return nil, err
	}
	if q.channel, err = d.CreateCompChannel(); err != nil {
		return nil, err
	}
	q.channel.NotifyFunc(func(int) {
		q.armed.Store(false)
		signal()
	})
	if q.cq, err = d.CreateCQWith(roce.CQConfig{Entries: sends + recvs, Channel: q.channel}); err != nil {
		return nil, err
	}
	q.qp, err = q.pd.CreateQP(roce.QPConfig{Type: roce.UD, SendCQ: q.cq,
		Caps: roce.Caps{MaxSendWR: sends, MaxRecvWR: recvs, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return nil, err
	}
	if err = q.qp.Init(0, roce.DefaultUDPQKey); err != nil {
		return nil, err
	}
	for i := range recvs {
		if err = q.postRecv(i); err != nil {
			return nil, err
		}
	}
	for i := range sends {
		q.free = append(q.free, i)
	}
	return q, q.qp.Ready(d.RandomPSN())
}

// header returns the UDP header of the queue pair.
func (q *pair) header(op udpOp) []byte {
	return appendUDPHeader(make([]byte, 0, udpHeader6), op, q.qp.Num(), q.local.Addr())
}

// fits reports whether a message with n bytes of data fits into a packet.
func (q *pair) fits(n int) bool { return len(q.source)+n <= q.mtu }

// send sends data to a peer. EAGAIN: all send buffers are in use.
func (q *pair) send(p []byte, to *peer) (int, error) {
	last := len(q.free) - 1
	if last < 0 {
		return 0, syscall.EAGAIN
	}
	slot := q.free[last]
	buffer := append(q.memory[slot*maxMessage:][:0:maxMessage], q.source...)
	buffer = append(buffer, p...)
	q.sge[0] = q.mr.SGE(slot*maxMessage, len(buffer))
	err := q.qp.PostSend(&roce.SendWR{ID: uint64(slot), Opcode: roce.Send, Flags: roce.Signaled, SG: q.sge[:],
		AH: to.ah, RemoteQPN: to.qpn, RemoteQKey: roce.DefaultUDPQKey})
	if err != nil {
		return 0, failure(err)
	}
	q.free = q.free[:last]
	return len(p), nil
}

func (q *pair) recvAt(slot int) int { return q.sends*maxMessage + slot*recvBuffer }

func (q *pair) postRecv(slot int) error {
	q.sge[0] = q.mr.SGE(q.recvAt(slot), recvBuffer)
	return q.qp.PostRecv(&roce.RecvWR{ID: isRecv | uint64(slot), SG: q.sge[:]})
}

// arm makes the next completion signal. It returns true if the caller must poll again, because completions that came
// before signal nothing; and false if that was done after an earlier call.
func (q *pair) arm() bool {
	if q.armed.Load() {
		return false
	}
	for ok := true; ok; {
		_, ok = q.channel.TryNext()
	}
	q.armed.Store(true)
	q.cq.RequestNotify(false)
	return true
}

// poll handles the completions of a queue pair. The caller has locked the socket.
func (s *datagram) poll(q *pair) {
	for n := len(q.wcs); n == len(q.wcs); { // fewer: the queue is empty
		n = q.cq.Poll(q.wcs[:])
		for i := range q.wcs[:n] {
			s.complete(q, &q.wcs[i])
		}
	}
}

func (s *datagram) complete(q *pair, wc *roce.WC) {
	slot := int(uint32(wc.ID))
	if wc.ID&isRecv == 0 {
		q.free = append(q.free, slot)
		return
	}
	if wc.Status != roce.StatusSuccess { // the queue pair has ended
		return
	}
	area := q.memory[q.recvAt(slot):][:max(roce.GRHLen, int(wc.ByteLen))]
	message := area[roce.GRHLen:]
	from, length, ok := parseSource(message)
	switch plain := from.Addr().Unmap(); {
	case plain.Is4() != q.local.Addr().Is4():
		ok = false // the program could not represent this address
	case plain != sender(area, wc.IPv4):
		ok = false // a host that uses the address of another one
	}
	if from = unmapped(from); from.Addr().IsLinkLocalUnicast() {
		from = netip.AddrPortFrom(from.Addr().WithZone(q.local.Addr().Zone()), from.Port())
	}
	if s.connected.IsValid() && from != s.connected {
		ok = false // the kernel does the same for the UDP socket
	}
	if !ok {
		s.drops++
		q.postRecv(slot)
		return
	}
	if p := s.peers.known[from]; p != nil && p.qpn == wc.SrcQPN {
		p.heard = true
	}
	*s.inbox.Push() = arrived{pair: q, slot: slot, data: message[length:], from: from}
}

// drain waits a moment until sent datagrams have left.
func (s *datagram) drain(q *pair) {
	ctx, stop := context.WithTimeout(context.Background(), drainTime)
	defer stop()
	for s.poll(q); len(q.free) < q.sends && q.cq.Wait(ctx) == nil; {
		s.poll(q)
	}
}

// close frees the objects that exist.
func (q *pair) close() {
	if q.qp != nil {
		q.qp.Close()
	}
	if q.cq != nil {
		q.cq.Close()
	}
	if q.channel != nil {
		q.channel.NotifyFunc(nil)
		q.channel.Close()
	}
	if q.mr != nil {
		q.mr.Close()
	}
	q.pd.Close()
}
