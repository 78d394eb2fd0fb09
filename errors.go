package roce

import (
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/link"
)

// Error describes a refused call: the call, the object, and the reason. It unwraps to the
// errno that the corresponding ibv_* or rdma_* call returns.
type Error = errs.Error

// ErrClosed is the error of a call on a closed object. errors.Is(err,
// net.ErrClosed) is true for it.
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
	// RejectError is the error for a connection that the peer refused
	// (RDMA_CM_EVENT_REJECTED). It unwraps to ECONNREFUSED.
	RejectError = cm.RejectError

	// ResolveError is the error if the peer refused a UD queue pair for a service. It
	// unwraps to ECONNREFUSED.
	ResolveError = cm.ResolveError

	// AlternateError is the error for an alternate path that the peer refused. It
	// unwraps to ECONNREFUSED; the connection stays.
	AlternateError = cm.AlternateError
)

// asRefusal turns an event that ends a handshake into an error. It returns nil
// for other events.
func asRefusal(ev cm.Event) error {
	switch ev.Kind {
	case cm.Rejected:
		return &RejectError{Reason: ev.Reason, PrivateData: ev.Private}
	case cm.Unreachable:
		return ev.Err
	}
	return nil
}
