package scenario_test

import (
	"testing"
	"testing/synctest"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
)

// TestDCForgedFirst: before an initiator has sent anything, a stranger who has the key sends packets
// in its name to the target's device, from another Ethernet address, and continues between the
// initiator's packets. The device does not look up the initiator's address. The initiator's work
// requests still succeed.
func TestDCForgedFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		a, b := n.device("10.0.0.1"), n.device("10.0.0.2")
		s := newDCServer(t, b, nil)
		c := newDCClient(t, a, b.GIDs()[0])
		stranger := newAttacker(n, b)
		path := stranger.path("10.0.0.1")
		send := func(f bth.Fields) {
			f.BTH.PKey = bth.DefaultPKey
			packet := f.Append(nil)
			stranger.send(path, len(packet)+bth.ICRCLen, func(body []byte) { copy(body, packet) })
		}
		var connection uint32
		connect := func() {
			for _, qpn := range []roce.QPN{c.Num(), c.Num() + 1} {
				for range 3 { // one of them is later than the initiator's
					connection += 1 << 30
					send(bth.Fields{BTH: bth.BTHFields{Op: bth.DCConnect, DestQPN: s.Num()}, DCETH: &bth.DCETHFields{QPN: qpn},
						DCCETH: &bth.DCCETHFields{Key: dcKey &^ (1 << 63), Connection: connection, Depth: 1, MTU: uint8(bth.MTU1024)}})
				}
			}
			synctest.Wait()
		}
		send(bth.Fields{BTH: bth.BTHFields{Op: bth.UDSendOnly, DestQPN: bth.QPNGSI}, DETH: &bth.DETHFields{QKey: bth.QKeyGSI, SrcQPN: bth.QPNGSI},
			Payload: make([]byte, cm.MADLen)})
		connect()
		for i := range 5 {
			if wc := c.do(t, s, roce.SendWR{Opcode: roce.Write, SG: []roce.SGE{c.mr.SGE(0, 5000)}, RemoteAddr: s.mr.Addr()}); wc.Status != roce.StatusSuccess {
				t.Fatalf("WRITE %d: %v", i, wc.Status)
			}
			connect()
		}
		if q := s.Query(); q.Initiators < 3 || q.Initiators > 1+2*8 {
			t.Errorf("%d contexts, want that of the initiator and up to 8 of each name that the stranger took", q.Initiators)
		}
	})
}
