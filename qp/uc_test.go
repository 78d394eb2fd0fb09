package qp_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// receiver is a UC engine under test with two posted receives of 2048 bytes.
func receiver(t *testing.T, c pairConfig) (b *bench, mem []byte, region *mr.MR) {
	c.typ = qp.UC
	return server(t, c)
}

// TestUCSend: the packets are those of RC, but request no acknowledgement. A work request completes when its last
// packet is sent.
func TestUCSend(t *testing.T) {
	b, _, m := client(t, pairConfig{typ: qp.UC})
	b.post(send(m, 2500))
	for i, p := range b.sent() {
		if want := []bth.Opcode{bth.UCSendFirst, bth.UCSendMiddle, bth.UCSendLast}[i]; p.Op != want || p.AckReq() || p.PSN() != s0.Add(i) {
			t.Errorf("packet %d: %v, AckReq %v, PSN %v", i, p.Op, p.AckReq(), p.PSN())
		}
	}
	b.wantDone(cq.Success)
	wr := send(m, 4)
	wr.Opcode, wr.Imm, wr.RemoteAddr, wr.RKey = qp.WriteImm, 7, 8, 9
	b.post(wr)
	if p := b.want(bth.UCWriteOnlyImm, s0.Add(3)); p.VA() != 8 || p.RKey() != 9 || p.Imm() != 7 {
		t.Errorf("sent %+v", p)
	}
	b.wantDone(cq.Success)
	if err := b.PostSend(&qp.SendWR{Opcode: qp.Read, SG: []mr.SGE{m.SGE(0, 8)}}); err == nil {
		t.Error("READ accepted on UC")
	}
	wr.SG[0].LKey++
	b.post(wr)
	b.post(send(m, 1))
	b.wantDone(cq.LocProtErr, cq.WRFlushErr)
	b.wantState(qp.SQE)
	if err := b.Modify(&qp.Attr{State: qp.RTS}, qp.AttrState); err != nil {
		t.Fatal(err)
	}
	b.post(send(m, 1))
	b.want(bth.UCSendOnly, s0.Add(4))
}

// TestUCReceive: a gap drops the message that it is in, and no other. The next message uses the receive of an
// abandoned one.
func TestUCReceive(t *testing.T) {
	mtu := bytes.Repeat([]byte{'x'}, 1024)
	b, _, m := receiver(t, pairConfig{})
	b.inject(packet{op: bth.UCSendFirst, psn: e0, payload: mtu, ack: true})
	b.inject(packet{op: bth.UCSendLast, psn: e0.Add(2), payload: mtu[:4]})                                                      // MIDDLE or LAST lost before it
	b.inject(packet{op: bth.UCSendLast, psn: e0.Add(3), payload: mtu[:4]})                                                      // another packet of the same message
	b.inject(packet{op: bth.UCSendFirst, psn: e0.Add(9), payload: mtu})                                                         // resynchronises
	b.inject(packet{op: bth.UCSendOnly, psn: e0.Add(10), payload: []byte("abcd")})                                              // abandons that message
	b.inject(packet{op: bth.UCWriteOnly, psn: e0.Add(11), va: m.Addr(), key: m.RKey() ^ 1, length: 4, payload: []byte("evil")}) // no such key
	b.inject(packet{op: bth.UCSendOnlyImm, psn: e0.Add(12), imm: 5})
	b.wantSilence()
	wcs := drain(b.recv)
	if len(wcs) != 2 || wcs[0].ByteLen != 4 || wcs[0].ID != 0 || wcs[1].Imm != 5 || wcs[1].ID != 1 {
		t.Fatalf("completions %+v", wcs)
	}
	b.inject(packet{op: bth.UCSendOnly, psn: e0.Add(13)}) // no receive: dropped
	b.wantState(qp.RTS)
	if len(b.events) != 0 {
		t.Errorf("events %v", b.events)
	}
	b, _, _ = receiver(t, pairConfig{})
	b.inject(packet{op: bth.UCSendFirst, psn: e0, payload: mtu})
	b.inject(packet{op: bth.UCSendMiddle, psn: e0.Add(1), payload: mtu})
	b.inject(packet{op: bth.UCSendLast, psn: e0.Add(2), payload: mtu}) // beyond the receive
	b.wantState(qp.Err)
	if wcs := drain(b.recv); len(wcs) != 2 || wcs[0].Status != cq.LocLenErr || wcs[1].Status != cq.WRFlushErr {
		t.Errorf("completions %+v", wcs)
	}
}

// TestSimUC sends numbered messages over lossy networks. What arrives is whole, in order and never repeated. On a
// good network, all messages arrive.
func TestSimUC(t *testing.T) {
	const messages, size = 60, 5000
	for seed := uint64(1); seed <= 300; seed++ {
		rng := rand.New(rand.NewPCG(seed, 3))
		imp := impairment{delay: 5 * time.Microsecond, jitter: 20 * time.Microsecond}
		if seed%4 != 0 {
			imp.loss, imp.corrupt = 0.05, 0.05 // a network that repeats packets would repeat messages
		}
		a, b, w := newPair(t, seed, imp, pairConfig{typ: qp.UC, mtu: bth.MTU(1 + rng.IntN(5)), psnA: bth.PSN(0xFFFFF0)})
		src, sm := a.region(t, messages*size)
		dst, dm := b.region(t, messages*size)
		lengths := make([]int, messages)
		for i := range messages {
			lengths[i] = 8 + rng.IntN(size-8)
			m := src[i*size:][:lengths[i]]
			for k := range m {
				m[k] = byte(i + k)
			}
			binary.BigEndian.PutUint64(m, uint64(i))
			if err := b.PostRecv(&qp.RecvWR{ID: uint64(i), SG: []mr.SGE{dm.SGE(i*size, size)}}); err != nil {
				t.Fatal(err)
			}
			if err := a.PostSend(&qp.SendWR{Opcode: qp.Send, SG: []mr.SGE{sm.SGE(i*size, lengths[i])}}); err != nil {
				t.Fatal(err)
			}
		}
		for w.step(a, b) {
		}
		last := -1
		wcs := drain(b.recv)
		for slot, wc := range wcs {
			got := dst[slot*size:][:wc.ByteLen]
			i := int(binary.BigEndian.Uint64(got))
			if wc.Status != cq.Success || i <= last || i >= messages || !bytes.Equal(got, src[i*size:][:lengths[i]]) {
				t.Fatalf("seed %d: receive %d: %v, message %d after %d, %d bytes", seed, slot, wc.Status, i, last, wc.ByteLen)
			}
			last = i
		}
		if imp.loss == 0 && len(wcs) != messages {
			t.Fatalf("seed %d: %d of %d messages on a perfect network", seed, len(wcs), messages)
		}
	}
}
