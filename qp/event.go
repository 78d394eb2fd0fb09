package qp

import "fmt"

// EventType is an affiliated asynchronous event of a queue pair or shared
// receive queue, with the values of enum ibv_event_type.
type EventType uint8

const (
	EventFatal           EventType = 1  // QP_FATAL: an error of this side that no completion reports, a lost receive completion for instance
	EventReqErr          EventType = 2  // QP_REQ_ERR: invalid request, no receive to report it
	EventAccessErr       EventType = 3  // QP_ACCESS_ERR: remote access violation, no receive to report it
	EventCommEst         EventType = 4  // COMM_EST: first packet while in RTR
	EventSQDrained       EventType = 5  // SQ_DRAINED
	EventPathMig         EventType = 6  // PATH_MIG: changed over to the alternate path
	EventPathMigErr      EventType = 7  // PATH_MIG_ERR: the peer changed over to a path that is not the alternate one
	EventSRQLimit        EventType = 15 // SRQ_LIMIT_REACHED: fewer receives are left than [SRQAttr].Limit
	EventDCTKeyViolation EventType = 32 // DCT_KEY_VIOLATION: a CONNECT with a wrong key came to an armed target (experimental verbs)

	EventLastWQE EventType = 16 // QP_LAST_WQE_REACHED: the queue pair is in ERR and takes no more receives from its shared receive queue
)

var eventNames = map[EventType]string{EventFatal: "QP_FATAL", EventReqErr: "QP_REQ_ERR", EventAccessErr: "QP_ACCESS_ERR",
	EventCommEst: "COMM_EST", EventSQDrained: "SQ_DRAINED", EventPathMig: "PATH_MIG", EventPathMigErr: "PATH_MIG_ERR",
	EventSRQLimit: "SRQ_LIMIT_REACHED", EventLastWQE: "QP_LAST_WQE_REACHED",
	EventDCTKeyViolation: "DCT_KEY_VIOLATION"}

func (e EventType) String() string {
	if s, ok := eventNames[e]; ok {
		return s
	}
	return fmt.Sprintf("EventType(%d)", uint8(e))
}

// event hands an event to the owner, if it listens.
func (q *QP) event(t EventType) {
	if q.onEvent != nil {
		q.onEvent(q, t)
	}
}
