package qp_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// repairing is client with repair, and data that the peer has at address 0x1000.
func repairing(t testing.TB, c pairConfig) (b *bench, mem, data []byte, m *mr.MR) {
	c.repair, c.repairB = true, true
	b, mem, m = client(t, c)
	data = make([]byte, 32<<10)
	for i := range data {
		data[i] = byte(i>>8 + 3*i)
	}
	return b, mem, data, m
}

// part is the response i of those to a READ of n bytes.
func part(op bth.Opcode, data []byte, n, i int) packet {
	return packet{op: op, psn: s0.Add(i), syndrome: bth.AckNoCredits, payload: data[i*1024 : min(n, i*1024+1024)]}
}

// wantPart checks that the next packet sent asks for parts first to last, and nothing follows.
func (b *bench) wantPart(first, last int) {
	b.t.Helper()
	p := b.want(bth.RCReadRequest, s0.Add(first))
	if at, n := p.VA(), p.DMALen(); at != 0x1000+uint64(first)*1024 || n != uint32(last-first+1)*1024 {
		b.t.Fatalf("asks for %#x+%d, want parts %d to %d", at, n, first, last)
	}
	b.wantSilence()
}

// TestReadRepair: responses behind a missing one are kept, and only the missing part is requested again. The answer
// to it may have any opcode.
func TestReadRepair(t *testing.T) {
	for _, again := range []bth.Opcode{bth.RCReadResponseFirst, bth.RCReadResponseMiddle, bth.RCReadResponseLast, bth.RCReadResponseOnly} {
		b, mem, data, m := repairing(t, pairConfig{})
		b.post(read(m, 4096))
		b.sent()
		b.inject(part(bth.RCReadResponseFirst, data, 4096, 0))
		b.inject(part(bth.RCReadResponseLast, data, 4096, 3))
		b.wantPart(1, 2)
		b.inject(part(bth.RCReadResponseLast, data, 4096, 3)) // a copy changes nothing
		b.wantSilence()
		b.wantDone()
		b.inject(part(bth.RCReadResponseMiddle, data, 4096, 1))
		b.inject(part(again, data, 4096, 2))
		b.wantDone(cq.Success)
		b.wantSilence()
		if !bytes.Equal(mem[:4096], data[:4096]) {
			t.Fatal("data differ")
		}
		if c := b.cnt; c.PartialReads != 1 || c.EarlyResponses != 1 || c.CompleterRetryErr != 0 {
			t.Fatalf("counted %d partial READs, %d early responses, went back %d times", c.PartialReads, c.EarlyResponses, c.CompleterRetryErr)
		}
	}
}

// TestReadRepairOrder: parts of one original request are asked for in ascending order, one at a
// time, until the peer answers a part with FIRST or ONLY. Those of others are asked for at once.
func TestReadRepairOrder(t *testing.T) {
	lose := func(b *bench, data []byte) { // of two READs of eight packets, parts 1, 3, 5 and 9
		for i := range 16 {
			switch op := [...]bth.Opcode{bth.RCReadResponseFirst, 1: bth.RCReadResponseMiddle, 7: bth.RCReadResponseLast}; i {
			case 1, 3, 5, 9:
			default:
				b.inject(part(max(op[i%8], bth.RCReadResponseFirst), data, 16<<10, i))
			}
		}
	}
	post := func(b *bench, m *mr.MR) {
		for i := range 2 {
			wr := read(m, 8192)
			wr.RemoteAddr, wr.SG[0] = 0x1000+uint64(i)*8192, m.SGE(i*8192, 8192)
			b.post(wr)
		}
		b.sent()
	}
	b, mem, data, m := repairing(t, pairConfig{})
	post(b, m)
	lose(b, data)
	b.wantSent(line{bth.RCReadRequest, s0.Add(1)}, line{bth.RCReadRequest, s0.Add(9)})
	b.inject(part(bth.RCReadResponseLast, data, 16<<10, 1))
	b.wantPart(3, 3)
	b.inject(part(bth.RCReadResponseLast, data, 16<<10, 3))
	b.wantPart(5, 5)
	b.inject(part(bth.RCReadResponseLast, data, 16<<10, 5))
	b.wantDone(cq.Success)
	b.inject(part(bth.RCReadResponseLast, data, 16<<10, 9))
	b.wantDone(cq.Success)
	if !bytes.Equal(mem[:16<<10], data[:16<<10]) {
		t.Fatal("data differ")
	}

	b, _, data, m = repairing(t, pairConfig{})
	post(b, m)
	lose(b, data)
	b.sent()
	b.inject(part(bth.RCReadResponseOnly, data, 16<<10, 1))
	b.wantSent(line{bth.RCReadRequest, s0.Add(3)}, line{bth.RCReadRequest, s0.Add(5)})
}

// TestReadRepairOvertaken: a part is asked for again as soon as the answer to a later request for a part has come.
// A requester that has repaired READs probes sooner for READs that nobody answers.
func TestReadRepairOvertaken(t *testing.T) {
	b, _, data, m := repairing(t, pairConfig{timeout: 14})
	for i := range 3 {
		wr := read(m, 2048)
		wr.RemoteAddr, wr.SG[0] = 0x1000+uint64(i)*2048, m.SGE(i*2048, 2048)
		b.post(wr)
	}
	b.sent()
	last := func(i int) packet { return part(bth.RCReadResponseLast, data, 6144, i) }
	b.after(10 * us)
	b.inject(last(1))
	b.wantPart(0, 0)
	b.after(10 * us)
	b.inject(last(3))
	b.wantPart(2, 2)
	b.after(15 * us)
	b.inject(part(bth.RCReadResponseFirst, data, 6144, 2))
	b.wantPart(0, 0)
	b.inject(part(bth.RCReadResponseFirst, data, 6144, 0)) // the answer to either request
	b.wantDone(cq.Success, cq.Success)
	b.wantSilence()

	start := b.net.now
	b.net.now = b.NextTimeout()
	b.HandleTimeout(b.net.now)
	b.collect()
	b.wantPart(4, 5)
	if took := b.net.now.Sub(start); took < 50*us || took >= 250*us {
		t.Errorf("probed after %v", took)
	}
}

// TestReadRepairAmong: a SEND between READs whose responses are missing completes in order, a missing atomic is sent
// again, and credits return in order.
func TestReadRepairAmong(t *testing.T) {
	b, mem, data, m := repairing(t, pairConfig{rd: 3})
	b.post(read(m, 2048))
	b.post(send(m, 1))
	b.post(qp.SendWR{Opcode: qp.FetchAdd, SG: []mr.SGE{m.SGE(4096, 8)}, RemoteAddr: 0x1000, RKey: 0x77})
	b.post(send(m, 1))
	tail := read(m, 1024)
	tail.SG[0] = m.SGE(8192, 1024)
	b.post(tail)
	b.post(read(m, 8)) // beyond the credits
	b.wantSent(line{bth.RCReadRequest, s0}, line{bth.RCSendOnly, s0.Add(2)}, line{bth.RCFetchAdd, s0.Add(3)}, line{bth.RCSendOnly, s0.Add(4)},
		line{bth.RCReadRequest, s0.Add(5)})
	b.inject(part(bth.RCReadResponseLast, data, 2048, 1))
	b.wantPart(0, 0)
	b.inject(packet{op: bth.RCReadResponseOnly, psn: s0.Add(5), syndrome: bth.AckNoCredits, payload: data[5*1024 : 6*1024]})
	b.wantSent(line{bth.RCFetchAdd, s0.Add(3)})
	b.wantDone()
	b.inject(part(bth.RCReadResponseFirst, data, 2048, 0))
	b.wantDone(cq.Success, cq.Success)
	b.inject(packet{op: bth.RCAtomicAck, psn: s0.Add(3), syndrome: bth.AckNoCredits, value: 0x0102030405060708})
	b.wantDone(cq.Success, cq.Success, cq.Success)
	b.wantSent(line{bth.RCReadRequest, s0.Add(6)})
	if !bytes.Equal(mem[:2048], data[:2048]) || !bytes.Equal(mem[8192:9216], data[5*1024:6*1024]) {
		t.Fatal("data differ")
	}
}

// TestReadRepairRefuses: the requester ignores an early response that does not fit. When such a response arrives in
// order, it is an error.
func TestReadRepairRefuses(t *testing.T) {
	for name, bad := range map[string]packet{
		"short":            {op: bth.RCReadResponseLast, psn: s0.Add(2), syndrome: bth.AckNoCredits, payload: make([]byte, 1000)},
		"no data":          {op: bth.RCReadResponseLast, psn: s0.Add(2), syndrome: bth.AckNoCredits},
		"NAK syndrome":     {op: bth.RCReadResponseLast, psn: s0.Add(2), syndrome: bth.NAKSequence, payload: make([]byte, 1024)},
		"answer to atomic": {op: bth.RCAtomicAck, psn: s0.Add(2), syndrome: bth.AckNoCredits},
	} {
		t.Run(name, func(t *testing.T) {
			b, mem, data, m := repairing(t, pairConfig{})
			b.post(read(m, 3072))
			b.sent()
			b.inject(part(bth.RCReadResponseFirst, data, 3072, 0))
			before := bytes.Clone(mem)
			b.inject(bad)
			b.wantState(qp.RTS)
			if !bytes.Equal(mem, before) {
				t.Fatal("memory was changed")
			}
			b.wantPart(1, 1)
			b.inject(part(bth.RCReadResponseOnly, data, 3072, 1))
			b.wantDone()
			b.inject(bad)
			b.wantState(qp.Err)
			if b.NextTimeout() != mono.Never {
				t.Error("a timer runs in ERR")
			}
		})
	}
}

// TestReadRepairTimers: a part that is not answered is asked for again, at growing intervals,
// until the ACK timer ends it.
func TestReadRepairTimers(t *testing.T) {
	b, _, data, m := repairing(t, pairConfig{timeout: 14})
	b.timed(send(m, 1), s0)
	post := read(m, 3072)
	b.post(post)
	b.sent()
	next := func(i int, op bth.Opcode) packet {
		return packet{op: op, psn: s0.Add(1 + i), syndrome: bth.AckNoCredits, payload: data[:1024]}
	}
	b.inject(next(0, bth.RCReadResponseFirst))
	b.inject(next(2, bth.RCReadResponseLast))
	b.wantSent(line{bth.RCReadRequest, s0.Add(2)})
	var wait time.Duration
	for range 3 {
		start := b.net.now
		b.net.now = b.NextTimeout()
		b.HandleTimeout(b.net.now)
		b.collect()
		b.wantSent(line{bth.RCReadRequest, s0.Add(2)})
		if d := b.net.now.Sub(start); d <= wait {
			t.Fatalf("asked again after %v, and before that after %v", d, wait)
		} else {
			wait = d
		}
	}
	b.inject(next(1, bth.RCReadResponseOnly))
	b.wantDone(cq.Success)
	if b.NextTimeout() != mono.Never {
		t.Error("a timer runs, and nothing is outstanding")
	}
}

// TestReadRepairWithoutRetries: without retries, a missing response fails the queue pair, as in the standard.
func TestReadRepairWithoutRetries(t *testing.T) {
	b, _, data, m := repairing(t, pairConfig{retry: none})
	b.post(read(m, 2048))
	b.sent()
	b.inject(part(bth.RCReadResponseLast, data, 2048, 1))
	b.wantDone(cq.RetryExcErr)
	b.wantState(qp.Err)
}

// TestReadRepairNAK: a NAK for a request while responses before it are missing asks for these one
// by one, and goes back no further than to that request. Credits stay right.
func TestReadRepairNAK(t *testing.T) {
	b, _, data, m := repairing(t, pairConfig{rd: 3})
	for i := range 3 {
		wr := read(m, 2048)
		wr.RemoteAddr += uint64(i) * 2048
		b.post(wr)
	}
	b.post(read(m, 8)) // beyond the credits
	b.sent()
	b.inject(part(bth.RCReadResponseLast, data, 6144, 1))
	b.wantPart(0, 0)
	b.inject(nak(bth.NAKSequence, s0.Add(4)))
	b.wantSent(line{bth.RCReadRequest, s0.Add(2)}, line{bth.RCReadRequest, s0.Add(4)})
	b.inject(part(bth.RCReadResponseFirst, data, 6144, 0))
	b.wantDone(cq.Success)
	b.wantSent(line{bth.RCReadRequest, s0.Add(6)})
}

// TestReadRepairMany: a READ completes even if more parts are missing than the requester notes.
func TestReadRepairMany(t *testing.T) {
	b, _, data, m := repairing(t, pairConfig{mtu: bth.MTU256})
	const n = 100
	b.post(read(m, n*256))
	b.sent()
	answer := func(i int) {
		b.inject(packet{op: bth.RCReadResponseOnly, psn: s0.Add(i), syndrome: bth.AckNoCredits, payload: data[i*256 : (i+1)*256]})
	}
	for i := 1; i < n; i += 2 {
		answer(i)
	}
	asked := map[bth.PSN]bool{}
	for range n {
		for _, p := range b.sent() {
			i := int(p.PSN().Sub(s0))
			if i%2 != 0 || p.DMALen() != 256 || asked[p.PSN()] {
				t.Fatalf("asks for part %d, %d bytes", i, p.DMALen())
			}
			asked[p.PSN()] = true
			answer(i)
		}
		if sends, _ := b.Outstanding(); sends == 0 && len(asked) == n/2 {
			break
		}
		b.inject(packet{op: bth.RCReadResponseOnly, psn: s0.Add(n - 1), syndrome: bth.AckNoCredits, payload: data[(n-1)*256 : n*256]})
	}
	b.wantDone(cq.Success)
}

// dropping is a wire that loses one of seven packets: the third, the tenth, and so on.
type dropping struct {
	*wire
	sent int
}

func (d *dropping) Commit() {
	if d.sent++; d.sent%7 != 3 {
		d.wire.Commit()
	}
}

// exchange posts n work requests and runs both ends until they are done.
func (d *dropping) exchange(t testing.TB, back *dropping, wr *qp.SendWR, n int, wcs []cq.WC) {
	w := d.net
	for range n {
		must(0, d.PostSend(wr))
	}
	for done := 0; done < n; {
		w.now = min(w.now+1e4, d.NextTimeout(), back.NextTimeout())
		for _, e := range [...]*dropping{d, back} {
			e.HandleTimeout(w.now)
			for e.Emit(w.now, e) && e.n < len(e.frames) {
			}
			e.deliver(e.peer)
		}
		k := d.send.Poll(wcs)
		for i := range k {
			if wcs[i].Status != cq.Success {
				t.Fatal(wcs[i].Status)
			}
		}
		done += k
	}
}

// TestReadRepairNoAllocations: once a queue pair has repaired, repairs allocate nothing.
func TestReadRepairNoAllocations(t *testing.T) {
	a, b, _ := newPair(t, 1, impairment{}, pairConfig{timeout: 14, rd: 16, repair: true, repairB: true})
	there, back := &dropping{wire: newWire(a, true)}, &dropping{wire: newWire(b, true)}
	_, local := a.region(t, 30_000)
	_, remote := b.region(t, 30_000)
	wr := write(local, remote)
	wr.Opcode = qp.Read
	wcs := make([]cq.WC, 8)
	if n := testing.AllocsPerRun(50, func() { there.exchange(t, back, &wr, 8, wcs) }); n != 0 {
		t.Errorf("%v allocations for 8 READs", n)
	}
	if a.cnt.PartialReads < 100 {
		t.Errorf("%d parts were asked for", a.cnt.PartialReads)
	}
}

// TestNAKInsideREAD: no responder may send a NAK for a PSN in the middle of a READ. If one does, the requester loses
// no credit: a request that waits for the READs leaves when they are complete.
func TestNAKInsideREAD(t *testing.T) {
	b, _, data, m := repairing(t, pairConfig{rd: 2, timeout: 14})
	b.timed(send(m, 1), s0)
	b.post(read(m, 4096))
	b.post(read(m, 4096))
	b.sent()
	at := func(op bth.Opcode, i int) packet {
		p := part(op, data, 32<<10, i)
		p.psn = s0.Add(1 + i)
		return p
	}
	b.after(20 * time.Microsecond)
	b.inject(at(bth.RCReadResponseMiddle, 1)) // 0 is missing
	b.sent()
	b.inject(nak(bth.NAKSequence, s0.Add(1+6)))
	b.sent()
	for _, i := range []int{0, 2, 3, 4, 5, 6, 7} {
		b.inject(at(bth.RCReadResponseMiddle, i))
	}
	b.wantDone(cq.Success, cq.Success)
	b.sent()
	wr := send(m, 1)
	wr.Flags |= qp.Fence
	b.post(wr)
	b.wantSent(line{bth.RCSendOnly, s0.Add(9)})
}

// TestReadRepairGranted: parts of one READ are asked for at once as far as the peer has granted READs.
func TestReadRepairGranted(t *testing.T) {
	b, mem, data, m := repairing(t, pairConfig{rd: 1})
	b.post(read(m, 16<<10))
	b.sent()
	lost := func(i int) bool { return i%2 == 1 && i < 15 }
	for i := range 16 {
		if !lost(i) {
			b.inject(part(bth.RCReadResponseMiddle, data, 16<<10, i))
		}
	}
	b.wantSent(line{bth.RCReadRequest, s0.Add(1)})
	for i := range 15 {
		if !lost(i) {
			continue
		}
		b.inject(part(bth.RCReadResponseOnly, data, 16<<10, i))
		switch next := i + 4; {
		case i == 1:
			b.wantSent(line{bth.RCReadRequest, s0.Add(3)}, line{bth.RCReadRequest, s0.Add(5)})
		case lost(next):
			b.wantSent(line{bth.RCReadRequest, s0.Add(next)})
		default:
			b.wantSilence()
		}
	}
	b.wantDone(cq.Success)
	if !bytes.Equal(mem[:16<<10], data[:16<<10]) {
		t.Fatal("data differ")
	}
}

// TestReadRepairPlaces: data are written to the right place even if the first response to a READ came early. The
// position in the list of an earlier READ with the same slot of the send queue is not used.
func TestReadRepairPlaces(t *testing.T) {
	b, mem, data, m := repairing(t, pairConfig{})
	psn := s0
	post := func(at int, parts ...int) {
		wr := read(m, 0)
		wr.SG = nil
		for _, n := range parts {
			wr.SG = append(wr.SG, m.SGE(at, n))
			at += n
		}
		b.post(wr)
	}
	answer := func(op bth.Opcode, i, n int) {
		b.inject(packet{op: op, psn: psn.Add(i), syndrome: bth.AckNoCredits, payload: data[i*1024 : i*1024+n]})
	}
	post(0, 8)
	post(1024, 300, 64)
	b.sent()
	answer(bth.RCReadResponseOnly, 0, 8)
	answer(bth.RCReadResponseOnly, 1, 364)
	b.wantDone(cq.Success, cq.Success)
	psn = psn.Add(2)
	clear(mem)
	b.post(qp.SendWR{Opcode: qp.FetchAdd, SG: []mr.SGE{m.SGE(0, 8)}, RemoteAddr: 0x1000, RKey: 0x77})
	post(1024, 1735, 312)
	b.sent()
	answer(bth.RCReadResponseFirst, 1, 1024)
	b.inject(packet{op: bth.RCAtomicAck, psn: psn, syndrome: bth.AckNoCredits})
	answer(bth.RCReadResponseLast, 2, 1023)
	b.wantDone(cq.Success, cq.Success)
	if !bytes.Equal(mem[1024:3071], data[1024:3071]) {
		t.Error("data differ")
	}
}

// TestReadWindowBack: a requester that goes back asks for early responses again, so these are in flight again: it asks
// for no more than a requester without early responses.
func TestReadWindowBack(t *testing.T) {
	const size = 4 << 20
	b, _, _, _ := repairing(t, pairConfig{mtu: bth.MTU4096, timeout: 14, rd: 16})
	_, m := b.region(t, size)
	asked := func() (n, end int) {
		for _, p := range b.sent() {
			k := int(p.DMALen()+4095) / 4096
			n, end = n+k, max(end, int(p.PSN().Sub(s0))+k)
		}
		return n, end
	}
	b.post(qp.SendWR{Opcode: qp.Read, SG: []mr.SGE{m.SGE(0, size)}, RemoteAddr: 0x1000, RKey: 0x77})
	usual, end := asked()
	for i := 1; i < end; i++ {
		b.inject(packet{op: bth.RCReadResponseMiddle, psn: s0.Add(i), payload: make([]byte, 4096)})
		_, more := asked()
		end = max(end, more)
	}
	if end < 4*usual {
		t.Fatalf("asks for %d responses, and for %d while early ones arrive", usual, end)
	}
	b.expire()
	if n, _ := asked(); n == 0 || n > usual {
		t.Errorf("asks for %d responses at once after it went back, and for %d before", n, usual)
	}
}

// TestReadRepairAnsweredTwice: if the requester has sent a READ request twice, the peer answers it twice. Then a
// missing response that comes in the middle of the second answer was lost, not late, and parts are still asked for at
// once.
func TestReadRepairAnsweredTwice(t *testing.T) {
	for _, c := range []struct {
		name   string
		repeat func(b *bench)
	}{
		{"go-back", (*bench).expire},
		{"single repair", func(b *bench) { b.inject(nak(bth.NAKSequence, s0.Add(4))) }},
		{"probe", func(b *bench) {
			b.net.now = b.NextTimeout()
			b.HandleTimeout(b.net.now)
			b.collect()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, _, data, m := repairing(t, pairConfig{timeout: 14})
			post := func(i int) {
				wr := read(m, 4096)
				wr.RemoteAddr, wr.SG[0] = 0x1000+uint64(i)*4096, m.SGE(i*4096, 4096)
				b.post(wr)
			}
			lose := func(i int) { // the responses in the middle
				b.inject(part(bth.RCReadResponseFirst, data, 16<<10, i))
				b.inject(part(bth.RCReadResponseLast, data, 16<<10, i+3))
			}
			fill := func(first bth.Opcode, i int) {
				b.after(20 * us)
				b.inject(part(first, data, 16<<10, i+1))
				b.inject(part(bth.RCReadResponseLast, data, 16<<10, i+2))
				b.wantDone(cq.Success)
			}
			post(0)
			b.sent()
			lose(0)
			b.wantPart(1, 2)
			fill(bth.RCReadResponseFirst, 0) // the peer is not rxe

			post(1)
			post(2)
			b.sent()
			c.repeat(b)
			if p := b.sent(); len(p) == 0 || p[0].Op != bth.RCReadRequest || p[0].PSN() != s0.Add(4) {
				t.Fatal("the READ is not requested again")
			}
			lose(4)
			b.inject(part(bth.RCReadResponseFirst, data, 16<<10, 8)) // a trial of a single repair ends
			b.wantPart(5, 6)
			fill(bth.RCReadResponseMiddle, 4) // from the second answer
			b.sent()
			b.inject(part(bth.RCReadResponseLast, data, 16<<10, 11))
			b.wantPart(9, 10)
		})
	}
}
