package scenario_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/qp"
)

// postMany fills the queues of a connection with receives, so that the flush has work requests.
func postMany(t testing.TB, c *roce.Conn, n int) {
	t.Helper()
	for i := range n {
		check(t, c.QP().PostRecv(&roce.RecvWR{ID: uint64(i)}))
	}
}

// wantFlushed takes n flush completions of a connection's receives.
func wantFlushed(t testing.TB, c *roce.Conn, n int) {
	t.Helper()
	for i := range n {
		wc := ok(c.QP().RecvCQ().Next(within(t, time.Minute)))(t)
		if wc.Status != cq.WRFlushErr || wc.ID != uint64(i) {
			t.Fatalf("completion %d: %+v, want a flushed receive", i, wc)
		}
	}
}

func TestDisconnect(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		server, client := c.connect(roce.DialConfig{}, roce.AcceptConfig{})
		postMany(t, server, 3)
		postMany(t, client, 3)
		start := time.Now()
		check(t, client.Disconnect(within(t, time.Minute)))
		<-server.Done()
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("Disconnect took %v", took)
		}
		wantFlushed(t, server, 3)
		wantFlushed(t, client, 3)
		for _, x := range []*roce.Conn{server, client} {
			wantErr(t, "Err", x.Err(), roce.ErrDisconnected)
			check(t, x.Disconnect(within(t, time.Minute))) // once more does nothing
			check(t, x.Close())
		}
	})
}

// TestDisconnectBoth: both sides disconnect at the same instant, on one
// goroutine or two each.
func TestDisconnectBoth(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		for range 10 {
			server, client := c.connect(roce.DialConfig{}, roce.AcceptConfig{})
			var wg sync.WaitGroup
			for _, x := range []*roce.Conn{server, client, server, client} {
				wg.Go(func() {
					if err := x.Disconnect(within(t, time.Minute)); err != nil {
						t.Errorf("Disconnect: %v", err)
					}
				})
			}
			wg.Wait()
			wantErr(t, "Err", server.Err(), roce.ErrDisconnected)
			wantErr(t, "Err", client.Err(), roce.ErrDisconnected)
			check(t, server.Close())
			check(t, client.Close())
		}
	})
}

// TestCloseBoth: both sides call Close at the same time.
func TestCloseBoth(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		server, client := c.connect(roce.DialConfig{}, roce.AcceptConfig{})
		var wg sync.WaitGroup
		for _, x := range []*roce.Conn{server, client} {
			wg.Go(func() {
				if err := x.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		}
		wg.Wait()
		<-server.Done()
		<-client.Done()
	})
}

// TestPeerCloses closes the peer's device in the middle of transfers both ways.
func TestPeerCloses(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		const size = 16 << 20
		server, client := c.connect(roce.DialConfig{}, roce.AcceptConfig{})
		sm := ok(server.QP().PD().RegMR(make([]byte, size), allRights))(t)
		cm := ok(client.QP().PD().RegMR(make([]byte, size), allRights))(t)
		post := func(from, to *roce.Conn, l, r *roce.MR) {
			check(t, from.QP().PostSend(&roce.SendWR{Opcode: roce.Write, SG: []roce.SGE{l.SGE(0, size)}, RemoteAddr: r.Addr(), RKey: r.RKey()}))
			check(t, from.QP().PostSend(&roce.SendWR{Opcode: roce.Read, SG: []roce.SGE{l.SGE(0, size)}, RemoteAddr: r.Addr(), RKey: r.RKey()}))
		}
		post(client, server, cm, sm)
		post(server, client, sm, cm)
		postMany(t, client, 5)
		for c.client.Counters().SentPkts < 1000 { // until it is well under way
			c.client.Progress()
			c.server.Progress()
		}
		check(t, c.server.Close())
		for range 2 {
			for _, x := range []*roce.Conn{client, server} {
				wc := ok(x.QP().SendCQ().Next(within(t, time.Minute)))(t)
				if wc.Status != cq.WRFlushErr {
					t.Errorf("completion %+v, want a flushed send", wc)
				}
			}
		}
		wantFlushed(t, client, 5)
		<-client.Done()
		<-server.Done()
		wantErr(t, "the client's Err", client.Err(), roce.ErrDisconnected)
		wantErr(t, "the server's Err", server.Err(), net.ErrClosed)
		if s := client.QP().State(); s != qp.Err {
			t.Errorf("the client's queue pair is in state %v", s)
		}
		check(t, sm.Close())
		check(t, cm.Close())
		check(t, server.Close())
		check(t, client.Close())
	})
}

// mads matches the connection manager's messages of one kind.
func mads(a cm.Attribute) func(fault.Direction, *bth.Packet) bool {
	return func(_ fault.Direction, p *bth.Packet) bool {
		mad := p.Payload()
		return p.DestQPN() == bth.QPNGSI && len(mad) == cm.MADLen && cm.Attribute(mad[16])<<8|cm.Attribute(mad[17]) == a
	}
}

// TestLostMessages loses each message of the connection manager a few times:
// connecting and disconnecting take longer, and work.
func TestLostMessages(t *testing.T) {
	for _, test := range []struct {
		attr cm.Attribute
		name string
	}{
		{cm.AttrREQ, "REQ"}, {cm.AttrREP, "REP"}, {cm.AttrRTU, "RTU"}, {cm.AttrDREQ, "DREQ"}, {cm.AttrDREP, "DREP"}, {cm.AttrREJ, "REJ"},
	} {
		for _, times := range []int{1, 3} {
			t.Run(test.name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					n := newNetwork(t)
					config := n.config("10.0.0.2")
					f := ok(fault.Wrap(config.Ports[0], fault.Config{Rules: []fault.Rule{
						{Action: fault.Drop, Func: mads(test.attr), Nth: 1, Count: times}}}))(t)
					config.Ports[0] = f
					server, client := n.device("10.0.0.1"), n.open(config)
					l := ok(server.Listen(context.Background(), ":7471", roce.ListenConfig{}))(t)
					ctx := within(t, 10*time.Minute)
					var sc *roce.Conn
					var wg sync.WaitGroup
					wg.Go(func() {
						r, err := l.Accept(ctx)
						if err == nil && test.attr == cm.AttrREJ {
							err = r.Reject(nil)
						} else if err == nil {
							sc, err = r.Accept(ctx, roce.AcceptConfig{})
						}
						if err != nil {
							t.Errorf("server: %v", err)
						}
					})
					start := time.Now()
					cc, err := client.Dial(ctx, serverAddr, roce.DialConfig{})
					wg.Wait()
					if test.attr == cm.AttrREJ {
						// The server has forgotten the request, and sees the
						// repetition as another one.
						if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, syscall.ETIMEDOUT) && !errors.Is(err, syscall.ECONNREFUSED) {
							t.Errorf("Dial: %v", err)
						}
						return
					}
					check(t, err)
					// Data flows although the server may not be sure yet.
					check(t, cc.QP().PostSend(&roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled}))
					if wc := ok(cc.QP().SendCQ().Next(ctx))(t); wc.Status != cq.Success {
						t.Errorf("completion %+v", wc)
					}
					check(t, sc.Disconnect(ctx))
					<-cc.Done()
					if took := time.Since(start); took == 0 && test.attr != cm.AttrRTU {
						t.Errorf("took %v: nothing was lost?", took)
					}
					tx, rx := f.Counters()
					if got := tx.Rules + rx.Rules; got != uint64(times) {
						t.Errorf("%d messages were lost, want %d", got, times)
					}
				})
			})
		}
	}
}

// TestDataConfirms: the first data of the peer establishes a connection whose
// RTU is lost.
func TestDataConfirms(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		config := n.config("10.0.0.2")
		config.Ports[0] = ok(fault.Wrap(config.Ports[0], fault.Config{Rules: []fault.Rule{
			{Action: fault.Drop, Func: mads(cm.AttrRTU)}}}))(t) // all of them
		server, client := n.device("10.0.0.1"), n.open(config)
		l := ok(server.Listen(context.Background(), ":7471", roce.ListenConfig{}))(t)
		ctx := within(t, time.Minute)
		accepted := make(chan time.Time)
		var served roce.QPN
		go func() {
			r, err := l.Accept(ctx)
			if err == nil {
				_, err = r.Accept(ctx, roce.AcceptConfig{Setup: func(q *roce.QP) error { served = q.Num(); return nil }})
			}
			if err != nil {
				t.Errorf("server: %v", err)
			}
			accepted <- time.Now()
		}()
		c := ok(client.Dial(ctx, serverAddr, roce.DialConfig{}))(t)
		evil := newAttacker(n, server) // data from another address does not confirm the connection
		evil.send(evil.path("10.0.0.66"), bth.BTHLen+bth.ICRCLen, func(b []byte) {
			bth.PutBTH(b, bth.RCSendOnly, bth.MigReq, 0, bth.DefaultPKey, served, 1)
		})
		time.Sleep(time.Second)
		sent := time.Now()
		check(t, c.QP().PostSend(&roce.SendWR{Opcode: roce.Write}))
		if took := (<-accepted).Sub(sent); took < 0 || took > 100*time.Millisecond {
			t.Errorf("Accept returned %v after the first data", took)
		}
		if n := server.Counters().WrongPeer; n != 1 {
			t.Errorf("%d packets of someone else, want 1", n)
		}
	})
}

// TestDisconnectAnswers: an end that disconnects has all its data, but its last acknowledgement may have been lost. So it
// answers retransmissions until the peer has confirmed the end. Otherwise rxe would hang: it repeats for ever, and its
// programs do not handle a DREQ before the acknowledgement.
func TestDisconnectAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		config := n.config("10.0.0.2")
		config.Ports[0] = ok(fault.Wrap(config.Ports[0], fault.Config{Rules: []fault.Rule{
			{Action: fault.Drop, Dir: fault.Tx, Op: fault.Is(bth.RCAck), Nth: 1},
			{Action: fault.Drop, Dir: fault.Tx, Func: mads(cm.AttrDREQ), Nth: 1}, // as if the peer did not read it
		}}))(t)
		c := &couple{t: t, net: n, server: n.device("10.0.0.1"), client: n.open(config)}
		c.listener = ok(c.server.Listen(context.Background(), ":7471", roce.ListenConfig{}))(t)
		server, client := c.connect(roce.DialConfig{}, roce.AcceptConfig{})
		check(t, client.QP().PostRecv(&roce.RecvWR{}))
		check(t, server.QP().PostSend(&roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled}))
		if wc := ok(client.QP().RecvCQ().Next(within(t, time.Minute)))(t); wc.Status != cq.Success {
			t.Fatalf("receive: %+v", wc)
		}
		check(t, client.Disconnect(within(t, time.Minute)))
		if wc := ok(server.QP().SendCQ().Next(within(t, time.Minute)))(t); wc.Status != cq.Success {
			t.Errorf("send that arrived: %+v", wc)
		}
		check(t, client.Close())
		check(t, server.Close())
	})
}

// TestPeerVanishes: the link to the peer fails. Disconnect gives up after its retries, or when its context ends.
func TestPeerVanishes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		config := n.config("10.0.0.1")
		wire := ok(fault.Wrap(config.Ports[0], fault.Config{}))(t)
		config.Ports[0] = wire
		c := &couple{t: t, net: n, server: n.open(config), client: n.device("10.0.0.2")}
		c.listener = ok(c.server.Listen(context.Background(), ":7471", roce.ListenConfig{}))(t)
		server, client := c.connect(roce.DialConfig{}, roce.AcceptConfig{})
		_, client2 := c.connect(roce.DialConfig{}, roce.AcceptConfig{})
		check(t, wire.SetRates(fault.Rates{Loss: 1}, fault.Rates{Loss: 1}))

		check(t, client.QP().PostSend(&roce.SendWR{Opcode: roce.Write}))
		if wc := ok(client.QP().SendCQ().Next(within(t, 10*time.Minute)))(t); wc.Status != cq.RetryExcErr {
			t.Errorf("completion %+v, want RETRY_EXC_ERR", wc)
		}
		wantErr(t, "Disconnect", client.Disconnect(within(t, time.Second)), context.DeadlineExceeded)
		wantErr(t, "Disconnect, patiently", client2.Disconnect(within(t, time.Hour)), syscall.ETIMEDOUT)
		<-client.Done() // the device continues to disconnect in the background
		wantErr(t, "Err", client.Err(), syscall.ETIMEDOUT)
		if err := server.Err(); err != nil {
			t.Errorf("the other side's Err: %v", err)
		}
		check(t, client.Close())
		check(t, client2.Close())
	})
}

// TestCloseEndsDisconnect: Close returns at once and ends a Disconnect that waits for the peer's confirmation.
func TestCloseEndsDisconnect(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			config := n.config("10.0.0.1")
			config.Polled = polled
			wire := ok(fault.Wrap(config.Ports[0], fault.Config{}))(t)
			config.Ports[0] = wire
			c := &couple{t: t, net: n, server: n.open(config), client: n.device("10.0.0.2")}
			c.listener = ok(c.server.Listen(context.Background(), ":7471", roce.ListenConfig{}))(t)
			server, _ := c.connect(roce.DialConfig{}, roce.AcceptConfig{})
			check(t, wire.SetRates(fault.Rates{Loss: 1}, fault.Rates{Loss: 1}))
			done := make(chan time.Time)
			go func() {
				if err := server.Disconnect(context.Background()); err != nil {
					t.Errorf("Disconnect: %v", err)
				}
				done <- time.Now()
			}()
			time.Sleep(time.Second)
			start := time.Now()
			check(t, server.Close())
			if took := (<-done).Sub(start); took > 0 {
				t.Errorf("polled=%v: Disconnect returned %v after Close", polled, took)
			}
		})
	}
}

// TestRNR: a send waits for its receive.
func TestRNR(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newPair(t, 100_000)
		fill(a.buf, 1)
		a.post(roce.Send, 0, 100_000, nil, 0)
		time.Sleep(50 * time.Millisecond)
		if c := b.dev.Counters(); c.SendRNRErr == 0 {
			t.Errorf("no RNR NAK was sent")
		}
		b.recv(0, 100_000)
		b.wait()
		a.wait()
		if !bytes.Equal(a.buf, b.buf) {
			t.Errorf("the data differs")
		}
	})
	bubble(t, func(t *testing.T) { // with an agreed limit of RNR retries, the send fails
		c := newCouple(t, false)
		_, client := c.connect(roce.DialConfig{}, roce.AcceptConfig{Param: roce.ConnParam{RNRRetryCount: 2}})
		check(t, client.QP().PostSend(&roce.SendWR{Opcode: roce.Send}))
		if wc := ok(client.QP().SendCQ().Next(within(t, time.Minute)))(t); wc.Status != cq.RNRRetryExcErr {
			t.Errorf("completion %+v, want RNR_RETRY_EXC_ERR", wc)
		}
		if n := c.client.Counters().RcvdRNRErr; n != 3 {
			t.Errorf("%d RNR NAKs, want 3", n)
		}
	})
}

// TestDeregister: after memory is deregistered during a transfer, the device does not touch it, and work requests that
// use it fail.
func TestDeregister(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		config := func(addr string) roce.Config { c := n.config(addr); c.Polled = true; return c }
		a, b := newPeer(t, n.open(config("10.0.0.1")), 8<<20), newPeer(t, n.open(config("10.0.0.2")), 8<<20)
		connect(t, a, b)
		a.post(roce.Write, 0, 8<<20, b, 0)
		b.dev.Progress()
		check(t, b.mr.Close())
		var wc [1]roce.WC
		for a.cq.Poll(wc[:]) == 0 {
			b.dev.Progress()
		}
		if wc[0].Status != cq.RemAccessErr {
			t.Errorf("completion %+v, want REM_ACCESS_ERR", wc[0])
		}
	})
}
