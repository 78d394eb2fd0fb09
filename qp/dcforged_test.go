package qp_test

import (
	"net/netip"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/qp"
)

// TestDCTForgedFirst: a host that has the key forges the address of an initiator and sends the first packet, from
// another Ethernet address, while no neighbour table knows the initiator. The initiator gets its answers all the
// same, at its own Ethernet address, whatever the forger sends before, between and after its packets.
func TestDCTForgedFirst(t *testing.T) {
	const number = 100 // of the initiator's connection
	initiator := netip.MustParseAddr("10.1.1.1")
	own := frame.MAC{2, 7}
	for name, forged := range map[string]struct {
		qpn        bth.QPN
		connection uint32
		other      frame.MAC
	}{
		"same number of the connection": {7, number, frame.MAC{2, 9}},
		"later number":                  {7, number + 1, frame.MAC{2, 9}},
		"much later number":             {7, number + 1<<30, frame.MAC{2, 9}},
		"earlier number":                {7, number - 1, frame.MAC{2, 9}},
		"another queue pair":            {8, 1, frame.MAC{2, 9}},
		"later number, same place":      {7, number + 1, own}, // or a link that does not show Ethernet addresses
		"much later number, same place": {7, number + 1<<30, own},
		"earlier number, same place":    {7, number - 20, own},
	} {
		other := forged.other
		t.Run(name, func(t *testing.T) {
			w := newDCWorld(8, impairment{})
			d := w.target(t, qp.DCTConfig{}, 64)
			d.post(t, 8)
			// give returns the answers to a packet, all of which must go to its sender.
			give := func(mac frame.MAC, f bth.Fields) (got []bth.Fields) {
				t.Helper()
				d.HandlePacket(w.now, w.dcPacketVia(t, mac, initiator, d.node, f))
				s := &catcher{}
				for d.Emit(w.now, s) {
				}
				for _, b := range s.frames {
					var p frame.Packet
					if err := p.Parse(b, frame.LayoutEthernet); err != nil {
						t.Fatal(err)
					}
					if p.DstMAC != mac {
						t.Errorf("%v goes to %v, want %v", p.Op, p.DstMAC, mac)
					}
					got = append(got, bth.Decode(&p.Packet))
				}
				return got
			}
			connect := func(mac frame.MAC, qpn bth.QPN, connection uint32) (context uint32) {
				t.Helper()
				got := give(mac, bth.Fields{BTH: bth.BTHFields{Op: bth.DCConnect, PSN: 100}, DCETH: &bth.DCETHFields{QPN: qpn},
					DCCETH: &bth.DCCETHFields{Key: dcKey, Connection: connection, Depth: 4, MTU: uint8(bth.MTU1024)}})
				if len(got) != 1 || got[0].BTH.Op != bth.DCAccept || got[0].DCCETH.Connection != connection {
					t.Fatalf("answers %v to a CONNECT", got)
				}
				return got[0].DCETH.Context
			}
			send := func(context uint32, psn bth.PSN) {
				t.Helper()
				got := give(own, bth.Fields{BTH: bth.BTHFields{Op: 0xC0 | bth.RCSendOnly, PSN: psn, Flags: bth.AckReq}, DCETH: &bth.DCETHFields{QPN: 7, Context: context}})
				if len(got) != 1 || got[0].BTH.Op != 0xC0|bth.RCAck || got[0].AETH.Syndrome.Kind() != bth.KindACK {
					t.Fatalf("answers %v to data", got)
				}
			}
			connect(other, forged.qpn, forged.connection)
			context := connect(own, 7, number)
			if again := connect(own, 7, number); again != context {
				t.Errorf("another context: %#x, %#x", context, again)
			}
			send(context, 100)
			for i := range uint32(2 * 8) { // more than the target keeps
				d.HandlePacket(w.now, w.dcPacketVia(t, other, initiator, d.node, bth.Fields{BTH: bth.BTHFields{Op: bth.DCConnect, PSN: 100}, DCETH: &bth.DCETHFields{QPN: forged.qpn},
					DCCETH: &bth.DCCETHFields{Key: dcKey, Connection: forged.connection + 1 + i, MTU: uint8(bth.MTU1024)}}))
				answers(t, w.now, d.node)
			}
			if n := d.DCTStatus().Initiators; n > 2+8 {
				t.Errorf("%d contexts of an initiator and a stranger", n)
			}
			send(context, 101)
			// A forger that is rejected gets an answer, too, and the context of the initiator stays.
			give(other, bth.Fields{BTH: bth.BTHFields{Op: bth.DCConnect}, DCETH: &bth.DCETHFields{QPN: 7}, DCCETH: &bth.DCCETHFields{Key: 1, Connection: number + 9, MTU: uint8(bth.MTU1024)}})
			send(context, 102)
			if got := len(drain(d.node.recv)); got != 3 {
				t.Errorf("%d messages, want 3", got)
			}
		})
	}
}

// TestDCTForgedWhenFull: forged CONNECTs with both addresses of an initiator end no context that it uses, even if the
// target has no room for more initiators, or none for more of its address. The number of contexts stays bounded.
func TestDCTForgedWhenFull(t *testing.T) {
	const most = 4
	for name, others := range map[string][]string{
		"full":                   {"10.1.1.2", "10.1.1.3", "10.1.1.4"},
		"half are of an address": {"10.1.1.1", "10.1.1.2"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newDCWorld(9, impairment{})
			d := w.target(t, qp.DCTConfig{MaxInitiators: most}, 64)
			d.post(t, 8)
			peer := netip.MustParseAddr("10.1.1.1")
			connect := func(from netip.Addr, qpn bth.QPN, connection uint32) bth.Fields {
				t.Helper()
				d.HandlePacket(w.now, w.dcConnect(t, from, d.node, qpn, connection, dcKey))
				got := answers(t, w.now, d.node)
				if len(got) != 1 {
					t.Fatalf("answers %v to a CONNECT", got)
				}
				return got[0]
			}
			acked := func(context uint32, psn bth.PSN) bool {
				d.HandlePacket(w.now, w.dcPacket(t, peer, d.node, bth.Fields{BTH: bth.BTHFields{Op: 0xC0 | bth.RCSendOnly, PSN: psn, Flags: bth.AckReq}, DCETH: &bth.DCETHFields{QPN: 7, Context: context}}))
				got := answers(t, w.now, d.node)
				return len(got) == 1 && got[0].BTH.Op == 0xC0|bth.RCAck && got[0].AETH.Syndrome.Kind() == bth.KindACK
			}
			context := connect(peer, 7, 100).DCETH.Context
			if !acked(context, 100) {
				t.Fatal("no answer to data")
			}
			for i, other := range others {
				if got := connect(netip.MustParseAddr(other), bth.QPN(20+i), 1); got.BTH.Op != bth.DCAccept {
					t.Fatal(got)
				}
			}
			for i := range uint32(20) {
				connect(peer, 7, 101+i)
				if n := d.DCTStatus().Initiators; n > 2*most {
					t.Fatalf("%d contexts", n)
				}
			}
			if !acked(context, 101) {
				t.Error("no answer to data after forged CONNECTs")
			}
			// The initiator itself connects anew, and has one context then.
			before := d.DCTStatus().Initiators
			context = connect(peer, 7, 200).DCETH.Context
			if !acked(context, 100) {
				t.Error("no answer in the next connection")
			}
			if n := d.DCTStatus().Initiators; n != before-1 {
				t.Errorf("%d contexts, %d before", n, before)
			}
		})
	}
}
