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

// GiveUp requests a connection, which is not accepted, and gives up after a short time.
func (m *Member) GiveUp(to string, r *Failure) error {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err := m.dev.Dial(ctx, to, roce.DialConfig{})
	*r = failure(err)
	return nil
}

// Waiting is the state of a listener of Hold.
type Waiting struct {
	Rejections uint64 // REJs that the process has received
	Request    bool   // a request waits to be accepted
}

// Waiting returns the state of the first listener of Hold, once the process has received more than
// before REJs.
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

// If a peer gives up a request before it is answered, its REJ has no communication ID that
// identifies the destination process. The process that has the request must nevertheless receive the
// REJ.
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
