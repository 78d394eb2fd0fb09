package hostile

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/qp"
)

// sequenceCases are requests in an order that is none: PSNs and the places of
// packets in a message.
var sequenceCases = []Case{
	{Name: "SEND MIDDLE without FIRST", Rule: "9.7.4.1.2", Type: qp.RC, Recv: 1, Do: one(packet{op: bth.RCSendMiddle, ack: true, data: mtu}),
		Want: "NAK invalid +0 msn 0; recv WR_FLUSH_ERR; ERR"},
	{Name: "SEND LAST without FIRST", Rule: "9.7.4.1.2", Type: qp.RC, Recv: 1, Do: one(packet{op: bth.RCSendLast, ack: true, data: 10}),
		Want: "NAK invalid +0 msn 0; recv WR_FLUSH_ERR; ERR"},
	{Name: "WRITE MIDDLE without FIRST", Rule: "9.7.4.1.2", Type: qp.RC, Do: one(packet{op: bth.RCWriteMiddle, ack: true, data: mtu}),
		Want: "NAK invalid +0 msn 0; ERR"},
	{Name: "WRITE LAST without FIRST", Rule: "9.7.4.1.2", Type: qp.RC, Do: one(packet{op: bth.RCWriteLast, ack: true, data: 10}),
		Want: "NAK invalid +0 msn 0; ERR"},
	{Name: "SEND inside a SEND", Rule: "9.7.4.1.2", Type: qp.RC, Recv: 2, Do: inside(sendOnly()), Want: "NAK invalid +1 msn 0; recv REM_INV_REQ_ERR, WR_FLUSH_ERR; ERR"},
	{Name: "SEND FIRST inside a SEND", Rule: "9.7.4.1.2", Type: qp.RC, Recv: 2, Do: inside(packet{op: bth.RCSendFirst, data: mtu}), Want: "NAK invalid +1 msn 0; recv REM_INV_REQ_ERR, WR_FLUSH_ERR; ERR"},
	{Name: "WRITE MIDDLE inside a SEND", Rule: "9.7.4.1.2", Type: qp.RC, Recv: 2, Do: inside(packet{op: bth.RCWriteMiddle, data: mtu}), Want: "NAK invalid +1 msn 0; recv REM_INV_REQ_ERR, WR_FLUSH_ERR; ERR"},
	{Name: "READ inside a SEND", Rule: "9.7.4.1.2", Type: qp.RC, Recv: 2, Do: inside(packet{op: bth.RCReadRequest, ack: true, ext: reth(0, 0, 0)}), Want: "NAK invalid +1 msn 0; recv REM_INV_REQ_ERR, WR_FLUSH_ERR; ERR"},
	{Name: "atomic inside a SEND", Rule: "9.7.4.1.2", Type: qp.RC, Recv: 2, Do: inside(packet{op: bth.RCFetchAdd, ack: true, ext: atomicETH(0, 0, 1, 0)}), Want: "NAK invalid +1 msn 0; recv REM_INV_REQ_ERR, WR_FLUSH_ERR; ERR"},
	{Name: "a gap", Rule: "9.7.4.1.1", Type: qp.RC, Recv: 1, Want: "NAK sequence +0 msn 0", Do: func(x *exchange) {
		p := sendOnly()
		p.psn = 1
		x.send(p)
	}},
	{Name: "a gap, twice: one NAK", Rule: "9.7.4.1.1", Type: qp.RC, Recv: 1, Want: "NAK sequence +0 msn 0; ACK +0 msn 1; recv SUCCESS 100 B", Do: func(x *exchange) {
		p := sendOnly()
		p.psn = 1
		x.send(p)
		p.psn = 7
		x.send(p, p, sendOnly())
	}},
	{Name: "two gaps: a NAK for each", Rule: "9.7.4.1.1", Type: qp.RC, Recv: 2, Want: "NAK sequence +0 msn 0; ACK +0 msn 1; NAK sequence +1 msn 1; recv SUCCESS 100 B", Do: func(x *exchange) {
		p := sendOnly()
		p.psn = 5
		x.send(p, sendOnly(), p)
	}},
	{Name: "a gap as wide as can be", Rule: "9.7.4.1.1", Type: qp.RC, Recv: 1, Do: with(func(p *packet) { p.psn = 1<<23 - 1 }), Want: "NAK sequence +0 msn 0"},
	{Name: "a PSN from before the first", Rule: "9.7.5.1", Type: qp.RC, Recv: 1, Do: with(func(p *packet) { p.psn = -1 }), Want: "ACK -1 msn 0"},
	{Name: "a PSN from long before", Rule: "9.7.5.1", Type: qp.RC, Recv: 1, Do: with(func(p *packet) { p.psn = -(1<<23 - 1) }), Want: "ACK -1 msn 0"},
	{Name: "no receive", Rule: "9.7.5.2", Type: qp.RC, Do: one(sendOnly()), Want: "RNR +0 msn 0"},
	{Name: "no receive, asked again", Rule: "9.7.5.2", Type: qp.RC, Do: func(x *exchange) { x.send(sendOnly(), sendOnly()) }, Want: "RNR +0 msn 0; RNR +0 msn 0"},
	{Name: "no receive, and the next packet", Rule: "9.7.5.2", Type: qp.RC, Do: func(x *exchange) {
		p := sendOnly()
		p.psn = 1
		x.send(sendOnly(), p)
	}, Want: "RNR +0 msn 0"},
	{Name: "no receive, WRITE with immediate data", Rule: "9.7.5.2", Type: qp.RC, Do: func(x *exchange) {
		x.send(packet{op: bth.RCWriteOnlyImm, ack: true, ext: append(reth(x.mr.Addr, x.mr.RKey, 100), imm(1)...), data: 100})
	}, Want: "RNR +0 msn 0"},
	{Name: "a message in three parts", Rule: "9.7.4.1.2", Type: qp.RC, Recv: 1, Do: func(x *exchange) {
		x.pass(packet{op: bth.RCSendFirst, ack: true, data: mtu})
		x.pass(packet{op: bth.RCSendMiddle, ack: true, data: mtu})
	}, Want: "ACK +0 msn 0; ACK +1 msn 0"},
}

// inside injects a packet after a SEND FIRST.
func inside(p packet) func(*exchange) {
	return func(x *exchange) {
		x.pass(packet{op: bth.RCSendFirst, data: mtu})
		x.send(p)
	}
}
