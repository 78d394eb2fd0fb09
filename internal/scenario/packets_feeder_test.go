package scenario_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// feeder is a port that receives the frames of a test, all in one batch, and keeps the sent frames.
type feeder struct {
	link.Port
	frames []link.Frame
	sent   [][]byte
	full   bool // has no room
}

func (f *feeder) Recv(fr []link.Frame) (int, error) {
	n := copy(fr, f.frames)
	f.frames = f.frames[n:]
	return n, nil
}

func (f *feeder) Begin(p *frame.Path, n int) ([]byte, bth.CRC, bool) {
	if f.full {
		return nil, 0, false
	}
	return f.Port.Begin(p, n)
}

func (f *feeder) Commit() {
	f.sent = append(f.sent, bytes.Clone(f.Port.Lent()))
	f.Port.Commit()
}

// TestStrangersRun: packets of a stranger that are like each other are all refused, not
// just the first of them.
func TestStrangersRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		c := n.config("10.0.0.1")
		c.Polled = true
		port := &feeder{Port: c.Ports[0]}
		c.Ports[0] = port
		d := n.open(c)
		p := newPeer(t, d, 100)
		check(t, p.qp.Connect(t.Context(), roce.Peer{AHAttr: roce.AHAttr{DGID: bth.GIDFrom(netip.MustParseAddr("10.0.0.2"))},
			QPN: 0x42, PSN: 7, MTU: bth.MTU1024, RdAtomic: 1}, p.psn))
		for i := range 16 {
			p.recv(4*i, 4)
		}
		evil := newAttacker(n, d)
		mallory := evil.path("10.0.0.66")
		const run = 12
		for i := range run {
			b := make([]byte, mallory.HeaderLen(port.Info().Layout)+bth.BTHLen+4+bth.ICRCLen)
			body, crc := mallory.Put(b, port.Info().Layout, bth.BTHLen+4+bth.ICRCLen, uint16(i))
			bth.PutBTH(body, bth.RCSendOnly, bth.AckReq, 0, bth.DefaultPKey, p.qp.Num(), 7)
			copy(body[bth.BTHLen:], "evil")
			bth.PutICRC(body[bth.BTHLen+4:], crc.UpdateBTH(body[:bth.BTHLen]).Update(body[bth.BTHLen:bth.BTHLen+4]))
			port.frames = append(port.frames, link.Frame{Data: b})
		}
		d.Progress()
		if got := d.Counters(); got.WrongPeer != run || got.RcvdPkts != 0 {
			t.Errorf("%d packets refused, %d taken, want %d and 0", got.WrongPeer, got.RcvdPkts, run)
		}
		var wc [1]roce.WC
		if n := p.cq.Poll(wc[:]); n != 0 {
			t.Errorf("received %q of a stranger", p.buf[:wc[0].ByteLen])
		}
	})
}
