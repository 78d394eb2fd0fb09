package scenario_test

import (
	"errors"
	"io"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/internal/scarce"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
)

// The test opens a device of sockets with no free descriptor, with one, with two and so on: each system call that opens
// one fails in turn. Nothing stays open.
func TestOpenWithoutDescriptors(t *testing.T) {
	t.Run("OpenAddr", func(t *testing.T) {
		addr := linktest.Loopback(4)
		openWithoutDescriptors(t, func(c roce.InterfaceConfig) (*roce.Device, error) { return roce.OpenAddr(addr, c) })
	})
	t.Run("OpenInterface", func(t *testing.T) {
		a, _ := netlab.Pair(t, netlab.Config{}) // where no other program has an address of the loopback
		a.Do(t, func() {
			openWithoutDescriptors(t, func(c roce.InterfaceConfig) (*roce.Device, error) { return roce.OpenInterface("lo", c) })
		})
	})
}

func openWithoutDescriptors(t *testing.T, open func(roce.InterfaceConfig) (*roce.Device, error)) {
	if d, err := open(roce.InterfaceConfig{Driver: "udp"}); err != nil {
		t.Skip(err) // there is no such address
	} else {
		check(t, d.Close())
	}
	for _, queues := range []int{1, 2} {
		scarce.Descriptors(t, func() (io.Closer, error) { return open(roce.InterfaceConfig{Driver: "udp", Queues: queues}) })
	}
	errWrap := errors.New("the program's own error")
	wraps := 0
	scarce.Descriptors(t, func() (io.Closer, error) { // and one that fails in between
		wraps = 0
		wrapped, err := open(roce.InterfaceConfig{Driver: "udp", Queues: 2, Wrap: func(p link.Port) (link.Port, error) {
			if wraps++; wraps == 2 {
				return nil, errWrap
			}
			return p, nil
		}})
		if errors.Is(err, errWrap) {
			return io.NopCloser(nil), nil // both ports were opened: no further step can fail
		}
		return wrapped, err
	})
	if wraps != 2 {
		t.Errorf("%d ports were wrapped, want 2", wraps)
	}
}
