package capcheck

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/internal/tools/ladder"
)

// dcPackets makes packets between initiators of 10.0.0.1 and target 0x40 of 10.0.0.2.
type dcPackets struct {
	t    *testing.T
	num  int
	draw *Drawing
}

// add adds a packet from one end to the other.
func (c *dcPackets) add(from, to string, dest bth.QPN, f bth.Fields) {
	c.t.Helper()
	path, err := frame.NewPath(frame.PathConfig{Src: bth.GIDFrom(netip.MustParseAddr(from)), Dst: bth.GIDFrom(netip.MustParseAddr(to)), SrcPort: 0xC000, HopLimit: 64})
	if err != nil {
		c.t.Fatal(err)
	}
	f.BTH.PKey, f.BTH.DestQPN = bth.DefaultPKey, dest
	payload := f.Append(nil)
	b := make([]byte, path.HeaderLen(frame.LayoutEthernet)+len(payload)+bth.ICRCLen)
	body, crc := path.Put(b, frame.LayoutEthernet, len(payload)+bth.ICRCLen, 1)
	copy(body, payload)
	bth.PutICRC(body[len(payload):], crc.UpdateBody(payload))
	c.num++
	p := &dissect.Packet{Num: c.num, At: time.Duration(c.num) * time.Microsecond, Len: len(b)}
	if p.Parse(b, frame.LayoutEthernet); p.Kind != dissect.RoCE || !p.ICRCOK {
		c.t.Fatalf("packet %d is bad: %+v", c.num, p)
	}
	if err := c.draw.Add(p); err != nil {
		c.t.Fatal(err)
	}
}

// request adds a packet of an initiator.
func (c *dcPackets) request(op bth.Opcode, initiator bth.QPN, psn bth.PSN, number uint32) {
	c.t.Helper()
	f := bth.Fields{BTH: bth.BTHFields{Op: op, PSN: psn}, DCETH: &bth.DCETHFields{QPN: initiator}}
	if op == bth.DCConnect {
		f.DCCETH = &bth.DCCETHFields{Key: 7, Connection: number, Depth: 4, MTU: uint8(bth.MTU1024)}
	} else {
		f.DCETH.Context = number
	}
	c.add("10.0.0.1", "10.0.0.2", 0x40, f)
}

// answer adds a packet of the target.
func (c *dcPackets) answer(op bth.Opcode, initiator bth.QPN, psn bth.PSN, number uint32) {
	c.t.Helper()
	f := bth.Fields{BTH: bth.BTHFields{Op: op, PSN: psn}}
	if op == bth.DCAccept {
		f.DCETH, f.DCCETH = &bth.DCETHFields{QPN: 0x40, Context: 0x99}, &bth.DCCETHFields{Connection: number, Depth: 4, MTU: uint8(bth.MTU1024)}
	} else {
		f.AETH = &bth.AETHFields{Syndrome: bth.AckNoCredits, MSN: 1}
	}
	c.add("10.0.0.2", "10.0.0.1", initiator, f)
}

// TestDrawingDC draws two initiators of a host, which connect to one target, send, and disconnect. Each has its own PSNs.
// CONNECT has the PSN of the first request. A later connection begins with another PSN.
func TestDrawingDC(t *testing.T) {
	const send, ack = 0xC0 | bth.RCSendOnly, 0xC0 | bth.RCAck
	c := &dcPackets{t: t, draw: NewDrawing(&dissect.Selection{})}
	c.request(bth.DCConnect, 0x11, 100, 1)
	c.request(bth.DCConnect, 0x12, 9000, 8)
	c.request(bth.DCConnect, 0x11, 100, 1) // ACCEPT is late
	c.answer(bth.DCAccept, 0x11, 100, 1)
	c.request(send, 0x11, 100, 0x99)
	c.request(send, 0x12, 9000, 0x99)
	c.request(send, 0x11, 101, 0x99)
	c.request(send, 0x11, 101, 0x99)
	c.answer(ack, 0x11, 101, 0)
	c.request(bth.DCDisconnect, 0x11, 102, 0x99)
	c.request(bth.DCConnect, 0x11, 500, 2) // it used the PSNs from 102 on for another target
	c.request(send, 0x11, 500, 0x99)
	c.request(send, 0x11, 502, 0x99)
	var b strings.Builder
	if err := ladder.Draw(&b, c.draw.Steps); err != nil {
		t.Fatal(err)
	}
	want := []struct{ label, note string }{
		{"|-- CONNECT qpn 0x40 psn 0x000064", ""},
		{"|-- CONNECT qpn 0x40 psn 0x002328", ""},
		{"|-- CONNECT qpn 0x40 psn 0x000064", "again"},
		{"|<-- ACCEPT qpn 0x11 psn 0x000064", ""},
		{"|-- SEND_ONLY qpn 0x40 psn 0x000064", ""},
		{"|-- SEND_ONLY qpn 0x40 psn 0x002328", ""},
		{"|-- SEND_ONLY qpn 0x40 psn 0x000065", ""},
		{"|-- SEND_ONLY qpn 0x40 psn 0x000065", "again"},
		{"|<-- ACKNOWLEDGE qpn 0x11 psn 0x000065", ""},
		{"|-- DISCONNECT qpn 0x40 psn 0x000066", ""},
		{"|-- CONNECT qpn 0x40 psn 0x0001f4", ""},
		{"|-- SEND_ONLY qpn 0x40 psn 0x0001f4", ""},
		{"|-- SEND_ONLY qpn 0x40 psn 0x0001f6", "gap before"},
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 1+len(want) {
		t.Fatalf("%d lines:\n%s", len(lines), b.String())
	}
	for i, w := range want {
		if !strings.Contains(lines[i+1], w.label) || c.draw.Steps[i].Note != w.note {
			t.Errorf("line %d is %q with note %q, want %q with %q", i+1, lines[i+1], c.draw.Steps[i].Note, w.label, w.note)
		}
	}
	r := c.draw.report
	r.Done()
	if len(r.Flows) != 3 {
		t.Fatalf("%d flows, want those of two initiators and one of answers", len(r.Flows))
	}
	if f := r.Flows[0]; f.SrcQPN != 0x11 || f.Retransmitted != 2 || f.Gaps != 1 || f.Missing != 1 {
		t.Errorf("the first initiator: %+v", f)
	}
}
