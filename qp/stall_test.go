package qp_test

import (
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/qp"
)

// staller is a requester with more to send than any window holds, and a peer that stalls.
type staller struct {
	*bench
	wr      qp.SendWR
	sending int     // packets of the last burst
	last    bth.PSN // the last packet of that burst
}

func newStaller(t *testing.T, c pairConfig) *staller {
	c.mtu, c.retry, c.timeout = bth.MTU256, 7, 14
	b, _, m := client(t, c)
	b.timed(send(m, 1), s0)
	s := &staller{bench: b, last: s0, wr: send(m, 64<<10)}
	for range 64 {
		b.post(s.wr)
	}
	s.note()
	return s
}

// note records the packets that were sent.
func (s *staller) note() {
	list := s.sent()
	s.sending = len(list)
	for _, p := range list {
		if psn := p.PSN(); s.last.Less(psn) {
			s.last = psn
		}
	}
}

// answer acknowledges all that was sent, after some time.
func (s *staller) answer(after time.Duration) {
	s.after(after)
	s.inject(ack(s.last))
	for range drain(s.bench.send) {
		s.post(s.wr)
	}
	s.note()
}

func (s *staller) want(what string, packets int) {
	s.t.Helper()
	if s.sending != packets {
		s.t.Fatalf("%s: %d packets in flight, want %d", what, s.sending, packets)
	}
}

// stalled lets the peer stall for a while, and returns the most packets that were in flight at a time.
func (s *staller) stalled(stalls int) (most int) {
	for range stalls {
		s.answer(5 * time.Millisecond)
		most = max(most, s.sending)
	}
	return most
}

// The window widens for a peer that stalls, up to a bound. A time without stalls narrows it.
func TestStallWidens(t *testing.T) {
	s := newStaller(t, pairConfig{})
	s.want("at first", qp.DefaultWindow)
	s.answer(100 * time.Microsecond)
	s.want("after a usual answer", qp.DefaultWindow)
	last := qp.DefaultWindow
	for last < 16*qp.DefaultWindow {
		most := s.stalled(8)
		if most <= last || most > 16*qp.DefaultWindow {
			t.Fatalf("after 8 stalls of 5 ms %d packets in flight, %d before", most, last)
		}
		last = most
	}
	if most := s.stalled(40); most != last {
		t.Errorf("%d packets in flight, want %d at most", most, last)
	}
	for range 120 {
		s.answer(450 * time.Microsecond)
	}
	s.want("50 ms without a stall", 8*qp.DefaultWindow)
}

// A wider window does not speed up a slow link. The window is wider only sometimes, to test that.
func TestSlowLinkIsNoStall(t *testing.T) {
	s := newStaller(t, pairConfig{})
	const packets = 32 // for each answer, one in a millisecond
	acked, wide, turns := s0, 0, 2000
	for range turns {
		s.after(time.Millisecond)
		acked = acked.Add(packets)
		s.inject(ack(acked))
		for range drain(s.bench.send) {
			s.post(s.wr)
		}
		s.note()
		switch n := int(s.last.Sub(acked)); {
		case n > 2*qp.DefaultWindow:
			t.Fatalf("%d packets in flight", n)
		case n > qp.DefaultWindow:
			wide++
		}
	}
	if wide > turns/2 {
		t.Errorf("the window was wide in %d of %d turns", wide, turns)
	}
}

// A loss narrows the window at once, and keeps it from widening for some time, which is longer after each loss.
func TestStallAndLoss(t *testing.T) {
	s := newStaller(t, pairConfig{})
	s.stalled(12)
	widensAfter := func() (stalls int) {
		s.after(5 * time.Millisecond)
		s.inject(nak(bth.NAKSequence, s.last.Add(1-s.sending)))
		for s.note(); s.sending <= qp.DefaultWindow && stalls < 1000; stalls++ {
			s.answer(5 * time.Millisecond)
		}
		return stalls
	}
	first := widensAfter()
	if first < 195 || first > 205 {
		t.Errorf("wider again %d stalls of 5 ms after a loss, want about 200", first)
	}
	if second := widensAfter(); second < 2*first-3 {
		t.Errorf("wider again %d stalls after the second loss, %d after the first", second, first)
	}
}

// A window that the program has chosen stays as it is.
func TestStallKeepsWindow(t *testing.T) {
	s := newStaller(t, pairConfig{window: 100})
	if most := s.stalled(20); most != 100 {
		t.Errorf("%d packets in flight, the program wants 100", most)
	}
}
