package perftest

import (
	"context"
	"fmt"
	"time"

	"github.com/goroce/roce"
)

// run posts n work requests, TxDepth of them at a time, and says when each was
// posted and completed.
func (e *end) run(ctx context.Context, n int, w work) (posted, completed []time.Duration, err error) {
	posted, completed = make([]time.Duration, 0, n), make([]time.Duration, 0, n)
	start := time.Now()
	var wr roce.SendWR
	var wcs [16]roce.WC
	for len(completed) < n {
		for len(posted) < n && len(posted)-len(completed) < e.cfg.TxDepth {
			i := len(posted)
			w.fill(i, &wr)
			wr.ID = uint64(i)
			posted = append(posted, time.Since(start))
			if err := e.qp.PostSend(&wr); err != nil {
				return nil, nil, err
			}
		}
		got := e.cq.Poll(wcs[:])
		if got == 0 {
			if err := e.cq.Wait(ctx); err != nil {
				return nil, nil, err
			}
		}
		for _, wc := range wcs[:got] {
			i := len(completed)
			if err := wc.Status.Err(); err != nil {
				return nil, nil, fmt.Errorf("perftest: message %d of %d: %w", wc.ID, n, err)
			}
			if wc.ID != uint64(i) {
				return nil, nil, fmt.Errorf("%w: message %d completes when %d is due", ErrMismatch, wc.ID, i)
			}
			completed = append(completed, time.Since(start))
			if err := w.check(i); err != nil {
				return nil, nil, err
			}
		}
	}
	return posted, completed, nil
}
