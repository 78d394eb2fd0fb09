package nic

import (
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// watcher is a program that writes, polls for the completion, and then watches its memory for a WRITE of its peer.
type watcher struct {
	*testNIC
	t    *testing.T
	peer *mem.Port
	psn  bth.PSN // of the peer's next WRITE
	own  bth.PSN // of the program's next WRITE
}

func newWatcher(t *testing.T) *watcher {
	w := &watcher{testNIC: newTestNIC(t, qp.RecoverGoBack), t: t}
	var err error
	if w.peer, err = w.hub.Port("peer", frame.MAC{2, 2}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.peer.Close() })
	p := &w.shards[0].polling
	p.stalls.Store(maxStalls)
	p.prompt = maxAnswerScore
	return w
}

// send sends a packet of the peer without payload.
func (w *watcher) send(op bth.Opcode, psn bth.PSN, headers func(b []byte) int) {
	w.t.Helper()
	w.sendLong(op, psn, 0, headers)
}

func (w *watcher) sendLong(op bth.Opcode, psn bth.PSN, payload int, headers func(b []byte) int) {
	w.t.Helper()
	size := int(op.Info().HeaderLen) + payload + bth.ICRCLen
	body, crc, ok := w.peer.Begin(batchPath(w.t, batchPeer, batchOwn, 0), size)
	if !ok {
		w.t.Fatal("no room")
	}
	at := bth.PutBTH(body, op, bth.AckReq, 0, bth.DefaultPKey, w.qps[0].Num(), psn)
	headers(body[at:])
	end := len(body) - bth.ICRCLen
	bth.PutICRC(body[end:], crc.UpdateBody(body[:end]))
	w.peer.Commit()
	if err := w.peer.Flush(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watcher) write() {
	w.send(bth.RCWriteOnly, w.psn, func(b []byte) int { return bth.PutRETH(b, 0, 0, 0) })
	w.psn++
}

func (w *watcher) message() {
	w.send(bth.RCSendOnly, w.psn, func([]byte) int { return 0 })
	w.psn++
}

func (w *watcher) read() {
	w.send(bth.RCReadRequest, w.psn, func(b []byte) int { return bth.PutRETH(b, 0x1000, w.m.RKey(), 8) })
	w.psn++
}

// ack acknowledges the program's last WRITE.
func (w *watcher) ack() {
	w.send(bth.RCAck, w.own-1, func(b []byte) int { return bth.PutAETH(b, bth.AckNoCredits, 0) })
}

func (w *watcher) post() {
	w.t.Helper()
	if err := w.qps[0].Post(1, w.postWrite); err != nil {
		w.t.Fatal(err)
	}
	w.own++
}

func (w *watcher) postWrite(e *qp.QP) error {
	return e.PostSend(&qp.SendWR{Opcode: qp.Write, Flags: qp.Signaled, SG: []mr.SGE{w.m.SGE(0, 8)}})
}

// postUnsent posts without a doorbell.
func (w *watcher) postUnsent() {
	w.t.Helper()
	w.shards[0].mu.Lock()
	defer w.shards[0].mu.Unlock()
	if err := w.postWrite(w.qps[0].engine); err != nil {
		w.t.Fatal(err)
	}
}

// poll does what an empty poll does, and returns how many packets it has sent.
func (w *watcher) poll() int {
	s := w.shards[0]
	before := s.counters.SentPkts
	s.drive(w.testNIC.send, w.Now())
	return int(s.counters.SentPkts - before)
}

// A poll that finds the completion of the program's WRITE, and a WRITE of the peer with it or before it, does not wait for another
// packet. The acknowledgement waits for the program's answer, if the program usually answers at once.
func TestWatching(t *testing.T) {
	const lapsed, late, again = 1, 2, 4
	for _, test := range []struct {
		name  string
		polls [][]func(*watcher) // what the peer sends before each poll
		but   int
		sent  []int // acknowledgements by each poll
		hits  int
		holds bool // an acknowledgement waits
	}{
		{"acknowledgement and WRITE", [][]func(*watcher){{(*watcher).ack, (*watcher).write}}, 0, []int{0}, 1, true},
		{"WRITE and acknowledgement", [][]func(*watcher){{(*watcher).write, (*watcher).ack}}, 0, []int{0}, 1, true},
		{"WRITE first", [][]func(*watcher){{(*watcher).write}, {(*watcher).ack}}, 0, []int{1, 0}, 1, true},
		{"only the acknowledgement", [][]func(*watcher){{(*watcher).ack}}, 0, []int{0}, 0, false},
		{"only the WRITE", [][]func(*watcher){{(*watcher).write}}, 0, []int{1}, 0, false},
		{"lingering has lapsed", [][]func(*watcher){{(*watcher).ack, (*watcher).write}}, lapsed, []int{1}, 0, false},
		{"the program answers late", [][]func(*watcher){{(*watcher).ack, (*watcher).write}}, late, []int{1}, 1, false},
		{"the program has polled again", [][]func(*watcher){{(*watcher).ack, (*watcher).write}}, again, []int{1}, 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWatcher(t)
			w.write()
			w.poll() // a WRITE before the post is another one
			w.post()
			s := w.shards[0]
			p := &s.polling
			switch test.but {
			case lapsed:
				p.notYet = mono.Never
			case late:
				p.prompt = 0
			case again:
				s.deferred = true
			}
			for i, packets := range test.polls {
				for _, send := range packets {
					send(w)
				}
				if sent := w.poll(); sent != test.sent[i] {
					t.Errorf("poll %d sent %d packets, want %d", i, sent, test.sent[i])
				}
			}
			if p.hits != test.hits || s.deferred != test.holds || p.came && test.hits > 0 {
				t.Errorf("%d hits, holds %t; want %d, %t", p.hits, s.deferred, test.hits, test.holds)
			}
			if !test.holds {
				return
			}
			waiting := 1 - test.sent[0]
			before := s.counters.SentPkts
			w.post()
			if sent := int(s.counters.SentPkts - before); sent != 1+waiting || s.deferred {
				t.Errorf("the answer left with %d packets, want %d; deferred %t", sent, 1+waiting, s.deferred)
			}
		})
	}
}
