//go:build !race

// These tests do not run under the race detector. It would report that the peer's device writes an
// entry of the table of mappings while this side reads the previous entry at the same place. This
// is harmless, because the mapping of the previous entry is already closed.

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

// Close frees all objects while other goroutines map memory and close mappings.
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
					case errors.Is(err, net.ErrClosed), errors.Is(err, syscall.EPIPE): // Close first ends the sending direction: EPIPE
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
