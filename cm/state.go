package cm

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/goroce/roce/errs"
)

// State is the state of a [Conn]. IBTA 12.9.7, with Linux's names.
type State uint8

// The states. The MRA states with Sent are entered when the owner has taken the
// event from the Manager; an MRA goes out only if the peer repeats itself.
const (
	StateIdle        State = iota // not begun, or over and forgotten by the Manager
	StateReqSent                  // active: REQ is out
	StateMRAReqRcvd               // active: the peer asked for more time
	StateRepRcvd                  // active: ConnectResponse is queued for the owner
	StateMRARepSent               // active: the owner has it and must send the RTU
	StateReqRcvd                  // passive: ConnectRequest is queued for the owner
	StateMRAReqSent               // passive: the owner has it and must send the REP
	StateRepSent                  // passive: REP is out
	StateMRARepRcvd               // passive: the peer asked for more time
	StateEstablished              // both
	StateDreqSent                 // this side disconnects
	StateDreqRcvd                 // the peer disconnects, DREP is up to the owner
	StateTimewait                 // over; the QPN must rest
)

var stateNames = [...]string{"IDLE", "REQ_SENT", "MRA_REQ_RCVD", "REP_RCVD", "MRA_REP_SENT", "REQ_RCVD",
	"MRA_REQ_SENT", "REP_SENT", "MRA_REP_RCVD", "ESTABLISHED", "DREQ_SENT", "DREQ_RCVD", "TIMEWAIT"}

// String names the state as Linux's enum ib_cm_state does.
func (s State) String() string { return lookup(stateNames[:], int(s), "state") }

// pendingRequest reports whether s counts against the backlog of a listener.
func (s State) pendingRequest() bool { return s == StateReqRcvd || s == StateMRAReqSent }

// halfOpen reports whether s is the state of a connection that a peer began and has not
// confirmed.
func (s State) halfOpen() bool {
	return s.pendingRequest() || s == StateRepSent || s == StateMRARepRcvd
}

// confirmed reports whether s is that of a connection whose peer has shown that it gets
// our MADs, and is not over.
func (s State) confirmed() bool {
	switch s {
	case StateRepRcvd, StateMRARepSent, StateEstablished, StateDreqSent, StateDreqRcvd:
		return true
	}
	return false
}

// stateError is the refusal of an operation that does not fit the state of its object.
func stateError(op string, s State) error {
	return opError(op, ErrState, syscall.EINVAL, "not possible in state %v", s)
}

// Errors of the operations; each also wraps the errno that librdmacm gives.
var (
	// ErrState: the operation does not fit the state of its object (EINVAL).
	ErrState = errors.New("wrong state")
	// ErrPrivateData: more private data than the message holds (EINVAL).
	ErrPrivateData = errors.New("too much private data")
	// ErrInUse: another listener has the service ID and address (EADDRINUSE).
	ErrInUse = errors.New("service is in use")
	// ErrLimit: the Manager has as many connections as it may (ENOMEM).
	ErrLimit = errors.New("too many connections")
	// ErrClosed: the listener, query or inquiry is over (EINVAL).
	ErrClosed = errors.New("already finished")
)

// opError returns a refusal with an errno and a sentinel to branch on, which may be nil.
func opError(op string, kind error, errno syscall.Errno, format string, args ...any) error {
	detail := fmt.Sprintf(format, args...)
	if kind == nil {
		return errs.New(op, errno, "%s", detail)
	}
	if kind != ErrState {
		detail = kind.Error() + ": " + detail
	}
	return errs.New(op, errs.Kind(kind, errno), "%s", detail)
}

// checkPrivate refuses private data that does not fit room bytes. librdmacm and
// ib_cm give EINVAL too.
func checkPrivate(op string, private []byte, room int) error {
	if len(private) > room {
		return opError(op, ErrPrivateData, syscall.EINVAL, "%d bytes, room for %d", len(private), room)
	}
	return nil
}

// ErrExpired is the Err of a request that the owner did not answer in time, and
// ErrEvicted of a half-open connection, or an inquiry, that made room for others. They
// wrap ECONNABORTED.
var (
	ErrExpired = fmt.Errorf("the request was not answered in time: %w", syscall.ECONNABORTED)
	ErrEvicted = fmt.Errorf("too many connections that are not confirmed, this one made room for others: %w", syscall.ECONNABORTED)
)

// ErrTimeout is what [Event.Err] wraps when the peer stopped to answer; it wraps
// ETIMEDOUT, as the event status −110 of rdma_cm does.
var ErrTimeout = fmt.Errorf("peer does not answer: %w", syscall.ETIMEDOUT)
