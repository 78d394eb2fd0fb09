package cm

import (
	"errors"
	"fmt"
	"syscall"
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
	StateMRARepSent               // active: the owner has it, RTU is up to him
	StateReqRcvd                  // passive: ConnectRequest is queued for the owner
	StateMRAReqSent               // passive: the owner has it, REP is up to him
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

// halfOpen reports whether s is that of a connection a peer began and nobody has
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

// StateError says that an operation does not fit the state of its object. It
// wraps EINVAL.
type StateError struct {
	Op    string
	State State
}

// Error implements error.
func (e *StateError) Error() string {
	return fmt.Sprintf("cm: %s: not possible in state %v", e.Op, e.State)
}

// Unwrap makes errors.Is(err, syscall.EINVAL) true.
func (e *StateError) Unwrap() error { return syscall.EINVAL }

// Errors of the operations; each also wraps the errno that librdmacm gives.
var (
	// ErrPrivateData: more private data than the message holds (EINVAL).
	ErrPrivateData = errors.New("too much private data")
	// ErrInUse: another listener has the service ID and address (EADDRINUSE).
	ErrInUse = errors.New("service is in use")
	// ErrLimit: the Manager has as many connections as it may (ENOMEM).
	ErrLimit = errors.New("too many connections")
	// ErrClosed: the listener, query or inquiry is over (EINVAL).
	ErrClosed = errors.New("already finished")
)

func opError(op string, err error, errno syscall.Errno, format string, args ...any) error {
	return &paramError{fmt.Sprintf("cm: %s: %s", op, fmt.Sprintf(format, args...)), err, errno}
}

// paramError is a refused parameter: a sentinel to branch on and an errno.
type paramError struct {
	text  string
	err   error // may be nil
	errno syscall.Errno
}

func (e *paramError) Error() string {
	if e.err != nil {
		return e.text + ": " + e.err.Error()
	}
	return e.text
}

func (e *paramError) Unwrap() []error {
	if e.err == nil {
		return []error{e.errno}
	}
	return []error{e.err, e.errno}
}

// checkPrivate refuses private data that does not fit room bytes. librdmacm and
// ib_cm give EINVAL too.
func checkPrivate(op string, private []byte, room int) error {
	if len(private) > room {
		return opError(op, ErrPrivateData, syscall.EINVAL, "%d bytes, room for %d", len(private), room)
	}
	return nil
}

// RejectedError is a REJ as an error, for callers that want one.
type RejectedError struct {
	Reason  RejectReason
	Private []byte
}

// Error implements error.
func (e *RejectedError) Error() string {
	return fmt.Sprintf("cm: rejected by peer: %v (%d)", e.Reason, uint16(e.Reason))
}

// Unwrap makes errors.Is(err, syscall.ECONNREFUSED) true.
func (e *RejectedError) Unwrap() error { return syscall.ECONNREFUSED }

// ErrExpired is the Err of a request that the owner did not answer in time, and
// ErrEvicted of a half-open connection, or an inquiry, that made room for others. They
// wrap ECONNABORTED.
var (
	ErrExpired = fmt.Errorf("cm: the request was not answered in time: %w", syscall.ECONNABORTED)
	ErrEvicted = fmt.Errorf("cm: too many connections that are not confirmed, this one made room for others: %w", syscall.ECONNABORTED)
)

// ErrTimeout is what [Event.Err] wraps when the peer stopped to answer; it wraps
// ETIMEDOUT, as the event status −110 of rdma_cm does.
var ErrTimeout = fmt.Errorf("cm: peer does not answer: %w", syscall.ETIMEDOUT)
