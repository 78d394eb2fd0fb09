package scenario_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/qp"
)

// withCQ gives a peer a queue pair with a small send and a small receive queue.
func withCQ(t *testing.T, p *peer, send, recv int) (sendCQ, recvCQ *roce.CQ) {
	t.Helper()
	sendCQ, recvCQ = ok(p.dev.CreateCQ(send))(t), ok(p.dev.CreateCQ(recv))(t)
	p.qp = ok(p.pd.CreateQP(roce.QPConfig{SendCQ: sendCQ, RecvCQ: recvCQ, Caps: deepCaps}))(t)
	check(t, p.qp.Init(roce.DefaultQPAccess, 0))
	return sendCQ, recvCQ
}

// TestCQOverflowSend: completions of sends that find the queue full are lost,
// each with an event; the queue pair continues, and so does the queue after a poll.
func TestCQOverflowSend(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		a, b := newPeer(t, n.device("10.0.0.1"), 100), newPeer(t, n.device("10.0.0.2"), 100)
		small, _ := withCQ(t, a, 4, 4)
		connect(t, a, b)
		for range 4 + 5 {
			a.post(roce.Write, 0, 10, b, 0)
		}
		for range 5 {
			e, err := a.dev.NextEvent(within(t, time.Second))
			if err != nil || e.Type != roce.EventCQErr || e.CQ != small {
				t.Fatalf("event %v, %v, want CQ_ERR of the queue", e, err)
			}
		}
		if s := a.qp.State(); s != qp.RTS {
			t.Errorf("the queue pair is in state %v, want RTS", s)
		}
		wcs := make([]roce.WC, 9)
		if n := small.Poll(wcs); n != 4 || wcs[0].ID != 1 || wcs[3].ID != 4 {
			t.Errorf("%d completions are left, want the first four: %+v", n, wcs[:n])
		}
		a.cq = small
		a.post(roce.Write, 0, 10, b, 0)
		if wc := a.wait(); wc.ID != 10 {
			t.Errorf("completion of %d, want 10", wc.ID)
		}
	})
}

// TestCQOverflowRecv: a receive whose completion is lost puts its queue pair
// into ERR: the program could not know which buffer was filled.
func TestCQOverflowRecv(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		a, b := newPeer(t, n.device("10.0.0.1"), 100), newPeer(t, n.device("10.0.0.2"), 100)
		_, small := withCQ(t, b, 4, 4)
		connect(t, a, b)
		for range 6 {
			b.recv(0, 10)
		}
		for range 5 {
			a.post(roce.Send, 0, 10, nil, 0)
		}
		for _, want := range []roce.Event{
			{Type: roce.EventCQErr, CQ: small}, // the fifth receive
			{Type: roce.EventFatal, QP: b.qp},
			{Type: roce.EventCQErr, CQ: small}, // the flush of the sixth
		} {
			if e, err := b.dev.NextEvent(within(t, time.Second)); err != nil || e != want {
				t.Fatalf("event %v, %v, want %v", e, err, want)
			}
		}
		if s := b.qp.State(); s != qp.Err {
			t.Errorf("the queue pair is in state %v, want ERR", s)
		}
		wcs := make([]roce.WC, 9)
		if n := small.Poll(wcs); n != 4 || wcs[3].Status != cq.Success {
			t.Errorf("%d completions are left, want four successes: %+v", n, wcs[:n])
		}
	})
}

// TestCQResize: a resize keeps pending completions, and a size below their number is refused. (Under traffic:
// TestCompChannelLosesNothing.)
func TestCQResize(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newPair(t, 100)
		for range 5 {
			a.post(roce.Write, 0, 10, b, 0)
		}
		time.Sleep(time.Millisecond)
		for _, r := range []struct {
			n, cap int
			want   error
		}{
			{10, 16, nil}, {1000, 1024, nil}, {5, 8, nil}, {4, 8, syscall.EINVAL}, {0, 8, syscall.EINVAL}, {-1, 8, syscall.EINVAL},
			{cq.MaxEntries + 1, 8, syscall.EINVAL},
		} {
			wantErr(t, "Resize", a.cq.Resize(r.n), r.want)
			if got := a.cq.Cap(); got != r.cap {
				t.Errorf("Resize(%d): Cap %d, want %d", r.n, got, r.cap)
			}
		}
		for i := range uint64(5) {
			if wc := a.wait(); wc.ID != i+1 {
				t.Errorf("completion of %d, want %d", wc.ID, i+1)
			}
		}
	})
}
