package scenario_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
)

// noisyPort always returns a frame, which is no packet.
type noisyPort struct{ link.Port }

func (p noisyPort) Recv(fr []link.Frame) (int, error) {
	fr[0] = link.Frame{Data: []byte("no packet")}
	return 1, nil
}

// A call that waits for a completion on a polled device returns when the queue is closed, although the device always has
// work.
func TestWaiterLeavesBusyDevice(t *testing.T) {
	n := newNetwork(t)
	c := n.config("10.0.0.1")
	c.Polled = true
	c.Ports[0] = noisyPort{c.Ports[0]}
	d := n.open(c)
	for name, wait := range map[string]func() (begin func() error, end func() error){
		"completion queue": func() (func() error, func() error) {
			q := ok(d.CreateCQ(1))(t)
			return func() error { return q.Wait(context.Background()) }, q.Close
		},
		"completion channel": func() (func() error, func() error) {
			c := ok(d.CreateCompChannel())(t)
			return func() error { _, err := c.Next(context.Background()); return err }, c.Close
		},
	} {
		begin, end := wait()
		left := make(chan error, 1)
		before := d.Counters().Drops.Malformed
		go func() { left <- begin() }()
		for d.Counters().Drops.Malformed < before+5000 { // the waiter has done more than its first polls
			runtime.Gosched()
		}
		check(t, end())
		select {
		case err := <-left:
			wantErr(t, name, err, roce.ErrClosed)
		case <-time.After(time.Minute):
			t.Fatalf("%s: the waiter did not leave", name)
		}
	}
}
