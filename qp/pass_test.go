package qp_test

import (
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/qp"
)

// TestPassOfOldPath: a packet like the one before is not compared with the peer again. This ends when the queue pair
// gets another path or another peer: the next packet over the old path is refused.
func TestPassOfOldPath(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*mover)
		wrong  uint64 // of two more packets over the old path
	}{
		{"no change", func(*mover) {}, 0},
		{"SQD, another path", func(v *mover) {
			must(0, v.Modify(&qp.Attr{State: qp.SQD}, qp.AttrState))
			must(0, v.Modify(&qp.Attr{AV: qp.NewAH(over(v.node, v.peer, 79))}, qp.AttrAV))
		}, 2},
		{"RESET, another peer", func(v *mover) {
			must(0, v.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState))
			v.path = over(v.node, v.peer, 79)
			walk(t, v.node, qp.RTS)
		}, 2},
		{"RESET", func(v *mover) { must(0, v.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState)) }, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newMover(t, qp.Migrated, pairConfig{})
			e := v.peerPrimary.Envelope()
			e.IDSeen = true
			var p frame.Packet
			body := func() []byte {
				d := packet{op: bth.RCSendOnly, psn: v.expect, moved: true}
				v.expect = v.expect.Add(1)
				return build(t, v.peerPrimary, v.Num(), d).Data
			}
			must(0, p.ParseBody(body(), &e, 0))
			v.HandlePacket(1, &p)
			next := func() {
				if !p.Next(body(), &e, 0) {
					t.Fatal("not like the one before")
				}
				v.HandlePacket(1, &p)
			}
			next()
			if n := len(drain(v.recv)); n != 2 || v.cnt.WrongPeer != 0 {
				t.Fatalf("%d receives, %d refused before the change", n, v.cnt.WrongPeer)
			}
			c.change(v)
			rcvd := v.cnt.RcvdPkts
			next()
			next()
			if v.cnt.WrongPeer != c.wrong || v.cnt.RcvdPkts != rcvd+2-c.wrong {
				t.Errorf("%d packets refused, %d taken; want %d of 2 refused", v.cnt.WrongPeer, v.cnt.RcvdPkts-rcvd, c.wrong)
			}
		})
	}
}
