package hostile

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// toMemory is an operation with a RETH for the target's memory.
func toMemory(op bth.Opcode, off uint64, n uint32, data int) func(x *exchange) {
	return func(x *exchange) {
		x.send(packet{op: op, ack: true, ext: reth(x.mr.Addr+off, x.mr.RKey, n), data: data})
	}
}

const refused = "NAK invalid +0 msn 0; ERR"

// lengthCases are packets whose size does not fit their place.
var lengthCases = []Case{
	{Name: "SEND FIRST shorter than the MTU", Rule: "9.7.4.1.6", Type: qp.RC, Recv: 1, Do: one(packet{op: bth.RCSendFirst, data: 100}),
		Want: "NAK invalid +0 msn 0; recv WR_FLUSH_ERR; ERR"},
	{Name: "SEND MIDDLE shorter than the MTU", Rule: "9.7.4.1.6", Type: qp.RC, Recv: 1, Do: inside(packet{op: bth.RCSendMiddle, data: 100}),
		Want: "NAK invalid +1 msn 0; recv REM_INV_REQ_ERR; ERR"},
	{Name: "SEND LAST without payload", Rule: "9.7.4.1.6", Type: qp.RC, Recv: 1, Do: inside(packet{op: bth.RCSendLast}),
		Want: "NAK invalid +1 msn 0; recv REM_INV_REQ_ERR; ERR"},
	{Name: "SEND ONLY longer than the MTU", Rule: "9.7.4.1.6", Type: qp.RC, Recv: 1, Do: one(packet{op: bth.RCSendOnly, data: mtu + 4}),
		Want: "NAK invalid +0 msn 0; recv WR_FLUSH_ERR; ERR"},
	{Name: "SEND longer than the receive", Rule: "9.7.4.1.4", Type: qp.RC, Recv: 1, Do: func(x *exchange) {
		x.pass(packet{op: bth.RCSendFirst, data: mtu})
		x.pass(packet{op: bth.RCSendMiddle, data: mtu})
		x.send(packet{op: bth.RCSendLast, data: 4})
	}, Want: "NAK invalid +2 msn 0; recv LOC_LEN_ERR; ERR"},
	{Name: "WRITE FIRST shorter than the MTU", Rule: "9.7.4.1.6", Type: qp.RC, Do: toMemory(bth.RCWriteFirst, 0, 2000, 100), Want: refused},
	{Name: "WRITE FIRST of a message of one packet", Rule: "9.7.4.1.6", Type: qp.RC, Do: toMemory(bth.RCWriteFirst, 0, 1024, 1024), Want: refused},
	{Name: "WRITE ONLY shorter than it says", Rule: "9.7.4.1.6", Type: qp.RC, Do: toMemory(bth.RCWriteOnly, 0, 200, 100), Want: refused},
	{Name: "WRITE ONLY longer than it says", Rule: "9.7.4.1.6", Type: qp.RC, Do: toMemory(bth.RCWriteOnly, 0, 100, 200), Want: refused},
	{Name: "WRITE ONLY of nothing, with payload", Rule: "9.7.4.1.6", Type: qp.RC, Do: toMemory(bth.RCWriteOnly, 0, 0, 100), Want: refused},
	{Name: "WRITE LAST shorter than is left", Rule: "9.7.4.1.6", Type: qp.RC, Do: func(x *exchange) {
		x.pass(packet{op: bth.RCWriteFirst, ext: reth(x.mr.Addr, x.mr.RKey, 2000), data: mtu})
		x.send(packet{op: bth.RCWriteLast, ack: true, data: 100})
	}, Want: "NAK invalid +1 msn 0; memory 0…1023 changed; ERR"},
	{Name: "WRITE LAST longer than is left", Rule: "9.7.4.1.6", Type: qp.RC, Do: func(x *exchange) {
		x.pass(packet{op: bth.RCWriteFirst, ext: reth(x.mr.Addr, x.mr.RKey, 1100), data: mtu})
		x.send(packet{op: bth.RCWriteLast, ack: true, data: 200})
	}, Want: "NAK invalid +1 msn 0; memory 0…1023 changed; ERR"},
	{Name: "WRITE MIDDLE where LAST is due", Rule: "9.7.4.1.6", Type: qp.RC, Do: func(x *exchange) {
		x.pass(packet{op: bth.RCWriteFirst, ext: reth(x.mr.Addr, x.mr.RKey, 2048), data: mtu})
		x.send(packet{op: bth.RCWriteMiddle, ack: true, data: mtu})
	}, Want: "NAK invalid +1 msn 0; memory 0…1023 changed; ERR"},
	{Name: "WRITE with the wrong pad count", Rule: "9.7.4.1.6", Type: qp.RC, Do: func(x *exchange) {
		x.send(packet{op: bth.RCWriteOnly, ack: true, ext: reth(x.mr.Addr, x.mr.RKey, 100), data: 98, fakePad: true, pad: 2})
	}, Want: refused},
	{Name: "WRITE of more than 2^31 bytes", Rule: "9.7.4.1.6", Type: qp.RC, Do: toMemory(bth.RCWriteFirst, 0, 1<<31+1, 1024), Want: refused},
	{Name: "READ of more than 2^31 bytes", Rule: "9.7.4.1.6", Type: qp.RC, Do: toMemory(bth.RCReadRequest, 0, 1<<31+1, 0), Want: refused},
	{Name: "READ with payload", Rule: "9.7.4.1.6", Type: qp.RC, Do: toMemory(bth.RCReadRequest, 0, 100, 100), Want: "READ ONLY +0 100 B msn 1"},
	{Name: "atomic at an odd address", Rule: "9.7.4.1.6", Type: qp.RC, Do: func(x *exchange) {
		x.send(packet{op: bth.RCFetchAdd, ack: true, ext: atomicETH(x.mr.Addr+1, x.mr.RKey, 1, 0)})
	}, Want: refused},
	{Name: "ATOMIC WRITE of nothing", Rule: "memory leak of 2026; oA19-28", Type: qp.RC, Do: toMemory(bth.RCAtomicWrite, 0, 0, 0), Want: refused},
	{Name: "ATOMIC WRITE of 8 bytes without payload", Rule: "memory leak of 2026; oA19-28", Type: qp.RC, Do: toMemory(bth.RCAtomicWrite, 0, 8, 0), Want: refused},
	{Name: "ATOMIC WRITE of 16 bytes", Rule: "oA19-28", Type: qp.RC, Do: toMemory(bth.RCAtomicWrite, 0, 16, 16), Want: refused},
	{Name: "ATOMIC WRITE at an odd address", Rule: "oA19-28", Type: qp.RC, Do: toMemory(bth.RCAtomicWrite, 4, 8, 8), Want: refused},
	{Name: "FLUSH without the right", Rule: "oA19", Type: qp.RC, Do: func(x *exchange) {
		x.send(packet{op: bth.RCFlush, ack: true, ext: append(feth(bth.FlushGlobal, bth.FlushRange), reth(x.mr.Addr, x.mr.RKey, 64)...)})
	}, Want: refused},
}

// keyCases name memory they must not, or that is not there.
var keyCases = []Case{
	{Name: "WRITE with a key that is none", Rule: "9.7.4.1.7", Type: qp.RC, Do: badKey(bth.RCWriteOnly, 100), Want: denied},
	{Name: "READ with a key that is none", Rule: "9.7.4.1.7", Type: qp.RC, Do: badKey(bth.RCReadRequest, 0), Want: denied},
	{Name: "WRITE that begins before the region", Rule: "9.7.4.1.7", Type: qp.RC, Do: toMemory(bth.RCWriteOnly, ^uint64(0), 100, 100), Want: denied},
	{Name: "WRITE that ends behind the region", Rule: "9.7.4.1.7", Type: qp.RC, Do: toMemory(bth.RCWriteOnly, memSize-99, 100, 100), Want: denied},
	{Name: "READ that ends behind the region", Rule: "9.7.4.1.7", Type: qp.RC, Do: toMemory(bth.RCReadRequest, 1, memSize, 0), Want: denied},
	{Name: "READ around 2^64", Rule: "overflows of 2026", Type: qp.RC, Do: func(x *exchange) {
		x.send(packet{op: bth.RCReadRequest, ack: true, ext: reth(^uint64(0)-10, x.mr.RKey, 100)})
	}, Want: denied},
	{Name: "WRITE around 2^64", Rule: "overflows of 2026", Type: qp.RC, Do: func(x *exchange) {
		x.send(packet{op: bth.RCWriteOnly, ack: true, ext: reth(^uint64(0)-10, x.mr.RKey, 100), data: 100})
	}, Want: denied},
	{Name: "READ of 2^31 bytes", Rule: "9.7.4.1.7", Type: qp.RC, Do: toMemory(bth.RCReadRequest, 0, 1<<31, 0), Want: denied},
	{Name: "atomic across the end of the region", Rule: "9.7.4.1.7", Type: qp.RC, Do: func(x *exchange) {
		x.send(packet{op: bth.RCFetchAdd, ack: true, ext: atomicETH(x.mr.Addr+memSize, x.mr.RKey, 1, 0)})
	}, Want: denied},
	{Name: "WRITE to a region that does not allow it", Rule: "9.7.4.1.7", Type: qp.RC, Set: func(c *config) { c.access = mr.LocalWrite | mr.RemoteRead },
		Do: toMemory(bth.RCWriteOnly, 0, 100, 100), Want: denied},
	{Name: "WRITE to a queue pair that does not allow it", Rule: "9.7.4.1.5", Type: qp.RC, Set: func(c *config) { c.rights = 0 },
		Do: toMemory(bth.RCWriteOnly, 0, 100, 100), Want: refused},
	{Name: "READ from a queue pair that does not allow it", Rule: "9.7.4.1.5", Type: qp.RC, Set: func(c *config) { c.rights = 0 },
		Do: toMemory(bth.RCReadRequest, 0, 100, 0), Want: refused},
	{Name: "READ where none is granted", Rule: "9.7.4.1.4", Type: qp.RC, Set: func(c *config) { c.dest = 0 },
		Do: toMemory(bth.RCReadRequest, 0, 100, 0), Want: refused},
	{Name: "WRITE of nothing with any key", Rule: "9.7.4.1.7", Type: qp.RC, Do: func(x *exchange) {
		x.send(packet{op: bth.RCWriteOnly, ack: true, ext: reth(1, 0xFFFFFFFF, 0)})
	}, Want: "ACK +0 msn 1"},
	{Name: "READ of nothing with any key", Rule: "9.7.4.1.7", Type: qp.RC, Do: func(x *exchange) {
		x.send(packet{op: bth.RCReadRequest, ack: true, ext: reth(1, 0xFFFFFFFF, 0)})
	}, Want: "READ ONLY +0 0 B msn 1"},
	{Name: "SEND that invalidates a key that is none", Rule: "9.9.3", Type: qp.RC, Recv: 2, Do: func(x *exchange) {
		x.send(packet{op: bth.RCSendOnlyInv, ack: true, ext: ieth(0xDEAD00), data: 100})
	}, Want: "ACK +0 msn 1; recv REM_INV_REQ_ERR, WR_FLUSH_ERR; ERR"},
	{Name: "SEND that invalidates a user's region", Rule: "9.9.3", Type: qp.RC, Recv: 2, Do: func(x *exchange) {
		x.send(packet{op: bth.RCSendOnlyInv, ack: true, ext: ieth(x.mr.RKey), data: 100})
	}, Want: "ACK +0 msn 1; recv REM_INV_REQ_ERR, WR_FLUSH_ERR; ERR"},
}

const denied = "NAK access +0 msn 0; ERR"

func badKey(op bth.Opcode, data int) func(*exchange) {
	return func(x *exchange) {
		x.send(packet{op: op, ack: true, ext: reth(x.mr.Addr, x.mr.RKey+1<<8, 100), data: data})
	}
}
