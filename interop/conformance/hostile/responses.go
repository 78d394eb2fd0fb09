package hostile

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/qp"
)

// ack is an acknowledgement with a syndrome.
func ack(s bth.Syndrome) packet { return packet{op: bth.RCAck, ext: aeth(s, 1)} }

// reply posts an operation on the target and answers it.
func reply(op qp.Opcode, n uint64, answers ...packet) func(*exchange) {
	return func(x *exchange) { x.answer(x.post(op, n), answers...) }
}

// at moves a packet by some PSNs.
func (p packet) at(n int) packet {
	p.psn = n
	return p
}

func readOnly(n int) packet {
	return packet{op: bth.RCReadResponseOnly, ext: aeth(bth.AckNoCredits, 1), data: n}
}

// responseCases are responses without a request, or not to the request that was sent.
var responseCases = []Case{
	{Name: "ACK of nothing", Rule: "9.7.5.1, ghost ACK", Type: qp.RC, Do: func(x *exchange) { x.answer(targetPSN, ack(bth.AckNoCredits)) }, Want: "nothing"},
	{Name: "NAK of nothing", Rule: "9.7.5.1, ghost NAK", Type: qp.RC, Do: func(x *exchange) {
		x.answer(targetPSN, ack(bth.NAKRemoteAccess), ack(bth.NAKSequence), ack(bth.RNR(1)))
	}, Want: "nothing"},
	{Name: "READ response to nothing", Rule: "9.7.5.1", Type: qp.RC, Do: func(x *exchange) { x.answer(targetPSN, readOnly(100)) }, Want: "nothing"},
	{Name: "atomic acknowledgement of nothing", Rule: "9.7.5.1", Type: qp.RC, Do: func(x *exchange) {
		x.answer(targetPSN, packet{op: bth.RCAtomicAck, ext: append(aeth(bth.AckNoCredits, 1), atomicAck(1)...)})
	}, Want: "nothing"},
	{Name: "ACK", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.Send, 100, ack(bth.AckNoCredits)), Want: "send SUCCESS"},
	{Name: "ACK, twice", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.Send, 100, ack(bth.AckNoCredits), ack(bth.AckNoCredits)), Want: "send SUCCESS"},
	{Name: "ACK of what is not sent yet", Rule: "9.7.5.1, ghost ACK", Type: qp.RC, Do: reply(qp.Send, 100, ack(bth.AckNoCredits).at(5)), Want: "nothing"},
	{Name: "ACK from far ahead", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.Send, 100, ack(bth.AckNoCredits).at(1<<23-1)), Want: "nothing"},
	{Name: "ACK from before", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.Send, 100, ack(bth.AckNoCredits).at(-1)), Want: "nothing"},
	{Name: "ACK without credits", Rule: "9.7.7", Type: qp.RC, Do: reply(qp.Send, 100, ack(0)), Want: "send SUCCESS"},
	{Name: "NAK invalid request", Rule: "9.7.5.2", Type: qp.RC, Do: reply(qp.Send, 100, ack(bth.NAKInvalidRequest)), Want: "send REM_INV_REQ_ERR; ERR"},
	{Name: "NAK remote access", Rule: "9.7.5.2", Type: qp.RC, Do: reply(qp.Send, 100, ack(bth.NAKRemoteAccess)), Want: "send REM_ACCESS_ERR; ERR"},
	{Name: "NAK remote operation", Rule: "9.7.5.2", Type: qp.RC, Do: reply(qp.Send, 100, ack(bth.NAKRemoteOp)), Want: "send REM_OP_ERR; ERR"},
	{Name: "NAK of what is not sent yet", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.Send, 100, ack(bth.NAKRemoteAccess).at(5)), Want: "nothing"},
	{Name: "NAK with a reserved code", Rule: "9.7.5.2", Type: qp.RC, Do: reply(qp.Send, 100, ack(0x7F)), Want: "send BAD_RESP_ERR; ERR"},
	{Name: "reserved syndrome", Rule: "9.7.5.2", Type: qp.RC, Do: reply(qp.Send, 100, ack(0x40)), Want: "send BAD_RESP_ERR; ERR"},
	{Name: "READ response to a SEND", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.Send, 100, readOnly(100)), Want: "send BAD_RESP_ERR; ERR"},
	{Name: "atomic acknowledgement of a SEND", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.Send, 100,
		packet{op: bth.RCAtomicAck, ext: append(aeth(bth.AckNoCredits, 1), atomicAck(1)...)}), Want: "send BAD_RESP_ERR; ERR"},
	{Name: "READ response", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.Read, 100, readOnly(100)), Want: "send SUCCESS; memory 0…99 changed"},
	{Name: "READ response, too long", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.Read, 100, readOnly(200)), Want: "send LOC_LEN_ERR; ERR"},
	{Name: "READ response, too short", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.Read, 100, readOnly(48)), Want: "send LOC_LEN_ERR; ERR"},
	{Name: "READ response FIRST for one packet", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.Read, 100,
		packet{op: bth.RCReadResponseFirst, ext: aeth(bth.AckNoCredits, 1), data: mtu}), Want: "send LOC_LEN_ERR; ERR"},
	{Name: "READ response LAST without FIRST", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.Read, 100,
		packet{op: bth.RCReadResponseLast, ext: aeth(bth.AckNoCredits, 1), data: 100}), Want: "send SUCCESS; memory 0…99 changed"},
	{Name: "READ response that was not asked for yet", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.Read, 3000,
		packet{op: bth.RCReadResponseLast, ext: aeth(bth.AckNoCredits, 1), data: 952}.at(2)), Want: "nothing"},
	{Name: "READ response with a NAK in it", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.Read, 100,
		packet{op: bth.RCReadResponseOnly, ext: aeth(bth.NAKRemoteAccess, 1), data: 100}), Want: "send BAD_RESP_ERR; ERR"},
	{Name: "ACK of a READ", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.Read, 100, ack(bth.AckNoCredits)), Want: "nothing"},
	{Name: "atomic acknowledgement of a READ", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.Read, 100,
		packet{op: bth.RCAtomicAck, ext: append(aeth(bth.AckNoCredits, 1), atomicAck(1)...)}), Want: "send BAD_RESP_ERR; ERR"},
	{Name: "READ response to an atomic", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.FetchAdd, 8, readOnly(8)), Want: "send BAD_RESP_ERR; ERR"},
	{Name: "ACK of an atomic", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.FetchAdd, 8, ack(bth.AckNoCredits)), Want: "nothing"},
	{Name: "atomic acknowledgement", Rule: "9.7.5.1", Type: qp.RC, Do: reply(qp.FetchAdd, 8,
		packet{op: bth.RCAtomicAck, ext: append(aeth(bth.AckNoCredits, 1), atomicAck(1)...)}), Want: "send SUCCESS; memory 0…7 changed"},
	{Name: "NAK of a READ", Rule: "9.7.5.2", Type: qp.RC, Do: reply(qp.Read, 3000, ack(bth.NAKRemoteAccess).at(1)), Want: "send REM_ACCESS_ERR; ERR"},
}
