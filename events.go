package roce

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/internal/notify"
	"github.com/goroce/roce/qp"
)

// EventType is an asynchronous event, with the values of enum ibv_event_type.
type EventType uint8

// Events. The fields of [Event] that are set name the object of the event.
const (
	EventCQErr      EventType = 0 // CQ_ERR: a completion was lost, the queue was full
	EventFatal                = EventType(qp.EventFatal)
	EventReqErr               = EventType(qp.EventReqErr)
	EventAccessErr            = EventType(qp.EventAccessErr)
	EventCommEst              = EventType(qp.EventCommEst)
	EventSQDrained            = EventType(qp.EventSQDrained)
	EventPathMig              = EventType(qp.EventPathMig)
	EventPathMigErr           = EventType(qp.EventPathMigErr)

	// DEVICE_FATAL: the network interface was removed. Every queue pair is in
	// ERR and every connection has ended; the program should close the
	// device.
	EventDeviceFatal EventType = 8

	EventPortActive EventType = 9  // PORT_ACTIVE: the link came up, or the port receives again
	EventPortErr    EventType = 10 // PORT_ERR: the link went down, or the port has failed to receive for a second; queue pairs stay and retry
	EventSRQErr     EventType = 14 // SRQ_ERR
	EventSRQLimit             = EventType(qp.EventSRQLimit)
	EventLastWQE              = EventType(qp.EventLastWQE)

	// DCT_KEY_VIOLATION of the experimental verbs: see [DCT.Arm].
	EventDCTKeyViolation = EventType(qp.EventDCTKeyViolation)

	// GID_CHANGE: an address was added or removed, see [Device.SetAddrs].
	// Each change raises one event.
	EventGIDChange EventType = 18

	// These two are not in the verbs. PORT_CHANGE: the Ethernet address, MTU or name of
	// the interface has changed, see [Device.Query]; connections continue. PATH_MTU:
	// the interface cannot carry packets of the queue pair's path MTU any more: they
	// are dropped and counted (TxOversize) until the MTU of the interface is large
	// enough again. New connections use a smaller path MTU.
	EventPortChange EventType = 0x80
	EventPathMTU    EventType = 0x81

	// Events of InfiniBand and of hardware adapters only.
	EventLIDChange        EventType = 11 // LID_CHANGE
	EventPKeyChange       EventType = 12 // PKEY_CHANGE
	EventSMChange         EventType = 13 // SM_CHANGE
	EventClientReregister EventType = 17 // CLIENT_REREGISTER
	EventWQFatal          EventType = 19 // WQ_FATAL
)

var eventNames = map[EventType]string{EventCQErr: "CQ_ERR", EventDeviceFatal: "DEVICE_FATAL", EventPortActive: "PORT_ACTIVE",
	EventPortErr: "PORT_ERR", EventLIDChange: "LID_CHANGE", EventPKeyChange: "PKEY_CHANGE", EventSMChange: "SM_CHANGE",
	EventSRQErr: "SRQ_ERR", EventClientReregister: "CLIENT_REREGISTER", EventGIDChange: "GID_CHANGE", EventWQFatal: "WQ_FATAL",
	EventPortChange: "PORT_CHANGE", EventPathMTU: "PATH_MTU"}

// String returns the verbs name (ibv_event_type_str).
func (t EventType) String() string {
	if s, ok := eventNames[t]; ok {
		return s
	}
	return qp.EventType(t).String()
}

// Event is an asynchronous event (struct ibv_async_event).
type Event struct {
	Type EventType
	QP   *QP  // the queue pair it is about, or nil
	CQ   *CQ  // the completion queue it is about, or nil
	SRQ  *SRQ // the shared receive queue it is about, or nil
	DCT  *DCT // the target it is about, or nil
	Port int  // the port it is about, or 0
}

// String is one line for traces.
func (e Event) String() string {
	switch {
	case e.QP != nil:
		return fmt.Sprintf("%v qp %v", e.Type, e.QP.Num())
	case e.SRQ != nil:
		return fmt.Sprintf("%v srq %v", e.Type, e.SRQ.Num())
	case e.DCT != nil:
		return fmt.Sprintf("%v dct %v", e.Type, e.DCT.Num())
	case e.CQ != nil:
		return fmt.Sprintf("%v cq %d", e.Type, e.CQ.Num())
	case e.Port != 0:
		return fmt.Sprintf("%v port %d", e.Type, e.Port)
	}
	return e.Type.String()
}

// maxEvents is the number of events that the queue holds; further events are lost
// and counted. There is reserved room for events of the port and the device, so
// that a flood of others cannot hide them.
const (
	maxEvents     = 1024
	maxPortEvents = 64
)

// room returns the number of events that may be in the queue when e is added.
func (e *Event) room() int {
	switch {
	case e.Type == EventDeviceFatal: // there is only one
		return maxEvents + maxPortEvents + 1
	case e.QP == nil && e.CQ == nil && e.SRQ == nil && e.DCT == nil:
		return maxEvents + maxPortEvents
	}
	return maxEvents
}

// eventQueue holds events until the program takes them.
type eventQueue struct {
	lost atomic.Uint64 // events that found the queue full

	mu      sync.Mutex
	events  []*Event // oldest first
	waiters []notify.Chan
	notify  notify.Counter
}

// add appends an event and wakes the waiters.
func (q *eventQueue) add(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) >= e.room() {
		q.lost.Add(1)
		return
	}
	kept := new(Event) // not &e, which would also allocate for lost events
	*kept = e
	q.events = append(q.events, kept)
	for _, w := range q.waiters {
		w.Notify()
	}
	q.notify.Add(1)
}

// find returns the oldest event that matches, or nil. No lock is held while
// match runs: it may ask the event's object for its state.
func (q *eventQueue) find(match func(Event) bool) *Event {
	q.mu.Lock()
	events := slices.Clone(q.events)
	q.mu.Unlock()
	for _, e := range events {
		if match(*e) {
			return e
		}
	}
	return nil
}

// take removes the oldest event that matches.
func (q *eventQueue) take(match func(Event) bool) (Event, bool) {
	for {
		e := q.find(match)
		if e == nil {
			return Event{}, false
		}
		q.mu.Lock()
		i := slices.Index(q.events, e)
		if i >= 0 {
			q.events = slices.Delete(q.events, i, i+1)
		}
		q.mu.Unlock()
		if i >= 0 { // otherwise another goroutine took it, or its object was closed
			return *e, true
		}
	}
}

// drop removes the events of an object that is destroyed.
func (q *eventQueue) drop(of func(*Event) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.events)
	q.events = slices.DeleteFunc(q.events, of)
	q.notify.Add(len(q.events) - n)
}

func (q *eventQueue) enter(w notify.Chan) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiters = append(q.waiters, w)
}

func (q *eventQueue) leave(w notify.Chan) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiters = slices.DeleteFunc(q.waiters, func(o notify.Chan) bool { return o == w })
}

// TryNextEvent is NextEvent without waiting: ok is false when there is no event.
func (d *Device) TryNextEvent() (e Event, ok bool) {
	return d.events.take(func(Event) bool { return true })
}

// NotifyFunc registers f for asynchronous events, as [CompChannel.NotifyFunc] does for completion events.
// The device calls f(n) when n events were added, and at once if events already wait; it calls f(-n) when
// it has dropped n events because their object was closed. TryNextEvent takes the events.
func (d *Device) NotifyFunc(f func(n int)) {
	d.events.mu.Lock()
	defer d.events.mu.Unlock()
	d.events.notify = f
	d.events.notify.Add(len(d.events.events))
}

// raise adds an event and wakes the callers that wait.
func (d *Device) raise(e Event) {
	d.events.add(e)
	d.nic.Nudge()
}

// notify receives the events of the NIC core.
func (d *Device) notify(e nic.Event) {
	out := Event{Type: EventType(e.Type), Port: e.Port}
	if e.QP != nil {
		out.QP = e.QP.Owner().(*QP)
	}
	d.raise(out)
}

// NextEvent waits for an asynchronous event (ibv_get_async_event). Events
// need no acknowledgement: Close of an object drops its pending events. Once
// the device is closed, NextEvent returns the remaining events, and then
// [ErrClosed].
func (d *Device) NextEvent(ctx context.Context) (Event, error) {
	return d.NextEventFunc(ctx, nil)
}

// NextEventFunc is NextEvent for events for which match returns true, for
// instance those of one queue pair. Other events stay in the queue. A nil
// match accepts all.
func (d *Device) NextEventFunc(ctx context.Context, match func(Event) bool) (Event, error) {
	if match == nil {
		match = func(Event) bool { return true }
	}
	signal := notify.New() // has a token when there may be an event
	d.events.enter(signal)
	defer d.events.leave(signal)
	for {
		err := d.nic.Wait(ctx, signal, nil, func() bool { return d.events.find(match) != nil })
		if e, ok := d.events.take(match); ok {
			return e, nil
		}
		if err != nil {
			return Event{}, err
		}
	}
}
