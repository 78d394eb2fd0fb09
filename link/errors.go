package link

import (
	"errors"
	"fmt"
	"net"
)

var (
	// ErrClosed is returned by a closed Port. errors.Is(err, net.ErrClosed)
	// holds for it.
	ErrClosed = fmt.Errorf("port closed: %w", net.ErrClosed)

	// ErrDown says that the network interface is down. The Port stays usable
	// and works again when the interface is up.
	ErrDown = errors.New("network interface is down")

	// ErrNoDevice says that the network interface does not exist (any more).
	ErrNoDevice = errors.New("no such network interface")

	// ErrPermission says that the process may not use the driver. The [Error]
	// around it tells which privilege is missing.
	ErrPermission = errors.New("permission denied")

	// ErrUnsupported says that the driver does not exist on this system or
	// cannot work on this interface. errors.Is(err, errors.ErrUnsupported)
	// holds for it.
	ErrUnsupported = fmt.Errorf("link: %w", errors.ErrUnsupported)
)

// Error is what drivers return: which step failed on which interface, why, and
// what to do about it. errors.Is finds the Err* values of this package as well
// as the system's errno in it.
type Error struct {
	Driver    string // "raw"
	Op        string // "open", "send"
	Interface string // may be empty
	Kind      error  // one of the Err* values, or nil
	Err       error  // the cause, often a syscall.Errno; or nil
	Hint      string // how to mend it, or empty
}

func (e *Error) Error() string {
	s := e.Driver + ": " + e.Op
	if e.Interface != "" {
		s += " " + e.Interface
	}
	switch {
	case e.Err != nil:
		s += ": " + e.Err.Error()
	case e.Kind != nil:
		s += ": " + e.Kind.Error()
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap gives errors.Is both the kind and the cause.
func (e *Error) Unwrap() []error {
	errs := make([]error, 0, 2)
	if e.Kind != nil {
		errs = append(errs, e.Kind)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}
