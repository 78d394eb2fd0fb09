// Package qp is the transport engine: queue pairs of the reliable connected (RC), extended reliable connected (XRC),
// unreliable connected (UC), unreliable datagram (UD) and dynamically connected (DC) services, and shared receive
// queues, as state machines that do no I/O.
//
// The owner of a [QP] drives it, and holds whatever lock is needed:
//
//   - in: [QP.HandlePacket], [QP.HandleTimeout], [QP.PostSend],
//     [QP.PostRecv], [QP.Modify];
//   - out: [QP.Emit] builds packets straight into the driver's buffers,
//     [QP.NextTimeout] is the next deadline, completions go into the
//     completion queues and events to the function given to [New].
//
// After any input the owner calls Emit until it reports nothing more, then
// arms NextTimeout. What the engine promises:
//
//   - time is only an argument and never goes back;
//   - a spurious call (an early HandleTimeout, an Emit with nothing to send) does
//     nothing;
//   - HandlePacket keeps nothing of the packet when it returns;
//   - a packet costs no allocation; queues grow as they fill for the first time, up to
//     their sizes: an idle queue pair has almost no memory;
//   - in state ERR only flush completions come out, the NAK that reported
//     the error, and the last acknowledgement ([QP.Owes]);
//   - a malformed or hostile packet is dropped or NAKed, and counted.
//
// Rules are those of the InfiniBand Architecture Specification, volume 1,
// chapters 9 to 11, with annexes A14 (XRC) and A17 (RoCEv2); where Linux rxe
// differs the comments say so. Because of rxe, the requester requests an acknowledgement at
// least every 32 packets. How it recovers from losses that cause no NAK is in inflight.go.
//
// # Where to look
//
//	qp.go          a queue pair: creating, posting, received packets, Emit, deadlines
//	modify.go      states and attributes
//	requester.go   building SEND, WRITE, READ and atomic requests
//	inflight.go    the window, round trips, probes
//	retransmit.go  going back, NAKs, the ACK timeout, the RNR wait
//	hold.go        holding requests that came before their turn
//	gap.go         when to send a NAK for a missing one
//	finalack.go    the last acknowledgement of a queue pair that ends
//	single.go      sending a missing request alone
//	timeout.go     deadlines
//	repair.go      what is shared by queue pairs that repair losses one by one
//	readrepair.go  asking for missing responses only
//	complete.go    completing, failing and flushing send work requests
//	completer.go   acknowledgements and responses of the peer
//	responder.go   requests of the peer: order, NAKs, refusals
//	execute.go     executing SEND, WRITE, READ and atomic requests
//	response.go    the queue of responses; building ACKs and READ responses
//	duplicate.go   requests that come again
//	flush.go       FLUSH and ATOMIC_WRITE
//	recv.go, srq.go, queue.go, ring.go   receives, shared receive queues, send queues
//	recvring.go    receives that a program posts without a call
//	localops.go    BIND_MW, LOCAL_INV, REG_MR
//	crosschannel.go   SEND_ENABLE, RECV_ENABLE, CQE_WAIT, managed queues
//	calc.go        reductions
//	masked.go, wide.go   masked atomics
//	uc.go, ud.go, xrc.go   the other services
//	dc.go, dci.go, dct.go, dccontext.go   the dynamically connected service
//	migrate.go     alternate paths
//	dcqcn.go, reaction.go, cnp.go, pacer.go   congestion control
//	ident.go       the IPv4 Identifications of a peer
package qp

import (
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
)

// DefaultWindow is how many packets a requester keeps unacknowledged, DefaultWindowBytes how
// many bytes of long messages. A software peer stores them in the buffer of a socket, and every system grants a
// process such a buffer. rxe never has more than 128 packets in flight.
const (
	DefaultWindow      = 256
	DefaultWindowBytes = bursts * maxSuper
)

// Config has the parameters of a new queue pair (struct ibv_qp_init_attr).
type Config struct {
	Type   Type
	Num    bth.QPN
	PD     *mr.PD
	Memory *mr.Table
	SendCQ *cq.CQ
	RecvCQ *cq.CQ
	SRQ    *SRQ // where receives come from; nil: a queue of its own
	// RecvRing has receives that the program posts without a call, of RC or UC without SRQ. Nil: there is none.
	RecvRing *RecvRing
	XRCD     *XRCD      // of an XRC target, which has no PD, CQs, SRQ or Caps
	DCT      *DCTConfig // of a DC target, which has no SendCQ or Caps
	Caps     Caps

	PortMTU bth.MTU // active MTU of the port, the limit of a datagram; 0: 4096

	// MaskedAtomics lets an RC queue pair send and execute masked atomics. Their opcodes are an extension: the peer
	// must be of this stack, too, and have them enabled. See docs/masked-atomics.md.
	MaskedAtomics bool

	// MaxAtomicArg is the largest operand of a masked atomic in bytes: 8, 16 or 32; 0: 8. More than 8 make all
	// atomics of the device slower ([mr.Table.AllowWide]). Then the owner must execute no atomic of the device while
	// it creates the queue pair.
	MaxAtomicArg int

	// With BigEndianReply the requester stores the results of atomics in network byte order, each 8 bytes separately,
	// instead of the byte order of the host. The peer notices nothing.
	BigEndianReply bool

	// CrossChannel lets an RC queue pair accept SEND_ENABLE, RECV_ENABLE and CQE_WAIT. Work requests of a managed
	// queue wait until a SEND_ENABLE or RECV_ENABLE releases them. The engine calls Wake when a queue pair may
	// continue for another reason than an input of its own. The owner calls Emit soon afterwards, but not within
	// Wake. A queue pair can only wait for completion queues, and enable queue pairs, of the same Owner: one lock
	// guards them all.
	CrossChannel bool
	ManagedSend  bool
	ManagedRecv  bool
	Wake         func(*QP)
	Owner        any

	// Congestion turns congestion control on for RC, XRC and UC. Nil: off.
	Congestion *DCQCN

	// SplitWrites sends an RC or XRC WRITE of 2 to 32 packets, without immediate data, as messages of one packet
	// each. All packets then have the same size, so links with super-packets can send many work requests at once. The
	// standard requires one message for a work request. A peer can only see the difference in its counters.
	SplitWrites bool

	// AlwaysAckReq makes every message request an acknowledgement. Otherwise a short
	// message that is not signaled leaves AckReq out if another message with AckReq is
	// likely to follow soon.
	AlwaysAckReq bool

	// Repair lets RC and XRC queue pairs repair losses one packet at a time. All queue pairs
	// of an owner may share one. Nil: they go back.
	Repair *Repair
	// FirstNumber is where the PSNs and the connection numbers of a DCI begin: a random number.
	FirstNumber uint64

	SignalAll bool // every send work request delivers a completion (sq_sig_all)
	Window    int  // packets kept unacknowledged; 0: DefaultWindow and DefaultWindowBytes

	Counters *Counters            // where to count; nil: nowhere visible
	Event    func(*QP, EventType) // asynchronous events; nil: dropped
}

// QP is a queue pair. See the package comment for how to drive it. It is not
// safe for concurrent use.
type QP struct {
	// Owner is for the owner's use; the engine never looks at it.
	Owner any

	// The fields that every packet needs are together. Of thousands of queue pairs, a cache holds only a few, so each
	// line of 64 bytes costs a miss.
	num          bth.QPN
	typ          Type
	state        State
	base         bth.Opcode // of XRC and DC: the difference of their opcodes from those of RC
	signalAll    bool
	answerTurn   uint8  // responses that were sent since the last request: see Emit
	requestTurn  uint8  // requests that may be sent before the next response
	splitting    bool   // Config.SplitWrites
	alwaysAckReq bool   // Config.AlwaysAckReq
	flushQuirk   bool   // Attr.FlushICRCQuirk
	autoWindow   bool   // the window is the default one, which is limited in bytes as well
	passed       bool   // a request has passed the acknowledgement already: see EmitPassing
	owes         bool   // it has ended, and rarities.final is still to be sent
	reused       bool   // it was connected before: see hold
	maxRdAtomic  uint8  // READs and atomics this side may have outstanding
	readPSNs     uint32 // response packets that one READ request asks for, at most
	destQPN      bth.QPN
	access       mr.Access
	mtu          uint32 // pmtu in bytes
	window       int32  // packets that may be unacknowledged
	bulk         int32  // the same for messages of several packets
	peerGID      bth.GID
	ownGID       bth.GID
	qkey         bth.QKey
	pass         frame.Pass // of packets that have these two, the service, and nothing unusual

	mem    *mr.Table
	pd     *mr.PD
	path   *frame.Path
	cnt    *Counters
	cc     *congestion // nil: off
	sendCQ *cq.CQ
	recvCQ *cq.CQ
	srq    *SRQ // nil: receives come from rq

	repair    *Repair // nil: losses are not repaired one by one
	requester requester
	sq        sendQueue
	responder responder
	mig       migration
	idents    idents // of the peer

	rq        recvQueue
	windows   mr.Windows // type 2 windows bound here
	xrcd      *XRCD
	onEvent   func(*QP, EventType)
	pmtu      bth.MTU
	portMTU   bth.MTU
	maxArg    uint8 // Config.MaxAtomicArg, 0 without MaskedAtomics
	bigReply  bool  // Config.BigEndianReply
	sqdNotify bool
	cross     *cross // nil: no cross-channel communication

	dci        *initiator // of a DCI
	dct        *target    // of a DCT
	dcDeadline mono.Time  // of these two

	rare *rarities // nil: there was none
}

// New creates a queue pair in state RESET (ibv_create_qp). Errors are *[errs.Error]
// and wrap EINVAL.
func New(c Config) (*QP, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	caps := c.Caps
	caps.MaxSendSGE = max(caps.MaxSendSGE, defaultSGE)
	caps.MaxRecvSGE = max(caps.MaxRecvSGE, defaultSGE)
	// As ibv_create_qp does: parameters of parts that the queue pair lacks are ignored.
	if c.SRQ != nil {
		caps.MaxRecvWR, caps.MaxRecvSGE = 0, 0
	}
	switch c.Type {
	case XRCSend:
		c.RecvCQ, caps.MaxRecvWR, caps.MaxRecvSGE = nil, 0, 0
	case DCI:
		c.RecvCQ, caps.MaxRecvWR, caps.MaxRecvSGE = nil, 0, 0
	case DCT:
		c.SendCQ, caps = nil, Caps{}
	case XRCRecv:
		c.PD, c.SendCQ, c.RecvCQ, caps = nil, nil, nil, Caps{}
	}
	q := &QP{num: c.Num, typ: c.Type, mem: c.Memory, pd: c.PD, sendCQ: c.SendCQ, recvCQ: c.RecvCQ, srq: c.SRQ, xrcd: c.XRCD, cnt: c.Counters,
		onEvent: c.Event, signalAll: c.SignalAll, maxArg: c.maxAtomicArg(), bigReply: c.BigEndianReply, splitting: c.SplitWrites, alwaysAckReq: c.AlwaysAckReq, window: int32(c.Window), portMTU: c.PortMTU}
	if q.cnt == nil {
		q.cnt = new(Counters)
	}
	if q.typ == XRCSend || q.typ == XRCRecv {
		q.base = xrcBase
	}
	if q.typ >= DCI {
		q.base = dcBase
	}
	if q.window == 0 {
		q.window, q.autoWindow = DefaultWindow, true
	}
	if q.portMTU == 0 {
		q.portMTU = bth.MTU4096
	}
	if q.maxArg > 8 {
		q.mem.AllowWide()
	}
	q.sq = newSendQueue(caps.MaxSendWR, caps.MaxSendSGE, caps.MaxInlineData)
	q.rq = newRecvQueue(caps.MaxRecvWR, caps.MaxRecvSGE)
	q.rq.shared = c.RecvRing
	q.cc = newCongestion(c.Congestion, c.Type)
	q.cross = newCross(&c, q.caps())
	switch q.typ {
	case RC, XRCSend, XRCRecv:
		q.repairBy(c.Repair)
	case DCI:
		q.initiate(c.FirstNumber)
	}
	q.reset()
	if q.typ == DCT {
		q.serve(c.DCT)
	}
	return q, nil
}

// check refuses what ibv_create_qp refuses.
func (c *Config) check() error {
	fail := func(format string, args ...any) error {
		return errs.New("create qp", syscall.EINVAL, format, args...)
	}
	if c.Congestion != nil {
		if why := c.Congestion.fault(); why != "" {
			return fail("congestion control: %s", why)
		}
	}
	caps, xrc, dc := &c.Caps, c.Type == XRCSend || c.Type == XRCRecv, c.Type == DCI || c.Type == DCT
	switch {
	case int(c.Type) >= len(transports) || c.Type == 0 || c.Type > UD && !xrc && !dc:
		return errs.New("create qp", syscall.EOPNOTSUPP, "service type %v is not offered", c.Type)
	case (c.CrossChannel || c.ManagedSend || c.ManagedRecv) && c.Type != RC:
		return fail("cross-channel communication is for RC queue pairs, this is a %v one", c.Type)
	case c.ManagedRecv && c.SRQ != nil:
		return fail("a managed receive queue cannot be a shared one")
	case c.MaskedAtomics && c.Type != RC:
		return fail("masked atomics are for RC queue pairs, this is a %v one", c.Type)
	case c.MaxAtomicArg != 0 && !c.MaskedAtomics:
		return fail("a limit of %d bytes for the operands of masked atomics, which are not enabled", c.MaxAtomicArg)
	case c.MaxAtomicArg != 0 && c.MaxAtomicArg != 8 && c.MaxAtomicArg != 16 && c.MaxAtomicArg != mr.MaxOperand:
		return fail("a limit of %d bytes for the operands of masked atomics, must be 8, 16 or %d", c.MaxAtomicArg, mr.MaxOperand)
	case c.Memory == nil || c.PD == nil && c.Type != XRCRecv:
		return fail("no protection domain")
	case (c.XRCD != nil) != (c.Type == XRCRecv):
		return fail("an XRC domain is required for XRC_RECV queue pairs and not allowed for others")
	case c.SendCQ == nil && c.Type != XRCRecv && c.Type != DCT, c.RecvCQ == nil && !xrc && c.Type != DCI:
		return fail("send and receive completion queues are required")
	case c.RecvRing != nil && (c.SRQ != nil || c.ManagedRecv || c.Type != RC && c.Type != UC):
		return fail("a shared ring of receives is for RC and UC queue pairs, without SRQ or cross-channel communication")
	case c.SRQ != nil && (xrc || c.SRQ.xrcd != nil):
		return fail("shared receive queue %v: an XRC queue pair takes none, and others take none of XRC", c.SRQ.num)
	case caps.MaxSendWR < 0 || caps.MaxSendWR > MaxWR || caps.MaxRecvWR < 0 || caps.MaxRecvWR > MaxWR:
		return fail("%d send and %d receive work requests, the limit is %d", caps.MaxSendWR, caps.MaxRecvWR, MaxWR)
	case caps.MaxSendSGE < 0 || caps.MaxSendSGE > MaxSGE || caps.MaxRecvSGE < 0 || caps.MaxRecvSGE > MaxSGE:
		return fail("%d send and %d receive scatter/gather elements, the limit is %d", caps.MaxSendSGE, caps.MaxRecvSGE, MaxSGE)
	case caps.MaxInlineData < 0 || caps.MaxInlineData > MaxInline:
		return fail("%d bytes inline, the limit is %d", caps.MaxInlineData, MaxInline)
	case c.Window < 0:
		return fail("a window of %d packets, must not be negative", c.Window)
	}
	return c.checkDC()
}

// Num returns the queue pair number.
func (q *QP) Num() bth.QPN { return q.num }

// Type returns the service type.
func (q *QP) Type() Type { return q.typ }

// State returns the current state.
func (q *QP) State() State { return q.state }

// reliable reports whether the peer acknowledges requests.
func (q *QP) reliable() bool {
	return q.typ == RC || q.typ == XRCSend || q.typ == XRCRecv || q.typ >= DCI
}

// Path returns the path in use, or nil before RTR.
func (q *QP) Path() *frame.Path { return q.path }

// DestQPN returns the peer's queue pair number, valid from RTR on.
func (q *QP) DestQPN() bth.QPN { return q.destQPN }

// PostSend queues a send work request (ibv_post_send of one). A refusal is an *[errs.Error] wrapping EINVAL or
// ENOMEM. A completion reports every fault that is found later. In state ERR the request is accepted and flushed.
func (q *QP) PostSend(wr *SendWR) error {
	info, length, err := q.checkSend(wr)
	if err != nil {
		return err
	}
	w := q.sq.next()
	// Assigned field by field: the compiler would build a composite literal elsewhere and copy it.
	w.id, w.op, w.kind, w.flags, w.fail, w.done = wr.ID, wr.Opcode, info.kind, wr.Flags&^held, false, false
	w.addr, w.rkey, w.extra, w.length = wr.RemoteAddr, wr.RKey, wr.Imm, length
	q.sq.setInline(w, wr.Inline)
	q.sq.setList(w, wr.SG)
	if q.typ != RC {
		q.setDestination(w, wr)
	}
	if info.own {
		q.setOwn(w, wr)
	}
	if q.state == Err || q.state == SQE {
		q.sq.tail++
		q.flushSends(q.sq.tail, cq.WRFlushErr)
		return nil
	}
	w.first = q.requester.postPSN
	w.last = w.first.Add(q.packets(info.kind, length) - 1)
	q.requester.postPSN = w.last.Add(1)
	switch info.kind {
	case kindSend, kindAtomicWrite:
		q.requester.sendBytes += uint64(length)
	case kindRead:
		q.requester.readBytes += uint64(length)
	}
	q.sq.tail++
	if q.cross != nil {
		if wr.Flags&WithCalc != 0 {
			q.sq.rest(w).calc = wr.Calc
		}
		if q.cross.managedSend {
			q.holdSend(w)
		}
	}
	return nil
}

// SendRoom returns how many work requests PostSend accepts before ENOMEM. Outside RTS it returns 0.
func (q *QP) SendRoom() int {
	if q.state != RTS {
		return 0
	}
	return q.sq.room()
}

// setDestination stores the destination of a work request, for service types whose work requests name it.
func (q *QP) setDestination(w *sendWQE, wr *SendWR) {
	switch q.typ {
	case UD, GSI:
		r := q.sq.rest(w)
		r.ah, r.destQPN, r.destQKey = wr.AH.path(), wr.RemoteQPN, wr.RemoteQKey
	case DCI:
		r := q.sq.rest(w)
		r.ah, r.destQPN, r.dcKey = wr.AH.path(), wr.RemoteQPN, wr.DCKey
		if wr.DCKey&dcOwnKey != 0 {
			r.dcKey = q.dci.key
		}
	case XRCSend:
		q.sq.rest(w).srqn = wr.RemoteSRQN
	}
}

// setOwn stores the fields of a work request that only some operations have.
func (q *QP) setOwn(w *sendWQE, wr *SendWR) {
	switch wr.Opcode {
	case SendInv:
		w.extra = uint32(wr.InvKey)
	case CompareSwap, FetchAdd, MaskedCompareSwap, MaskedFetchAdd:
		q.sq.rest(w).setAtomic(wr)
	case Flush:
		w.extra = uint32(wr.FlushType) | uint32(wr.Selectivity)<<8
		w.length = wr.Length
	case BindMW, LocalInv, RegMR, SendEnable, RecvEnable, CQEWait:
		q.postLocal(w, wr)
	}
}

// packets returns how many PSNs a work request takes: one per packet of a
// SEND or WRITE, one per response packet of a READ, at least one; none of a
// local operation.
func (q *QP) packets(kind opKind, length uint32) int {
	switch kind {
	case kindLocal:
		return 0
	case kindSend, kindRead:
		if length > q.mtu { // rare, and a division takes long
			return packetsFor(length, q.mtu)
		}
	}
	return 1
}

// HandlePacket processes one received packet that is addressed to this queue pair and whose ICRC is right. It keeps
// nothing of p. If the Identification was computed from the ICRC, HandlePacket finishes the check of the ICRC: see
// idents.
//
// HandlePacket checks the service and the addresses of every packet, whatever came before
// it. The one exception is a packet with the pass: frame.Packet.Next has found that it has
// the service and the addresses of the packet before, which this queue pair has compared. A
// stranger can copy the BTH of the peer's packets, but a packet in another envelope has no
// pass.
func (q *QP) HandlePacket(now mono.Time, p *frame.Packet) {
	if !p.Has(&q.pass) || q.mig.watch {
		q.handleFirst(now, p)
		return
	}
	id, unseen := p.PassID()
	if unseen && !q.idents.follows(now, id) {
		q.handleSolvedID(now, p, id)
		return
	}
	if p.Info.Flags&bth.Request != 0 {
		expect := q.responder.expect
		if q.handleRequest(now, p); unseen && q.responder.expect != expect {
			q.idents.follow(id)
		}
		return
	}
	acked := q.requester.acked
	if q.handleResponse(now, p); unseen && q.requester.acked != acked {
		q.idents.follow(id)
	}
}

// handleFirst is HandlePacket for a packet without the pass.
func (q *QP) handleFirst(now mono.Time, p *frame.Packet) {
	if q.typ != RC || p.Info.Transport != bth.RC || p.Src != q.peerGID || p.Dst != q.ownGID || q.mig.watch || p.CE() {
		q.handleOther(now, p)
		return
	}
	p.SetPass(&q.pass)
	if id, unseen := p.UnseenID(); unseen {
		q.handleSolvedID(now, p, id)
		return
	}
	q.handleAdmitted(now, p)
}

// Confirms reports whether a packet shows that its sender knows the first PSN of the
// handshake or one that is in flight, provided that it passes the checks of HandlePacket and
// is counted in RcvdPkts. Call it before HandlePacket.
func (q *QP) Confirms(p *frame.Packet) bool {
	if p.Info.Transport == bth.CNPTransport {
		return false
	}
	return p.Info.Flags&bth.Request == 0 || p.PSN() == q.responder.expect
}

// handleOther is HandlePacket for any packet.
func (q *QP) handleOther(now mono.Time, p *frame.Packet) {
	if t := p.Info.Transport; t != transports[q.typ] && (t != bth.Manufacturer || q.maxArg == 0) {
		if t == bth.CNPTransport {
			q.handleCNP(now, p)
		} else {
			q.cnt.WrongTransport++
		}
		return
	}
	if q.typ == UD || q.typ == GSI {
		if p.CE() {
			q.cnt.ECNMarked++
			q.incidents().Marked++
		}
		q.receiveDatagram(p)
		return
	}
	if q.typ >= DCI {
		q.handleDC(now, p)
		return
	}
	if (p.Src != q.peerGID || p.Dst != q.ownGID || q.mig.watch) && !q.admit(p) {
		return
	}
	if id, unseen := p.UnseenID(); unseen && p.Src == q.peerGID {
		q.handleSolvedID(now, p, id)
		return
	}
	q.handleAdmitted(now, p)
}

// handleAdmitted processes a packet of a connected service that comes from the peer.
func (q *QP) handleAdmitted(now mono.Time, p *frame.Packet) {
	if p.CE() {
		q.marked(now, p.Info.Flags)
	}
	switch {
	case q.typ == UC:
		q.handleUnreliable(p)
	case q.typ == DCI:
		q.handleTarget(now, p)
	case p.Info.Flags&bth.Request != 0 && q.typ != XRCSend:
		q.handleRequest(now, p)
	case q.typ == XRCRecv, p.Info.Flags&bth.Request != 0:
		q.cnt.WrongTransport++ // an XRC initiator takes only responses, an XRC target only requests
	default:
		q.handleResponse(now, p)
	}
}

// transports maps a service type to the transport its packets are of.
var transports = [...]bth.Transport{GSI: bth.UD, RC: bth.RC, UC: bth.UC, UD: bth.UD, XRCSend: bth.XRC, XRCRecv: bth.XRC, DCI: bth.DC, DCT: bth.DC}

// Outstanding returns how many work requests are not complete.
func (q *QP) Outstanding() (sends, recvs int) {
	return int(q.sq.tail - q.sq.head), q.recvs()
}
