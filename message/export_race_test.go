package message_test

import (
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/message"
)

// Close frees all objects while other goroutines export memory and close exports.
func TestCloseDuringExport(t *testing.T) {
	a, b := tooltest.Pair(t, fault.Config{})
	for range 100 {
		server, client := connectOn(t, a, b, message.Config{MaxMessage: 64, Depth: 1, Transfers: 1})
		var others sync.WaitGroup
		began := make(chan struct{}, 4)
		for range 4 {
			others.Go(func() {
				memory := make([]byte, 64)
				for {
					e, err := client.Export(memory, message.ReadWrite)
					select {
					case began <- struct{}{}:
					default:
					}
					if err == nil {
						err = e.Close()
					}
					switch {
					case errors.Is(err, net.ErrClosed):
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
