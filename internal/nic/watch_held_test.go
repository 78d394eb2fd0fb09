package nic

import (
	"testing"

	"github.com/goroce/roce/qp"
)

// A READ of a peer that comes with the acknowledgement is no WRITE for which the program watches. Its response does not wait for
// the program's next post.
func TestWatchingPeersRead(t *testing.T) {
	w := newWatcher(t)
	w.post()
	w.ack()
	w.read()
	s := w.shards[0]
	if sent := w.poll(); sent == 0 {
		t.Errorf("the response waits for the program's next post (deferred %t), %d hits", s.deferred, s.polling.hits)
	}
}

// The WRITE for which the program watches is lost, and the next one comes with the acknowledgement. The NAK must leave at once: the
// program does not post before it has the lost WRITE.
func TestWatchingNAK(t *testing.T) {
	w := newWatcher(t)
	w.post()
	w.ack()
	w.psn++ // lost
	w.write()
	s := w.shards[0]
	if sent := w.poll(); sent == 0 {
		t.Errorf("the NAK waits for the program's next post (deferred %t), %d hits", s.deferred, s.polling.hits)
	}
}

// What comes in one batch with a message, or with the WRITE for which the program watches, and needs more than an acknowledgement, does not
// wait for the program's next post, although the program usually answers at once.
func TestMessageAndMore(t *testing.T) {
	for _, test := range []struct {
		what    string
		waits   bool // all that is due waits
		message bool // a SEND; false: the WRITE for which the program watches
		more    func(w *watcher)
	}{
		{"a message", true, true, func(*watcher) {}},
		{"a message and WRITEs", true, true, func(w *watcher) { w.write(); w.write() }},
		{"a message and a READ", false, true, (*watcher).read},
		{"a message, and one behind a lost one", false, true, func(w *watcher) { w.psn++; w.message() }},
		{"a message, while a request waits", false, true, (*watcher).postUnsent},
		{"a WRITE", true, false, func(*watcher) {}},
		{"a WRITE and a READ", false, false, (*watcher).read},
		{"a WRITE, and one behind a lost one", false, false, func(w *watcher) { w.psn++; w.write() }},
	} {
		t.Run(test.what, func(t *testing.T) {
			w := newWatcher(t)
			s := w.shards[0]
			for range 4 {
				if err := w.qps[0].Post(1, func(e *qp.QP) error { return e.PostRecv(&qp.RecvWR{}) }); err != nil {
					t.Fatal(err)
				}
			}
			if test.message {
				s.polling.stalls.Store(0)
				w.message()
			} else {
				w.post()
				w.ack()
				w.write()
			}
			test.more(w)
			if sent := w.poll(); (sent == 0) != test.waits {
				t.Errorf("%d packets left before the program's next post, all waits: want %t", sent, test.waits)
			}
		})
	}
}
