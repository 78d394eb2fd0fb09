package nic

import (
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// postOp posts an operation with n bytes. psns is how many PSNs it takes.
func (w *watcher) postOp(op qp.Opcode, flags qp.SendFlags, n, psns int) {
	w.t.Helper()
	err := w.qps[0].Post(1, func(e *qp.QP) error {
		return e.PostSend(&qp.SendWR{Opcode: op, Flags: flags, SG: []mr.SGE{w.m.SGE(0, n)}})
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.own = w.own.Add(psns)
}

// respond sends the n packets of 1024 bytes of the response to the program's last READ.
func (w *watcher) respond(n int) {
	w.t.Helper()
	for i := range n {
		op := bth.RCReadResponseMiddle
		switch {
		case n == 1:
			op = bth.RCReadResponseOnly
		case i == 0:
			op = bth.RCReadResponseFirst
		case i == n-1:
			op = bth.RCReadResponseLast
		}
		w.sendLong(op, w.own.Add(i-n), 1024, func(b []byte) int {
			if op == bth.RCReadResponseMiddle {
				return 0
			}
			return bth.PutAETH(b, bth.AckNoCredits, 0)
		})
	}
}

// The response to a READ is several packets, and no WRITE. The poll must linger for the WRITE, as with a response of one packet.
func TestWatchingLongRead(t *testing.T) {
	for _, packets := range []int{1, 3} {
		w := newWatcher(t)
		w.postOp(qp.Read, qp.Signaled, packets*1024, packets)
		w.respond(packets)
		w.poll()
		if n := w.drain(); n != 1 {
			t.Fatalf("%d completions", n)
		}
		if hits := w.shards[0].polling.hits; hits != 0 {
			t.Errorf("a READ with a response of %d packets counts as %d WRITEs of the peer", packets, hits)
		}
	}
	w := newWatcher(t)
	for range 100 {
		w.postOp(qp.Read, qp.Signaled, 3*1024, 3)
		w.respond(3)
		w.poll()
		w.drain()
	}
	if w.shards[0].polling.lingers.Load() {
		t.Errorf("no WRITE has ever come, but polls linger with success: the background goroutine pauses while the program watches (%d hits)", w.shards[0].polling.hits)
	}
}

// The acknowledgement of an unsignaled WRITE has no completion, and is no WRITE of the peer.
func TestWatchingUnsignaled(t *testing.T) {
	w := newWatcher(t)
	w.postOp(qp.Write, 0, 8, 1)
	w.postOp(qp.Write, qp.Signaled, 8, 1)
	ack := func(psn bth.PSN) {
		w.send(bth.RCAck, psn, func(b []byte) int { return bth.PutAETH(b, bth.AckNoCredits, 0) })
	}
	ack(w.own.Add(-2))
	w.poll()
	ack(w.own.Add(-1))
	w.poll()
	if n := w.drain(); n != 1 {
		t.Fatalf("%d completions", n)
	}
	if hits := w.shards[0].polling.hits; hits != 0 {
		t.Errorf("the acknowledgement of an unsignaled WRITE counts as a WRITE of the peer: %d hits", hits)
	}
}

// PostAll is a post: a WRITE that came before it is another one than the program watches for.
func TestWatchingPostAll(t *testing.T) {
	w := newWatcher(t)
	w.write()
	w.poll() // a WRITE before the post is another one
	_, err := w.shards[0].PostAll([]*QP{w.qps[0]}, func() (int, error) {
		return 0, w.qps[0].engine.PostSend(&qp.SendWR{Opcode: qp.Write, Flags: qp.Signaled, SG: []mr.SGE{w.m.SGE(0, 8)}})
	})
	if err != nil {
		t.Fatal(err)
	}
	w.own++
	w.ack()
	w.poll()
	if hits := w.shards[0].polling.hits; hits != 0 {
		t.Errorf("%d hits by the completion of a task, without a WRITE", hits)
	}
}
