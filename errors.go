package roce

import (
	"fmt"
	"net"
	"syscall"

	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/link"
)

// ErrClosed is returned by objects that have been closed.
// errors.Is(err, net.ErrClosed) holds for it.
var ErrClosed = fmt.Errorf("roce: %w", net.ErrClosed)

// ErrDown says that the network interface under the device is down.
var ErrDown = link.ErrDown

// Error is a refused call: on which object, why. It unwraps to the errno that
// the corresponding ibv_* or rdma_* call returns.
type Error struct {
	Op     string
	Detail string
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("roce: %s: %s: %v", e.Op, e.Detail, e.Err) }

// Unwrap returns the cause, usually a syscall.Errno.
func (e *Error) Unwrap() error { return e.Err }

func fail(op string, cause error, format string, args ...any) error {
	return &Error{op, fmt.Sprintf(format, args...), cause}
}

// RejectError is a connection the peer refused (RDMA_CM_EVENT_REJECTED). It
// unwraps to ECONNREFUSED.
type RejectError struct {
	Reason      cm.RejectReason // 8: nobody listens, 28: the application refused
	PrivateData []byte          // of the peer's application
}

func (e *RejectError) Error() string {
	return fmt.Sprintf("roce: connection rejected: reason %d (%v)", uint16(e.Reason), e.Reason)
}

// Unwrap returns ECONNREFUSED.
func (e *RejectError) Unwrap() error { return syscall.ECONNREFUSED }
