package rsocket

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/notify"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

// If a control message fails, the stream counts the messages behind it as lost before their completions arrive. Messages
// before it have arrived.
func TestLostBehindControl(t *testing.T) {
	for _, behind := range []bool{true, false} {
		cfg, err := Config{}.complete()
		if err != nil {
			t.Fatal(err)
		}
		e := &endpoint{cfg: cfg, over: make(chan struct{})}
		e.tx = sender{buffer: cfg.SendBuffer, free: cfg.SendBuffer, wrs: cfg.SendDepth - ctrlReserve, ctrl: ctrlReserve}
		data := func() {
			e.tx.hold(100)
			e.tx.quiet.bytes += 100
			e.tx.quiet.wrs++
			e.busy++
		}
		data()
		wc := roce.WC{Status: roce.StatusWRFlushErr, ID: sendID(opTable, 1, e.tx.takeQuiet())}
		e.tx.ctrl--
		e.busy++
		if behind {
			data()
		}
		e.finished(&wc)
		if e.lost != behind {
			t.Errorf("data behind it: %v, lost: %v", behind, e.lost)
		}
	}
}

// The device refuses the message that Close sends. Completions that are handled after the refusal still decide whether Close
// reports missed data.
func TestLostBeforeRefusal(t *testing.T) {
	for _, acked := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			port, err := mem.NewHub(mem.Config{}).Port("p", frame.MAC{2, 1})
			if err != nil {
				t.Fatal(err)
			}
			d, err := roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}})
			if err != nil {
				t.Fatal(err)
			}
			queue, err := d.CreateCQ(8)
			if err != nil {
				t.Fatal(err)
			}
			q, err := d.AllocPD().CreateQP(roce.QPConfig{Type: roce.RC, SendCQ: queue, RecvCQ: queue, Caps: roce.Caps{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1}})
			if err != nil {
				t.Fatal(err)
			}
			d.Close()

			cfg, err := Config{}.complete()
			if err != nil {
				t.Fatal(err)
			}
			e := &endpoint{cfg: cfg, qp: q, cq: queue, over: make(chan struct{}), served: make(chan struct{}), idle: notify.New(), readable: notify.New(), writable: notify.New()}
			e.tx = sender{buffer: cfg.SendBuffer, free: cfg.SendBuffer, wrs: cfg.SendDepth - ctrlReserve, ctrl: ctrlReserve}
			const messages, size = 3, 100
			for range messages {
				e.tx.hold(size)
				e.tx.quiet.bytes += size
				e.tx.quiet.wrs++
				e.busy++
			}
			done := make(chan error, 1)
			go func() { done <- e.drain(context.Background(), nil, true, ctrlShutdown) }()
			synctest.Wait()
			select {
			case err := <-done:
				t.Errorf("%v before the completions show what the peer has", err)
				return
			default:
			}
			for range messages {
				if !acked {
					e.mu.Lock()
					e.complete(&roce.WC{Status: roce.StatusWRFlushErr, ID: sendID(opData, size, unsignaled{})})
					e.mu.Unlock()
				}
			}
			go e.serve() // there are no more completions
			if err := <-done; errors.Is(err, syscall.ECONNRESET) == acked {
				t.Errorf("the error is %v, and the peer has acknowledged everything: %v", err, acked)
			}
			<-e.served
		})
	}
}
