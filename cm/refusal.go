package cm

import (
	"fmt"
	"syscall"
)

// RejectError is the error for a connection that the peer refused (RDMA_CM_EVENT_REJECTED).
// It unwraps to ECONNREFUSED.
type RejectError struct {
	Reason      RejectReason // 8: no listener, 28: the application refused
	PrivateData []byte       // of the peer's application
}

// Error returns the reason as a number and in words.
func (e *RejectError) Error() string {
	return fmt.Sprintf("roce: connection rejected: reason %d (%v)", uint16(e.Reason), e.Reason)
}

// Unwrap returns ECONNREFUSED.
func (e *RejectError) Unwrap() error { return syscall.ECONNREFUSED }

// ResolveError is the error if the peer refused a queue pair for a service
// (RDMA_CM_EVENT_UNREACHABLE with a positive status). It unwraps to ECONNREFUSED.
type ResolveError struct {
	Status      SIDRStatus // 1: no listener, 2: the application refused
	PrivateData []byte     // of the peer's application
}

// Error returns the status as a number and in words.
func (e *ResolveError) Error() string {
	return fmt.Sprintf("roce: service not resolved: status %d (%v)", uint8(e.Status), e.Status)
}

// Unwrap returns ECONNREFUSED.
func (e *ResolveError) Unwrap() error { return syscall.ECONNREFUSED }

// AlternateError is the error if the peer of a connection refused an alternate path.
// It unwraps to ECONNREFUSED; the connection stays.
type AlternateError struct {
	Status      APStatus
	Info        []byte // a better proposal, if the peer made one
	PrivateData []byte
}

// Error returns the status in words and as a number.
func (e *AlternateError) Error() string {
	return fmt.Sprintf("roce: the peer did not load the alternate path: %v (%d)", e.Status, uint8(e.Status))
}

// Unwrap returns ECONNREFUSED.
func (e *AlternateError) Unwrap() error { return syscall.ECONNREFUSED }
