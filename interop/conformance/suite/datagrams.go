package suite

import (
	"encoding/binary"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/qp"
)

// grh is the area in front of every datagram's payload.
const grh = 40

// datagramTests are the tests of UD. They need a network that loses nothing, because lost datagrams
// are not repeated.
var datagramTests = []Test{
	{Name: "TestQPEx/UDSend", Checks: "datagrams of every size arrive after 40 bytes of GRH", Clean: true, Run: func(t *T) { datagrams(t, qp.Send) }},
	{Name: "TestQPEx/UDSendEx", Checks: "the same by the ibv_wr_* calls", Clean: true, Needs: verbs.HasExtendedPost, Run: func(t *T) { datagrams(t, qp.Send, extended) }},
	{Name: "TestQPEx/UDSendImm", Checks: "immediate data arrives with messages of every size", Clean: true, Run: func(t *T) { datagrams(t, qp.SendImm) }},
	{Name: "TestQPEx/UDZeroSize", Checks: "an empty datagram arrives", Clean: true, Run: func(t *T) {
		a, b := t.pair(service(qp.UD))
		r := b.recv(0, grh)
		w := a.wr(qp.Send, 0, 0, 0)
		w.SG = nil
		a.sent(a.post(w))
		expect(t, b.Node, "length of the datagram", b.received(r).ByteLen, grh)
	}},
	{Name: "TestQP/UDGRHArea", Checks: "the GRH area has the IPv4 header as received", Clean: true, Run: grhArea},
	{Name: "TestQP/UDMaxSize", Checks: "a datagram as large as the port's MTU arrives", Clean: true, Run: func(t *T) {
		a, b := t.pair(service(qp.UD))
		data := a.fill(0, 1024, 4)
		r := b.recv(0, 2048)
		a.sent(a.post(a.wr(qp.Send, 0, 1024, 0)))
		expect(t, b.Node, "length of the datagram", b.received(r).ByteLen, grh+1024)
		b.holds(grh, data)
	}},
	{Name: "TestQP/UDTooLong", Checks: "EINVAL for a datagram larger than the port's MTU", Clean: true, Run: func(t *T) {
		a, b := t.pair(service(qp.UD))
		w := a.wr(qp.Send, 0, 1025, 0)
		err := a.PostSend(a.qp.H, w)
		refused(t, a, "datagram of 1025 bytes", err, eINVAL, rxe(success))
		if err == nil {
			a.sent(w.ID) // rxe completes it, and sends nothing
		}
		oneArrives(t, a, b)
	}},
	{Name: "TestQP/UDBadQKey", Checks: "the datagram is dropped silently", Clean: true, Run: udDropped(func(w *verbs.SendWR) { w.QKey ^= 1 })},
	{Name: "TestQP/UDBadQPN", Checks: "the datagram is dropped silently", Clean: true, Run: udDropped(func(w *verbs.SendWR) { w.QPN ^= 0x800000 })},
	{Name: "TestQP/UDNoReceive", Checks: "the datagram is dropped silently", Clean: true, Run: func(t *T) {
		a, b := t.pair(service(qp.UD))
		c, d := t.pair(service(qp.UD)) // its datagram arrives after the first one
		a.sent(a.post(a.wr(qp.Send, 0, 10, 0)))
		oneArrives(t, c, d)
		oneArrives(t, a, b)
	}},
	{Name: "TestQP/UDSendPrivilegedQKey", Checks: "a Q_Key with the top bit means the Q_Key of the queue pair", Clean: true, Run: func(t *T) {
		a, b := t.pair(service(qp.UD))
		r := b.recv(0, 100)
		w := a.wr(qp.Send, 0, 10, 0)
		w.QKey = 0x80000000
		w.Op, w.Imm = qp.SendImm, 1
		a.sent(a.post(w))
		w.ID, w.QKey, w.Imm = t.id(), b.c.qkey, 2
		a.sent(a.post(w))
		expect(t, a.Node, "first to arrive", b.received(r).Imm, 1, rxe[uint32](2))
	}},
	{Name: "TestQP/UDReply", Checks: "a datagram can be answered with its source address and source queue pair", Clean: true, Run: func(t *T) {
		a, b := t.pair(service(qp.UD))
		r := b.recv(0, 100)
		a.sent(a.post(a.wr(qp.Send, 0, 10, 0)))
		got := b.received(r)
		head := must1(b.ReadMem(b.mr.Addr, grh))(t)
		var src bth.GID
		src[10], src[11] = 0xFF, 0xFF
		copy(src[12:], head[32:36])
		to := verbs.AH{Port: 1, DGID: src}
		to.SGIDIndex, _ = b.GID()
		w := b.wr(qp.Send, 0, 10, 0)
		w.AH, w.QPN = must1(b.CreateAH(b.pd, to))(t), got.SrcQPN
		r = a.recv(0, 100)
		b.sent(b.post(w))
		a.received(r)
	}},
	{Name: "TestQP/UDBadLKey", Checks: "LOC_PROT_ERR", Clean: true, Run: func(t *T) {
		a, _ := t.pair(service(qp.UD))
		w := a.wr(qp.Send, 0, 10, 0)
		w.SG[0].LKey += 1 << 8
		a.sentAs(a.post(w), cq.LocProtErr, rxe61(cq.LocQPOpErr), since612(cq.WRFlushErr))
		a.inState(qp.SQE, rxe(qp.Err))
	}},
}

func datagrams(t *T, op qp.Opcode, with ...func(*config)) {
	a, b := t.pair(append(with, service(qp.UD))...)
	for i, n := range []uint64{1, 2, 3, 100, 1023, 1024} {
		data := a.fill(0, n, byte(i))
		r := b.recv(0, n+grh)
		w := a.wr(op, 0, n, 0)
		w.Imm = 77 + uint32(i)
		a.sent(a.post(w))
		got := b.received(r)
		checkRecv(t, b, got, cq.OpRecv, uint32(n)+grh)
		expect(t, b.Node, "queue pair the datagram is from", got.SrcQPN, a.qp.QPN)
		expect(t, b.Node, "GRH is flagged", got.Flags&cq.GRH != 0, true)
		if op == qp.SendImm {
			checkImm(t, b, got, w.Imm)
		}
		b.holds(grh, data)
	}
}

// oneArrives sends a datagram to a new receive.
func oneArrives(t *T, a, b *end) { arrivesIn(t, a, b, b.recv(0, 100)) }

// arrivesIn sends a datagram, which must be the one that completes the receive r: earlier datagrams
// must have been dropped.
func arrivesIn(t *T, a, b *end, r uint64) {
	w := a.wr(qp.SendImm, 0, 10, 0)
	w.Imm = 0x600D
	a.sent(a.post(w))
	checkImm(t, b, b.received(r), w.Imm)
}

func grhArea(t *T) {
	a, b := t.pair(service(qp.UD))
	r := b.recv(0, 200)
	a.sent(a.post(a.wr(qp.Send, 0, 100, 0)))
	b.received(r)
	area := must1(b.ReadMem(b.mr.Addr, grh))(t)
	ip := area[20:]
	_, src := a.GID()
	_, dst := b.GID()
	expect(t, b.Node, "version and header length", ip[0], 0x45)
	expect(t, b.Node, "total length", binary.BigEndian.Uint16(ip[2:]), uint16(20+8+12+8+100+4))
	expect(t, b.Node, "protocol", ip[9], 17)
	expect(t, b.Node, "source", string(ip[12:16]), string(src[12:]))
	expect(t, b.Node, "destination", string(ip[16:20]), string(dst[12:]))
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum&0xFFFF + sum>>16
	expect(t, b.Node, "header checksum adds up to", sum&0xFFFF+sum>>16, 0xFFFF)
}

// udDropped sends a changed datagram, which must be dropped, and then a good one, which must take
// the receive.
func udDropped(change func(*verbs.SendWR)) func(*T) {
	return func(t *T) {
		a, b := t.pair(service(qp.UD))
		r := b.recv(0, 100)
		w := a.wr(qp.Send, 0, 10, 0)
		change(&w)
		a.sent(a.post(w))
		arrivesIn(t, a, b, r)
	}
}
