package cm

import (
	"fmt"

	"github.com/goroce/roce/bth"
)

// EventKind is the kind of an event.
type EventKind uint8

// The events, with the corresponding rdma_cm event. Before those marked (end) the
// Manager has dropped the Conn. After those marked (timewait) the Manager keeps the Conn
// for some time, drops it, and then queues TimewaitExit unless the Conn was destroyed.
const (
	// ConnectRequest: a peer requests a connection to Listener. See
	// [Conn.Offer]; answer by Accept, Reject or Destroy.
	// RDMA_CM_EVENT_CONNECT_REQUEST.
	ConnectRequest EventKind = iota + 1
	// ConnectResponse: the peer accepted. Move the QP to RTS, see [Conn.QPAttr],
	// and call ReadyToUse; or Reject. RDMA_CM_EVENT_CONNECT_RESPONSE.
	ConnectResponse
	// Established: the peer of an accepted request is ready. Only the passive side
	// gets it. RDMA_CM_EVENT_ESTABLISHED.
	Established
	// Rejected: see Reason, Info and Private. (end), or (timewait) if
	// [Conn.State] is StateTimewait. RDMA_CM_EVENT_REJECTED.
	Rejected
	// Unreachable: the peer does not answer. On the passive side: the owner did not
	// answer in time, or the request was evicted, see Err. (end).
	// RDMA_CM_EVENT_UNREACHABLE.
	Unreachable
	// DisconnectRequest: the peer disconnects. Answer by Disconnect or
	// Destroy. RDMA_CM_EVENT_DISCONNECTED.
	DisconnectRequest
	// Disconnected: the peer confirmed the end or, if Err is set, does not
	// answer. (timewait). RDMA_CM_EVENT_DISCONNECTED.
	Disconnected
	// TimewaitExit: the QPN may be used again with this peer. (end).
	// RDMA_CM_EVENT_TIMEWAIT_EXIT.
	TimewaitExit
	// ServiceRequest: a peer asks Listener for a UD QP. Answer Inquiry.
	// RDMA_CM_EVENT_CONNECT_REQUEST.
	ServiceRequest
	// ServiceRequestOver: Inquiry was not answered in time, or was evicted for
	// others. Its peer may ask again.
	ServiceRequestOver
	// AlternateRequest: the peer of an established connection proposes Alternate as
	// its alternate path. Answer by AnswerAlternate.
	AlternateRequest
	// AlternateResponse: the answer to LoadAlternate. If AP is APLoaded and Err is
	// nil, the path is agreed on. The connection stays in any case.
	AlternateResponse
	// Resolved: the answer to Query. With Status SIDRValid it is
	// RDMA_CM_EVENT_ESTABLISHED, with any other RDMA_CM_EVENT_UNREACHABLE.
	Resolved
)

var eventNames = [...]string{ConnectRequest: "CONNECT_REQUEST", ConnectResponse: "CONNECT_RESPONSE",
	Established: "ESTABLISHED", Rejected: "REJECTED", Unreachable: "UNREACHABLE",
	DisconnectRequest: "DISCONNECT_REQUEST", Disconnected: "DISCONNECTED", TimewaitExit: "TIMEWAIT_EXIT",
	ServiceRequest: "SERVICE_REQUEST", ServiceRequestOver: "SERVICE_REQUEST_OVER",
	AlternateRequest: "ALTERNATE_REQUEST", AlternateResponse: "ALTERNATE_RESPONSE", Resolved: "RESOLVED"}

// String names the event.
func (k EventKind) String() string { return lookup(eventNames[:], int(k), "event") }

// Event is an event for the owner of the Manager. It belongs to exactly one of
// Conn, Query and Inquiry.
type Event struct {
	Kind    EventKind
	Conn    *Conn
	Query   *Query   // Resolved, Unreachable
	Inquiry *Inquiry // ServiceRequest

	// Listener is set in ConnectRequest and ServiceRequest.
	Listener *Listener

	// Private is the user's part of the private data of the message: always the
	// full field with zero padding, as in rdma_cm, because its length is not on the
	// wire. It is nil if no message caused the event. The owner may keep it.
	Private []byte

	Reason RejectReason // Rejected
	Info   []byte       // Rejected, Resolved, AlternateResponse: additional information, often nil

	// Err is set in Unreachable, and in Disconnected and AlternateResponse if there
	// was no answer. It wraps ETIMEDOUT. In Unreachable it may also be ErrExpired or
	// ErrEvicted.
	Err error

	Alternate *Path    // AlternateRequest, AlternateResponse: the path, seen from here
	AP        APStatus // AlternateResponse

	Status SIDRStatus // Resolved
	QPN    bth.QPN    // Resolved
	QKey   bth.QKey   // Resolved
}

// String is one line for traces.
func (e Event) String() string {
	s := e.Kind.String()
	switch {
	case e.Conn != nil:
		s += fmt.Sprintf(" id %v->%v", e.Conn.localID, e.Conn.remoteID)
	case e.Query != nil:
		s += fmt.Sprintf(" id %v status %v", e.Query.id, e.Status)
	case e.Inquiry != nil:
		s += fmt.Sprintf(" id %v svc %v", e.Inquiry.key.id, e.Inquiry.service)
	}
	if e.Kind == Rejected {
		s += fmt.Sprintf(" reason %d (%v)", uint16(e.Reason), e.Reason)
	}
	if e.Kind == AlternateResponse && e.Err == nil {
		s += fmt.Sprintf(" status %d (%v)", uint8(e.AP), e.AP)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}
