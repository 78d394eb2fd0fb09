package roce

import (
	"errors"
	"syscall"

	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/link"
)

// Error is a refused call: which call, on which object, why. It unwraps to the errno that
// the corresponding ibv_* or rdma_* call returns.
type Error = errs.Error

// ErrClosed is returned by objects that have been closed.
// errors.Is(err, net.ErrClosed) holds for it.
var ErrClosed = errs.ErrClosed

// ErrNoDevice says that the network interface under the device was removed.
var ErrNoDevice = link.ErrNoDevice

// ErrDown says that the network interface under the device is down.
var ErrDown = link.ErrDown

// fail returns the error of a refused call.
func fail(op string, cause error, format string, args ...any) error {
	return errs.New(op, cause, format, args...)
}

type (
	// RejectError is a connection that the peer refused (RDMA_CM_EVENT_REJECTED). It
	// unwraps to ECONNREFUSED.
	RejectError = cm.RejectError

	// ResolveError is a UD service that the peer did not give a queue pair for. It unwraps
	// to ECONNREFUSED.
	ResolveError = cm.ResolveError

	// AlternateError is an alternate path that the peer did not take. It unwraps to
	// ECONNREFUSED; the connection stays.
	AlternateError = cm.AlternateError
)

// asRefusal turns an event that ends a handshake into an error, nil for others.
func asRefusal(ev cm.Event) error {
	switch ev.Kind {
	case cm.Rejected:
		return &RejectError{Reason: ev.Reason, PrivateData: ev.Private}
	case cm.Unreachable:
		return ev.Err
	}
	return nil
}

// isTimeout reports whether a peer did not answer.
func isTimeout(err error) bool { return errors.Is(err, syscall.ETIMEDOUT) }
