package qp_test

import (
	"testing"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/qp"
)

// An initiator that has lingered owes a DISCONNECT, although it has no requests.
func TestOwesDisconnect(t *testing.T) {
	w := newDCWorld(3, impairment{})
	d := w.target(t, qp.DCTConfig{}, 64)
	d.post(t, 8)
	n := w.initiator(t, nil)
	if err := n.PostSend(w.to(n, d, qp.SendWR{ID: 1, Opcode: qp.Send})); err != nil {
		t.Fatal(err)
	}
	if wc := w.completions(t, n, 1)[0]; wc.Status != cq.Success {
		t.Fatal(wc.Status)
	}
	w.idle(qp.DCLinger / 2)
	if !n.OwesOnlyACK() {
		t.Error("an idle initiator owes something")
	}
	n.HandleTimeout(n.NextTimeout())
	if n.OwesOnlyACK() {
		t.Error("an initiator that leaves owes nothing")
	}
}
