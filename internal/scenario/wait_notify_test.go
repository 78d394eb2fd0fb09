package scenario_test

import (
	"sync/atomic"
	"testing"

	"github.com/goroce/roce"
)

// TestNotifyFunc: the function is called once for each event, including those that wait already.
// TryNext then returns the events without waiting.
func TestNotifyFunc(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newChanRig(t, false, 2)
		raise := func(i int) {
			t.Helper()
			check(t, r.b[i].cq.RequestNotify(false))
			r.send(i, 0)
		}
		var calls atomic.Int32
		count := func(n int) { calls.Add(int32(n)) }
		want := func(what string, n int32) {
			t.Helper()
			if got := calls.Swap(0); got != n {
				t.Errorf("%s: %d events, want %d", what, got, n)
			}
		}

		raise(0)
		r.channel.NotifyFunc(count)
		want("an event that waited", 1)
		raise(1)
		raise(0)
		want("two events", 2)
		for _, i := range []int{0, 1, 0} {
			if q, ok := r.channel.TryNext(); !ok || q != r.b[i].cq {
				t.Errorf("event of queue %v, %v, want %d", q, ok, i)
			}
		}
		r.channel.NotifyFunc(nil)
		raise(1)
		want("nobody asked", 0)

		// A WRITE beyond the memory is an event of the device.
		if e, ok := r.dev.TryNextEvent(); ok {
			t.Fatalf("event %v before any", e)
		}
		r.dev.NotifyFunc(count)
		r.a[0].post(roce.Write, 0, 100, r.b[0], 4090)
		r.a[0].waitFor(roce.StatusRemAccessErr)
		want("an asynchronous event", 1)
		if e, ok := r.dev.TryNextEvent(); !ok || e.Type != roce.EventAccessErr || e.QP != r.b[0].qp {
			t.Errorf("event %v, %v, want ACCESS_ERR of the queue pair", e, ok)
		}

		// Closing a completion queue removes its event.
		r.channel.TryNext() // the event from the time without a function
		r.channel.NotifyFunc(count)
		raise(1)
		want("an event", 1)
		check(t, r.b[1].qp.Close())
		check(t, r.b[1].cq.Close())
		want("its queue is closed", -1)
	})
}
