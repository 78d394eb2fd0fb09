package rdmacm

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cm"
)

// EventType is the type of an event, with the values of enum
// rdma_cm_event_type.
type EventType int

// The events.
const (
	AddrResolved    EventType = 0  // the peer's address and the device are known
	AddrError       EventType = 1  // they are not, see Status
	RouteResolved   EventType = 2  // ready to connect
	RouteError      EventType = 3  // see Status
	ConnectRequest  EventType = 4  // ID is new, ListenID received the request
	ConnectResponse EventType = 5  // the peer accepted, and the ID has no queue pair: call [ID.Establish]
	ConnectError    EventType = 6  // the peer accepted, but something here failed, see Status
	Unreachable     EventType = 7  // no answer, or none with a queue pair, see Status
	Rejected        EventType = 8  // the peer refused, Status is the reason
	Established     EventType = 9  // connected; for UDP: UD has the destination
	Disconnected    EventType = 10 // either side ended the connection
	DeviceRemoval   EventType = 11 // the device was removed or closed: destroy the ID
	MulticastJoin   EventType = 12 // joined; UD has the destination
	MulticastError  EventType = 13 // not joined, see Status
	AddrChange      EventType = 14 // the device has lost the address of the ID
	TimewaitExit    EventType = 15 // the queue pair number may be used again with the peer
)

var eventNames = [...]string{"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST", "CONNECT_RESPONSE",
	"CONNECT_ERROR", "UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL", "MULTICAST_JOIN", "MULTICAST_ERROR",
	"ADDR_CHANGE", "TIMEWAIT_EXIT"}

// String returns the name (rdma_event_str).
func (t EventType) String() string {
	if t >= 0 && int(t) < len(eventNames) {
		return "RDMA_CM_EVENT_" + eventNames[t]
	}
	return "UNKNOWN EVENT"
}

// Event is an event of an ID (struct rdma_cm_event).
type Event struct {
	Type     EventType
	ID       *ID
	ListenID *ID // of ConnectRequest

	// Status is 0 or, as in rdma_cm, a negative errno, the reason of a reject,
	// or the status of a SIDR answer. Err is the same as an error.
	Status int
	Err    error

	// Conn is set in events of a connection (param.conn): the peer's proposal or
	// answer, seen from this side. Its private data is the whole field of the
	// message, padded with zeros, because the length is not on the wire.
	Conn *ConnParam

	// UD is the destination for datagrams; in ConnectRequest it has only the
	// private data (param.ud).
	UD *UDParam

	// Context is JoinConfig.Context.
	Context any

	group  *group      // MulticastJoin: the group to attach
	unread func() bool // Disconnected: completions that came before the event are not polled yet; nil: unknown
}

// UDParam is struct rdma_ud_param.
type UDParam struct {
	PrivateData []byte
	AHAttr      roce.AHAttr // for [roce.Device.CreateAH]
	QPN         roce.QPN
	QKey        QKey
}

// String is one line for traces.
func (e *Event) String() string {
	if e.Status != 0 {
		return fmt.Sprintf("%v status %d: %v", e.Type, e.Status, e.Err)
	}
	return e.Type.String()
}

// failed makes an event for an error.
func failed(t EventType, id *ID, err error) *Event {
	return &Event{Type: t, ID: id, Status: -int(errnoOf(err)), Err: id.named("resolve address", err)}
}

// errnos lists the errnos that an error may wrap. If it wraps several, the first in this list
// counts.
var errnos = []syscall.Errno{syscall.ETIMEDOUT, syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.EADDRNOTAVAIL, syscall.EADDRINUSE,
	syscall.ENODEV, syscall.ENOMEM, syscall.EACCES, syscall.ECONNREFUSED, syscall.EINVAL}

// errnoOf returns the errno that an error wraps. For a neighbour that does
// not answer it returns ETIMEDOUT, as rdma_cm does.
func errnoOf(err error) syscall.Errno {
	for _, no := range errnos {
		if errors.Is(err, no) {
			if no == syscall.EHOSTUNREACH {
				return syscall.ETIMEDOUT
			}
			return no
		}
	}
	if errors.Is(err, roce.ErrClosed) {
		return syscall.ENODEV
	}
	return syscall.EIO
}

// offered returns param.conn for a peer's proposal.
func offered(o cm.Offer, private []byte) *ConnParam {
	return &ConnParam{PrivateData: private, ResponderResources: int(o.ResponderResources), InitiatorDepth: int(o.InitiatorDepth),
		FlowControl: o.FlowControl, RetryCount: int(o.RetryCount), RNRRetryCount: int(o.RNRRetryCount), SRQ: o.SRQ, QPN: o.QPN}
}
