//go:build !linux && !darwin && !freebsd && !windows

package udp

import "errors"

// dontFragment always fails: it knows no socket option of this system.
func dontFragment(uintptr, bool) error { return errors.ErrUnsupported }
