package qp

import (
	"fmt"
	"syscall"

	"github.com/goroce/roce/bth"
)

// Error is a refused call on a queue pair or shared receive queue: which call,
// on which object, why. It unwraps to the errno the verbs return, so that
// errors.Is(err, syscall.EINVAL) works.
type Error struct {
	Op     string
	QPN    bth.QPN
	SRQN   bth.SRQN // of the shared receive queue, if it is about one; QPN is 0 then
	Errno  syscall.Errno
	Detail string
}

func (e *Error) Error() string {
	switch {
	case e.SRQN != 0:
		return fmt.Sprintf("srq %#x: %s: %s: %v", uint32(e.SRQN), e.Op, e.Detail, e.Errno)
	case e.QPN == 0:
		return fmt.Sprintf("qp: %s: %s: %v", e.Op, e.Detail, e.Errno)
	}
	return fmt.Sprintf("qp %#x: %s: %s: %v", uint32(e.QPN), e.Op, e.Detail, e.Errno)
}

// Unwrap returns the errno.
func (e *Error) Unwrap() error { return e.Errno }
