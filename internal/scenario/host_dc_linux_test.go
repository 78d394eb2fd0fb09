package scenario_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/netlab"
)

// TestInterfaceDC: initiators and targets of two devices on interfaces, by every driver and between different ones, over both
// IP versions, in one queue and in two. Each initiator goes to the targets in turn.
func TestInterfaceDC(t *testing.T) {
	for _, test := range []struct {
		near, far string
		mtu       int
		queues    int
	}{
		{"raw", "raw", 1500, 1},
		{"udp", "udp", 1500, 1},
		{"xdp", "xdp", 1500, 1},
		{"xdp", "xdp", 4200, 2},
		{"xdp", "raw", 1500, 1},
		{"raw", "xdp", 4200, 1},
		{"xdp", "udp", 1500, 1},
	} {
		t.Run(fmt.Sprintf("%s to %s, MTU %d, queues %d", test.near, test.far, test.mtu, test.queues), func(t *testing.T) {
			x, y := netlab.Pair(t, netlab.Config{MTU: test.mtu, Queues: test.queues})
			da := openOn(t, x, roce.InterfaceConfig{Driver: test.near, Queues: test.queues})
			db := openOn(t, y, roce.InterfaceConfig{Driver: test.far, Queues: test.queues})
			for _, v6 := range []bool{false, true} {
				from, to := x.IP4, y.IP4
				if v6 {
					from, to = x.IP6, y.IP6
				}
				targetsInTurn(t, da, from, db, to)
				targetsInTurn(t, db, to, da, from)
			}
		})
	}
}

// targetsInTurn makes two initiators of one device, which use three targets of another device
// in turn. In the end each connects with a wrong key.
func targetsInTurn(t *testing.T, near *roce.Device, from netip.Addr, far *roce.Device, to netip.Addr) {
	t.Helper()
	own, peer := ofAddr(t, near, from), bth.GIDFrom(to)
	var servers []*dcServer
	for range 3 {
		servers = append(servers, newDCServer(t, far, func(c *roce.DCTConfig) { c.GIDIndex = ofAddr(t, far, to) }))
	}
	ah := ok(near.CreateAH(patient(t), roce.AHAttr{DGID: peer, SGIDIndex: own}))(t)
	mtu := near.Query().PathMTU
	pd := near.AllocPD()
	for n := range 2 {
		q := ok(pd.CreateQP(roce.QPConfig{Type: roce.DCI, SendCQ: ok(near.CreateCQ(255))(t)}))(t)
		m := ok(pd.RegMR(make([]byte, 1<<15), roce.LocalWrite))(t)
		check(t, q.ReadyDC(roce.Initiator{Key: dcKey &^ (1 << 63), AV: ah, MTU: mtu, Timeout: 18, RetryCnt: 7, RNRRetry: 7, RdAtomic: 4}))
		do := func(s *dcServer, want roce.Status, wr roce.SendWR) {
			t.Helper()
			wr.AH, wr.RemoteQPN, wr.RKey, wr.Flags = ah, s.Num(), s.mr.RKey(), roce.Signaled
			if wr.DCKey == 0 {
				wr.DCKey = 1 << 63
			}
			check(t, q.PostSend(&wr))
			if wc := ok(q.SendCQ().Next(patient(t)))(t); wc.Status != want {
				t.Fatalf("%v to %v: %v, want %v", wr.Opcode, to, wc.Status, want)
			}
		}
		const size = 9000
		for round := range 3 {
			for i, s := range servers {
				fill(m.Bytes()[:size], 16*round+4*n+i)
				do(s, roce.StatusSuccess, roce.SendWR{Opcode: roce.Write, SG: []roce.SGE{m.SGE(0, size)}, RemoteAddr: s.mr.Addr() + 8})
				do(s, roce.StatusSuccess, roce.SendWR{Opcode: roce.Read, SG: []roce.SGE{m.SGE(size, size)}, RemoteAddr: s.mr.Addr() + 8})
				if string(m.Bytes()[size:2*size]) != string(m.Bytes()[:size]) {
					t.Fatal("READ brought other data")
				}
				do(s, roce.StatusSuccess, roce.SendWR{Opcode: roce.FetchAdd, CompareAdd: 1, SG: []roce.SGE{m.SGE(1<<15-8, 8)}, RemoteAddr: s.mr.Addr()})
				do(s, roce.StatusSuccess, roce.SendWR{Opcode: roce.SendImm, Imm: uint32(round), Inline: []byte("hello")})
				if r := ok(s.cq.Next(patient(t)))(t); r.Imm != uint32(round) || r.ByteLen != 5 || r.QPN != s.Num() || r.Status != roce.StatusSuccess {
					t.Errorf("received %+v", r)
				}
			}
		}
		do(servers[0], roce.StatusRemAccessErr, roce.SendWR{Opcode: roce.Send, DCKey: 4711})
		check(t, q.Close())
	}
	for i, s := range servers {
		if v := s.mr.Load64(0); v != 6 {
			t.Errorf("target %d: %d additions, want 6", i, v)
		}
		if q := s.Query(); i == 0 && q.KeyViolations < 2 { // a REJECT that is lost counts again
			t.Errorf("target %d: %+v", i, q)
		}
		check(t, s.Close())
	}
}
