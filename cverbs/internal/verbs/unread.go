package verbs

import (
	"sync"

	"github.com/goroce/roce"
)

// place is a queue pair number at a device.
type place struct {
	dev *roce.Device
	num roce.QPN
}

// queuePairs are the queue pairs of the process by place, as *queuePair.
var queuePairs sync.Map

// Unread returns a function that reports whether the program has yet to poll completions that wait now in the completion
// queues of a queue pair; nil if the process has no such queue pair. It takes no lock.
func Unread(d *roce.Device, num roce.QPN) (still func() bool) {
	found, ok := queuePairs.Load(place{d, num})
	if !ok {
		return nil
	}
	q := found.(*queuePair)
	send, recv := q.send.unread(), q.recv.unread()
	return func() bool { return send() || recv() }
}

// unread is Unread for one queue; nil: there is none.
func (q *completionQueue) unread() (still func() bool) {
	if q == nil {
		return func() bool { return false }
	}
	end := q.cq.Pushed()
	return func() bool { return q.gone.Load() < end }
}
