package rsocket_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/rsocket"
)

// The calls that end a stream report that it broke before the peer had all data.
func TestCloseLost(t *testing.T) {
	for name, end := range map[string]func(*rsocket.Conn) error{
		"CloseWrite": (*rsocket.Conn).CloseWrite,
		"Disconnect": func(c *rsocket.Conn) error { return c.Disconnect(context.Background()) },
		"Close":      (*rsocket.Conn).Close,
	} {
		synctest.Test(t, func(t *testing.T) {
			silent := fault.Config{Rules: []fault.Rule{{Action: fault.Drop, Dir: fault.Tx, Nth: 50, Count: 1 << 30}}}
			da, db := tooltest.Pair(t, silent)
			a, _ := connect(t, da, db, rsocket.Config{})
			for {
				if _, err := a.Write(make([]byte, 1000)); err != nil {
					break
				}
			}
			<-a.Done()
			if err := end(a); !errors.Is(err, syscall.ETIMEDOUT) {
				t.Errorf("%s: %v, want ETIMEDOUT", name, err)
			}
		})
	}
}
