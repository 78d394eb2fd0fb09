package perftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/goroce/roce"
)

// latency runs a latency test on either side, once the queue pairs are connected.
func (s *side) latency(ctx context.Context, x *session, ctl control) (r Result, err error) {
	g := trip{end: s.lanes[0]}
	if err := g.prepare(); err != nil {
		return r, err
	}
	if err := s.confirm(x); err != nil {
		return r, err
	}
	play, sync := g.request, false // sync: the sides synchronise before each size
	finish := func() error { return x.finish(g.local) }
	switch {
	case s.cfg.Test.Watches():
		// perftest's program exits when it has received everything.
		defer s.linger(ctx, ctl)
		g.gone = ctl.gone()
		play, finish = g.pingPongWrites, func() error { return nil }
	case s.cfg.Test.mutual:
		play, sync = g.pingPongSends, true
	case s.server:
		return r, finish()
	}
	for i, size := range s.cfg.sizes(s.terms.mtu.Bytes()) {
		s.size = size
		if sync {
			if err := g.receives.begin(); err != nil {
				return r, err
			}
			if err := s.once(x); err != nil {
				return r, err
			}
		}
		g.restart()
		if err := play(ctx); err != nil && !errors.Is(err, errOver) {
			return r, err
		}
		row := g.report()
		r.Latency = append(r.Latency, row)
		if s.cfg.Unsorted {
			row.dump(s.cfg.Out, false)
		}
		if s.cfg.Histogram {
			row.dump(s.cfg.Out, true)
		}
		if i == 0 || s.cfg.Unsorted || s.cfg.Histogram {
			fmt.Fprintln(s.cfg.Out, row.Header())
		}
		fmt.Fprintln(s.cfg.Out, row)
	}
	return r, finish()
}

// errOver says that the duration of a test has ended.
var errOver = errors.New("perftest: the time is over")

// trip is one latency test, on one queue pair.
type trip struct {
	*end
	work     work
	receives *receives
	message  *roce.MR        // source of the WRITEs
	gone     <-chan struct{} // closed when the peer has closed the connection of the exchange

	clock          stopwatch
	posts          []time.Duration // when each message was posted
	sampled        int             // rounds between the margins
	sent, received int             // completions seen
}

// prepare allocates the memory for all sizes.
func (g *trip) prepare() (err error) {
	t := &g.cfg.Test
	if t.Watches() {
		g.message, err = g.register(g.extent(), 0)
		return err
	}
	if !g.server || t.mutual {
		if g.work, err = t.work(g.end, g.remote); err != nil {
			return err
		}
	}
	if !g.server && !t.mutual {
		return nil
	}
	v, err := t.serve(g.end)
	g.receives, _ = v.(*receives)
	return err
}

// restart begins a size. In a test with a duration the clock of a server of SENDs starts when it
// receives the first one.
func (g *trip) restart() {
	g.clock = stopwatch{base: time.Now(), duration: g.cfg.Duration, margin: g.cfg.Margin}
	g.posts, g.sampled, g.sent, g.received = g.posts[:0], 0, 0, 0
	if !(g.server && g.receives != nil) {
		g.clock.start()
	}
}

// more reports whether message i is part of the test.
func (g *trip) more(i int) bool { return g.cfg.Duration > 0 || i < g.cfg.Iters }

// stamp records the time at which a message is posted.
func (g *trip) stamp() error {
	if g.cfg.Duration == 0 {
		g.posts = append(g.posts, g.clock.since())
		return nil
	}
	return g.overdue()
}

// overdue returns errOver once the duration has ended.
func (g *trip) overdue() error {
	if g.clock.over() {
		return errOver
	}
	return nil
}

// count counts a round, if it is between the margins.
func (g *trip) count() {
	if g.clock.sampling() {
		g.sampled++
	}
}

// until polls until the counter at has reached n.
func (g *trip) until(ctx context.Context, at *int, n int) error {
	for *at < n {
		if err := g.overdue(); err != nil {
			return err
		}
		own, cancel := ctx, context.CancelFunc(func() {})
		if end := g.clock.end(); !end.IsZero() && !g.spinning() {
			own, cancel = context.WithDeadline(ctx, end)
		}
		wcs, err := g.poll(own)
		cancel()
		if err != nil && !(errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil) {
			return err
		}
		for i := range wcs {
			if err := g.seen(&wcs[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// seen counts a completion.
func (g *trip) seen(wc *roce.WC) error {
	if err := wc.Status.Err(); err != nil {
		if g.cfg.Duration > 0 && g.left() {
			return errOver // the duration of the peer ended a little earlier
		}
		return fmt.Errorf("perftest: %s %d, after %d sent and %d received: %w", kindOf(wc.ID), indexOf(wc.ID), g.sent, g.received, err)
	}
	if wc.ID&recvFlag == 0 {
		g.sent++
		return nil
	}
	if g.received == 0 && g.clock.started.IsZero() {
		g.clock.start()
	}
	g.received++
	if err := g.receives.take(*wc); err != nil {
		return err
	}
	return g.receives.refill()
}

// post posts message i and waits for its completion.
func (g *trip) post(ctx context.Context, i int, wr *roce.SendWR) error {
	wr.ID, wr.Flags = g.sendID(i), roce.Signaled
	if err := g.stamp(); err != nil {
		return err
	}
	if err := g.qp.PostSend(wr); err != nil {
		return err
	}
	return g.until(ctx, &g.sent, i+1)
}

// request does one operation after another; the server of this test does nothing.
func (g *trip) request(ctx context.Context) error {
	if err := g.work.prepare(ctx); err != nil {
		return err
	}
	g.restart()
	var wr roce.SendWR
	for i := 0; g.more(i); i++ {
		g.work.fill(i, &wr)
		if err := g.post(ctx, i, &wr); err != nil {
			return err
		}
		g.count()
		if err := g.work.check(i); err != nil {
			return err
		}
	}
	return g.work.verify(ctx)
}

// pingPongSends sends a SEND back and forth. The client begins.
func (g *trip) pingPongSends(ctx context.Context) error {
	var wr roce.SendWR
	for sent, received := 0, 0; g.more(sent) || g.more(received); {
		if g.more(received) && (g.server || sent > 0) {
			if err := g.until(ctx, &g.received, received+1); err != nil {
				return err
			}
			received++
			g.count()
		}
		if g.more(sent) {
			g.work.fill(sent, &wr)
			if err := g.post(ctx, sent, &wr); err != nil {
				return err
			}
			sent++
		}
	}
	return nil
}

// pingPongWrites sends a WRITE back and forth. Its last byte is a counter. The server begins.
func (g *trip) pingPongWrites(ctx context.Context) error {
	wr := roce.SendWR{Opcode: roce.Write, RemoteAddr: g.remote.VAddr, RKey: g.remote.RKey}
	last := &g.message.Bytes()[g.size-1]
	for sent, received := 0, 0; g.more(sent) || g.more(received); {
		if g.more(received) && (!g.server || sent > 0) {
			if err := g.watch(ctx, byte(received+1), received); err != nil {
				return err
			}
			received++
		}
		if !g.more(sent) {
			continue
		}
		*last = byte(sent + 1)
		if g.size <= g.cfg.InlineSize {
			wr.Inline = g.message.Bytes()[:g.size]
		} else {
			wr.SG = append(wr.SG[:0], g.message.SGE(0, g.size))
		}
		if err := g.post(ctx, sent, &wr); err != nil {
			return err
		}
		sent++
		g.count()
	}
	return nil
}

// lateWrites is how long a WRITE of UC may take to arrive after its sender has closed the connection of the exchange. A WRITE of RC has
// arrived by then, because the sender waits for its acknowledgement.
const lateWrites = 2 * time.Second

// watch polls the last byte of the message until it has the value want. A WRITE makes no completion
// here.
func (g *trip) watch(ctx context.Context, want byte, received int) error {
	var got [1]byte
	arrived := func() (bool, error) {
		_, err := g.export.ReadAt(got[:], int64(g.size-1))
		return got[0] == want, err
	}
	var end time.Time // of the wait, after the peer has hung up
	for n := 1; ; n++ {
		if ok, err := arrived(); ok || err != nil {
			return errors.Join(err, g.intact(received))
		}
		if g.cfg.Poll {
			g.dev.Progress()
		} else {
			runtime.Gosched()
		}
		if err := g.spin(ctx); err != nil {
			return err
		}
		if err := g.overdue(); err != nil {
			return err
		}
		if n%1024 != 0 || !g.left() {
			continue
		}
		if ok, _ := arrived(); !ok { // the peer may have hung up after the last WRITE
			if g.cfg.Duration > 0 {
				return errOver
			}
			if end.IsZero() && g.cfg.Service != roce.RC {
				end = time.Now().Add(lateWrites)
			}
			if time.Now().Before(end) {
				continue
			}
			return fmt.Errorf("perftest: the peer hung up after %d WRITEs of %d: %w", received, g.cfg.Iters, io.ErrUnexpectedEOF)
		}
	}
}

// intact checks the bytes before the last one: they must be zeros, as perftest writes them.
func (g *trip) intact(i int) error {
	if !g.cfg.Check {
		return nil
	}
	got := make([]byte, g.size-1)
	if _, err := g.export.ReadAt(got, 0); err != nil {
		return err
	}
	for at, b := range got {
		// With all sizes the counter of an earlier size is among them.
		if b != 0 && !g.cfg.All {
			return fmt.Errorf("%w: WRITE %d of %d bytes has %#02x at %d, want 0", ErrMismatch, i, g.size, b, at)
		}
	}
	return nil
}

// left reports whether the peer has closed the connection of the exchange. It returns false if that is not known.
func (g *trip) left() bool {
	select {
	case <-g.gone:
		return true
	default:
		return false
	}
}

// lingering is how long a side lingers for a peer that did not receive its last acknowledgement.
const lingering = 5 * time.Second

// linger answers the retransmissions of the peer until it hangs up.
func (s *side) linger(ctx context.Context, ctl control) {
	left := make(chan struct{})
	go func() {
		ctl.linger(ctx, lingering)
		close(left)
	}()
	for {
		select {
		case <-left:
			return
		default:
		}
		if !s.cfg.Poll {
			<-left
			return
		}
		s.dev.Progress()
		runtime.Gosched()
	}
}
