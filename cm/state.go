package cm

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/goroce/roce/errs"
)

// State is the state of a [Conn]. IBTA 12.9.7, with Linux's names.
type State uint8

// The states. A Conn enters a state MRA…Sent when the owner has taken the
// event; the Manager sends an MRA only if the peer repeats its message.
const (
	StateIdle        State = iota // not begun, or ended and dropped by the Manager
	StateReqSent                  // active: REQ is out
	StateMRAReqRcvd               // active: the peer asked for more time
	StateRepRcvd                  // active: ConnectResponse is queued for the owner
	StateMRARepSent               // active: the owner has the event and must send the RTU
	StateReqRcvd                  // passive: ConnectRequest is queued for the owner
	StateMRAReqSent               // passive: the owner has the event and must send the REP
	StateRepSent                  // passive: REP is out
	StateMRARepRcvd               // passive: the peer asked for more time
	StateEstablished              // both
	StateDreqSent                 // this side disconnects
	StateDreqRcvd                 // the peer disconnects; the owner must send the DREP
	StateTimewait                 // ended; the QPN must not be used again yet
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

// confirmed reports whether s is the state of a connection that has not ended and whose
// peer has shown that it receives our MADs.
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

// Errors of the operations; each also wraps the errno of librdmacm.
var (
	// ErrState: the operation does not fit the state of its object (EINVAL).
	ErrState = errors.New("wrong state")
	// ErrPrivateData: more private data than the message holds (EINVAL).
	ErrPrivateData = errors.New("too much private data")
	// ErrInUse: another listener has the service ID and address (EADDRINUSE).
	ErrInUse = errors.New("service is in use")
	// ErrLimit: the Manager has reached its limit of connections (ENOMEM).
	ErrLimit = errors.New("too many connections")
	// ErrClosed: the listener, query or inquiry has ended (EINVAL).
	ErrClosed = errors.New("already finished")
)

// opError returns the error of an operation, with an errno and a sentinel to branch on,
// which may be nil.
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

// checkPrivate refuses private data of more than room bytes. librdmacm and
// ib_cm return EINVAL, too.
func checkPrivate(op string, private []byte, room int) error {
	if len(private) > room {
		return opError(op, ErrPrivateData, syscall.EINVAL, "%d bytes, room for %d", len(private), room)
	}
	return nil
}

// ErrExpired is the Err of a request that the owner did not answer in time, ErrEvicted
// that of a half-open connection or an inquiry that was evicted for others. They wrap
// ECONNABORTED.
var (
	ErrExpired = fmt.Errorf("the request was not answered in time: %w", syscall.ECONNABORTED)
	ErrEvicted = fmt.Errorf("too many connections that are not confirmed, this one made room for others: %w", syscall.ECONNABORTED)
)

// ErrTimeout is wrapped by [Event.Err] if the peer does not answer. It wraps
// ETIMEDOUT, like the event status −110 of rdma_cm.
var ErrTimeout = fmt.Errorf("peer does not answer: %w", syscall.ETIMEDOUT)
