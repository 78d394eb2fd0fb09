// Package live captures the RoCE packets that pass an interface, as tcpdump does, without delaying them.
package live

import (
	"io"

	"github.com/goroce/roce/internal/tools/dissect"
)

// Capture is a running capture.
type Capture struct {
	*tap
}

// Open starts to capture on an interface with Ethernet frames. It needs CAP_NET_RAW. Errors are *[errs.Error].
func Open(iface string) (*Capture, error) {
	t, err := openTap(iface)
	if err != nil {
		return nil, err
	}
	return &Capture{t}, nil
}

// Run calls f with every packet, as [dissect.Read] does, until Close or an error of the interface. After Close it returns
// nil.
func (c *Capture) Run(f func(*dissect.Packet)) error {
	in, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := c.copyTo(out)
		out.CloseWithError(err) // nil: the end of the file
		ended <- err
	}()
	err := dissect.Read(in, func(p *dissect.Packet) error {
		f(p)
		return nil
	})
	in.CloseWithError(err)
	if failed := <-ended; failed != nil {
		return failed
	}
	return err
}
