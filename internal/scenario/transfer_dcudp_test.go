package scenario_test

import (
	"net/netip"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link/linktest"
)

// TestDCOverUDP is a WRITE, a SEND and a wrong key over UDP sockets, which do not show all
// that the ICRC covers.
func TestDCOverUDP(t *testing.T) {
	open := func(addr netip.Addr) *roce.Device {
		d := ok(roce.OpenAddr(addr, roce.InterfaceConfig{}))(t)
		t.Cleanup(func() { d.Close() })
		return d
	}
	a, b := open(linktest.Loopback(77)), open(linktest.Loopback(78))
	s := newDCServer(t, b, nil)
	check(t, s.Arm(0))
	c := newDCClient(t, a, b.GIDs()[0])
	for i := range 20 {
		fill(c.mr.Bytes()[:10000], i)
		if wc := c.do(t, s, roce.SendWR{Opcode: roce.Write, SG: []roce.SGE{c.mr.SGE(0, 10000)}, RemoteAddr: s.mr.Addr()}); wc.Status != roce.StatusSuccess {
			t.Fatal("WRITE:", wc.Status)
		}
		if string(s.mr.Bytes()[:10000]) != string(c.mr.Bytes()[:10000]) {
			t.Fatal("wrong data")
		}
		if wc := c.do(t, s, roce.SendWR{Opcode: roce.SendImm, Imm: uint32(i)}); wc.Status != roce.StatusSuccess {
			t.Fatal("SEND:", wc.Status)
		}
		if r := ok(s.cq.Next(patient(t)))(t); r.Imm != uint32(i) {
			t.Fatalf("received %+v", r)
		}
	}
	if wc := c.do(t, s, roce.SendWR{Opcode: roce.Send, DCKey: 1}); wc.Status != roce.StatusRemAccessErr {
		t.Error(wc.Status)
	}
	if e := ok(b.NextEvent(patient(t)))(t); e.Type != roce.EventDCTKeyViolation || e.DCT != s.DCT {
		t.Error(e)
	}
}
