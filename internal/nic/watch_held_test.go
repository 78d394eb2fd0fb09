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
		what  string
		waits bool // all that is due waits
		comes func(w *watcher)
	}{
		{"a message", true, (*watcher).message},
		{"a message and WRITEs", true, func(w *watcher) { w.message(); w.write(); w.write() }},
		{"a message and a READ", false, func(w *watcher) { w.message(); w.read() }},
		{"a READ and a message", false, func(w *watcher) { w.read(); w.message() }},
		{"a message, and one behind a lost one", false, func(w *watcher) { w.message(); w.psn++; w.message() }},
		{"a message, while a request waits", false, func(w *watcher) { w.message(); w.postUnsent() }},
		{"a message and a connection to a DC target", false, func(w *watcher) { w.message(); w.connectTarget() }},
		{"a WRITE", true, (*watcher).watched},
		{"a WRITE and a READ", false, func(w *watcher) { w.watched(); w.read() }},
		{"a READ and a WRITE", false, func(w *watcher) { w.read(); w.watched() }},
		{"a WRITE, and one behind a lost one", false, func(w *watcher) { w.watched(); w.psn++; w.write() }},
		{"a WRITE and a connection to a DC target", false, func(w *watcher) { w.watched(); w.connectTarget() }},
	} {
		t.Run(test.what, func(t *testing.T) {
			w := newWatcher(t)
			w.shards[0].polling.stalls.Store(0)
			for range 4 {
				if err := w.qps[0].Post(1, func(e *qp.QP) error { return e.PostRecv(&qp.RecvWR{}) }); err != nil {
					t.Fatal(err)
				}
			}
			test.comes(w)
			if sent := w.poll(); (sent == 0) != test.waits {
				t.Errorf("%d packets left before the program's next post, all waits: want %t", sent, test.waits)
			}
		})
	}
}

// watched sends the WRITE for which the program watches, with the acknowledgement of the program's own.
func (w *watcher) watched() {
	w.shards[0].polling.stalls.Store(maxStalls)
	w.post()
	w.ack()
	w.write()
}
