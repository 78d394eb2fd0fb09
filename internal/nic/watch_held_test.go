package nic

import (
	"testing"

	"github.com/goroce/roce/bth"
)

// A READ of a peer that comes with the acknowledgement is no WRITE for which the program watches. Its response does not wait for
// the program's next post.
func TestWatchingPeersRead(t *testing.T) {
	w := newWatcher(t)
	w.post()
	w.ack()
	w.send(bth.RCReadRequest, w.psn, func(b []byte) int { return bth.PutRETH(b, 0x1000, w.m.RKey(), 8) })
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
