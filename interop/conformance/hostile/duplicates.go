package hostile

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/qp"
)

// duplicateCases repeat what was sent before, sometimes not quite.
var duplicateCases = []Case{
	{Name: "SEND again", Rule: "9.7.5.1", Type: qp.RC, Recv: 2, Do: func(x *exchange) { again(x, sendOnly(), sendOnly()) },
		Want: "ACK +0 msn 1; ACK +0 msn 1; recv SUCCESS 100 B"},
	{Name: "SEND again, not asking for an acknowledgement", Rule: "9.7.5.1", Type: qp.RC, Recv: 2, Do: func(x *exchange) {
		again(x, sendOnly(), packet{op: bth.RCSendOnly, data: 100})
	}, Want: delivered},
	{Name: "WRITE again with other data", Rule: "9.7.5.1", Type: qp.RC, Do: func(x *exchange) {
		again(x, packet{op: bth.RCWriteOnly, ack: true, ext: reth(x.mr.Addr, x.mr.RKey, 100), data: 100},
			packet{op: bth.RCWriteOnly, ack: true, ext: reth(x.mr.Addr+1000, x.mr.RKey, 100), data: 100})
	}, Want: "ACK +0 msn 1; ACK +0 msn 1; memory 0…99 changed"},
	{Name: "an old packet acknowledges up to the last", Rule: "9.7.5.1", Type: qp.RC, Recv: 3, Do: func(x *exchange) {
		for range 3 {
			x.pass(packet{op: bth.RCSendOnly, data: 100})
		}
		p := sendOnly()
		p.psn = -3
		x.send(p)
	}, Want: "ACK +2 msn 3; recv SUCCESS 100 B ×3"},
	{Name: "READ again", Rule: "9.7.5.1", Type: qp.RC, Do: func(x *exchange) {
		p := packet{op: bth.RCReadRequest, ack: true, ext: reth(x.mr.Addr, x.mr.RKey, 100)}
		again(x, p, p)
	}, Want: "READ ONLY +0 100 B msn 1; READ ONLY +0 100 B msn 1"},
	{Name: "the rest of a READ again", Rule: "9.7.5.1", Type: qp.RC, Do: func(x *exchange) {
		x.read(3000)
		x.send(packet{op: bth.RCReadRequest, psn: -2, ack: true, ext: reth(x.mr.Addr+mtu, x.mr.RKey, 3000-mtu)})
	}, Want: threeResponses + "; READ FIRST +1 1024 B msn 1; READ LAST +2 952 B msn 1"},
	{Name: "a whole READ again, after a part of it", Rule: "9.7.5.1", Type: qp.RC, Do: func(x *exchange) {
		x.read(3000)
		x.send(packet{op: bth.RCReadRequest, psn: -1, ack: true, ext: reth(x.mr.Addr+2*mtu, x.mr.RKey, 3000-2*mtu)})
		x.send(packet{op: bth.RCReadRequest, psn: -3, ack: true, ext: reth(x.mr.Addr, x.mr.RKey, 3000)})
	}, Want: threeResponses + "; READ ONLY +2 952 B msn 1; " + threeResponses},
	{Name: "READ again with another key", Rule: "9.7.5.1", Type: qp.RC, Do: func(x *exchange) {
		again(x, packet{op: bth.RCReadRequest, ack: true, ext: reth(x.mr.Addr, x.mr.RKey, 100)},
			packet{op: bth.RCReadRequest, ack: true, ext: reth(x.mr.Addr, x.mr.RKey+1<<8, 100)})
	}, Want: "READ ONLY +0 100 B msn 1"},
	{Name: "READ again, longer", Rule: "9.7.5.1", Type: qp.RC, Do: func(x *exchange) {
		again(x, packet{op: bth.RCReadRequest, ack: true, ext: reth(x.mr.Addr, x.mr.RKey, 100)},
			packet{op: bth.RCReadRequest, ack: true, ext: reth(x.mr.Addr, x.mr.RKey, 4000)})
	}, Want: "READ ONLY +0 100 B msn 1"},
	{Name: "READ again at an earlier address", Rule: "9.7.5.1", Type: qp.RC, Do: func(x *exchange) {
		again(x, packet{op: bth.RCReadRequest, ack: true, ext: reth(x.mr.Addr+1000, x.mr.RKey, 100)},
			packet{op: bth.RCReadRequest, ack: true, ext: reth(x.mr.Addr, x.mr.RKey, 100)})
	}, Want: "READ ONLY +0 100 B msn 1"},
	{Name: "READ at the PSN of a SEND", Rule: "9.7.5.1", Type: qp.RC, Recv: 1, Do: func(x *exchange) {
		again(x, sendOnly(), packet{op: bth.RCReadRequest, ack: true, ext: reth(x.mr.Addr, x.mr.RKey, 100)})
	}, Want: delivered},
	{Name: "atomic again: once, with the same answer", Rule: "9.7.5.1", Type: qp.RC, Do: func(x *exchange) {
		p := packet{op: bth.RCFetchAdd, ack: true, ext: atomicETH(x.mr.Addr, x.mr.RKey, 0x80, 0)}
		again(x, p, p)
	}, Want: "ATOMIC_ACK +0 =0x706050403020100 msn 1; ATOMIC_ACK +0 =0x706050403020100 msn 1; memory 0…0 changed"},
	{Name: "atomic at the PSN of a READ", Rule: "9.7.5.1", Type: qp.RC, Do: func(x *exchange) {
		again(x, packet{op: bth.RCReadRequest, ack: true, ext: reth(x.mr.Addr, x.mr.RKey, 100)},
			packet{op: bth.RCFetchAdd, ack: true, ext: atomicETH(x.mr.Addr, x.mr.RKey, 1, 0)})
	}, Want: "READ ONLY +0 100 B msn 1"},
	{Name: "atomic again, long forgotten", Rule: "9.7.5.1", Type: qp.RC, Do: func(x *exchange) {
		first := packet{op: bth.RCFetchAdd, ack: true, ext: atomicETH(x.mr.Addr, x.mr.RKey, 0, 0)}
		for range 12 {
			x.pass(first)
		}
		x.answers = nil
		first.psn = -12
		x.send(first)
	}, Want: "nothing"},
}

const threeResponses = "READ FIRST +0 1024 B msn 1; READ MIDDLE +1 1024 B; READ LAST +2 952 B msn 1"

// again injects a packet, and another with the same PSN.
func again(x *exchange, first, second packet) {
	x.pass(first)
	second.psn--
	x.send(second)
}

// read makes a READ of n bytes from the beginning of the memory.
func (x *exchange) read(n uint32) {
	x.send(packet{op: bth.RCReadRequest, ack: true, ext: reth(x.mr.Addr, x.mr.RKey, n)})
	x.psn = x.psn.Add(int(n+mtu-1) / mtu)
}
