//go:build !linux && !darwin && !freebsd && !windows

package udp

import "errors"

// dontFragment is not known here.
func dontFragment(uintptr, bool) error { return errors.ErrUnsupported }
