package gsi

import (
	"slices"
	"sync"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// Query is a lookup of a UD service in progress.
type Query struct {
	agent   *Agent
	query   *cm.Query
	path    *cachedPath // of its datagrams
	handler Handler
}

// Resolve sends a SIDR_REQ along a route (rdma_connect of an identifier of
// RDMA_PS_UDP). It sets the addresses of p from the route, and chooses a source
// port if p has none. The event is Resolved or Unreachable; then call Cancel.
func (g *Agent) Resolve(r *Route, p cm.ResolveParam, h Handler) (*Query, error) {
	p.Local, p.Remote = r.local, r.DGID
	p.Src = g.sourcePort(r, p.Src)
	q := &Query{agent: g, handler: h}
	p.User = q
	err := g.begin(func(now mono.Time) (err error) {
		g.remember(r.key(), r.path)
		if q.query, err = g.manager.Resolve(now, p); err == nil {
			q.path = g.retain(r.key())
			g.queries[q] = struct{}{}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return q, nil
}

// Cancel ends the lookup; no event follows.
func (q *Query) Cancel() {
	q.agent.do(func(mono.Time) {
		q.query.Cancel()
		if _, ok := q.agent.queries[q]; ok {
			delete(q.agent.queries, q)
			q.agent.paths.release(q.path)
		}
	})
}

// Inquiry is a peer's request for a UD queue pair.
type Inquiry struct {
	agent   *Agent
	inquiry *cm.Inquiry
	path    *cachedPath // of the answer

	mu   sync.Mutex
	over func()
}

// OnOver registers f, which is called when the request was not answered in time, or was
// evicted to make room for others. Call it in the handler of the listener. f must not wait.
func (r *Inquiry) OnOver(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = f
}

// withdrawn calls the function of OnOver. No lock is held.
func (r *Inquiry) withdrawn() {
	r.mu.Lock()
	f := r.over
	r.mu.Unlock()
	if f != nil {
		f()
	}
}

// newInquiry is called with the shard locked.
func (g *Agent) newInquiry(q *cm.Inquiry) *Inquiry {
	r := &Inquiry{agent: g, inquiry: q, path: g.retain(route.Key{Local: q.LocalGID(), Peer: q.PeerAddress()})}
	g.inquiries[r] = struct{}{}
	return r
}

// forgetInquiry is called with the shard locked.
func (g *Agent) forgetInquiry(r *Inquiry) {
	if _, ok := g.inquiries[r]; ok {
		delete(g.inquiries, r)
		g.paths.release(r.path)
	}
}

// Info returns the request, whose addresses never change.
func (r *Inquiry) Info() *cm.Inquiry { return r.inquiry }

// Accept answers with a queue pair that can receive, and private data
// (rdma_accept): [cm.Inquiry.Accept]. It fails with EINVAL if q is not a UD
// queue pair of the device in RTR or a later state, if its Q_Key is 0, or if the
// request was already answered.
func (r *Inquiry) Accept(q *nic.QP, private []byte) error {
	if q.Shard().NIC() != r.agent.nic || q.Type() != qp.UD {
		return errs.New("accept", syscall.EINVAL, "qp %v is not a UD queue pair of the device", q.Num())
	}
	var a qp.Attr
	q.View(func(e *qp.QP) { a, _ = e.Query() })
	if !slices.Contains([]qp.State{qp.RTR, qp.RTS, qp.SQD, qp.SQE}, a.State) {
		return errs.New("accept", syscall.EINVAL, "qp %v is in state %v and cannot receive; see QP.Ready", q.Num(), a.State)
	}
	if a.QKey == 0 {
		return errs.New("accept", syscall.EINVAL, "the Q_Key of qp %v is 0; use DefaultUDPQKey", q.Num())
	}
	return r.AcceptQPN(q.Num(), a.QKey, private)
}

// AcceptQPN is Accept for a queue pair of which only the number is known.
func (r *Inquiry) AcceptQPN(n bth.QPN, key bth.QKey, private []byte) error {
	return r.answer(func() error { return r.inquiry.Accept(n, key, private) })
}

// Reject answers with a status (rdma_reject): [cm.Inquiry.Reject].
func (r *Inquiry) Reject(status cm.SIDRStatus, private []byte) error {
	return r.answer(func() error { return r.inquiry.Reject(status, private) })
}

func (r *Inquiry) answer(f func() error) error {
	return r.agent.try(func(mono.Time) error {
		err := f()
		if err == nil {
			r.agent.forgetInquiry(r)
		}
		return err
	})
}
