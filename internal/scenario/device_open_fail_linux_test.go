package scenario_test

import (
	"errors"
	"io"
	"net/netip"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/scarce"
	"github.com/goroce/roce/link"
)

// A device of sockets is opened with no descriptor to spare, with one, with two and so on:
// each system call that opens one fails in turn. Nothing stays open.
func TestOpenWithoutDescriptors(t *testing.T) {
	addr := netip.MustParseAddr("127.4.4.1")
	d, err := roce.OpenAddr(addr, roce.InterfaceConfig{})
	if err != nil {
		t.Skip(err)
	}
	check(t, d.Close())
	for name, open := range map[string]func(roce.InterfaceConfig) (*roce.Device, error){
		"OpenAddr":      func(c roce.InterfaceConfig) (*roce.Device, error) { return roce.OpenAddr(addr, c) },
		"OpenInterface": func(c roce.InterfaceConfig) (*roce.Device, error) { return roce.OpenInterface("lo", c) },
	} {
		t.Run(name, func(t *testing.T) {
			if d, err := open(roce.InterfaceConfig{Driver: "udp"}); err != nil {
				t.Skip(err) // the loopback interface has no address a device may have
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
					return io.NopCloser(nil), nil // as far as it gets
				}
				return wrapped, err
			})
			if wraps != 2 {
				t.Errorf("%d ports were wrapped, want 2", wraps)
			}
		})
	}
}
