package errs_test

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/goroce/roce/errs"
)

// TestError: the text names the parts that an error has. errors.Is and errors.As find the cause and the parts through
// any number of wrappers.
func TestError(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{errs.On("modify qp", "qp 0x11", syscall.EINVAL, "no state %d", 9), "roce: modify qp: qp 0x11: no state 9: invalid argument"},
		{errs.New("create cq", syscall.ENOMEM, "%d entries", 3), "roce: create cq: 3 entries: cannot allocate memory"},
		{errs.New("load", errs.New("load", syscall.EINVAL, "same path"), "to %v", 1), "roce: load: to 1: same path: invalid argument"},
		{errs.New("dial", errs.New("modify qp", syscall.EINVAL, "no"), "peer"), "roce: dial: peer: modify qp: no: invalid argument"},
		{errs.On("open", errs.Interface("eth0"), errs.Kind(net.ErrClosed, syscall.EBADF), "gone"), "roce: open: interface eth0: gone: bad file descriptor"},
		{&errs.Error{Op: "close", Object: "mr 0x100"}, "roce: close: mr 0x100"},
	} {
		if c.err.Error() != c.want {
			t.Errorf("got %q, want %q", c.err, c.want)
		}
	}
	err := fmt.Errorf("dial: %w", errs.On("modify qp", "qp 0x11", syscall.EINVAL, "no"))
	var e *errs.Error
	if !errors.As(err, &e) || e.Object != "qp 0x11" || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("%v: %+v", err, e)
	}
	if !errs.New("x", syscall.ETIMEDOUT, "y").(*errs.Error).Timeout() || errs.New("x", syscall.EINVAL, "y").(*errs.Error).Timeout() {
		t.Error("Timeout is not that of the cause")
	}
	closed := fmt.Errorf("read: %w", errs.ErrClosed)
	if !errors.As(closed, &e) || !errors.Is(closed, net.ErrClosed) || !errors.Is(closed, syscall.EBADF) {
		t.Error("a closed object is not net.ErrClosed")
	}
}
