package roce

import (
	"cmp"
	"slices"
	"sync"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// CMQuery is a lookup of a UD service that is under way.
type CMQuery struct {
	dev     *Device
	query   *cm.Query
	way     *way // where it goes
	handler CMHandler
}

// Resolve sends a SIDR_REQ along a route (rdma_connect of an identifier of
// RDMA_PS_UDP). Addresses of p come from the route; without a source port one is
// picked. The event is Resolved or Unreachable; then call Cancel.
func (m CM) Resolve(r *Route, p cm.ResolveParam, h CMHandler) (*CMQuery, error) {
	d := m.dev
	p.Local, p.Remote = r.local, r.DGID
	p.Src = d.sourcePort(r, p.Src)
	q := &CMQuery{dev: d, handler: h}
	p.User = q
	var err error
	closed := d.gsi.do(func(now mono.Time) {
		if err = d.present(); err != nil {
			return
		}
		d.gsi.remember(r.key(), r.path)
		if q.query, err = d.gsi.manager.Resolve(now, p); err == nil {
			q.way = d.gsi.hold(r.key())
			d.gsi.queries[q] = struct{}{}
		}
	})
	if err = cmp.Or(closed, err); err != nil {
		return nil, err
	}
	return q, nil
}

// Cancel ends the lookup; no event follows.
func (q *CMQuery) Cancel() {
	q.dev.gsi.do(func(mono.Time) {
		q.query.Cancel()
		if _, ok := q.dev.gsi.queries[q]; ok {
			delete(q.dev.gsi.queries, q)
			q.dev.gsi.release(q.way)
		}
	})
}

// CMInquiry is a peer's wish for a UD queue pair.
type CMInquiry struct {
	dev     *Device
	inquiry *cm.Inquiry
	way     *way // where the answer goes

	mu   sync.Mutex
	over func()
}

// OnOver has f called when the request was not answered in time, or made room for
// those of others. Call it in the handler of the listener; f must not wait.
func (r *CMInquiry) OnOver(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = f
}

// withdrawn says that it is over. No lock is held.
func (r *CMInquiry) withdrawn() {
	r.mu.Lock()
	f := r.over
	r.mu.Unlock()
	if f != nil {
		f()
	}
}

// newInquiry is called with the shard locked.
func (g *gsi) newInquiry(q *cm.Inquiry) *CMInquiry {
	r := &CMInquiry{dev: g.dev, inquiry: q, way: g.hold(pathKey{q.LocalGID(), q.PeerAddress()})}
	g.asked[r] = struct{}{}
	return r
}

// forgetInquiry is called with the shard locked.
func (g *gsi) forgetInquiry(r *CMInquiry) {
	if _, ok := g.asked[r]; ok {
		delete(g.asked, r)
		g.release(r.way)
	}
}

// Info returns the request, whose addresses never change.
func (r *CMInquiry) Info() *cm.Inquiry { return r.inquiry }

// Accept answers with a queue pair that can receive, and private data
// (rdma_accept): [cm.Inquiry.Accept]. It is EINVAL when q is not a UD queue pair
// of the device in RTR or beyond, or its Q_Key is 0, and when the request was
// answered already.
func (r *CMInquiry) Accept(q *QP, private []byte) error {
	if q.dev != r.dev || q.engine.Type() != qp.UD {
		return fail("accept", syscall.EINVAL, "qp %v is not a UD queue pair of the device", q.num)
	}
	a, _ := q.Query()
	if !slices.Contains([]qp.State{qp.RTR, qp.RTS, qp.SQD, qp.SQE}, a.State) {
		return fail("accept", syscall.EINVAL, "qp %v is in state %v and cannot receive; see QP.Ready", q.num, a.State)
	}
	if a.QKey == 0 {
		return fail("accept", syscall.EINVAL, "the Q_Key of qp %v is 0; use DefaultUDPQKey", q.num)
	}
	return r.AcceptQPN(q.num, a.QKey, private)
}

// AcceptQPN is Accept for a queue pair that is known by its number only.
func (r *CMInquiry) AcceptQPN(n QPN, key bth.QKey, private []byte) error {
	return r.answer(func() error { return r.inquiry.Accept(n, key, private) })
}

// Reject answers with a status (rdma_reject): [cm.Inquiry.Reject].
func (r *CMInquiry) Reject(status cm.SIDRStatus, private []byte) error {
	return r.answer(func() error { return r.inquiry.Reject(status, private) })
}

func (r *CMInquiry) answer(f func() error) error {
	var err error
	closed := r.dev.gsi.do(func(mono.Time) {
		if err = f(); err == nil {
			r.dev.gsi.forgetInquiry(r)
		}
	})
	return cmp.Or(closed, err)
}
