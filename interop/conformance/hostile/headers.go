package hostile

import (
	"fmt"
	"net/netip"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/qp"
)

// sendOnly is a SEND of 100 bytes that asks for an acknowledgement.
func sendOnly() packet { return packet{op: bth.RCSendOnly, ack: true, data: 100} }

const delivered = "ACK +0 msn 1; recv SUCCESS 100 B"

// headerCases are packets that no queue pair should see, or that look odd and are in
// order.
var headerCases = []Case{
	{Name: "in order", Rule: "9.7.5.1", Type: qp.RC, Recv: 1, Do: one(sendOnly()), Want: delivered},
	{Name: "no acknowledgement asked for", Rule: "9.7.5.1", Type: qp.RC, Recv: 1, Do: one(packet{op: bth.RCSendOnly, data: 100}), Want: "recv SUCCESS 100 B"},
	{Name: "opcode 0xff, short", Rule: "kernel panic of 2026", Type: qp.RC, Recv: 1, Do: one(packet{op: 0xFF, cut: 12}), Want: "nothing"},
	{Name: "opcode 0xff", Rule: "kernel panic of 2026", Type: qp.RC, Recv: 1, Do: one(packet{op: 0xFF, ack: true, data: 100}), Want: "nothing"},
	{Name: "reserved RC opcodes", Rule: "9.2", Type: qp.RC, Recv: 1, Want: "nothing", Do: func(x *exchange) {
		for _, op := range []bth.Opcode{0x15, 0x18, 0x19, 0x1A, 0x1B, 0x1E, 0x1F} {
			x.send(packet{op: op, ack: true, data: 100})
		}
	}},
	{Name: "RD opcodes", Rule: "9.2", Type: qp.RC, Recv: 1, Want: "nothing", Do: func(x *exchange) {
		x.send(packet{op: 0x44, ack: true, ext: make([]byte, 12), data: 100}, packet{op: bth.RDResync, ext: make([]byte, 12)})
	}},
	{Name: "manufacturer's opcodes", Rule: "9.2", Type: qp.RC, Want: "nothing", Do: func(x *exchange) {
		for _, op := range []bth.Opcode{0xC0, 0xE4, bth.MaskedCompareSwap, bth.MaskedFetchAdd} {
			x.send(packet{op: op, ack: true, ext: append(atomicETH(x.mr.Addr, x.mr.RKey, 1, 1), make([]byte, 20)...)})
		}
	}},
	{Name: "CNP", Rule: "A17.9", Type: qp.RC, Recv: 1, Do: one(packet{op: bth.CNP, text: make([]byte, 16)}), Want: "nothing"},
	{Name: "UC opcode", Rule: "9.6", Type: qp.RC, Recv: 1, Do: one(packet{op: bth.UCSendOnly, ack: true, data: 100}), Want: "nothing"},
	{Name: "UD opcode", Rule: "9.6", Type: qp.RC, Recv: 1, Do: one(packet{op: bth.UDSendOnly, ack: true, ext: deth(qkey, 5), data: 100}), Want: "nothing"},
	{Name: "XRC opcode", Rule: "9.6", Type: qp.RC, Recv: 1, Do: one(packet{op: bth.XRCSendOnly, ack: true, ext: make([]byte, 4), data: 100}), Want: "nothing"},
	{Name: "shorter than a BTH", Rule: "9.6", Type: qp.RC, Recv: 1, Do: one(packet{op: bth.RCSendOnly, cut: 8}), Want: "nothing"},
	{Name: "WRITE without RETH", Rule: "9.6", Type: qp.RC, Do: one(packet{op: bth.RCWriteOnly, ack: true}), Want: "nothing"},
	{Name: "READ with half a RETH", Rule: "9.6", Type: qp.RC, Do: one(packet{op: bth.RCReadRequest, ack: true, ext: reth(0, 0, 0), cut: 20}), Want: "nothing"},
	{Name: "atomic with a RETH only", Rule: "9.6", Type: qp.RC, Do: one(packet{op: bth.RCFetchAdd, ack: true, ext: reth(0, 0, 0)}), Want: "nothing"},
	{Name: "more pad than payload", Rule: "kernel panic of 2026", Type: qp.RC, Recv: 1, Do: one(packet{op: bth.RCSendOnly, ack: true, fakePad: true, pad: 3, cut: 12}), Want: "nothing"},
	{Name: "transport version 1", Rule: "9.6", Type: qp.RC, Recv: 1, Do: with(func(p *packet) { p.tver = 1 }), Want: "nothing"},
	{Name: "transport version 15", Rule: "9.6", Type: qp.RC, Recv: 1, Do: with(func(p *packet) { p.tver = 15 }), Want: "nothing"},
	{Name: "wrong ICRC", Rule: "9.6", Type: qp.RC, Recv: 1, Do: with(func(p *packet) { p.badICRC = true }), Want: "nothing"},
	{Name: "wrong UDP checksum", Rule: "UDP", Type: qp.RC, Recv: 1, Do: with(func(p *packet) { p.badSum = true }), Want: "nothing"},
	{Name: "another partition", Rule: "9.6", Type: qp.RC, Recv: 1, Do: with(func(p *packet) { p.pkey = 0x1234 }), Want: "nothing"},
	{Name: "limited member of the partition", Rule: "10.9", Type: qp.RC, Recv: 1, Do: with(func(p *packet) { p.pkey = 0x7FFF }), Want: delivered},
	{Name: "another's source address", Rule: "9.6", Type: qp.RC, Recv: 1, Do: func(x *exchange) {
		p := sendOnly()
		p.src = other(x.at.Own)
		x.send(p)
	}, Want: "nothing"},
	{Name: "another's destination address", Rule: "9.6", Type: qp.RC, Recv: 1, Do: func(x *exchange) {
		p := sendOnly()
		p.dst = other(x.at.Target)
		x.send(p)
	}, Want: "nothing"},
	{Name: "queue pair 0", Rule: "9.6", Type: qp.RC, Recv: 1, Do: to(0), Want: "nothing"},
	{Name: "queue pair 1", Rule: "9.6", Type: qp.RC, Recv: 1, Do: to(1), Want: "nothing"},
	{Name: "queue pair 0xffffff", Rule: "9.6", Type: qp.RC, Recv: 1, Do: to(0xFFFFFF), Want: "nothing"},
	{Name: "a queue pair that is not there", Rule: "9.6", Type: qp.RC, Recv: 1, Do: to(0xABCDEF), Want: "nothing"},
	{Name: "reserved bits of the BTH set", Rule: "9.2", Type: qp.RC, Recv: 1, Do: with(func(p *packet) { p.reserved = true }), Want: delivered},
	{Name: "MigReq set", Rule: "9.2", Type: qp.RC, Recv: 1, Do: with(func(p *packet) { p.mig = true }), Want: delivered},
	{Name: "TTL 1, another source port, marked CE", Rule: "A17", Type: qp.RC, Recv: 1, Do: with(func(p *packet) { p.ttl, p.sport, p.tos = 1, 1, 3 }), Want: delivered},
}

func one(p packet) func(*exchange) { return func(x *exchange) { x.send(p) } }

// with injects a SEND that was changed.
func with(change func(*packet)) func(*exchange) {
	p := sendOnly()
	change(&p)
	return one(p)
}

// to injects a SEND to another queue pair.
func to(n bth.QPN) func(*exchange) { return with(func(p *packet) { p.qpn = &n }) }

// other is an address of the same network.
func other(g bth.GID) *bth.GID {
	a := g.Addr().Unmap()
	if !a.Is4() {
		panic(fmt.Sprintf("%v is no IPv4 address", a))
	}
	b := a.As4()
	b[3] = 99
	o := bth.GIDFrom(netip.AddrFrom4(b))
	return &o
}
