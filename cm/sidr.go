package cm

import (
	"net/netip"
	"syscall"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/deadline"
	"github.com/goroce/roce/mono"
)

// ResolveParam has the parameters of a service lookup.
type ResolveParam struct {
	// ServiceID is the service of the peer, see [Service]. Required.
	ServiceID ServiceID
	// Local and Remote are the addresses of the MADs. Required.
	Local, Remote bth.GID
	// Src and Dst go into the RDMA-IP header, as in [ConnectParam].
	Src, Dst netip.AddrPort

	PKey            bth.PKey // 0: bth.DefaultPKey
	ResponseTimeout uint8    // CM timeout code between repetitions. 0: DefaultResponseTimeout
	MaxCMRetries    uint8    // 0: DefaultMaxCMRetries

	// Private data for the peer's application: SIDRREQUserLen bytes, or
	// SIDRREQPrivateLen without the RDMA-IP header.
	Private []byte
	// User becomes [Query.User].
	User any
}

// Query is a service lookup in progress: the client's side of SIDR.
type Query struct {
	// User belongs to the owner; the Manager ignores it.
	User any

	m         *Manager
	id        CommID
	from, to  bth.GID
	cancelled bool

	timer    deadline.Timer
	interval time.Duration
	retries  uint8
	msg      [MADLen]byte
}

// Resolve sends a SIDR_REQ: rdma_connect of a UD identifier. The outcome is the
// event Resolved or Unreachable, which ends the Query.
func (m *Manager) Resolve(now mono.Time, p ResolveParam) (*Query, error) {
	const op = "resolve service"
	if p.Local.IsZero() || p.Remote.IsZero() {
		return nil, opError(op, nil, syscall.EINVAL, "Local and Remote must be set, have %v and %v", p.Local, p.Remote)
	}
	if p.ResponseTimeout > MaxTimeoutCode {
		return nil, opError(op, nil, syscall.EINVAL, "timeout code %d, at most %d", p.ResponseTimeout, MaxTimeoutCode)
	}
	setDefault(&p.PKey, bth.DefaultPKey)
	setDefault(&p.ResponseTimeout, DefaultResponseTimeout)
	setDefault(&p.MaxCMRetries, DefaultMaxCMRetries)
	req := SIDRREQ{PKey: p.PKey, ServiceID: p.ServiceID}
	if err := m.fillRequest(op, req.Private[:], p.Src, p.Dst, p.Private); err != nil {
		return nil, err
	}
	q := &Query{User: p.User, m: m, id: m.newID(), from: p.Local, to: p.Remote,
		interval: ResponseTimeout(p.ResponseTimeout), retries: p.MaxCMRetries}
	req.RequestID, req.TID = q.id, m.newTID(q.id)
	req.Put(&q.msg)
	m.queries[q.id] = q
	m.send(q.from, q.to, &req)
	m.timers.Set(&q.timer, q, now.Add(q.interval))
	return q, nil
}

// Cancel ends the query; no event follows.
func (q *Query) Cancel() {
	q.cancelled = true
	q.finish()
}

func (q *Query) finish() {
	q.m.timers.Set(&q.timer, q, mono.Never)
	delete(q.m.queries, q.id)
}

func (q *Query) timeout(now mono.Time) {
	if q.retries == 0 {
		q.finish()
		q.m.event(Event{Kind: Unreachable, Query: q, Err: ErrTimeout})
		return
	}
	q.retries--
	q.m.resend(q.from, q.to, &q.msg)
	q.m.timers.Set(&q.timer, q, now.Add(q.interval))
}

// handleSIDRREP: the answer to a query. Linux: cm_sidr_rep_handler.
func (m *Manager) handleSIDRREP(r *rx, rep *SIDRREP) {
	q := m.queries[rep.RequestID]
	switch {
	case q == nil:
		m.counters.Unmatched++
		return
	case q.to != r.from:
		m.foreign()
		return
	}
	q.finish()
	m.event(Event{Kind: Resolved, Query: q, Status: rep.Status, QPN: rep.QPN, QKey: rep.QKey,
		Private: clone(rep.Private[:]),
		Info:    clone(rep.Info[:min(rep.InfoLen, InfoLen)])})
}

type inquiryKey struct {
	id   CommID
	from bth.GID
}

// Inquiry is a peer's request for a UD QP: the server's side of SIDR. Accept or Reject
// answers it, once. If the owner does not answer in time, or the Manager evicts the
// Inquiry for others, it ends: the event is ServiceRequestOver, and an answer fails with
// ErrExpired or ErrEvicted. The Manager does not repeat the answer: if it is lost, the
// peer asks again, which makes a new Inquiry.
type Inquiry struct {
	// User belongs to the owner; it starts with that of the Listener.
	User any

	ends
	m         *Manager
	key       inquiryKey
	to        bth.GID // our address
	tid       uint64
	pkey      bth.PKey
	listener  *Listener
	delivered bool
	done      bool
	over      error          // why it was withdrawn from the owner, or nil
	timer     deadline.Timer // time limit for the owner's answer
	halfOpen  place          // in Manager.halfOpen
	request   place          // in Listener.requests
}

// LocalGID returns the destination address of the request.
func (q *Inquiry) LocalGID() bth.GID { return q.to }

// PeerAddress returns the source address of the request, at which the peer's QP
// is.
func (q *Inquiry) PeerAddress() bth.GID { return q.key.from }

// PKey returns the partition in the request.
func (q *Inquiry) PKey() bth.PKey { return q.pkey }

// DefaultUDPQKey is the Q_Key of QPs in the UDP port space: RDMA_UDP_QKEY.
const DefaultUDPQKey bth.QKey = 0x01234567

// Accept answers with a QP: rdma_accept of a UD identifier. Q_Key 0 stands for
// DefaultUDPQKey; private data up to SIDRREPPrivateLen bytes.
func (q *Inquiry) Accept(qpn bth.QPN, qkey bth.QKey, private []byte) error {
	setDefault(&qkey, DefaultUDPQKey)
	return q.answer("accept", SIDRREP{Status: SIDRValid, QPN: qpn, QKey: qkey}, private)
}

// Reject answers with a status, SIDRReject unless there is a better one:
// rdma_reject of a UD identifier.
func (q *Inquiry) Reject(status SIDRStatus, private []byte) error {
	return q.answer("reject", SIDRREP{Status: status}, private)
}

func (q *Inquiry) answer(op string, rep SIDRREP, private []byte) error {
	if q.over != nil {
		return errs.New(op, q.over, "inquiry %v is over", q.key.id)
	}
	if q.done {
		return opError(op, ErrClosed, syscall.EINVAL, "inquiry %v", q.key.id)
	}
	if err := checkPrivate(op, private, SIDRREPPrivateLen); err != nil {
		return err
	}
	copy(rep.Private[:], private)
	q.finish(rep)
	return nil
}

func (q *Inquiry) finish(rep SIDRREP) {
	q.forget()
	rep.TID, rep.RequestID, rep.ServiceID = q.tid, q.key.id, q.service
	q.m.send(q.to, q.key.from, &rep)
}

// forget ends the inquiry.
func (q *Inquiry) forget() {
	q.done = true
	q.m.timers.Set(&q.timer, q, mono.Never)
	q.m.halfOpen.remove(&q.halfOpen)
	q.listener.requests.remove(&q.request)
	delete(q.m.inquiries, q.key)
}

// timeout is called if the owner has not answered in time. The Manager sends no answer: the
// peer asks again, or has given up.
func (q *Inquiry) timeout(mono.Time) {
	q.m.counters.Expired++
	q.withdraw(ErrExpired)
}

func (q *Inquiry) evict(mono.Time) {
	q.m.counters.Evicted++
	q.withdraw(ErrEvicted)
}

// withdraw ends an inquiry that the owner has not answered.
func (q *Inquiry) withdraw(why error) {
	q.forget()
	q.over = why
	q.m.event(Event{Kind: ServiceRequestOver, Inquiry: q})
}

// handleSIDRREQ: a peer asks for a UD QP. While the owner has not answered,
// repetitions are dropped. Linux: cm_sidr_req_handler.
func (m *Manager) handleSIDRREQ(r *rx, req *SIDRREQ) {
	key := inquiryKey{req.RequestID, r.from}
	if m.inquiries[key] != nil {
		m.counters.Duplicates[AttrSIDRREQ-AttrREQ]++
		return
	}
	if m.listeners[req.ServiceID] == nil {
		m.refuseSIDR(r, req, SIDRUnsupported)
		return
	}
	l, ip := m.match(r, req.ServiceID, req.Private[:])
	if l == nil || !req.resolvable() || !m.pkeyKnown(req.PKey) {
		m.refuseSIDR(r, req, SIDRReject)
		return
	}
	if !m.admit(r, l) {
		return
	}
	q := &Inquiry{User: l.User, m: m, ends: ends{service: req.ServiceID}, key: key, to: r.to, tid: req.TID,
		pkey: req.PKey, listener: l}
	private := req.Private[:]
	if ip != nil {
		q.ip = *ip
		private = private[IPHeaderLen:]
	}
	m.inquiries[key] = q
	m.hold(q, &q.halfOpen, &q.request, l, r.from)
	m.timers.Set(&q.timer, q, r.now.Add(l.timeout))
	m.event(Event{Kind: ServiceRequest, Inquiry: q, Listener: l, Private: clone(private)})
}

// resolvable reports whether this kind of service has UD QPs.
func (m *SIDRREQ) resolvable() bool {
	return !m.ServiceID.IsIP() || m.ServiceID.PortSpace() != PortSpaceTCP
}

func (m *Manager) refuseSIDR(r *rx, req *SIDRREQ, status SIDRStatus) {
	m.replyStranger(r, &SIDRREP{Header: Header{TID: req.TID}, RequestID: req.RequestID,
		Status: status, ServiceID: req.ServiceID})
}
