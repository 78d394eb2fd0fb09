package link

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/goroce/roce/errs"
)

var (
	// ErrClosed is the error of a closed Port. errors.Is(err, net.ErrClosed)
	// is true for it.
	ErrClosed = errs.ErrClosed

	// ErrDown means that the network interface is down. The Port stays usable
	// and works again when the interface is up.
	ErrDown = errors.New("network interface is down")

	// ErrNoDevice means that the network interface does not exist, or was
	// removed.
	ErrNoDevice = errors.New("no such network interface")

	// ErrPermission means that the process may not use the driver. The error
	// that wraps it names the missing privilege.
	ErrPermission = errors.New("permission denied")

	// ErrUnsupported means that the driver does not exist on this system or
	// cannot work on this interface. errors.Is(err, errors.ErrUnsupported) is
	// true for it.
	ErrUnsupported = fmt.Errorf("link: %w", errors.ErrUnsupported)
)

// Fail returns the error of a driver, with the failed step, the interface, the cause, and the remedy (hint, or
// empty). The interface may be empty. Kind is one of the Err* values of this package, an errno, or nil; cause is
// often a syscall.Errno, or nil. errors.Is finds both in it, and always an errno.
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

// errnoOf returns the errno for a kind, if the cause has none.
func errnoOf(kind error) syscall.Errno {
	if errno, ok := kind.(syscall.Errno); ok {
		return errno
	}
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
