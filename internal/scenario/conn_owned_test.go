package scenario_test

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
)

// TestConnForgets: after the program has closed a region, its connection keeps no reference to the
// memory.
func TestConnForgets(t *testing.T) {
	_, conn := newCouple(t, false).connect(roce.DialConfig{}, roce.AcceptConfig{})
	freed := make(chan struct{})
	func() {
		buf := make([]byte, 1<<20)
		runtime.AddCleanup(&buf[0], func(c chan struct{}) { close(c) }, freed)
		check(t, ok(conn.RegMR(buf, roce.LocalWrite))(t).Close())
	}()
	for i := 0; ; i++ {
		runtime.GC()
		select {
		case <-freed:
			check(t, conn.Close())
			return
		case <-time.After(10 * time.Millisecond):
			if i == 3000 {
				t.Fatal("the connection keeps the memory of a closed region")
			}
		}
	}
}

// TestConnQueues: the completion queues that a connection makes hold the completions of all its
// work requests.
func TestConnQueues(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		shared := ok(c.server.AllocPD().CreateSRQ(roce.SRQConfig{MaxWR: 5000}))(t)
		server, client := c.connect(roce.DialConfig{QPConfig: roce.QPConfig{Caps: roce.Caps{MaxSendWR: 3000, MaxRecvWR: 2000}}},
			roce.AcceptConfig{PD: shared.PD(), QPConfig: roce.QPConfig{SRQ: shared}})
		for name, q := range map[string]struct {
			cq    *roce.CQ
			least int
		}{
			"sends":           {client.QP().SendCQ(), 3000},
			"receives":        {client.QP().RecvCQ(), 2000},
			"default sends":   {server.QP().SendCQ(), 1024},
			"shared receives": {server.QP().RecvCQ(), 5000},
		} {
			if got := q.cq.Cap(); got < q.least {
				t.Errorf("%s: the queue holds %d completions, want %d", name, got, q.least)
			}
		}
	})
}

// TestConnClosed: all calls on a closed connection fail.
func TestConnClosed(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		_, conn := c.connect(roce.DialConfig{}, roce.AcceptConfig{})
		check(t, conn.Close())
		_, err := conn.RegMR(make([]byte, 1), 0)
		wantErr(t, "RegMR", err, roce.ErrClosed)
		wantErr(t, "Disconnect", conn.Disconnect(t.Context()), roce.ErrClosed)
		wantErr(t, "LoadAlternate", conn.LoadAlternate(t.Context(), roce.AlternatePath{}), roce.ErrClosed)
		wantErr(t, "Close", conn.Close(), roce.ErrClosed)
	})
}

// TestConnRetries: numbers of retries that three bits do not hold are refused, not changed.
func TestConnRetries(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		for _, p := range []roce.ConnParam{{RetryCount: 8}, {RNRRetryCount: 8}} {
			_, err := c.client.Dial(t.Context(), serverAddr, roce.DialConfig{Param: p})
			wantErr(t, "Dial", err, syscall.EINVAL)
		}
	})
}
