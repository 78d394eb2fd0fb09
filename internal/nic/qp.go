package nic

import (
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/deadline"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// QP is a queue pair as the machine room sees it: its engine, where it sends, and its
// places in the lists of its shard. The object of the program contains it.
type QP struct {
	// Guarded by the shard. A cache line: of thousands of queue pairs a cache holds few.
	shard  *Shard
	engine *qp.QP
	sink   frame.Sink
	timer  deadline.Timer // in Shard.timers
	queued bool           // on the shard's list of those that are ready
	closed bool
	paused bool  // the driver drops datagrams: there are no receives
	dry    uint8 // datagrams in a row that have found no receive
	num    bth.QPN
	link   *connLink // with the connection manager; nil: there has been none

	event    func(EventType)
	owner    any
	attached int     // to so many multicast groups
	source   bth.GID // the address from which packets pass early drop; zero: every address
}

// connLink is what a queue pair has to do with connections of the connection manager. A queue
// pair that the program connects itself does not pay for it.
type connLink struct {
	onData    func() // to be called once, when the first packet of the peer comes
	onMigrate func() // to be called when the queue pair has changed over to its alternate path

	dataBy, migrateBy any // the connections that have set onData, onMigrate
	conn              any // the connection that the queue pair belongs to
}

// linked returns the link with the connection manager. The caller has locked the shard.
func (q *QP) linked() *connLink {
	if q.link == nil {
		q.link = new(connLink)
	}
	return q.link
}

// awaitsData reports whether a connection waits for the first packet of the peer. The caller has
// locked the shard.
func (q *QP) awaitsData() bool { return q.link != nil && q.link.onData != nil }

// Attached returns to how many multicast groups the queue pair is attached. The caller has
// stopped the NIC.
func (q *QP) Attached() int { return q.attached }

// Init prepares a queue pair of a shard. owner is the object that contains it, event takes
// the events of its engine, under the lock of the shard.
func (q *QP) Init(s *Shard, owner any, event func(EventType)) {
	q.shard, q.owner, q.event = s, owner, event
}

// Alias makes q another handle of a queue pair: of an XRC target. It is in no list.
func (q *QP) Alias(of *QP, owner any) {
	q.shard, q.engine, q.num, q.owner = of.shard, of.engine, of.num, owner
}

// Owner returns the object that contains the queue pair.
func (q *QP) Owner() any { return q.owner }

// Num returns the queue pair number.
func (q *QP) Num() bth.QPN { return q.num }

// Shard returns the shard of the queue pair.
func (q *QP) Shard() *Shard { return q.shard }

// Type returns the service. It never changes.
func (q *QP) Type() qp.Type { return q.engine.Type() }

// Closed reports whether the queue pair was destroyed. The caller has locked its shard.
func (q *QP) Closed() bool { return q.closed }

// Create gives a queue pair a number and an engine. retain is called last: it counts the
// queue pair with what it uses, and may refuse. The caller has stopped the NIC.
func (n *NIC) Create(q *QP, c qp.Config, noEcho bool, retain func() error) error {
	s := q.shard
	if err := n.demux.add(n.Now(), q); err != nil {
		return err
	}
	c.Num, c.Event, c.Counters, c.Repair = q.num, q.engineEvent, &s.counters, s.repair
	if c.CrossChannel || c.ManagedSend || c.ManagedRecv {
		c.Owner, c.Wake = s, func(*qp.QP) { s.touch(q) }
	}
	var err error
	if q.engine, err = qp.New(c); err == nil {
		err = retain()
	}
	if err != nil {
		n.demux.remove(n.Now(), q)
		return err
	}
	q.sink = s.sink
	if c.Type == qp.UD || c.Type == qp.DCI || c.Type == qp.DCT {
		q.sink = &datagramSink{Shard: s, noEcho: noEcho, paced: c.Type == qp.UD}
	}
	q.admit()
	return nil
}

// CreateGSI makes the engine of QP 1 on shard 0. It has no number to look up.
func (n *NIC) CreateGSI(q *QP, c qp.Config) (err error) {
	s := n.shards[0]
	q.Init(s, nil, func(EventType) {})
	q.num, q.sink = bth.QPNGSI, &datagramSink{Shard: s}
	c.Num, c.Counters = bth.QPNGSI, &s.counters
	q.engine, err = qp.New(c)
	return err
}

// Destroy ends a queue pair and frees its number. The caller has stopped the NIC.
func (n *NIC) Destroy(q *QP) {
	q.shard.sendPosted(n.Now()) // what was posted, and acknowledgements that wait for an answer
	q.closed = true
	q.forgetConn()
	q.engine.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState)
	q.shard.timers.Set(&q.timer, q, mono.Never)
	n.demux.remove(n.Now(), q)
	q.forget()
}

// SetClosed marks a handle as closed. The caller has stopped the NIC.
func (q *QP) SetClosed() { q.closed = true }

// FindQP returns the queue pair with a number, or nil. The caller has stopped the NIC.
func (n *NIC) FindQP(num bth.QPN) *QP { return n.demux.find(num) }

// Post runs f on the engine and sends what comes of it: the doorbell. It fails with
// errs.ErrClosed when the queue pair or the NIC is closed.
func (q *QP) Post(f func(*qp.QP) error) error { return q.shard.post(q, f) }

// Locked runs f, which may post receives, on the engine under the lock of the shard, if the
// queue pair exists.
func (q *QP) Locked(f func(*qp.QP) error) error {
	s := q.shard
	s.mu.Lock()
	if s.nic.closed || q.closed {
		s.mu.Unlock()
		return errs.ErrClosed
	}
	q.resume()
	ready := len(s.ready)
	err := f(q.engine)
	if len(s.ready) != ready { // a completion has woken a queue pair that waited for it
		s.finish(s.nic.Now())
		return err
	}
	s.mu.Unlock()
	return err
}

// View runs f on the engine under the lock of the shard, whether or not the queue pair is
// closed: f must change nothing.
func (q *QP) View(f func(*qp.QP)) {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	f(q.engine)
}

// Modify changes attributes and state, and sends what comes of it. core is the queue pair
// itself where q is another handle of it.
func (q *QP) Modify(core *QP, a *qp.Attr, mask qp.AttrMask) error {
	s := q.shard
	if active := bth.ActiveMTU(s.nic.MTU()); mask&qp.AttrPathMTU != 0 && a.PathMTU > active {
		return errs.New("modify qp", syscall.EINVAL, "qp %v: path MTU %v is more than the port has, %v", q.num, a.PathMTU, active)
	}
	s.mu.Lock()
	if q.closed || s.nic.closed {
		s.mu.Unlock()
		return errs.ErrClosed
	}
	s.sendPosted(s.nic.Now())
	core.admitMore(mask)
	err := q.engine.Modify(a, mask)
	core.admitLess()
	if err == nil && mask&qp.AttrState != 0 && a.State == qp.Reset {
		core.forgetConn()
	}
	if err == nil && mask&qp.AttrAV != 0 {
		core.route()
	}
	s.touch(core)
	s.finish(s.nic.Now())
	return err
}

// Claim says that the queue pair belongs to a connection, until another one claims it or the
// program resets it.
func (q *QP) Claim(by any) {
	q.shard.mu.Lock()
	q.linked().conn = by
	q.shard.mu.Unlock()
}

// forgetConn parts the queue pair from its connection. The caller has locked the shard.
func (q *QP) forgetConn() {
	q.link = nil
}

// Disconnect moves the queue pair to ERR, so that nothing posted is left hanging, if it still
// belongs to the connection. It forgets what the connection has set by OnData and OnMigrate.
func (q *QP) Disconnect(by any) {
	s := q.shard
	s.mu.Lock()
	if l := q.link; l != nil {
		if l.dataBy == by {
			l.onData, l.dataBy = nil, nil
		}
		if l.migrateBy == by {
			l.onMigrate, l.migrateBy = nil, nil
		}
		if !q.closed && l.conn == by {
			s.sendPosted(s.nic.Now())
			q.flush()
		}
	}
	s.finish(s.nic.Now())
}

// flush moves the queue pair to ERR. The caller has locked the shard.
func (q *QP) flush() {
	if q.engine.State() != qp.Reset {
		q.engine.Modify(&qp.Attr{State: qp.Err}, qp.AttrState)
		q.shard.timers.Set(&q.timer, q, mono.Never)
	}
}

// OnData has f called, without a lock, when the first packet of the peer comes: its data
// confirm a connection as well as its RTU. by is the connection.
func (q *QP) OnData(by any, f func()) {
	q.shard.mu.Lock()
	l := q.linked()
	l.onData, l.dataBy = f, by
	q.shard.mu.Unlock()
}

// OnMigrate has f called, without a lock, each time the queue pair changes over to its
// alternate path. by is the connection.
func (q *QP) OnMigrate(by any, f func()) {
	q.shard.mu.Lock()
	l := q.linked()
	l.onMigrate, l.migrateBy = f, by
	q.shard.mu.Unlock()
}

// Congestion returns what congestion control makes of the queue pair.
func (q *QP) Congestion() qp.CongestionState {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	return q.engine.Congestion(q.shard.nic.Now())
}

// route chooses what the queue pair sends into: the port, or the way back inside the
// device. The caller has locked the shard; called whenever the path has changed.
func (q *QP) route() {
	if q.Type() == qp.DCI { // each work request has its own path
		return
	}
	q.sink = q.shard.sink
	if c := q.engine.Path().Config(); q.shard.nic.routes.IsLocal(&c.Dst) {
		q.sink = loopSink{q.shard}
	}
}

// engineEvent takes the events of the engine. The shard is locked.
func (q *QP) engineEvent(_ *qp.QP, t qp.EventType) {
	if t == qp.EventPathMig {
		q.route()
		if q.link != nil && q.link.onMigrate != nil {
			q.shard.Call(q.link.onMigrate)
		}
	}
	q.event(EventType(t))
}

// Engine returns the engine. The caller has locked the shard.
func (q *QP) Engine() *qp.QP { return q.engine }
