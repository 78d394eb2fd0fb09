// Package errs has the error type of the whole stack: a call that was refused.
//
// Every package that refuses calls returns it, so that a program needs one errors.As:
//
//	var e *errs.Error // or *roce.Error, which is the same type
//	if errors.As(err, &e) { log.Print(e.Op, e.Object, e.Detail) }
//
// Compare causes with errors.Is: errors.Is(err, syscall.EBUSY).
package errs

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
)

// Error is a refused call: which call, on which object, why, and the errno that the
// corresponding ibv_* or rdma_* call returns. A refused call has changed nothing.
//
// Do not change the fields of an error that a call returned: a full queue returns the same
// error each time.
type Error struct {
	Op     string // the call: "modify qp"
	Object string // the object it was about: "qp 0x11"; empty: the call names no object that exists
	Detail string // what is wrong and, where that helps, what to do
	Err    error  // the cause: a syscall.Errno, or an error that wraps one
}

// Error returns the parts in one line: "roce: modify qp: qp 0x11: …: invalid argument".
// A cause that is an Error itself repeats neither the prefix "roce: " nor the same call.
func (e *Error) Error() string { return "roce: " + e.text(e.Op) }

func (e *Error) text(op string) string {
	parts := make([]string, 0, 4)
	for _, p := range []string{op, e.Object, e.Detail} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	switch inner := e.Err.(type) {
	case nil:
	case *Error:
		if op = inner.Op; op == e.Op {
			op = ""
		}
		parts = append(parts, inner.text(op))
	default:
		parts = append(parts, strings.TrimPrefix(e.Err.Error(), "roce: "))
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether the cause is a timeout, as the method of net.Error does: a peer
// did not answer, or a deadline has passed.
func (e *Error) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// New returns the error of a call that names no existing object. Detail is formatted as by fmt.Sprintf.
func New(op string, cause error, detail string, args ...any) error {
	return &Error{Op: op, Detail: fmt.Sprintf(detail, args...), Err: cause}
}

// On returns the error of a call on an object, for instance "qp 0x11".
func On(op, object string, cause error, detail string, args ...any) error {
	return &Error{Op: op, Object: object, Detail: fmt.Sprintf(detail, args...), Err: cause}
}

// Interface names a network interface as the Object of an Error. The name may be empty.
func Interface(name string) string {
	if name == "" {
		return ""
	}
	return "interface " + name
}

// Kind returns a cause with a second identity: errors.Is finds both the kind, which a
// program branches on, and the cause. Its text is that of the cause.
func Kind(kind, cause error) error {
	if kind == nil || cause == nil {
		return errors.Join(kind, cause)
	}
	return &kinded{kind, cause}
}

type kinded struct{ kind, cause error }

func (k *kinded) Error() string   { return k.cause.Error() }
func (k *kinded) Unwrap() []error { return []error{k.kind, k.cause} }

// ErrClosed is returned by objects that have been closed. errors.Is(err, net.ErrClosed)
// and errors.Is(err, syscall.EBADF) hold for it.
var ErrClosed error = &Error{Op: "use", Detail: "the object is closed", Err: Kind(net.ErrClosed, syscall.EBADF)}
