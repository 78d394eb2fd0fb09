package verbs

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/eventcount"
	"github.com/goroce/roce/cverbs/internal/translate"
)

// channel is a completion channel.
type channel struct {
	base
	ch *roce.CompChannel
}

// CreateChannel is ibv_create_comp_channel. Each event adds 1 to the eventfd.
func CreateChannel(ctx abi.Handle, fd int) (abi.Handle, error) {
	c, err := find[*Context](ctx)
	if err != nil {
		return 0, err
	}
	ch, err := c.roce.CreateCompChannel()
	if err != nil {
		return 0, err
	}
	ch.NotifyFunc(func(n int) { eventcount.Add(fd, n) })
	return c.adopt(&channel{base{ctx: c}, ch})
}

// DestroyChannel is ibv_destroy_comp_channel.
func DestroyChannel(ch abi.Handle) error { return destroy[*channel](ch) }

func (c *channel) close() error {
	if err := c.ch.Close(); err != nil {
		return err
	}
	c.ch.NotifyFunc(nil) // the descriptor's number may be reused soon
	return nil
}

// ChannelEvent takes the oldest event of a channel and returns the cookie of its queue; EAGAIN
// if there is none.
func ChannelEvent(ch abi.Handle) (cookie uint64, err error) {
	c, err := find[*channel](ch)
	if err != nil {
		return 0, err
	}
	q, ok := c.ch.TryNext()
	if !ok {
		return 0, syscall.EAGAIN
	}
	return q.UserData().(*completionQueue).cookie, nil
}

// pollBatch is how many completions one poll takes.
const pollBatch = 32

// completionQueue is a completion queue.
type completionQueue struct {
	base
	cq *roce.CQ

	mu   sync.Mutex
	wcs  [pollBatch]roce.WC // buffer of Poll
	kept []abi.WC           // completions older than those of cq: see drop
	gone atomic.Uint64      // completions that the program has polled, or that were dropped
}

// CreateCQ is ibv_create_cq.
func CreateCQ(ctx abi.Handle, cqe uint32, ch abi.Handle, vector uint32, cookie uint64) (h abi.Handle, got uint32, err error) {
	c, err := find[*Context](ctx)
	if err != nil {
		return 0, 0, err
	}
	comp, err := findOptional[*channel](ch)
	if err != nil {
		return 0, 0, err
	}
	q := &completionQueue{base: base{ctx: c, cookie: cookie}}
	config := roce.CQConfig{Entries: int(min(cqe, math.MaxInt32)), Shard: int(min(vector, math.MaxInt32)), UserData: q}
	if comp != nil {
		config.Channel = comp.ch
	}
	if q.cq, err = c.roce.CreateCQWith(config); err != nil {
		return 0, 0, err
	}
	h, err = c.adopt(q)
	return h, uint32(q.cq.Cap()), err
}

// ResizeCQ is ibv_resize_cq.
func ResizeCQ(cq abi.Handle, cqe uint32) (got uint32, err error) {
	q, err := find[*completionQueue](cq)
	if err != nil {
		return 0, err
	}
	if err := q.cq.Resize(int(min(cqe, math.MaxInt32))); err != nil {
		return 0, err
	}
	return uint32(q.cq.Cap()), nil
}

// DestroyCQ is ibv_destroy_cq.
func DestroyCQ(cq abi.Handle) error { return destroy[*completionQueue](cq) }

func (q *completionQueue) close() error {
	if err := q.cq.Close(); err != nil {
		return err
	}
	q.forget()
	return nil
}

// PollCQ takes up to len(out) completions and returns how many.
func PollCQ(cq abi.Handle, out []abi.WC) (int, error) {
	q, err := find[*completionQueue](cq)
	if err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.poll(out)
	if n > 0 {
		q.gone.Add(uint64(n))
	}
	return n, nil
}

// poll takes completions with the queue locked.
func (q *completionQueue) poll(out []abi.WC) (n int) {
	if len(q.kept) > 0 {
		n = copy(out, q.kept)
		q.kept = q.kept[n:]
	}
	for n < len(out) {
		wcs := q.wcs[:min(len(out)-n, pollBatch)]
		got := q.cq.Poll(wcs)
		for i := range got {
			translate.WC(&out[n+i], &wcs[i])
		}
		if n += got; got < len(wcs) {
			break
		}
	}
	return n
}

// drop removes the completions of a queue pair that is reset or destroyed. rxe leaves them; the libraries of
// adapters remove them, and programs rely on an empty queue after a reset.
func (q *completionQueue) drop(qpn uint32) {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []abi.WC
	batch := make([]abi.WC, pollBatch)
	for limit := q.cq.Cap() + len(q.kept); len(all) < limit; { // the limit ends the loop if others add as fast
		n := q.poll(batch)
		all = append(all, batch[:n]...)
		if n < len(batch) {
			break
		}
	}
	left := slices.DeleteFunc(all, func(wc abi.WC) bool { return wc.QPN == qpn })
	q.gone.Add(uint64(len(all) - len(left)))
	q.kept = append(left, q.kept...)
}

// RequestNotify is ibv_req_notify_cq. It does nothing for a queue without a channel.
func RequestNotify(cq abi.Handle, solicitedOnly bool) error {
	q, err := find[*completionQueue](cq)
	if err != nil {
		return err
	}
	if q.cq.Channel() == nil {
		return nil // as the kernel
	}
	return q.cq.RequestNotify(solicitedOnly)
}
