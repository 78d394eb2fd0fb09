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

// QP is a queue pair in this package: its engine, its sink, and its places in the
// lists of its shard. The object of the program contains it.
type QP struct {
	// Guarded by the shard. These fields fill one cache line: thousands of queue pairs do
	// not stay in the cache.
	shard  *Shard
	engine *qp.QP
	sink   frame.Sink
	timer  deadline.Timer // in Shard.timers
	queued bool           // on the shard's list of ready queue pairs
	closed bool
	paused bool  // the driver drops datagrams, because there are no receives
	dry    uint8 // datagrams in a row without a receive

	attached uint32    // number of multicast groups
	link     *connLink // with the connection manager; nil: there has been none
	event    func(EventType)
	owner    any
	last     *lastWord // nil: it has not ended, or is silent
	source   bth.GID   // the address from which packets pass early drop; zero: every address
}

// connLink links a queue pair with its connection in the connection manager. A queue pair
// that the program connects itself has none.
type connLink struct {
	onData    func() // called once, when the first packet of the peer arrives
	onMigrate func() // called when the queue pair has migrated to its alternate path

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

// Attached returns the number of multicast groups to which the queue pair is attached. The
// caller has stopped the NIC.
func (q *QP) Attached() int { return int(q.attached) }

// Init prepares a queue pair of a shard. owner is the object that contains it. event
// receives the events of its engine, with the lock of the shard held.
func (q *QP) Init(s *Shard, owner any, event func(EventType)) {
	q.shard, q.owner, q.event = s, owner, event
}

// Alias makes q another handle of a queue pair, an XRC target. The handle is in no
// list.
func (q *QP) Alias(of *QP, owner any) {
	q.shard, q.engine, q.owner = of.shard, of.engine, owner
}

// Owner returns the object that contains the queue pair.
func (q *QP) Owner() any { return q.owner }

// Num returns the queue pair number.
func (q *QP) Num() bth.QPN { return q.engine.Num() }

// Shard returns the shard of the queue pair.
func (q *QP) Shard() *Shard { return q.shard }

// Type returns the service. It never changes.
func (q *QP) Type() qp.Type { return q.engine.Type() }

// Closed reports whether the queue pair was destroyed. The caller has locked its shard.
func (q *QP) Closed() bool { return q.closed }

// Create gives a queue pair a number and an engine. Create calls retain last: retain
// counts the queue pair with the objects that it uses, and may fail. The caller has
// stopped the NIC. ring is nil or where the program puts receives.
func (n *NIC) Create(q *QP, c qp.Config, ring *RecvRing, noEcho bool, retain func() error) error {
	s := q.shard
	if ring != nil {
		if n := len(ring.Slots); n&(n-1) != 0 || n == 0 || ring.RecvRingState == nil {
			return errs.New("create qp", syscall.EINVAL, "a ring of %d receives: must be a power of two, and have a state", n)
		}
		c.RecvRing = ring.engine()
	}
	num, err := n.demux.add(n.Now(), q)
	if err != nil {
		return err
	}
	c.Num, c.Event, c.Counters, c.Repair = num, q.engineEvent, &s.counters, s.repair
	if c.CrossChannel || c.ManagedSend || c.ManagedRecv {
		c.Owner, c.Wake = s, func(*qp.QP) { s.touch(q) }
	}
	if q.engine, err = qp.New(c); err == nil {
		err = retain()
	}
	if err != nil {
		n.demux.remove(n.Now(), num)
		return err
	}
	q.sink = s.sink
	if c.Type == qp.UD || c.Type == qp.DCI || c.Type == qp.DCT {
		q.sink = &datagramSink{Shard: s, noEcho: noEcho, paced: c.Type == qp.UD}
	}
	q.admit()
	return nil
}

// CreateGSI makes the engine of QP 1 on shard 0. QP 1 is not in the table of
// numbers.
func (n *NIC) CreateGSI(q *QP, c qp.Config) (err error) {
	s := n.shards[0]
	q.Init(s, nil, func(EventType) {})
	q.sink = &datagramSink{Shard: s}
	c.Num, c.Counters = bth.QPNGSI, &s.counters
	q.engine, err = qp.New(c)
	return err
}

// Destroy ends a queue pair and frees its number. The caller has stopped the NIC.
func (n *NIC) Destroy(q *QP) {
	s, now := q.shard, n.Now()
	s.sendPosted(now) // posts, and deferred acknowledgements
	q.closed = true
	q.forgetConn()
	q.engine.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState)
	q.engine.ForgetRecvRing()
	s.timers.Set(&q.timer, q, mono.Never)
	if q.engine.Owes() {
		s.touch(q) // it stays on the lists of the shard until it has sent its last acknowledgement
		s.send(now)
		s.runLoopback(now)
		s.wake()
	}
	n.demux.remove(n.Now(), q.Num())
	q.forget()
}

// SetClosed marks a handle as closed. The caller has stopped the NIC.
func (q *QP) SetClosed() { q.closed = true }

// FindQP returns the queue pair with a number, or nil. The caller has stopped the NIC.
func (n *NIC) FindQP(num bth.QPN) *QP { return n.demux.find(num) }

// Post runs f, which posts n work requests, on the engine and sends the resulting packets: the
// doorbell. It fails with errs.ErrClosed if the queue pair or the NIC is closed.
func (q *QP) Post(n int, f func(*qp.QP) error) error {
	_, err := q.shard.post(q, n, 1, f)
	return err
}

// PostCollected is Post of n work requests that a program has posted with several calls. single tells that a lazy NIC
// sends them at once, because the program posts singly.
func (q *QP) PostCollected(n, calls int, f func(*qp.QP) error) (single bool, err error) {
	return q.shard.post(q, n, calls, f)
}

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
	if len(s.ready) != ready { // a completion has woken a waiting queue pair
		s.finish(s.nic.Now())
		return err
	}
	s.mu.Unlock()
	return err
}

// View runs f on the engine under the lock of the shard, also if the queue pair is
// closed. f must not change anything.
func (q *QP) View(f func(*qp.QP)) {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	f(q.engine)
}

// Modify changes attributes and state, and sends the resulting packets. If q is a handle,
// core is the queue pair itself.
func (q *QP) Modify(core *QP, a *qp.Attr, mask qp.AttrMask) error {
	s := q.shard
	if active := bth.ActiveMTU(s.nic.MTU()); mask&qp.AttrPathMTU != 0 && a.PathMTU > active {
		return errs.New("modify qp", syscall.EINVAL, "qp %v: path MTU %v is more than the port has, %v", q.Num(), a.PathMTU, active)
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
	core.noteEnd()
	if err == nil && mask&qp.AttrDestQPN != 0 {
		s.nic.ended.connected(remote{core.engine.Path().Config().Dst, a.DestQPN})
	}
	s.touch(core)
	s.finish(s.nic.Now())
	return err
}

// Claim records that the queue pair belongs to a connection, until another connection claims
// it or the program resets it.
func (q *QP) Claim(by any) {
	q.shard.mu.Lock()
	q.linked().conn = by
	q.shard.mu.Unlock()
}

// forgetConn separates the queue pair from its connection. The caller has locked the
// shard.
func (q *QP) forgetConn() {
	q.link = nil
}

// Disconnect moves the queue pair to ERR, which flushes its work requests, if it still
// belongs to the connection. It removes the functions that the connection has set by OnData
// and OnMigrate.
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

// Acknowledge acknowledges a message whose acknowledgement the queue pair withholds. The connection manager calls it before
// it tells the peer that the connection ends.
func (q *QP) Acknowledge() {
	s := q.shard
	s.mu.Lock()
	if !q.closed && q.engine.AcknowledgeEnd() {
		s.touch(q)
	}
	s.finish(s.nic.Now())
}

// flush moves the queue pair to ERR. The caller has locked the shard, and sends afterwards.
func (q *QP) flush() {
	if q.engine.State() != qp.Reset {
		q.engine.Modify(&qp.Attr{State: qp.Err}, qp.AttrState)
		q.shard.timers.Set(&q.timer, q, mono.Never)
		if q.engine.Owes() {
			q.shard.touch(q)
		}
	}
}

// OnData registers f, which is called without a lock when the first packet of the peer
// arrives: like an RTU, data of the peer confirm the connection. by is the connection.
func (q *QP) OnData(by any, f func()) {
	q.shard.mu.Lock()
	l := q.linked()
	l.onData, l.dataBy = f, by
	q.shard.mu.Unlock()
}

// OnMigrate registers f, which is called without a lock each time the queue pair
// migrates to its alternate path. by is the connection.
func (q *QP) OnMigrate(by any, f func()) {
	q.shard.mu.Lock()
	l := q.linked()
	l.onMigrate, l.migrateBy = f, by
	q.shard.mu.Unlock()
}

// Congestion returns the state of congestion control.
func (q *QP) Congestion() qp.CongestionState {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	return q.engine.Congestion(q.shard.nic.Now())
}

// route chooses the sink of the queue pair: the port or the loopback. It is called
// whenever the path has changed. The caller has locked the shard.
func (q *QP) route() {
	if q.Type() == qp.DCI { // each work request has its own path
		return
	}
	q.sink = q.shard.sink
	if c := q.engine.Path().Config(); q.shard.nic.routes.IsLocal(&c.Dst) {
		q.sink = loopSink{q.shard}
	}
}

// engineEvent receives the events of the engine. The shard is locked.
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
