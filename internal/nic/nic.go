package nic

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/alarm"
	"github.com/goroce/roce/internal/notify"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// Config configures a [NIC].
type Config struct {
	Ports      []link.Port // one for each shard: queues of one card
	Routes     *route.Table
	Membership Membership   // nil: the host need not join multicast groups
	VLAN       uint16       // 0: none
	Shared     share.Shared // other processes on the addresses; nil: there are none

	Polled  bool              // no background goroutine
	Lazy    bool              // defers posts
	Collect func(*Collecting) // a front end collects work requests, see collect.go; nil: none does
	Spin    time.Duration     // polling time of the background goroutine before it sleeps; less than 0: none

	Recovery qp.Recovery // reaction of queue pairs to losses

	Rand func() uint64

	// Notify receives asynchronous events. The NIC calls it with locks held: it
	// must not wait, and may call no function of the NIC but Nudge.
	Notify func(Event)
}

// NIC is the core of a device. Its methods may be called from any goroutine.
type NIC struct {
	shards   []*Shard
	info     link.Info
	routes   *route.Table
	vlan     uint16
	qp1      QP1
	notify   func(Event)
	epoch    time.Time
	polled   bool
	recovery qp.Recovery
	lazy     bool
	collect  func(*Collecting)
	spin     time.Duration

	state atomic.Pointer[interfaceState]
	port  portState
	ended ended

	filter link.Filter  // early drop at the port; nil: none
	shared share.Shared // other processes on the addresses; nil: there are none

	// A writer of these fields holds the locks of all shards; a shard reads them with
	// its own lock.
	demux   demux
	groups  groups
	closed  bool // no new work begins, while peers are disconnected
	stopped bool // all work has ended

	closing atomic.Bool
	removed atomic.Bool   // the network interface was removed
	done    chan struct{} // closed when the NIC is
	drained notify.Chan   // all peers know that the NIC is being closed
	running sync.WaitGroup

	// One waiting caller at a time drives a polled NIC; see Wait.
	driver  chan struct{}
	napping atomic.Pointer[Shard] // at whose port it sleeps; nil: it does not
}

// EventType is an asynchronous event of the NIC, with the values of enum ibv_event_type.
type EventType uint8

// Events that are not of a queue pair's engine.
const (
	EventDeviceFatal EventType = 8
	EventPortActive  EventType = 9
	EventPortErr     EventType = 10
	EventGIDChange   EventType = 18
	EventPortChange  EventType = 0x80
	EventPathMTU     EventType = 0x81
)

// Event is an asynchronous event.
type Event struct {
	Type EventType
	QP   *QP // the queue pair of the event, or nil
	Port int // the port of the event, or 0
}

// New makes an idle NIC: the caller makes its QP 1, then calls Start. The caller
// closes the ports if New fails.
func New(c Config) (*NIC, error) {
	n := &NIC{info: c.Ports[0].Info(), routes: c.Routes, vlan: c.VLAN, notify: c.Notify, epoch: time.Now(), polled: c.Polled, lazy: c.Lazy, collect: c.Collect, spin: c.Spin, recovery: c.Recovery,
		done: make(chan struct{}), drained: notify.New(), driver: make(chan struct{}, 1)}
	n.state.Store(&interfaceState{n.info.Interface, n.info.MAC, n.info.MTU})
	n.groups.membership, n.groups.byGID = c.Membership, map[bth.GID]*group{}
	n.shared = c.Shared
	n.demux.init(c.Rand, classesOf(len(c.Ports), c.Shared))
	for i, p := range c.Ports {
		if info := p.Info(); info.MAC != n.info.MAC || info.MTU != n.info.MTU {
			return nil, errs.New("open", syscall.EINVAL, "port %s has MAC %v and MTU %d, port %s %v and %d; they must be queues of one card",
				info.Interface, info.MAC, info.MTU, n.info.Interface, n.info.MAC, n.info.MTU)
		}
		n.shards = append(n.shards, newShard(n, i, p))
	}
	return n, nil
}

// Start begins the work. q is the QP 1 of the NIC.
func (n *NIC) Start(q QP1) {
	n.qp1 = q
	n.startFilter()
	n.startSharing()
	n.shards[0].port.OnLink(n.linkChanged)
	if !n.polled {
		for _, s := range n.shards {
			s.polling.alarm = n.newAlarm()
			n.running.Go(s.run)
		}
	}
}

// newAlarm returns an alarm for the pauses of a shard. A hub of mem ports may be part of a test that controls the time.
func (n *NIC) newAlarm() alarm.Alarm {
	if n.info.Driver == "mem" {
		return alarm.NewRuntime(tick)
	}
	return alarm.New(tick)
}

// Shard returns a shard, from 0; Shards returns how many there are.
func (n *NIC) Shard(i int) *Shard { return n.shards[i] }
func (n *NIC) Shards() int        { return len(n.shards) }

// Routes returns the routing table of the NIC: its addresses and the paths to
// peers.
func (n *NIC) Routes() *route.Table { return n.routes }

// Polled reports whether waiting callers do the work, without a background goroutine.
func (n *NIC) Polled() bool { return n.polled }

// Lazy reports whether the NIC defers posts.
func (n *NIC) Lazy() bool { return n.lazy }

// SleepsAtOnce reports whether the NIC sleeps as soon as it has no work. It then requests
// every acknowledgement, because the acknowledgement arrives before the answer and wakes
// the NIC.
func (n *NIC) SleepsAtOnce() bool { return !n.polled && n.spin < 0 }

// Now returns the protocol's time.
func (n *NIC) Now() mono.Time { return mono.Time(time.Since(n.epoch)) }

// Lock stops all shards; Unlock ends this.
func (n *NIC) Lock() {
	for _, s := range n.shards {
		s.mu.Lock()
	}
}

// Unlock lets the shards continue.
func (n *NIC) Unlock() {
	for _, s := range n.shards {
		s.mu.Unlock()
	}
}

// Check fails with errs.ErrClosed when the NIC is being closed, and with ErrNoDevice when
// its network interface was removed. The caller has locked a shard.
func (n *NIC) Check() error {
	if n.closed {
		return errs.ErrClosed
	}
	return n.present()
}

// Closed reports whether the NIC accepts no new work. The caller has locked a shard.
func (n *NIC) Closed() bool { return n.closed }

// Closing reports whether Close was called. No lock is needed.
func (n *NIC) Closing() bool { return n.closing.Load() }

// Done returns a channel that is closed when the NIC is closed.
func (n *NIC) Done() <-chan struct{} { return n.done }

// Progress does pending work and reports whether there was any.
func (n *NIC) Progress() bool {
	n.shards[0].letOthersRun(n.Now())
	busy := false
	for _, s := range n.shards {
		k, _ := s.progress()
		busy = k > 0 || busy
	}
	n.shards[0].polled(busy)
	return busy
}

// SendDeferred sends the deferred posts of a lazy NIC.
func (n *NIC) SendDeferred() {
	for _, s := range n.shards {
		s.sendDeferred()
	}
}

// Go runs f on a goroutine that Close waits for.
func (n *NIC) Go(f func()) { n.running.Go(f) }

// Close flushes the queue pairs, disconnects all peers, waits up to linger for their DREPs,
// then stops the shards and closes the ports. A second Close fails with errs.ErrClosed.
func (n *NIC) Close(linger time.Duration) error {
	if n.closing.Swap(true) {
		return errs.ErrClosed
	}
	n.Lock()
	now := n.Now()
	for _, s := range n.shards {
		s.sendPosted(now)
	}
	for _, q := range n.demux.all() {
		q.flush()
	}
	for _, s := range n.shards {
		s.send(now) // last acknowledgements, before the peers hear that the connections end
	}
	tell := n.qp1.Shutdown(now)
	n.closed = true
	for _, s := range n.shards {
		s.send(now)
		s.runLoopback(now)
		s.wake() // to send the rest, and repetitions
	}
	n.Unlock()
	for _, s := range n.shards {
		s.makeAllCalls()
	}
	tell(errs.ErrClosed)
	close(n.done)
	for _, s := range n.shards {
		s.polling.endPause()
	}
	n.linger(linger)
	n.Lock()
	n.stopped = true
	n.Unlock()
	failed := []error{n.leaveGroups()}
	for _, s := range n.shards {
		failed = append(failed, s.port.Close())
	}
	n.running.Wait()
	for _, s := range n.shards {
		s.polling.close()
	}
	return errors.Join(failed...)
}

// SetAddrs replaces the addresses of the NIC, and returns the number of added and
// removed ones. Each raises EventGIDChange.
func (n *NIC) SetAddrs(addrs []netip.Addr, gids []bth.GID) (changed int, err error) {
	changed, err = n.setGIDs(gids)
	if p, ok := link.As[link.Addressed](n.shards[0].port); ok && err == nil {
		err = p.SetAddrs(addrs)
	}
	return changed, err
}

func (n *NIC) setGIDs(want []bth.GID) (changed int, err error) {
	n.Lock()
	defer n.Unlock()
	if n.closed {
		return 0, errs.ErrClosed
	}
	if changed = n.routes.SetGIDs(want); changed > 0 {
		for _, q := range n.demux.all() {
			if q.engine.Path() != nil {
				q.route() // a path to the device itself may now lead elsewhere
			}
		}
	}
	for range changed {
		n.notify(Event{Type: EventGIDChange, Port: 1})
	}
	return changed, nil
}

// Lender returns the port's own memory, if its driver has any.
func (n *NIC) Lender() (link.Lender, bool) {
	l, ok := n.shards[0].port.(link.Lender)
	return l, ok
}

// Count returns the numbers of queue pairs and multicast groups.
func (n *NIC) Count() (qps, groups int) {
	n.Lock()
	defer n.Unlock()
	return n.demux.qps.Len(), len(n.groups.byGID)
}

// Observe returns the state of all queue pairs, in the order of their numbers.
func (n *NIC) Observe() (all []qp.Observation) {
	n.Lock()
	for _, q := range n.demux.all() {
		all = append(all, q.engine.Observe())
	}
	n.Unlock()
	slices.SortFunc(all, func(a, b qp.Observation) int { return cmp.Compare(a.Num, b.Num) })
	return all
}

// Counters are the sums of the counters of all shards.
type Counters struct {
	QP         qp.Counters
	Drops      Drops
	Link       link.Stats
	Shared     share.Stats // packets between the processes of the host
	PortErrors uint64      // failed calls of ports, except while the link is down
}

// Counters returns a snapshot. It calls underLock while shard 0 is locked.
func (n *NIC) Counters(underLock func()) (c Counters) {
	for i, s := range n.shards {
		s.mu.Lock()
		c.QP.Add(&s.counters)
		c.Drops.Add(&s.drops)
		c.PortErrors += s.health.errors
		if i == 0 {
			underLock()
		}
		s.mu.Unlock()
		c.Link.Add(s.port.Stats())
	}
	n.earlyDrops(&c)
	if n.shared != nil {
		c.Shared = n.shared.Stats()
	}
	return c
}
