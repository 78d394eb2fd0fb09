package message_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/message"
)

// If two goroutines call Disconnect, each call returns when the peer has all messages in flight.
func TestDisconnectTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := fault.Config{Tx: fault.Rates{Delay: 1}, DelayTime: 10 * time.Millisecond}
		a, _ := connect(t, slow, message.Config{Depth: 2})
		for range 2 {
			if err := a.Send(t.Context(), []byte("message")); err != nil {
				t.Fatal(err)
			}
		}
		ended := make(chan error, 2)
		for range 2 {
			go func() { ended <- a.Disconnect(t.Context()) }()
		}
		start := time.Now()
		for range 2 {
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("Disconnect hangs")
			}
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// Disconnect and Close report that the connection broke before the peer had every message.
func TestDisconnectLost(t *testing.T) {
	for name, end := range map[string]func(*message.Conn) error{
		"Disconnect": func(c *message.Conn) error { return c.Disconnect(context.Background()) },
		"Close":      (*message.Conn).Close,
	} {
		synctest.Test(t, func(t *testing.T) {
			silent := fault.Config{Rules: []fault.Rule{{Action: fault.Drop, Dir: fault.Tx, Nth: 20, Count: 1 << 30}}}
			da, db := tooltest.Pair(t, silent)
			a, _ := connectOn(t, da, db, message.Config{})
			for a.Send(t.Context(), []byte("message")) == nil {
			}
			<-a.Done()
			if err := end(a); !errors.Is(err, syscall.ETIMEDOUT) {
				t.Errorf("%s: %v, want ETIMEDOUT", name, err)
			}
			if err := a.Close(); name == "Disconnect" && !errors.Is(err, syscall.ETIMEDOUT) {
				t.Errorf("Close: %v, want ETIMEDOUT", err)
			}
		})
	}
}
