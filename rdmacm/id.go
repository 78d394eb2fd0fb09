package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/gsi"
)

// PortSpace is the port space of an ID (enum rdma_port_space).
type PortSpace = cm.PortSpace

// The port spaces. Their ports are independent.
const (
	TCP = cm.PortSpaceTCP // RC
	UDP = cm.PortSpaceUDP // UD, see [Host.CreateID]
	IB  = cm.PortSpaceIB  // RC or UC
)

// QKey is a Q_Key.
type QKey = roce.QKey

// UDPQKey is the Q_Key of UD queue pairs of the connection manager
// (RDMA_UDP_QKEY).
const UDPQKey = cm.DefaultUDPQKey

// state is enum rdma_cm_state.
type state int

const (
	idle state = iota
	addrQuery
	addrResolved
	routeQuery
	routeResolved
	connect
	disconnect
	addrBound
	listening
	deviceRemoval
	destroying
)

var stateNames = [...]string{"IDLE", "ADDR_QUERY", "ADDR_RESOLVED", "ROUTE_QUERY", "ROUTE_RESOLVED", "CONNECT", "DISCONNECT", "ADDR_BOUND",
	"LISTEN", "DEVICE_REMOVAL", "DESTROYING"}

func (s state) String() string { return stateNames[s] }

// ID is an identifier (struct rdma_cm_id): one end of a connection or datagram
// service from address resolution on, or a listener. Its methods may be called
// from any goroutine.
type ID struct {
	// Context belongs to the program. The ID of a connection request begins
	// with that of its listener.
	Context any

	host    *Host
	ps      PortSpace
	number  uint64        // of the IDs of the host
	listens atomic.Uint32 // the port at which the ID listens; 0: none

	// background is the context for the rest of asynchronous calls.
	background context.Context
	cancel     context.CancelFunc
	running    sync.WaitGroup

	op sync.Mutex // held while an operation of the connection manager starts; taken before mu

	mu sync.Mutex
	guarded
}

// guarded are the fields of an ID that its mu guards.
type guarded struct {
	channel    *Channel
	sync       bool // the ID is synchronous, with its own channel
	state      state
	qpType     roce.QPType
	dev        *roce.Device // nil: not yet
	local      netip.AddrPort
	remote     netip.AddrPort
	binding    *binding // nil: none
	route      *devRoute
	opts       options
	redial     redial
	listeners  []*gsi.Listener
	conn       *gsi.Conn
	query      *gsi.Query
	inquiry    *gsi.Inquiry
	offer      *ConnParam // of the peer, of a connection request
	param      ConnParam  // of Connect
	listenID   *ID        // listener of a request that the program has not taken, else nil
	answerCame bool       // answer of query has arrived
	withdrawn  bool       // the request ended before the program took it
	leaving    bool       // Disconnect was called
	connectErr bool       // the program has a ConnectError, after which there are no events
	event      *Event     // last event of a synchronous ID
	groups     []*group
	queues     queues
	epConfig   *epConfig // of CreateEP
}

// options are the values of the Set methods.
type options struct {
	tos        uint8
	reuse      bool
	afOnly     bool
	ackTimeout uint8 // 0: not set
	redial     time.Duration

	onAlternate func(cm.Path) cm.APStatus
}

// Error is a refused call; see [roce.Error].
type Error = roce.Error

// fail returns the error of a call without an ID.
func fail(op string, cause error, format string, args ...any) error {
	return errs.New(op, cause, format, args...)
}

// fail returns the error of a call on the ID.
func (id *ID) fail(op string, cause error, format string, args ...any) error {
	return errs.On(op, id.name(), cause, format, args...)
}

// named adds the ID as the object to an error of a lower package. It does not change an
// error that already names an object, or the error of a context.
func (id *ID) named(op string, err error) error {
	e, ok := err.(*Error)
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), ok && e.Object != "":
		return err
	case !ok || err == roce.ErrClosed:
		return id.fail(op, err, "")
	}
	return errs.On(e.Op, id.name(), e.Err, "%s", e.Detail)
}

// name returns the name of the ID in errors: "id 3", or "listener 7471" once it listens at
// that port.
func (id *ID) name() string {
	if port := id.listens.Load(); port != 0 {
		return fmt.Sprintf("listener %d", port)
	}
	return fmt.Sprintf("id %d", id.number)
}

// CreateID makes an identifier (rdma_create_id) for RC (TCP), UD (UDP), or RC
// or UC (IB) queue pairs. With a nil channel it is synchronous. It fails with
// EINVAL for an unknown port space.
func (h *Host) CreateID(c *Channel, ps PortSpace, context any) (*ID, error) {
	t := roce.RC
	switch ps {
	case TCP, IB:
	case UDP:
		t = roce.UD
	default:
		return nil, fail("create id", syscall.EINVAL, "%v is not a port space of RoCE", ps)
	}
	id := h.newID(c, ps, t, context)
	if err := h.enter(id); err != nil {
		return nil, err
	}
	return id, nil
}

func (h *Host) newID(c *Channel, ps PortSpace, t roce.QPType, user any) *ID {
	id := &ID{Context: user, host: h, number: h.numbers.Add(1), ps: ps, guarded: guarded{qpType: t, channel: c, sync: c == nil}}
	if id.sync {
		id.channel = h.NewChannel()
	}
	id.background, id.cancel = context.WithCancel(context.Background())
	return id
}

// Destroy ends an identifier in any state (rdma_destroy_id): it stops a listener and
// rejects requests that the program has not taken, ends a connection and moves its
// queue pair to ERR, leaves groups, and frees the port. The queue pair itself stays:
// call [ID.DestroyQP] first, or use [ID.DestroyEP].
func (id *ID) Destroy() error {
	id.op.Lock()
	id.mu.Lock()
	if id.state == destroying {
		id.mu.Unlock()
		id.op.Unlock()
		return id.fail("destroy", roce.ErrClosed, "")
	}
	id.state = destroying
	listeners, conn, query, inquiry, groups, b := id.listeners, id.conn, id.query, id.inquiry, id.groups, id.binding
	channel := id.channel
	id.listeners, id.groups, id.binding = nil, nil, nil
	id.mu.Unlock()
	id.op.Unlock()
	id.cancel()
	id.running.Wait()
	for _, l := range listeners {
		l.Close()
	}
	for _, g := range groups {
		g.detach() // on an error the queue pair is closed
	}
	if conn != nil {
		conn.Destroy()
	}
	if query != nil {
		query.Cancel()
	}
	if inquiry != nil {
		inquiry.Reject(cm.SIDRReject, nil) // has no effect if the inquiry is answered
	}
	if b != nil {
		id.host.unbind(b)
	}
	id.host.update(func() { delete(id.host.ids, id) })
	for _, ev := range channel.take(func(ev *Event) bool { return ev.ID == id || ev.ListenID == id }) {
		if ev.ListenID == id {
			ev.ID.Destroy()
		}
	}
	if id.sync {
		channel.Close()
	}
	return nil
}

// Migrate moves an identifier and its pending events to another channel
// (rdma_migrate_id). With nil it makes the identifier synchronous. Meanwhile
// no goroutine should take events of the old channel.
func (id *ID) Migrate(c *Channel) error {
	own := c == nil
	if own {
		c = id.host.NewChannel()
	}
	id.mu.Lock()
	if id.state == destroying {
		id.mu.Unlock()
		return id.fail("migrate", roce.ErrClosed, "")
	}
	old, wasOwn := id.channel, id.sync
	id.channel, id.sync = c, own
	var moved []*Event
	if old != c {
		moved = old.take(func(ev *Event) bool { return ev.ID == id && ev.ListenID == nil || ev.ListenID == id })
	}
	for _, ev := range moved {
		c.push(ev)
	}
	id.mu.Unlock()
	if wasOwn {
		old.Close()
	}
	for _, ev := range moved {
		if ev.ListenID == id && !own {
			ev.ID.Migrate(c) // a new ID follows its listener
		}
	}
	return nil
}

// PortSpace returns the port space.
func (id *ID) PortSpace() PortSpace { return id.ps }

// QPType returns the type of the queue pair.
func (id *ID) QPType() roce.QPType { id.mu.Lock(); defer id.mu.Unlock(); return id.qpType }

// Channel returns the event channel, or nil for a synchronous ID.
func (id *ID) Channel() *Channel {
	if s := id.snapshot(); !s.sync {
		return s.channel
	}
	return nil
}

// Event returns the last event of a synchronous ID, or nil before the first:
// for the ID of a request it is that request, for a connection the peer's
// answer.
func (id *ID) Event() *Event { id.mu.Lock(); defer id.mu.Unlock(); return id.event }

// Device returns the device to which the ID is bound, or nil.
func (id *ID) Device() *roce.Device { id.mu.Lock(); defer id.mu.Unlock(); return id.dev }

// LocalAddr returns the address and port of this end, invalid before it has
// one (rdma_get_local_addr).
func (id *ID) LocalAddr() netip.AddrPort { id.mu.Lock(); defer id.mu.Unlock(); return id.local }

// PeerAddr returns the address and port of the other end, invalid before it is
// known (rdma_get_peer_addr).
func (id *ID) PeerAddr() netip.AddrPort { id.mu.Lock(); defer id.mu.Unlock(); return id.remote }

// SrcPort returns the port of this end, 0 before it has one
// (rdma_get_src_port).
func (id *ID) SrcPort() uint16 { return id.LocalAddr().Port() }

// DstPort returns the port of the other end, 0 before it is known
// (rdma_get_dst_port).
func (id *ID) DstPort() uint16 { return id.PeerAddr().Port() }

// snapshot returns a copy of the guarded fields.
func (id *ID) snapshot() guarded { id.mu.Lock(); defer id.mu.Unlock(); return id.guarded }

// locked calls f, which changes guarded fields.
func (id *ID) locked(f func()) {
	id.mu.Lock()
	defer id.mu.Unlock()
	f()
}

// transition changes the state from one to another. It fails with EINVAL in
// any other state.
func (id *ID) transition(op string, from, to state) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.transitionLocked(op, from, to)
}

func (id *ID) transitionLocked(op string, from, to state) error {
	if id.state != from {
		return id.stateError(op)
	}
	id.state = to
	return nil
}

// stateError is the error of a call that does not fit the state. The ID is locked.
func (id *ID) stateError(op string) error {
	return id.fail(op, syscall.EINVAL, "not possible in state %v", id.state)
}

// postLocked delivers an event of the ID, unless the ID is being destroyed. The ID is
// locked.
func (id *ID) postLocked(ev *Event) {
	if id.state != destroying {
		id.channel.push(ev)
	}
}

// move changes the state from one to another and delivers an event. In any
// other state it does nothing.
func (id *ID) move(from, to state, ev *Event) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state == from {
		id.state = to
		id.postLocked(ev)
	}
}

// spawn runs the rest of an asynchronous call on a goroutine. Its context ends with the ID, or
// after timeout if that is not 0.
func (id *ID) spawn(timeout time.Duration, f func(ctx context.Context)) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state == destroying { // Destroy would not wait for the goroutine
		return
	}
	id.running.Go(func() {
		ctx := id.background
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		f(ctx)
	})
}

// deviceGone delivers DeviceRemoval if the device is that of the ID.
func (id *ID) deviceGone(d *roce.Device, why error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.dev == d && id.state != destroying && id.state != deviceRemoval {
		id.state = deviceRemoval
		id.postLocked(&Event{Type: DeviceRemoval, ID: id, Err: why})
	}
}

// addrsChanged checks whether the device still has the ID's address.
func (id *ID) addrsChanged(d *roce.Device) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.dev == d && id.local.Addr().IsValid() && !id.local.Addr().IsUnspecified() && !has(d, id.local.Addr()) {
		id.postLocked(&Event{Type: AddrChange, ID: id})
	}
}

// next waits for the next event of a synchronous ID and stores it.
func (id *ID) next(ctx context.Context, c *Channel) (*Event, error) {
	ev, err := c.Next(ctx)
	if err == nil {
		id.locked(func() { id.event = ev })
	}
	return ev, err
}

// complete waits for the outcome of a call, if the ID is synchronous. Linux:
// ucma_complete.
func (id *ID) complete(ctx context.Context, want ...EventType) error {
	s := id.snapshot()
	if !s.sync {
		return nil
	}
	for {
		ev, err := id.next(ctx, s.channel)
		switch {
		case err != nil:
			return err
		case ev.Err != nil || slices.Contains(want, ev.Type):
			return ev.Err
		case ev.Type == AddrChange || ev.Type == TimewaitExit:
		default:
			return id.fail("wait", syscall.EINVAL, "unexpected %v", ev)
		}
	}
}
