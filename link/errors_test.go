package link_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/goroce/roce/link"
)

func TestErrors(t *testing.T) {
	err := error(link.Fail("raw", "open", "eth0", link.ErrPermission, syscall.EPERM, "be root"))
	if got, want := err.Error(), "roce: raw open: interface eth0: be root: operation not permitted"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	for _, target := range []error{link.ErrPermission, syscall.EPERM} {
		if !errors.Is(err, target) {
			t.Errorf("%v is not %v", err, target)
		}
	}
	if errors.Is(err, link.ErrDown) {
		t.Errorf("%v is ErrDown", err)
	}
	if got, want := link.Fail("mem", "send", "", link.ErrDown, nil, "").Error(), "roce: mem send: network interface is down: network is down"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	if !errors.Is(link.ErrClosed, net.ErrClosed) || !errors.Is(link.ErrUnsupported, errors.ErrUnsupported) {
		t.Error("ErrClosed or ErrUnsupported is not the error of the standard library")
	}
}

func TestCounters(t *testing.T) {
	var c link.Counters
	c.SetDown(true)
	c.SetDown(true)
	c.SetDown(false)
	c.SetDown(true)
	c.Received(0, 0)
	c.Received(3, 300)
	c.Sent(2, 200)
	want := link.Stats{RxPackets: 3, RxBytes: 300, TxPackets: 2, TxBytes: 200, RxBatches: 1, TxBatches: 1, LinkDowns: 2}
	if got := c.Stats(); got != want {
		t.Errorf("Stats() = %+v, want %+v", got, want)
	}
}
