package verbs

import (
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

// The library learns the room of the send queue with each post.
func TestRoom(t *testing.T) {
	a, _ := pair(t, roce.RC) // its peer has posted no receive
	var attr abi.QPAttr
	var caps abi.Caps
	ok(t, QueryQP(a.qp, &attr, &caps))
	wr := abi.SendWR{Opcode: uint32(roce.Send), SG: a.sge(0, 10), NumSGE: 1}
	for i := range 3 {
		n, room, err := PostSend(a.qp, []abi.SendWR{wr}, 1)
		if want := int(caps.MaxSendWR) - 1 - i; n != 1 || err != nil || room != want {
			t.Errorf("post %d: %d posted, room %d of %d: %v", i, n, room, want, err)
		}
	}
	wr.Opcode = 99
	if n, room, err := PostSend(a.qp, []abi.SendWR{wr}, 1); n != 0 || room != 0 || err == nil {
		t.Errorf("a bad opcode: %d posted, room %d, %v", n, room, err)
	}
}

// The exit of the process posts what the library has.
func TestExitHandsOver(t *testing.T) {
	defer func() { HandOver = nil }()
	called := false
	HandOver = func(shard *roce.Collecting) { called = shard == nil }
	Exiting() // no device is open
	if !called {
		t.Error("not all shards were handed over")
	}
}
