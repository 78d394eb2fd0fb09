package roce

import (
	"context"
	"fmt"

	"github.com/goroce/roce/qp"
)

// EventType is an asynchronous event, with the values of enum ibv_event_type.
type EventType uint8

// Events of a device. Those of a queue pair or shared receive queue have the names of package qp.
const (
	EventCQErr      EventType = 0 // CQ_ERR: a completion was lost
	EventFatal                = EventType(qp.EventFatal)
	EventReqErr               = EventType(qp.EventReqErr)
	EventAccessErr            = EventType(qp.EventAccessErr)
	EventCommEst              = EventType(qp.EventCommEst)
	EventSQDrained            = EventType(qp.EventSQDrained)
	EventPathMig              = EventType(qp.EventPathMig)
	EventPathMigErr           = EventType(qp.EventPathMigErr)
	EventSRQLimit             = EventType(qp.EventSRQLimit)
	EventLastWQE              = EventType(qp.EventLastWQE)
)

// String returns the verbs name.
func (t EventType) String() string {
	if t == EventCQErr {
		return "CQ_ERR"
	}
	return qp.EventType(t).String()
}

// Event is an asynchronous event (struct ibv_async_event).
type Event struct {
	Type EventType
	QP   *QP  // the queue pair it is about, or nil
	CQ   *CQ  // the completion queue it is about, or nil
	SRQ  *SRQ // the shared receive queue it is about, or nil
}

// String is one line for traces.
func (e Event) String() string {
	switch {
	case e.QP != nil:
		return fmt.Sprintf("%v qp %v", e.Type, e.QP.Num())
	case e.SRQ != nil:
		return fmt.Sprintf("%v srq %v", e.Type, e.SRQ.Num())
	}
	return e.Type.String()
}

// eventQueue is how many events wait for NextEvent; more are lost and counted.
const eventQueue = 1024

func (d *Device) raise(e Event) {
	select {
	case d.events <- e:
	default:
		d.lost.Add(1)
		return
	}
	select {
	case d.eventSignal <- struct{}{}:
	default: // whoever is not asleep looks
	}
	d.nudge()
}

// NextEvent waits for an asynchronous event (ibv_get_async_event). Nothing
// needs to be acknowledged. Once the device is closed it returns what is left,
// and then [ErrClosed].
func (d *Device) NextEvent(ctx context.Context) (Event, error) {
	for {
		err := d.wait(ctx, d.eventSignal, nil, func() bool { return len(d.events) > 0 })
		select {
		case e := <-d.events:
			return e, nil
		default:
		}
		if err != nil {
			return Event{}, err
		}
	}
}
