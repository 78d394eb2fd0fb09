package qp_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// sharedHost is a device with a shared receive queue.
func sharedHost(c qp.SRQConfig) *host {
	if c.MaxWR == 0 {
		c.MaxWR, c.MaxSGE = 15, 2
	}
	return newHost(rand.New(rand.NewPCG(1, 1))).shareRecvs(c)
}

// shared is an engine under test whose receives come from a shared queue with n
// receives of 2048 bytes, with IDs from 0.
func shared(t testing.TB, c pairConfig, n int) (b *bench, mem []byte, region *mr.MR) {
	c.hostA, c.psnB = sharedHost(qp.SRQConfig{}), e0
	b = newBench(t, c)
	mem, region = b.region(t, 32768)
	b.fill(region, n)
	return b, mem, region
}

// fill posts n receives of 2048 bytes to the shared queue, with IDs from 0.
func (b *bench) fill(m *mr.MR, n int) {
	b.t.Helper()
	sg := make([]mr.SGE, 2) // PostRecv copies it
	for id := range n {
		sg[0], sg[1] = m.SGE(id*2048, 1024), m.SGE(id*2048+1024, 1024)
		if err := b.host.srq.PostRecv(&qp.RecvWR{ID: uint64(id), SG: sg}); err != nil {
			b.t.Fatal(err)
		}
	}
}

// wantRecvs checks what has completed in the receive queue's CQ.
func (b *bench) wantRecvs(want ...outcome) {
	b.t.Helper()
	if got := ids(drain(b.recv)); !slices.Equal(got, want) {
		b.t.Fatalf("receives completed %v, want %v", got, want)
	}
}

func (b *bench) wantEvents(want ...qp.EventType) {
	b.t.Helper()
	if !slices.Equal(b.events, want) {
		b.t.Fatalf("events %v, want %v", b.events, want)
	}
	b.events = nil
}

// TestSRQAttr: sizes are rounded up to 2^k and reported. NewSRQ refuses what ibv_create_srq refuses.
func TestSRQAttr(t *testing.T) {
	pd := mr.NewPD()
	for _, c := range []struct {
		name string
		c    qp.SRQConfig
		want qp.SRQAttr // zero: EINVAL
	}{
		{"10", qp.SRQConfig{MaxWR: 10, MaxSGE: 3}, qp.SRQAttr{MaxWR: 16, MaxSGE: 3}},
		{"16", qp.SRQConfig{MaxWR: 16}, qp.SRQAttr{MaxWR: 16, MaxSGE: 1}},
		{"17", qp.SRQConfig{MaxWR: 17}, qp.SRQAttr{MaxWR: 32, MaxSGE: 1}},
		{"1", qp.SRQConfig{MaxWR: 1}, qp.SRQAttr{MaxWR: 1, MaxSGE: 1}},
		{"the limit is honoured", qp.SRQConfig{MaxWR: 10, Limit: 11}, qp.SRQAttr{MaxWR: 16, MaxSGE: 1, Limit: 11}},
		{"no work requests", qp.SRQConfig{}, qp.SRQAttr{}},
		{"fewer than none", qp.SRQConfig{MaxWR: -1}, qp.SRQAttr{}},
		{"too many work requests", qp.SRQConfig{MaxWR: qp.MaxSRQWR + 1}, qp.SRQAttr{}},
		{"too many elements", qp.SRQConfig{MaxWR: 1, MaxSGE: qp.MaxSRQSGE + 1}, qp.SRQAttr{}},
		{"fewer elements than none", qp.SRQConfig{MaxWR: 1, MaxSGE: -1}, qp.SRQAttr{}},
		{"limit beyond the size", qp.SRQConfig{MaxWR: 10, Limit: 17}, qp.SRQAttr{}},
		{"negative limit", qp.SRQConfig{MaxWR: 10, Limit: -1}, qp.SRQAttr{}},
	} {
		c.c.PD, c.c.Num = pd, 7
		s, err := qp.NewSRQ(c.c)
		switch {
		case c.want == qp.SRQAttr{}:
			var e *errs.Error
			if !errors.As(err, &e) || !errors.Is(err, syscall.EINVAL) || e.Object != "" {
				t.Errorf("%s: error %v, want EINVAL", c.name, err)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case s.Query() != c.want:
			t.Errorf("%s: %+v, want %+v", c.name, s.Query(), c.want)
		}
	}
	if _, err := qp.NewSRQ(qp.SRQConfig{MaxWR: 1}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("without a domain: %v", err)
	}
}

// TestSRQModify: Modify refuses what ibv_modify_srq refuses, on a queue of 32 with limit 11 that holds 10 receives of
// two elements. A refusal changes nothing.
func TestSRQModify(t *testing.T) {
	before := qp.SRQAttr{MaxWR: 32, MaxSGE: 3, Limit: 11}
	for _, c := range []struct {
		name string
		a    qp.SRQAttr
		mask qp.SRQAttrMask
		want qp.SRQAttr // zero: EINVAL
	}{
		{"limit", qp.SRQAttr{Limit: 32}, qp.SRQLimit, qp.SRQAttr{MaxWR: 32, MaxSGE: 3, Limit: 32}},
		{"no limit", qp.SRQAttr{}, qp.SRQLimit, qp.SRQAttr{MaxWR: 32, MaxSGE: 3}},
		{"limit beyond the size", qp.SRQAttr{Limit: 33}, qp.SRQLimit, qp.SRQAttr{}},
		{"negative limit", qp.SRQAttr{Limit: -1}, qp.SRQLimit, qp.SRQAttr{}},
		{"larger", qp.SRQAttr{MaxWR: 62}, qp.SRQMaxWR, qp.SRQAttr{MaxWR: 64, MaxSGE: 3, Limit: 11}},
		{"wider", qp.SRQAttr{MaxWR: 31, MaxSGE: 6}, qp.SRQMaxWR, qp.SRQAttr{MaxWR: 32, MaxSGE: 6, Limit: 11}},
		{"smaller", qp.SRQAttr{MaxWR: 12}, qp.SRQMaxWR, qp.SRQAttr{MaxWR: 16, MaxSGE: 3, Limit: 11}},
		{"narrower", qp.SRQAttr{MaxWR: 12, MaxSGE: 2}, qp.SRQMaxWR, qp.SRQAttr{MaxWR: 16, MaxSGE: 2, Limit: 11}},
		{"smaller with a smaller limit", qp.SRQAttr{MaxWR: 10, Limit: 3}, qp.SRQMaxWR | qp.SRQLimit, qp.SRQAttr{MaxWR: 16, MaxSGE: 3, Limit: 3}},
		{"narrower than what is queued", qp.SRQAttr{MaxWR: 31, MaxSGE: 1}, qp.SRQMaxWR, qp.SRQAttr{}},
		{"0", qp.SRQAttr{}, qp.SRQMaxWR, qp.SRQAttr{}},
		{"too large", qp.SRQAttr{MaxWR: qp.MaxSRQWR + 1}, qp.SRQMaxWR, qp.SRQAttr{}},
		{"below the limit", qp.SRQAttr{MaxWR: 10}, qp.SRQMaxWR, qp.SRQAttr{}},
		{"below what is queued", qp.SRQAttr{MaxWR: 7, Limit: 1}, qp.SRQMaxWR | qp.SRQLimit, qp.SRQAttr{}},
		{"unknown attribute", qp.SRQAttr{MaxWR: 31}, 4 | qp.SRQMaxWR, qp.SRQAttr{}},
	} {
		s := must(qp.NewSRQ(qp.SRQConfig{Num: 7, PD: mr.NewPD(), MaxWR: 32, MaxSGE: 3, Limit: 11}))
		for range 10 {
			must(0, s.PostRecv(&qp.RecvWR{SG: make([]mr.SGE, 2)}))
		}
		err := s.Modify(c.a, c.mask)
		want := c.want
		if (want == qp.SRQAttr{}) {
			if want = before; !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%s: error %v, want EINVAL", c.name, err)
			}
		} else if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := s.Query(); got != want || s.Len() != 10 {
			t.Errorf("%s: %+v with %d queued, want %+v with 10", c.name, got, s.Len(), want)
		}
	}
}

// TestSRQPost: the queue holds as many receives as it reports. A queue pair that uses it accepts no receives.
func TestSRQPost(t *testing.T) {
	b, _, region := shared(t, pairConfig{}, 16)
	srq := b.host.srq
	if err := srq.PostRecv(&qp.RecvWR{}); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("a full queue: %v", err)
	}
	if err := srq.PostRecv(&qp.RecvWR{SG: make([]mr.SGE, 3)}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("three elements of two: %v", err)
	}
	huge := region.SGE(0, 1<<31-1)
	if err := srq.PostRecv(&qp.RecvWR{SG: []mr.SGE{huge, huge}}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("4 GB: %v", err)
	}
	if err := b.PostRecv(&qp.RecvWR{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("post to the queue pair: %v", err)
	}
	if _, caps := b.Query(); caps.MaxRecvWR != 0 || caps.MaxRecvSGE != 0 {
		t.Errorf("capacities %+v", caps)
	}
}

// TestSRQResize: queued receives stay, in order, even if the ring has wrapped.
func TestSRQResize(t *testing.T) {
	b, mem, region := shared(t, pairConfig{}, 7)
	psn := e0
	for range 5 {
		b.inject(packet{op: bth.RCSendOnly, psn: psn})
		psn = psn.Add(1)
	}
	drain(b.recv)
	for id := uint64(7); id < 17; id++ {
		must(0, b.host.srq.PostRecv(&qp.RecvWR{ID: id, SG: []mr.SGE{region.SGE(int(id)*16, 16)}}))
	}
	for _, n := range []int{100, 12} {
		if err := b.host.srq.Modify(qp.SRQAttr{MaxWR: n}, qp.SRQMaxWR); err != nil {
			t.Fatal(err)
		}
	}
	for id := uint64(5); id < 17; id++ {
		b.inject(packet{op: bth.RCSendOnly, psn: psn, payload: []byte{byte(id), 1, 2, 3}})
		psn = psn.Add(1)
		b.wantRecvs(outcome{id, cq.Success})
	}
	if mem[12*16] != 12 {
		t.Error("data went elsewhere")
	}
}

// TestSRQLimit: the queue raises one event when a message leaves fewer receives than the limit, and then none until
// the program sets the limit again.
func TestSRQLimit(t *testing.T) {
	b, _, _ := shared(t, pairConfig{}, 8)
	srq := b.host.srq
	arm := func(n int) {
		t.Helper()
		if err := srq.Modify(qp.SRQAttr{Limit: n}, qp.SRQLimit); err != nil {
			t.Fatal(err)
		}
	}
	psn := e0
	step := func(left int, events ...qp.EventType) {
		t.Helper()
		b.inject(packet{op: bth.RCSendOnly, psn: psn})
		psn = psn.Add(1)
		if srq.Len() != left || !slices.Equal(b.host.events, events) {
			t.Fatalf("%d left, events %v; want %d, %v", srq.Len(), b.host.events, left, events)
		}
		if limit := srq.Query().Limit; len(events) > 0 && limit != 0 {
			t.Fatalf("limit %d after the event", limit)
		}
		b.host.events = nil
	}
	step(7)
	arm(6)
	step(6)
	step(5, qp.EventSRQLimit)
	step(4)
	arm(10) // the queue holds fewer than the limit already
	step(3, qp.EventSRQLimit)
	arm(1)
	step(2)
	step(1)
	step(0, qp.EventSRQLimit)
}

// TestSRQEmpty: a message without a receive gets an RNR NAK and is executed once there is a receive.
func TestSRQEmpty(t *testing.T) {
	b, mem, region := shared(t, pairConfig{minRNR: 12}, 0)
	write := packet{op: bth.RCWriteOnlyImm, psn: e0, ack: true, va: region.Addr() + 100, key: region.RKey(), length: 4, payload: []byte("abcd")}
	for _, d := range []packet{{op: bth.RCSendOnly, psn: e0, ack: true}, write} {
		b.inject(d)
		b.wantAck(bth.RNR(12), e0)
	}
	b.fill(region, 1)
	b.inject(write)
	b.wantAck(bth.AckNoCredits, e0)
	b.wantRecvs(outcome{0, cq.Success})
	if string(mem[100:104]) != "abcd" || b.host.srq.Len() != 0 {
		t.Errorf("memory %q, %d receives left", mem[100:104], b.host.srq.Len())
	}
}

// TestSRQShared: two queue pairs with messages in progress each have a receive of their own, even if the queue is
// used again or resized.
func TestSRQShared(t *testing.T) {
	a, mem, region := shared(t, pairConfig{}, 4)
	w := newNetwork(2, impairment{})
	n, _ := w.pair(t, pairConfig{hostA: a.host, psnB: e0}, 9)
	b := &bench{node: n, t: t}
	mtu := func(c byte) []byte { return bytes.Repeat([]byte{c}, 1024) }
	a.inject(packet{op: bth.RCSendFirst, psn: e0, payload: mtu('a')})
	b.inject(packet{op: bth.RCSendFirst, psn: e0, payload: mtu('b')})
	if a.host.srq.Len() != 2 {
		t.Fatalf("%d receives left, want 2", a.host.srq.Len())
	}
	// The slots of these two receives are used again, and the ring is replaced.
	wr := qp.RecvWR{SG: []mr.SGE{region.SGE(8192, 1), region.SGE(8192, 2)}}
	for id := range uint64(13) {
		wr.ID = 100 + id
		must(0, a.host.srq.PostRecv(&wr))
	}
	must(0, a.host.srq.Modify(qp.SRQAttr{MaxWR: 60, MaxSGE: 8}, qp.SRQMaxWR))
	b.inject(packet{op: bth.RCSendLast, psn: e0.Add(1), payload: mtu('B')})
	a.inject(packet{op: bth.RCSendLast, psn: e0.Add(1), payload: mtu('A')})
	a.wantRecvs(outcome{0, cq.Success})
	b.wantRecvs(outcome{1, cq.Success})
	for i, c := range []byte("aAbB") {
		if !bytes.Equal(mem[i*1024:][:1024], mtu(c)) {
			t.Errorf("kilobyte %d holds %q…, want %q", i, mem[i*1024], c)
		}
	}
	// The failure of one queue pair takes nothing from the other.
	must(0, a.Modify(&qp.Attr{State: qp.Err}, qp.AttrState))
	b.inject(packet{op: bth.RCSendOnly, psn: e0.Add(2), ack: true})
	b.wantAck(bth.AckNoCredits, e0.Add(2))
	b.wantRecvs(outcome{2, cq.Success})
	a.wantRecvs()
}

// TestSRQLastWQE: a queue pair enters ERR, for any reason. Its receive in use completes once, with the status of that
// reason. Then LAST_WQE_REACHED reports that the queue pair takes no more receives. The receives in the shared queue
// stay.
func TestSRQLastWQE(t *testing.T) {
	mtu := bytes.Repeat([]byte{'x'}, 1024)
	first := packet{op: bth.RCSendFirst, psn: e0, payload: mtu}
	for _, c := range []struct {
		name   string
		config pairConfig
		fail   func(b *bench, m *mr.MR)
		recv   []outcome
		events []qp.EventType
	}{
		{name: "Modify", fail: func(b *bench, _ *mr.MR) {
			must(0, b.Modify(&qp.Attr{State: qp.Err}, qp.AttrState))
		}, events: []qp.EventType{qp.EventLastWQE}},
		{name: "Modify from INIT", config: pairConfig{stopAt: qp.Init}, fail: func(b *bench, _ *mr.MR) {
			must(0, b.Modify(&qp.Attr{State: qp.Err}, qp.AttrState))
		}, events: []qp.EventType{qp.EventLastWQE}},
		{name: "Modify in a message", fail: func(b *bench, _ *mr.MR) {
			b.inject(first)
			must(0, b.Modify(&qp.Attr{State: qp.Err}, qp.AttrState))
		}, recv: []outcome{{0, cq.WRFlushErr}}, events: []qp.EventType{qp.EventLastWQE}},
		{name: "invalid request", fail: func(b *bench, _ *mr.MR) {
			b.inject(packet{op: bth.RCSendMiddle, psn: e0, payload: mtu})
		}, events: []qp.EventType{qp.EventReqErr, qp.EventLastWQE}},
		{name: "invalid request in a message", fail: func(b *bench, _ *mr.MR) {
			b.inject(first)
			b.inject(packet{op: bth.RCSendOnly, psn: e0.Add(1)})
		}, recv: []outcome{{0, cq.RemInvReqErr}}, events: []qp.EventType{qp.EventLastWQE}},
		{name: "no such key", fail: func(b *bench, m *mr.MR) {
			b.inject(packet{op: bth.RCWriteOnlyImm, psn: e0, va: m.Addr(), key: m.RKey() ^ 1, length: 4, payload: mtu[:4]})
		}, events: []qp.EventType{qp.EventAccessErr, qp.EventLastWQE}},
		{name: "message longer than the receive", fail: func(b *bench, _ *mr.MR) {
			for i, op := range []bth.Opcode{bth.RCSendFirst, bth.RCSendMiddle, bth.RCSendLast} {
				b.inject(packet{op: op, psn: e0.Add(i), payload: mtu})
			}
		}, recv: []outcome{{0, cq.LocLenErr}}, events: []qp.EventType{qp.EventLastWQE}},
		{name: "receive that is no memory", fail: func(b *bench, m *mr.MR) {
			b.inject(first)
			must(0, m.Deregister())
			b.inject(packet{op: bth.RCSendLast, psn: e0.Add(1), payload: mtu})
		}, recv: []outcome{{0, cq.LocProtErr}}, events: []qp.EventType{qp.EventLastWQE}},
		{name: "key that cannot be invalidated", fail: func(b *bench, m *mr.MR) {
			b.inject(packet{op: bth.RCSendOnlyInv, psn: e0, imm: uint32(m.RKey())})
		}, recv: []outcome{{0, cq.RemInvReqErr}}, events: []qp.EventType{qp.EventLastWQE}},
		{name: "retries used up", config: pairConfig{retry: 1}, fail: func(b *bench, m *mr.MR) {
			b.inject(first)
			b.post(send(m, 1))
			b.sent()
			for b.State() != qp.Err {
				b.expire()
				b.sent()
			}
		}, recv: []outcome{{0, cq.WRFlushErr}}, events: []qp.EventType{qp.EventLastWQE}},
		{name: "NAK", fail: func(b *bench, m *mr.MR) {
			b.inject(first)
			b.post(send(m, 1))
			b.inject(nak(bth.NAKRemoteAccess, 0))
		}, recv: []outcome{{0, cq.WRFlushErr}}, events: []qp.EventType{qp.EventLastWQE}},
		{name: "local error of a send", fail: func(b *bench, m *mr.MR) {
			b.inject(first)
			wr := send(m, 1)
			wr.SG[0].LKey++
			b.post(wr)
		}, recv: []outcome{{0, cq.WRFlushErr}}, events: []qp.EventType{qp.EventLastWQE}},
		{name: "completion queue overrun", config: pairConfig{cqEntries: 1}, fail: func(b *bench, _ *mr.MR) {
			b.inject(packet{op: bth.RCSendOnly, psn: e0})
			b.inject(packet{op: bth.RCSendOnly, psn: e0.Add(1)})
		}, recv: []outcome{{0, cq.Success}}, events: []qp.EventType{qp.EventFatal, qp.EventLastWQE}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, _, region := shared(t, c.config, 0)
			_, other := b.region(t, 4096) // the region of the receives
			b.fill(other, 2)
			if c.name == "receive that is no memory" {
				region = other
			}
			c.fail(b, region)
			b.wantState(qp.Err)
			b.wantEvents(c.events...)
			b.wantRecvs(c.recv...)
			taken := len(c.recv)
			if c.name == "completion queue overrun" {
				taken++ // its completion is lost
			}
			if got := b.host.srq.Len(); got != 2-taken {
				t.Errorf("%d receives left in the shared queue, want %d", got, 2-taken)
			}
			if _, recvs := b.Outstanding(); recvs != 0 {
				t.Errorf("%d receives outstanding", recvs)
			}
			must(0, b.Modify(&qp.Attr{State: qp.Err}, qp.AttrState))
			b.wantEvents() // it is in ERR already
			b.wantRecvs()
		})
	}
}

// TestSRQReset: RESET drops the receive in use without a completion. The receives in the queue stay.
func TestSRQReset(t *testing.T) {
	b, _, _ := shared(t, pairConfig{}, 2)
	b.inject(packet{op: bth.RCSendFirst, psn: e0, payload: make([]byte, 1024)})
	must(0, b.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState))
	b.wantRecvs()
	b.wantEvents()
	if n := b.host.srq.Len(); n != 1 {
		t.Errorf("%d left, want 1", n)
	}
}

// TestSRQUnreliable: UC drops a message without a receive. If a message loses a packet, its receive cannot return to
// the shared queue: it completes with an error, and the queue pair continues.
func TestSRQUnreliable(t *testing.T) {
	mtu := make([]byte, 1024)
	b, _, region := shared(t, pairConfig{typ: qp.UC}, 0)
	b.inject(packet{op: bth.UCSendOnly, psn: e0})
	b.fill(region, 5)
	b.inject(packet{op: bth.UCSendFirst, psn: e0.Add(1), payload: mtu})
	b.inject(packet{op: bth.UCSendLast, psn: e0.Add(3), payload: mtu}) // a gap
	b.wantRecvs(outcome{0, cq.RemInvReqErr})
	b.inject(packet{op: bth.UCSendFirst, psn: e0.Add(4), payload: mtu})
	b.inject(packet{op: bth.UCSendOnly, psn: e0.Add(5)}) // another message
	b.wantRecvs(outcome{1, cq.RemInvReqErr}, outcome{2, cq.Success})
	b.inject(packet{op: bth.UCSendFirst, psn: e0.Add(6), payload: mtu})
	b.inject(packet{op: bth.UCSendMiddle, psn: e0.Add(7), payload: mtu[:8]}) // too short
	b.wantRecvs(outcome{3, cq.RemInvReqErr})
	b.inject(packet{op: bth.UCWriteOnlyImm, psn: e0.Add(8)})
	b.wantRecvs(outcome{4, cq.Success})
	b.wantState(qp.RTS)
	b.wantEvents()

	b, _, _ = shared(t, pairConfig{typ: qp.UC, cqEntries: 1}, 2)
	b.inject(packet{op: bth.UCSendOnly, psn: e0})
	b.inject(packet{op: bth.UCSendFirst, psn: e0.Add(1), payload: mtu})
	b.inject(packet{op: bth.UCSendOnly, psn: e0.Add(2)}) // no room for the completion with an error
	b.wantState(qp.Err)
	b.wantRecvs(outcome{0, cq.Success})
	b.wantEvents(qp.EventFatal, qp.EventLastWQE)
}

// TestSRQDatagram: UD takes its receives from the shared queue; a datagram that
// does not fit takes none.
func TestSRQDatagram(t *testing.T) {
	b := newBench(t, pairConfig{typ: qp.UD, stopAt: inReset, hostA: sharedHost(qp.SRQConfig{})})
	walk(t, b.node, qp.RTS)
	mem, region := b.region(t, 4096)
	d := packet{op: bth.UDSendOnly, qkey: 0x11111111, payload: make([]byte, 2048)}
	b.inject(d) // dropped: no receive
	b.fill(region, 2)
	b.inject(d) // too small for the payload and the 40 bytes in front of it
	b.wantRecvs()
	d.payload = []byte("hello world.")
	b.inject(d)
	b.wantRecvs(outcome{0, cq.Success})
	if string(mem[40:52]) != "hello world." || b.host.srq.Len() != 1 {
		t.Errorf("received %q, %d left", mem[40:52], b.host.srq.Len())
	}
	must(0, region.Deregister())
	b.inject(d)
	b.wantRecvs(outcome{1, cq.LocProtErr})
	b.wantState(qp.Err)
	b.wantEvents(qp.EventLastWQE)
}

// TestSRQDomain: the queue may be of another protection domain than the queue pair. Its receives are checked against
// its own domain, the keys of the peer against the domain of the queue pair.
func TestSRQDomain(t *testing.T) {
	other := mr.NewPD()
	h := sharedHost(qp.SRQConfig{MaxWR: 7, PD: other})
	b := newBench(t, pairConfig{hostA: h, psnB: e0})
	mem := make([]byte, 64)
	inSRQ := must(b.mem.Register(other, mem, mr.LocalWrite|mr.RemoteWrite, mr.Options{}))
	_, inQP := b.region(t, 64)
	for _, m := range []*mr.MR{inSRQ, inQP} {
		must(0, h.srq.PostRecv(&qp.RecvWR{SG: []mr.SGE{m.SGE(0, 64)}}))
	}
	b.inject(packet{op: bth.RCSendOnly, psn: e0, payload: []byte("abcd")})
	b.wantRecvs(outcome{0, cq.Success})
	write := packet{op: bth.RCWriteOnly, psn: e0.Add(1), ack: true, va: inQP.Addr(), key: inQP.RKey(), length: 4, payload: []byte("efgh")}
	b.inject(write)
	b.wantAck(bth.AckNoCredits, e0.Add(1))
	b.inject(packet{op: bth.RCSendOnly, psn: e0.Add(2), payload: []byte("ijkl")})
	b.wantAck(bth.NAKRemoteOp, e0.Add(2))
	b.wantRecvs(outcome{0, cq.LocProtErr})
	if string(mem[:4]) != "abcd" {
		t.Errorf("received %q", mem[:4])
	}

	b = newBench(t, pairConfig{hostA: h, psnB: e0})
	write.psn, write.va, write.key = e0, inSRQ.Addr(), inSRQ.RKey()
	b.inject(write)
	b.wantAck(bth.NAKRemoteAccess, e0)
}

// TestSRQClose: Close returns EBUSY while a queue pair uses the queue, and EINVAL the second time.
func TestSRQClose(t *testing.T) {
	s := must(qp.NewSRQ(qp.SRQConfig{Num: 7, PD: mr.NewPD(), MaxWR: 1}))
	must(0, s.Retain())
	if err := s.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("in use: %v", err)
	}
	s.Release()
	must(0, s.Close())
	for _, err := range []error{s.Close(), s.Retain()} {
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("closed: %v", err)
		}
	}
}

// TestSRQLastWQEOnce: an answer that is sent in ERR and fails there raises no second LAST_WQE_REACHED.
func TestSRQLastWQEOnce(t *testing.T) {
	b, _, region := shared(t, pairConfig{}, 1)
	for _, d := range []packet{{op: bth.RCReadRequest, psn: e0, va: region.Addr(), key: region.RKey(), length: 8}, {op: bth.RCSendMiddle, psn: e0.Add(1)}} {
		b.HandlePacket(b.net.now, build(t, b.peer.path, b.Num(), d))
	}
	b.wantState(qp.Err)
	must(0, region.Deregister())
	b.collect()
	b.wantAck(bth.NAKRemoteAccess, e0)
	n := 0
	for _, e := range b.events {
		if e == qp.EventLastWQE {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d times LAST_WQE_REACHED", n)
	}
}
