package link

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/goroce/roce/errs"
)

var (
	// ErrClosed is returned by a closed Port. errors.Is(err, net.ErrClosed)
	// holds for it.
	ErrClosed = errs.ErrClosed

	// ErrDown says that the network interface is down. The Port stays usable
	// and works again when the interface is up.
	ErrDown = errors.New("network interface is down")

	// ErrNoDevice says that the network interface does not exist (any more).
	ErrNoDevice = errors.New("no such network interface")

	// ErrPermission says that the process may not use the driver. The error
	// around it tells which privilege is missing.
	ErrPermission = errors.New("permission denied")

	// ErrUnsupported says that the driver does not exist on this system or
	// cannot work on this interface. errors.Is(err, errors.ErrUnsupported)
	// holds for it.
	ErrUnsupported = fmt.Errorf("link: %w", errors.ErrUnsupported)
)

// Fail returns the error of a driver: which step failed on which interface, why, and what
// to do about it (hint, or empty). The interface may be empty. Kind is one of the Err*
// values of this package, or nil; cause is often a syscall.Errno, or nil. errors.Is finds
// both in it, and always an errno.
func Fail(driver, op, ifname string, kind, cause error, hint string) *errs.Error {
	e := &errs.Error{Op: driver + " " + op, Object: errs.Interface(ifname), Detail: hint, Err: cause}
	var errno syscall.Errno
	if !errors.As(cause, &errno) {
		e.Err = errnoOf(kind)
		switch {
		case cause != nil && hint != "":
			e.Detail = cause.Error() + " (" + hint + ")"
		case cause != nil:
			e.Detail = cause.Error()
		case hint == "" && kind != nil:
			e.Detail = kind.Error()
		}
		if cause != nil {
			e.Err = errs.Kind(cause, e.Err)
		}
	}
	if kind != nil {
		e.Err = errs.Kind(kind, e.Err)
	}
	return e
}

// errnoOf returns the errno of a kind that came without one.
func errnoOf(kind error) syscall.Errno {
	switch kind {
	case ErrDown:
		return syscall.ENETDOWN
	case ErrNoDevice:
		return syscall.ENODEV
	case ErrPermission:
		return syscall.EPERM
	case ErrUnsupported:
		return syscall.EOPNOTSUPP
	}
	return syscall.EINVAL
}
