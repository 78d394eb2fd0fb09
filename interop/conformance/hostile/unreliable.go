package hostile

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/qp"
)

// datagram is a UD SEND of 100 bytes.
func datagram(key bth.QKey) packet {
	return packet{op: bth.UDSendOnly, ext: deth(key, 0x99), data: 100}
}

// unreliableCases are UC and UD: nothing is ever answered.
var unreliableCases = []Case{
	{Name: "UC: in order", Rule: "9.8.2", Type: qp.UC, Recv: 1, Do: one(packet{op: bth.UCSendOnly, data: 100}), Want: "recv SUCCESS 100 B"},
	{Name: "UC: MIDDLE without FIRST", Rule: "9.8.2.2", Type: qp.UC, Recv: 1, Do: one(packet{op: bth.UCSendMiddle, data: mtu}), Want: "nothing"},
	{Name: "UC: LAST without FIRST", Rule: "9.8.2.2", Type: qp.UC, Recv: 1, Do: one(packet{op: bth.UCSendLast, data: 10}), Want: "nothing"},
	{Name: "UC: another message inside one", Rule: "9.8.2.2", Type: qp.UC, Recv: 2, Do: func(x *exchange) {
		x.pass(packet{op: bth.UCSendFirst, data: mtu})
		x.pass(packet{op: bth.UCSendOnly, data: 100})
	}, Want: "recv SUCCESS 100 B"},
	{Name: "UC: a gap in a message, and the next one", Rule: "9.8.2.2", Type: qp.UC, Recv: 2, Do: func(x *exchange) {
		x.pass(packet{op: bth.UCSendFirst, data: mtu})
		x.send(packet{op: bth.UCSendLast, psn: 1, data: 100}, packet{op: bth.UCSendOnly, psn: 2, data: 50})
	}, Want: "recv SUCCESS 50 B"},
	{Name: "UC: a PSN from before", Rule: "9.8.2.2", Type: qp.UC, Recv: 2, Do: func(x *exchange) {
		x.pass(packet{op: bth.UCSendOnly, data: 100})
		x.send(packet{op: bth.UCSendOnly, psn: -1, data: 50})
	}, Want: "recv SUCCESS 100 B, SUCCESS 50 B"},
	{Name: "UC: no receive", Rule: "9.8.2.2", Type: qp.UC, Do: one(packet{op: bth.UCSendOnly, data: 100}), Want: "nothing"},
	{Name: "UC: WRITE with a key that is none", Rule: "9.8.2.2", Type: qp.UC, Do: badKey(bth.UCWriteOnly, 100), Want: "nothing"},
	{Name: "UC: WRITE shorter than it says", Rule: "9.8.2.2", Type: qp.UC, Do: toMemory(bth.UCWriteOnly, 0, 200, 100), Want: "nothing"},
	{Name: "UC: SEND FIRST shorter than the MTU", Rule: "9.8.2.2", Type: qp.UC, Recv: 1, Do: one(packet{op: bth.UCSendFirst, data: 100}), Want: "nothing"},
	{Name: "UC: RC opcode", Rule: "9.6", Type: qp.UC, Recv: 1, Do: one(sendOnly()), Want: "nothing"},
	{Name: "UD: in order", Rule: "9.8.3", Type: qp.UD, Recv: 1, Do: one(datagram(qkey)), Want: "recv SUCCESS 140 B"},
	{Name: "UD: any PSN", Rule: "9.8.3", Type: qp.UD, Recv: 1, Do: one(datagram(qkey).at(1234)), Want: "recv SUCCESS 140 B"},
	{Name: "UD: wrong Q_Key", Rule: "9.6", Type: qp.UD, Recv: 1, Do: one(datagram(qkey ^ 1)), Want: "nothing"},
	{Name: "UD: no DETH", Rule: "9.6", Type: qp.UD, Recv: 1, Do: one(packet{op: bth.UDSendOnly}), Want: "nothing"},
	{Name: "UD: reserved opcode", Rule: "9.2", Type: qp.UD, Recv: 1, Do: one(packet{op: 0x66, ext: deth(qkey, 1), data: 100}), Want: "nothing"},
	{Name: "UD: another's source address", Rule: "9.8.3", Type: qp.UD, Recv: 1, Do: func(x *exchange) {
		p := datagram(qkey)
		p.src = other(x.at.Own)
		x.send(p)
	}, Want: "recv SUCCESS 140 B"},
	{Name: "UD: longer than the MTU", Rule: "9.8.3", Type: qp.UD, Recv: 1, Do: func(x *exchange) {
		p := datagram(qkey)
		p.data = mtu + 4
		x.send(p)
	}, Want: "nothing"},
	{Name: "UD: nothing but headers", Rule: "9.8.3", Type: qp.UD, Recv: 1, Do: func(x *exchange) {
		p := datagram(qkey)
		p.data = 0
		x.send(p)
	}, Want: "recv SUCCESS 40 B"},
	{Name: "UD: no receive", Rule: "9.8.3", Type: qp.UD, Do: one(datagram(qkey)), Want: "nothing"},
}
