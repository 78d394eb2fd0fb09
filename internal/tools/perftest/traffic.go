package perftest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goroce/roce"
)

// work is the sending part of a test on one queue pair.
type work interface {
	// prepare and verify run before and after the measurement.
	prepare(ctx context.Context) error
	verify(ctx context.Context) error
	// fill makes work request i; check compares the data that it has returned.
	fill(i int, wr *roce.SendWR)
	check(i int) error
}

// service is the part of the other end.
type service interface {
	// verify compares the memory after the test.
	verify(r Report) error
}

// sender is the sending half of a queue pair.
type sender struct {
	e                 *end
	work              work
	posted, completed int
	wrs               []roce.SendWR // posted together; kept to reuse their SG lists
	waits             bool          // it is in traffic.ready
}

// room reports whether the TX depth allows n more messages in flight.
func (s *sender) room(n int) bool { return s.posted-s.completed+n <= s.e.cfg.TxDepth }

// post posts the next n messages. Every CQMod-th message is signaled, and so is the last of iters;
// iters is 0 if there is a duration.
func (s *sender) post(n, iters int) error {
	if len(s.wrs) < n {
		s.wrs = make([]roce.SendWR, n)
	}
	wrs := s.wrs[:n]
	for k := range wrs {
		i, wr := s.posted+k, &wrs[k]
		s.work.fill(i, wr)
		wr.ID = s.e.sendID(i)
		if wr.Flags = 0; (i+1)%s.e.cfg.CQMod == 0 || i+1 == iters {
			wr.Flags = roce.Signaled
		}
	}
	s.posted += n
	if n == 1 {
		return s.e.qp.PostSend(&wrs[0])
	}
	_, err := s.e.qp.PostSends(wrs)
	return err
}

// complete handles the completion of message i, which also completes those before it. It returns how
// many messages that are.
func (s *sender) complete(i int) (n int, err error) {
	if i < s.completed || i >= s.posted {
		return 0, fmt.Errorf("%w: message %d completes when one from %d to %d is due", ErrMismatch, i, s.completed, s.posted-1)
	}
	n = i + 1 - s.completed
	for ; s.completed <= i; s.completed++ {
		if err := s.work.check(s.completed); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// traffic is one measurement: all messages of all queue pairs.
type traffic struct {
	*side
	send  []*sender   // nil: this side does not send
	recv  []*receives // nil: this side does not receive
	iters int         // messages of a queue pair, unless there is a duration
	hold  bool        // this side must not send before it has received the first message

	clock                     stopwatch
	sent, completed, received int
	sampled                   int             // between the margins of the duration
	first, last               time.Duration   // first post or receive, last completion
	posts, completions        []time.Duration // of each message sent, to compute the peak

	// The queue pairs with work to do, so that fill and take visit no others.
	ready   []*sender   // may post
	touched []*receives // have received
}

// lossTimeout is how long a side waits for the next message of an unreliable service. perftest waits
// for a minute.
const lossTimeout = 20 * time.Second

// run measures and returns the result.
func (t *traffic) run(ctx context.Context) (Report, error) {
	peak := !t.cfg.NoPeak && t.send != nil && t.iters*len(t.send) <= maxPeak
	if peak {
		n := t.iters * len(t.send)
		t.posts, t.completions = make([]time.Duration, 0, n), make([]time.Duration, 0, n)
	}
	t.clock = stopwatch{duration: t.cfg.Duration, margin: t.cfg.Margin}
	t.clock.base = time.Now()
	for _, s := range t.send {
		t.wake(s)
	}
	if t.send != nil && !t.hold {
		t.clock.start()
	}
	for !t.done() {
		if !t.hold {
			if err := t.fill(); err != nil {
				return Report{}, err
			}
		}
		wcs, err := t.wait(ctx)
		if err != nil {
			return Report{}, err
		}
		if err := t.take(wcs); err != nil {
			return Report{}, err
		}
	}
	return t.report(), nil
}

func (t *traffic) report() Report {
	if t.cfg.Duration > 0 {
		return plainReport(t.cfg, t.size, t.sampled, t.clock.sample())
	}
	if t.send == nil {
		return plainReport(t.cfg, t.size, t.received, t.last-t.first)
	}
	r := plainReport(t.cfg, t.size, t.completed, t.last-t.first)
	if t.posts != nil {
		r.Peak = max(r.Average, t.cfg.bandwidth(float64(t.size), peak(t.posts, t.completions)))
	}
	return r
}

// done reports whether everything is sent and received, or the duration has ended.
func (t *traffic) done() bool {
	if t.cfg.Duration > 0 {
		return t.clock.over()
	}
	return t.completed == t.iters*len(t.send) && t.received == t.iters*len(t.recv)
}

// wake adds a queue pair to those that fill visits.
func (t *traffic) wake(s *sender) {
	if !s.waits {
		s.waits = true
		t.ready = append(t.ready, s)
	}
}

// fill posts as many messages as the TX depth allows.
func (t *traffic) fill() error {
	list, limit := t.cfg.PostList, t.iters
	if t.cfg.Duration > 0 {
		limit = 0
	}
	for _, s := range t.ready {
		s.waits = false
		for (limit == 0 || s.posted < limit) && s.room(list) {
			if t.posts != nil {
				now := t.clock.since()
				for range list {
					t.posts = append(t.posts, now)
				}
			}
			if t.sent == 0 {
				t.first = t.clock.since()
			}
			t.sent += list
			if err := s.post(list, limit); err != nil {
				return err
			}
		}
	}
	t.ready = t.ready[:0]
	return nil
}

// wait polls until a completion comes or the duration ends. For messages of an unreliable service it
// waits no longer than lossTimeout.
func (t *traffic) wait(ctx context.Context) ([]roce.WC, error) {
	lossy := t.cfg.Duration == 0 && t.cfg.Service != roce.RC && t.received > 0
	until := t.clock.end()
	if lossy {
		until = t.clock.base.Add(t.last + lossTimeout)
	}
	if until.IsZero() || t.spinning() && !lossy {
		return t.poll(ctx)
	}
	own, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	wcs, err := t.poll(own)
	switch {
	case err == nil || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
		return wcs, err
	case lossy:
		return nil, fmt.Errorf("perftest: %d of %d messages have been received, and then none for %v: %v repeats nothing; try a larger -r or a smaller -n",
			t.received, t.iters*len(t.recv), lossTimeout, t.cfg.Service)
	}
	return nil, nil
}

// take handles completions.
func (t *traffic) take(wcs []roce.WC) error {
	if len(wcs) == 0 {
		return nil
	}
	sampling := t.clock.sampling()
	now := t.clock.since()
	before := t.completed + t.received
	for i := range wcs {
		wc := &wcs[i]
		if err := wc.Status.Err(); err != nil {
			return fmt.Errorf("perftest: %s %d on queue pair %d, after %d sent and %d received: %w", kindOf(wc.ID), indexOf(wc.ID), laneOf(wc.ID), t.completed, t.received, err)
		}
		if wc.ID&recvFlag != 0 {
			if t.received == 0 && t.send == nil {
				t.first = now // as in perftest, the measurement starts with the first message
			}
			t.received++
			if t.hold || t.send == nil && t.received == 1 {
				t.hold = false
				t.clock.start()
			}
			r := t.recv[laneOf(wc.ID)]
			if r.empty == 0 {
				t.touched = append(t.touched, r)
			}
			if err := r.take(*wc); err != nil {
				return err
			}
			continue
		}
		s := t.send[laneOf(wc.ID)]
		n, err := s.complete(indexOf(wc.ID))
		if err != nil {
			return err
		}
		t.wake(s)
		t.completed += n
		for range n {
			if t.posts != nil {
				t.completions = append(t.completions, now)
			}
		}
	}
	for _, r := range t.touched {
		if err := r.refill(); err != nil {
			return err
		}
	}
	t.touched = t.touched[:0]
	if sampling {
		t.sampled += t.completed + t.received - before
	}
	t.last = now
	return nil
}

// kindOf returns what completed, for errors.
func kindOf(id uint64) string {
	if id&recvFlag != 0 {
		return "receive"
	}
	return "message"
}

// run sends n messages on one queue pair that are not measured.
func (e *end) run(ctx context.Context, n int, w work) error {
	s := &sender{e: e, work: w}
	for s.completed < n {
		for s.posted < n && s.room(1) {
			if err := s.post(1, n); err != nil {
				return err
			}
		}
		wcs, err := e.poll(ctx)
		if err != nil {
			return err
		}
		for _, wc := range wcs {
			if err := wc.Status.Err(); err != nil {
				return fmt.Errorf("perftest: message %d of %d: %w", indexOf(wc.ID), n, err)
			}
			if _, err := s.complete(indexOf(wc.ID)); err != nil {
				return err
			}
		}
	}
	return nil
}
