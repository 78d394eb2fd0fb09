package rsocket_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/rsocket"
)

// If the device of a stream was closed, the calls that end the stream report missed data only if the peer has not
// acknowledged all data.
func TestEndAfterDeviceClosed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		acked  bool
		breaks func(*roce.Device)
	}{
		{"closed, acknowledged", true, func(d *roce.Device) { d.Close() }},
		{"closed, not acknowledged", false, func(d *roce.Device) { d.Close() }},
		{"being closed, acknowledged", true, func(d *roce.Device) { go d.Close() }},
		{"being closed, not acknowledged", false, func(d *roce.Device) { go d.Close() }},
	} {
		for name, end := range map[string]func(*rsocket.Conn) error{
			"CloseWrite": (*rsocket.Conn).CloseWrite,
			"Disconnect": func(c *rsocket.Conn) error { return c.Disconnect(context.Background()) },
			"Close":      (*rsocket.Conn).Close,
		} {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var cut atomic.Bool
					lose := fault.Rule{Action: fault.Drop, Func: func(fault.Direction, *bth.Packet) bool { return cut.Load() }}
					da, db := tooltest.Pair(t, fault.Config{Rules: []fault.Rule{lose}})
					a, b := connect(t, da, db, rsocket.Config{})
					cut.Store(!tt.acked)
					const writes, size = 3, 100 // short messages, which are unsignaled
					for range writes {
						if _, err := a.Write(make([]byte, size)); err != nil {
							t.Fatal(err)
						}
					}
					if tt.acked {
						if _, err := io.ReadFull(b, make([]byte, writes*size)); err != nil {
							t.Fatal(err)
						}
						time.Sleep(time.Minute)
					}
					tt.breaks(da)
					if err := end(a); errors.Is(err, syscall.ECONNRESET) == tt.acked {
						t.Errorf("the error is %v, and the peer has acknowledged everything: %v", err, tt.acked)
					}
				})
			})
		}
	}
}
