package qp_test

import (
	"math/rand/v2"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// wire is a loss-free wire that does as little as possible: it keeps the frames of one batch in a fixed buffer and
// hands them to the peer afterwards. So a benchmark over it measures the engine.
type wire struct {
	*node
	frames [64][]byte
	n      int
	icrc   bool // check the ICRC on receipt
	data   int  // bytes of payload delivered
	p      frame.Packet
}

func newWire(n *node, icrc bool) *wire {
	w := &wire{node: n, icrc: icrc}
	for i := range w.frames {
		w.frames[i] = make([]byte, 0, 4400)
	}
	return w
}

func (w *wire) Begin(p *frame.Path, size int) ([]byte, bth.CRC, bool) {
	if w.n == len(w.frames) {
		return nil, 0, false
	}
	b := w.frames[w.n][:p.HeaderLen(frame.LayoutEthernet)+size]
	w.frames[w.n] = b
	body, crc := p.Put(b, frame.LayoutEthernet, size, 1)
	return body, crc, true
}

func (w *wire) Commit() { w.n++ }

// deliver hands the batch to the peer and returns its size.
func (w *wire) deliver(to *node) int {
	n := w.n
	for _, b := range w.frames[:n] {
		if err := w.p.Parse(b, frame.LayoutEthernet); err != nil {
			panic(err)
		}
		if w.icrc && !w.p.CheckICRC() {
			panic("wrong ICRC")
		}
		w.data += w.p.PayloadLen()
		to.HandlePacket(to.net.now, &w.p)
	}
	w.n = 0
	return n
}

// BenchmarkEngine drives two engines against each other and reports the time
// per packet, both ends together: building, parsing and handling requests and
// answers. ICRC generation and payload copies are part of it.
func BenchmarkEngine(b *testing.B) {
	for _, c := range []struct {
		name string
		op   qp.Opcode
		size int
		mtu  bth.MTU
	}{
		{"SEND/64", qp.Send, 64, bth.MTU1024},
		{"WRITE/64", qp.Write, 64, bth.MTU1024},
		{"WRITE/64KiB", qp.Write, 64 << 10, bth.MTU1024},
		{"WRITE/64KiB/4096", qp.Write, 64 << 10, bth.MTU4096},
		{"READ/64KiB", qp.Read, 64 << 10, bth.MTU1024},
		{"FETCH_ADD", qp.FetchAdd, 8, bth.MTU1024},
	} {
		b.Run(c.name, func(b *testing.B) { benchEngine(b, c.op, c.size, c.mtu) })
	}
}

func benchEngine(b *testing.B, op qp.Opcode, size int, mtu bth.MTU) {
	na, nb, _ := newPair(b, 1, impairment{}, pairConfig{mtu: mtu, rd: 16})
	wa, wb := newWire(na, true), newWire(nb, true)
	_, local := na.region(b, 64<<10)
	_, remote := nb.region(b, 64<<10)
	sg := []mr.SGE{local.SGE(0, size)}
	rsg := []mr.SGE{remote.SGE(0, size)}
	wr := qp.SendWR{Opcode: op, Flags: qp.Signaled, SG: sg, RemoteAddr: remote.Addr(), RKey: remote.RKey()}
	recv := qp.RecvWR{SG: rsg}
	wcs := make([]cq.WC, 64)
	packets, posted, done := 0, 0, 0
	b.ReportAllocs()
	b.SetBytes(int64(size))
	for done < b.N {
		for ; posted < b.N && posted-done < 32; posted++ {
			if op == qp.Send {
				if err := nb.PostRecv(&recv); err != nil {
					b.Fatal(err)
				}
			}
			if err := na.PostSend(&wr); err != nil {
				b.Fatal(err)
			}
		}
		na.Emit(1, wa)
		packets += wa.deliver(nb)
		nb.Emit(1, wb)
		packets += wb.deliver(na)
		for _, wc := range wcs[:na.send.Poll(wcs)] {
			if wc.Status != cq.Success {
				b.Fatal(wc.Status)
			}
			done++
		}
		nb.recv.Poll(wcs)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
}

// TestNoAllocations: nothing is allocated per message in steady state.
func TestNoAllocations(t *testing.T) {
	for _, op := range []qp.Opcode{qp.Send, qp.Write, qp.Read, qp.FetchAdd} {
		noAllocations(t, op, pairConfig{})
	}
	for _, op := range []qp.Opcode{qp.Flush, qp.AtomicWrite, qp.MaskedCompareSwap, qp.MaskedFetchAdd} {
		noAllocations(t, op, pairConfig{masked: true, quirk: true})
	}
	for _, op := range []qp.Opcode{qp.MaskedCompareSwap, qp.MaskedFetchAdd} {
		noAllocations(t, op, pairConfig{masked: true, maxArg: mr.MaxOperand})
	}
	noAllocations(t, qp.Send, pairConfig{hostB: sharedHost(qp.SRQConfig{})})
	for _, op := range []qp.Opcode{qp.Send, qp.Write, qp.Read, qp.FetchAdd} {
		noAllocations(t, op, pairConfig{typ: qp.XRCSend, typB: qp.XRCRecv,
			hostB: newHost(rand.New(rand.NewPCG(1, 1))).openXRC(1, qp.SRQConfig{MaxWR: 3})})
	}
}

func noAllocations(t *testing.T, op qp.Opcode, c pairConfig) {
	size := 3000
	switch op {
	case qp.FetchAdd, qp.AtomicWrite, qp.MaskedCompareSwap, qp.MaskedFetchAdd:
		size = 8
	}
	var args *qp.MaskedArgs
	if c.maxArg > 0 {
		size, args = c.maxArg, new(qp.MaskedArgs)
	}
	na, nb, _ := newPair(t, 1, impairment{}, c)
	post := nb.PostRecv
	var srqn bth.SRQN
	received := nb.recv
	switch {
	case nb.host.srq != nil:
		post = nb.host.srq.PostRecv
	case nb.host.xrc != nil:
		srq := nb.host.xrc[0]
		post, srqn, received = srq.PostRecv, srq.Num(), srq.cq
	}
	wa, wb := newWire(na, !c.quirk), newWire(nb, !c.quirk)
	_, local := na.region(t, size)
	_, remote := nb.region(t, size+c.maxArg)
	at := remote.Addr()
	if c.maxArg > 0 {
		at = (at + uint64(c.maxArg) - 1) &^ uint64(c.maxArg-1)
	}
	wr := qp.SendWR{Opcode: op, Flags: qp.Signaled, SG: []mr.SGE{local.SGE(0, size)}, RemoteAddr: at, Args: args, RKey: remote.RKey(),
		RemoteSRQN: srqn}
	if op == qp.Flush {
		wr.SG, wr.FlushType, wr.Length = nil, bth.FlushGlobal, uint32(size)
	}
	recv := qp.RecvWR{SG: []mr.SGE{remote.SGE(0, size)}}
	wcs := make([]cq.WC, 4)
	if n := testing.AllocsPerRun(100, func() {
		if op == qp.Send {
			must(0, post(&recv))
		}
		must(0, na.PostSend(&wr))
		for wcs[0].Status = cq.GeneralErr; na.send.Poll(wcs) == 0; {
			na.Emit(1, wa)
			wa.deliver(nb)
			nb.Emit(1, wb)
			wb.deliver(na)
		}
		if wcs[0].Status != cq.Success {
			t.Fatal(wcs[0].Status)
		}
		received.Poll(wcs)
	}); n != 0 {
		t.Errorf("%v: %v allocations per operation", op, n)
	}
}

// TestMigrationNoAllocations: the packets of an armed queue pair allocate nothing. A migration because of a packet or
// of the timer allocates nothing either, except the first incident counters of the queue pair.
func TestMigrationNoAllocations(t *testing.T) {
	const runs = 20
	movers := make([]*mover, runs+1) // one for warming up
	packets := make([]*frame.Packet, len(movers))
	check := func(name string, path func(*mover) *frame.Path, moved bool, f func(*mover, *frame.Packet)) {
		for i := range movers {
			v := newMover(t, qp.Armed, pairConfig{retry: none})
			v.post(send(v.m, 1))
			v.sent()
			v.events = make([]qp.EventType, 0, 1)
			movers[i], packets[i] = v, build(t, path(v), v.Num(), v.next(moved))
		}
		i := 0
		if n := testing.AllocsPerRun(runs, func() { f(movers[i], packets[i]); i++ }); n != float64(movers[1].Observe().Timeouts) {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	primary := func(v *mover) *frame.Path { return v.peerPrimary }
	alternate := func(v *mover) *frame.Path { return v.peerAlt }
	check("a packet", primary, false, func(v *mover, p *frame.Packet) { v.HandlePacket(1, p) })
	check("a packet that says the peer has migrated", alternate, true, func(v *mover, p *frame.Packet) { v.HandlePacket(1, p) })
	if movers[0].MigState() != qp.Migrated {
		t.Error("the packet did not migrate")
	}
	check("the timer", primary, false, func(v *mover, _ *frame.Packet) { v.HandleTimeout(v.NextTimeout()) })
	if movers[0].MigState() != qp.Migrated {
		t.Error("the timer did not migrate")
	}
}
