package sniff_test

import (
	"bytes"
	"net/netip"
	"os"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/examples/o2iblnd/sniff"
	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// sendPacket makes a packet of a SEND to a queue pair.
func sendPacket(t *testing.T, op bth.Opcode, qpn bth.QPN, psn bth.PSN, payload []byte) *frame.Packet {
	t.Helper()
	path, err := frame.NewPath(frame.PathConfig{Src: bth.GIDFrom(netip.MustParseAddr("10.0.0.1")), Dst: bth.GIDFrom(netip.MustParseAddr("10.0.0.2")), SrcPort: 0xC000, HopLimit: 64})
	if err != nil {
		t.Fatal(err)
	}
	f := bth.Fields{BTH: bth.BTHFields{Op: op, PKey: bth.DefaultPKey, DestQPN: qpn, PSN: psn}, Payload: payload}
	packet := f.Append(nil)
	b := make([]byte, path.HeaderLen(frame.LayoutEthernet)+len(packet)+bth.ICRCLen)
	body, _ := path.Put(b, frame.LayoutEthernet, len(packet)+bth.ICRCLen, 1)
	copy(body, packet)
	p := new(frame.Packet)
	if err := p.Parse(b, frame.LayoutEthernet); err != nil {
		t.Fatal(err)
	}
	return p
}

// FuzzAssembler reads bytes as packets of SENDs to two queue pairs, each with an opcode, a PSN, a length and the payload. No
// input makes the assembler panic. Every unit has a decoded message or an error, and is at most one packet longer than
// the longest message.
func FuzzAssembler(f *testing.F) {
	file, err := os.Open("../../../testdata/pcaps/lnet/lnetx-216.pcap")
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	all, err := sniff.Read(file)
	if err != nil {
		f.Fatal(err)
	}
	for _, u := range all[:min(len(all), 12)] { // each as two packets
		half := len(u.Bytes) / 2
		seed := append([]byte{0, 1, byte(half)}, u.Bytes[:half]...)
		f.Add(append(append(seed, 2, 2, byte(len(u.Bytes)-half)), u.Bytes[half:]...))
	}
	ops := []bth.Opcode{bth.RCSendFirst, bth.RCSendMiddle, bth.RCSendLast, bth.RCSendOnly}
	f.Fuzz(func(t *testing.T, b []byte) {
		var a sniff.Assembler
		for len(b) >= 3 {
			op, psn, n := b[0], bth.PSN(b[1]), min(int(b[2]), len(b)-3)
			payload := b[3 : 3+n]
			b = b[3+n:]
			u := a.Packet(sendPacket(t, ops[op%4], bth.QPN(op>>2&1)+16, psn, payload), nil)
			switch {
			case u == nil:
			case (u.Message != nil) == (u.Err != nil), u.Reject != nil:
				t.Fatalf("message %v, refusal %v, error %v", u.Message, u.Reject, u.Err)
			case len(u.Bytes) > wire.MaxMessage+256:
				t.Fatalf("a unit of %d bytes", len(u.Bytes))
			case !bytes.HasSuffix(u.Bytes, payload) || u.String() == "":
				t.Fatalf("%v does not end as its last packet", u)
			}
		}
	})
}
