package qp_test

import (
	"testing"
	"time"

	"github.com/goroce/roce/bth"
)

// TestPrematureNAK: a request without AckReq that comes soon after the NAK for it was late if the peer, which has sent
// only missing requests until now, then sends a new one. If the peer repeats what is held, it has gone back, and the
// request was lost. A stranger who is ahead of the peer causes such a repetition, too.
func TestPrematureNAK(t *testing.T) {
	for _, c := range []struct {
		name  string
		order []int // PSNs after the one expected, behind a gap of one
		want  uint64
	}{
		{"late", []int{1, 0, 2}, 1},
		{"late, two", []int{2, 0, 1, 3}, 1},
		{"goes back", []int{1, 2, 0, 1, 2, 3}, 0},
		{"goes back over two", []int{2, 3, 0, 1, 2, 3, 4}, 0},
		{"a stranger is ahead", []int{1, 0, 1, 2}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, _, m := holding(t, pairConfig{})
			h := &habits{bench: b, one: packet{op: bth.RCWriteOnly, va: m.Addr(), key: m.RKey(), length: 4, payload: []byte("once")}, next: e0}
			repair := func() {
				h.write(h.next.Add(1))
				h.after(20 * us)
				h.one.ack = true
				h.write(h.next)
				h.one.ack = false
				h.write(h.next.Add(2))
				h.next = h.next.Add(3)
				h.after(time.Millisecond)
			}
			for range 4 {
				repair()
			}
			h.sent()
			for _, i := range c.order {
				h.write(h.next.Add(i))
				h.after(20 * us)
			}
			if n := h.cnt.PrematureNAK; n != c.want {
				t.Errorf("%d NAKs were premature, want %d", n, c.want)
			}
		})
	}
}
