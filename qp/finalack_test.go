package qp_test

import (
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// endings are the ways in which a queue pair stops answering, except that it refuses a request.
var endings = map[string]func(*bench){
	"reset": func(b *bench) { must(0, b.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState)) },
	"error": func(b *bench) { must(0, b.Modify(&qp.Attr{State: qp.Err}, qp.AttrState)) },
	"its requests fail": func(b *bench) {
		b.post(qp.SendWR{Opcode: qp.Send, Inline: []byte("refused")})
		psn := b.out[len(b.out)-1].PSN()
		b.out = b.out[:len(b.out)-1]
		b.inject(nak(bth.NAKInvalidRequest, psn))
		b.wantState(qp.Err)
	},
}

// TestFinalAck: a queue pair that ends acknowledges the message that its program has, and twice more, because a requester
// of rxe that is still repeating the message needs a later acknowledgement.
func TestFinalAck(t *testing.T) {
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			b := withholding(t)
			end(b)
			b.collect()
			if out := b.sent(); len(out) != 1 || out[0].PSN() != e0.Add(3) || out[0].MSN() != 1 || out[0].DestQPN() != b.peer.Num() || !b.Owes() {
				t.Fatalf("sent %v", summary(out))
			}
			b.after(100 * us)
			must(0, b.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState)) // the owner destroys it
			b.collect()
			b.wantSilence()
			if at := b.silences(e0.Add(3)); !slices.Equal(at, []time.Duration{150 * us, 1150 * us}) {
				t.Errorf("repeated after %v", at)
			}
			if b.Owes() {
				t.Error("it still has something to send")
			}
		})
	}
}

// TestFinalAckRoom: a link without room delays the last acknowledgement.
func TestFinalAckRoom(t *testing.T) {
	b := withholding(t)
	b.room, b.used = 1, 1
	must(0, b.Modify(&qp.Attr{State: qp.Err}, qp.AttrState))
	if !b.Emit(b.net.now, b) {
		t.Error("nothing is left to send")
	}
	b.wantSilence()
	b.room = 0
	b.collect()
	b.wantAck(bth.AckNoCredits, e0.Add(3))
}

// TestFinalAckOver: nothing is repeated when the queue pair gets a new peer, and no acknowledgement follows if all is
// acknowledged or a request was refused.
func TestFinalAckOver(t *testing.T) {
	reset := func(b *bench) {
		endings["reset"](b)
		b.collect()
	}
	t.Run("new peer", func(t *testing.T) {
		b := withholding(t)
		reset(b)
		b.wantAck(bth.AckNoCredits, e0.Add(3))
		must(0, b.Modify(&qp.Attr{State: qp.Init, Port: 1, Access: mr.RemoteWrite}, qp.AttrState|required[qp.RC][[2]qp.State{qp.Reset, qp.Init}]))
		if b.Owes() || b.NextTimeout() != mono.Never {
			t.Error("the acknowledgement for the old peer is repeated")
		}
	})
	t.Run("acknowledged", func(t *testing.T) {
		b := withholding(t)
		b.inject(packet{op: bth.RCWriteLast, psn: e0.Add(3), payload: make([]byte, 1024), ack: true})
		b.wantAck(bth.AckNoCredits, e0.Add(3))
		reset(b)
		b.wantSilence()
	})
	t.Run("refused", func(t *testing.T) {
		b := withholding(t)
		b.inject(packet{op: bth.RCWriteMiddle, psn: e0.Add(4), payload: make([]byte, 1024)})
		b.wantAck(bth.NAKInvalidRequest, e0.Add(4))
		reset(b)
		b.wantSilence()
	})
}
