package qp_test

import (
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mono"
)

// silences lets time pass until no timer of the bench runs, and returns when it has sent the ACK of psn, which counts
// one message.
func (b *bench) silences(psn bth.PSN) (at []time.Duration) {
	b.t.Helper()
	for start := b.net.now; b.NextTimeout() != mono.Never; {
		b.net.now = b.NextTimeout()
		b.HandleTimeout(b.net.now)
		b.collect()
		for _, p := range b.sent() {
			if p.Op != bth.RCAck || p.Syndrome() != bth.AckNoCredits || p.PSN() != psn || p.MSN() != 1 {
				b.t.Fatalf("sent %v %v, MSN %d", summary(b.out), p.Syndrome(), p.MSN())
			}
			at = append(at, b.net.now.Sub(start))
		}
	}
	return at
}

// TestAcknowledgeAgain: a responder that holds acknowledges again after silences of its peer, if the peer may still repeat
// requests.
func TestAcknowledgeAgain(t *testing.T) {
	want := []time.Duration{250 * us, 1000 * us, 4000 * us, 16_000 * us, 64_000 * us, 256_000 * us}
	check := func(t *testing.T, at []time.Duration) {
		t.Helper()
		if !slices.Equal(at, want) {
			t.Errorf("acknowledged after %v, want %v", at, want)
		}
	}
	filled := func() (*bench, []packet) {
		b, _, m := holding(t, pairConfig{})
		ps := writeParts(m, 4)
		for _, i := range []int{0, 2, 3} {
			b.inject(ps[i])
		}
		b.wantAck(bth.NAKSequence, e0.Add(1))
		b.inject(ps[1])
		b.wantAck(bth.AckNoCredits, e0.Add(2))
		return b, ps
	}
	t.Run("withheld", func(t *testing.T) { // the peer does not go back: the NAK was lost
		b, _ := filled()
		check(t, b.silences(e0.Add(3)))
	})
	t.Run("repeated", func(t *testing.T) {
		b, ps := filled()
		b.after(100 * us)
		b.inject(ps[1])
		b.after(100 * us)
		b.inject(ps[3])
		b.wantAck(bth.AckNoCredits, e0.Add(3))
		check(t, b.silences(e0.Add(3)))
		b.inject(ps[3]) // the ACK was lost
		b.wantAck(bth.AckNoCredits, e0.Add(3))
		check(t, b.silences(e0.Add(3)))
	})
	t.Run("read", func(t *testing.T) { // its answer says as much, and an ACK must not name it
		b, ps := filled()
		b.inject(ps[3])
		b.wantAck(bth.AckNoCredits, e0.Add(3))
		b.inject(packet{op: bth.RCReadRequest, psn: e0.Add(4), va: ps[0].va, key: ps[0].key, length: 4})
		b.sent()
		if at := b.silences(0); len(at) > 0 {
			t.Errorf("acknowledged after %v", at)
		}
	})
	t.Run("no receive", func(t *testing.T) { // the peer waits
		b, ps := filled()
		b.inject(ps[3])
		for i := range 3 {
			b.inject(packet{op: bth.RCSendOnly, psn: e0.Add(4 + i), ack: true})
		}
		b.sent()
		if at := b.silences(0); len(at) > 0 {
			t.Errorf("acknowledged after %v", at)
		}
	})
	t.Run("beyond", func(t *testing.T) { // nothing that was sent before can be repeated any more
		b, ps := filled()
		one := ps[0]
		for i := range 300 {
			one.op, one.psn, one.length = bth.RCWriteOnly, e0.Add(4+i), 1024
			b.inject(one)
		}
		b.sent()
		if at := b.silences(0); len(at) > 0 {
			t.Errorf("acknowledged after %v", at)
		}
	})
	t.Run("drops", func(t *testing.T) { // a responder that drops works as the standard has it
		b, _, m := server(t, pairConfig{})
		ps := writeParts(m, 2)
		for _, i := range []int{1, 0, 1, 1} {
			b.inject(ps[i])
		}
		b.sent()
		if b.NextTimeout() != mono.Never {
			t.Error("a timer runs")
		}
	})
}

// TestHoldLate: the missing request was only late, and the end of its message comes behind it in its order. The peer may
// still go back because of the NAK, so the end is not named yet.
func TestHoldLate(t *testing.T) {
	b, _, m := holding(t, pairConfig{})
	ps := writeParts(m, 4)
	for _, i := range []int{0, 2} {
		b.inject(ps[i])
	}
	b.wantAck(bth.NAKSequence, e0.Add(1))
	b.inject(ps[1])
	b.inject(ps[3])
	b.wantAck(bth.AckNoCredits, e0.Add(2))
	for _, i := range []int{1, 2} { // it goes back
		b.inject(ps[i])
	}
	b.wantSilence()
	b.inject(ps[3])
	b.wantAck(bth.AckNoCredits, e0.Add(3))

	b, _, m = holding(t, pairConfig{})
	ps = writeParts(m, 4)
	for _, i := range []int{0, 2, 1, 1} { // it has gone back before the end comes
		b.inject(ps[i])
	}
	b.sent()
	b.inject(ps[3])
	b.wantAck(bth.AckNoCredits, e0.Add(3))
}
