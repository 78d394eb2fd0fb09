package qp

import (
	"fmt"
	"syscall"

	"github.com/goroce/roce/bth"
)

// Error is a refused call on a queue pair: which call, on which queue pair,
// why. It unwraps to the errno the verbs return, so that
// errors.Is(err, syscall.EINVAL) works.
type Error struct {
	Op     string
	QPN    bth.QPN
	Errno  syscall.Errno
	Detail string
}

func (e *Error) Error() string {
	return fmt.Sprintf("qp %#x: %s: %s: %v", uint32(e.QPN), e.Op, e.Detail, e.Errno)
}

// Unwrap returns the errno.
func (e *Error) Unwrap() error { return e.Errno }
