package lnd

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// Reasons for the end of connections and operations.
var (
	// ErrClosed ends a connection that either side has closed without an error.
	ErrClosed = errors.New("lnd: connection closed")
	// ErrTimeout ends a connection on which an operation was not finished in time.
	ErrTimeout = fmt.Errorf("lnd: the peer did not answer: %w", syscall.ETIMEDOUT)
	// ErrAborted ends the operations of a connection that is over. The same error wraps the reason why it is over.
	ErrAborted = fmt.Errorf("lnd: operation aborted: %w", syscall.ECONNABORTED)
)

// Violation is a violation of the protocol by a peer. It closes the connection without an answer.
type Violation struct {
	Message wire.Type
	Detail  string
}

func (e *Violation) Error() string { return fmt.Sprintf("lnd: %v: %s", e.Message, e.Detail) }

func violation(t wire.Type, format string, args ...any) error {
	return &Violation{Message: t, Detail: fmt.Sprintf(format, args...)}
}

// StatusError is a negative status with which the peer has ended an operation.
type StatusError struct{ Status int32 }

func (e *StatusError) Error() string { return fmt.Sprintf("lnd: the peer answered: %v", e.Unwrap()) }

// Unwrap returns the errno.
func (e *StatusError) Unwrap() error { return syscall.Errno(-e.Status) }

// Statuses that this side sends. They are errnos of Linux, on every system.
const (
	statusNoData  int32 = -61 // ENODATA
	statusProto   int32 = -71 // EPROTO
	statusMsgSize int32 = -90 // EMSGSIZE
)
