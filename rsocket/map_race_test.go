//go:build !race

// The race detector reports that an entry of the table of mappings is written by the peer's
// device while the entry before it, in the same place, is read. Such a mapping was closed
// already.

package rsocket_test

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/rsocket"
)

// Close gives everything back while others map memory and close mappings.
func TestCloseDuringMap(t *testing.T) {
	a, b := tooltest.Pair(t, fault.Config{})
	for range 100 {
		server, client := connect(t, a, b, rsocket.Config{Maps: 8})
		var others sync.WaitGroup
		began := make(chan struct{}, 4)
		for range 4 {
			others.Go(func() {
				memory := make([]byte, 64)
				for {
					m, err := client.Map(memory, 0)
					select {
					case began <- struct{}{}:
					default:
					}
					if err == nil {
						err = m.Close()
					}
					switch {
					case errors.Is(err, net.ErrClosed), errors.Is(err, syscall.EPIPE): // the half that sends is closed first
						return
					case err != nil:
						t.Error(err)
						return
					}
				}
			})
		}
		<-began
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		others.Wait()
		server.Close()
		if t.Failed() {
			return
		}
	}
}
