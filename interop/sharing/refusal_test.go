//go:build linux

package sharing

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cm"
)

// GiveUp asks for a connection, which nobody accepts, and does not wait for it.
func (m *Member) GiveUp(to string, r *Failure) error {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err := m.dev.Dial(ctx, to, roce.DialConfig{})
	*r = failure(err)
	return nil
}

// Waiting is what a listener of Hold has.
type Waiting struct {
	Rejections uint64 // that the process has received
	Request    bool   // one waits to be accepted
}

// Waiting says what came for the first listener of Hold, once more rejections have come than before.
func (m *Member) Waiting(before uint64, r *Waiting) error {
	r.Rejections = m.dev.Counters().CM.Received[cm.AttrREJ-cm.AttrREQ]
	if r.Rejections <= before {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := m.held[0].Accept(ctx)
	if r.Request = err == nil; !r.Request && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// A peer that gives up a request before it is answered knows no communication ID that would say
// for which process its REJ is. The one that has the request gets it, wherever it is.
func TestRefusalOfNobody(t *testing.T) {
	each(t, func(t *testing.T, a, b side) {
		list := append(a.members(t, 3), b.member(t), a.member(t))
		holder := list[2]
		for _, caller := range list[3:] { // over the network, and on the same address
			var h Held
			if holder.call("Hold", Port{}, &h); h.Text != "" {
				t.Fatal(h.Text)
			}
			const all = ^uint64(0)
			var w, before Waiting
			holder.call("Waiting", all, &before)
			f := Failure{}
			caller.call("GiveUp", netip.AddrPortFrom(a.open.Addr, h.Port).String(), &f)
			if f.Text == "" {
				t.Fatal("a connection that nobody accepts is made")
			}
			eventually(t, func() string {
				if holder.call("Waiting", before.Rejections, &w); w.Rejections == before.Rejections {
					return "no rejection has come"
				}
				return ""
			})
			if w.Request {
				t.Error("the request that was given up still waits")
			}
			holder.call("Release", nil, nil)
			if t.Failed() {
				return
			}
			holder = list[1]
		}
		together(list, func(p *process) { p.call("Close", nil, nil) })
		a.nothing(t)
		b.nothing(t)
	})
}
