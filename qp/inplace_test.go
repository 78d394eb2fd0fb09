package qp_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// lender sends payload in place: it reads it when the packet leaves.
type lender struct {
	*node
	t       *testing.T
	mem     []byte // all that may be lent
	payload []byte
	at      int
	seen    map[bth.PSN]bool // sent before, in place or not
	count   int
}

func (l *lender) BeginInPlace(p *frame.Path, n int, payload []byte, tail int) (head, trailer []byte, crc bth.CRC, ok bool) {
	if len(payload)%3 == 0 { // there is always something a sink cannot send
		return nil, nil, 0, false
	}
	body, crc, ok := l.node.Begin(p, n+len(payload)+tail)
	if !ok {
		return nil, nil, 0, false
	}
	if !within(l.mem, payload) {
		l.t.Fatal("payload is lent that is not of the memory for it")
	}
	l.payload, l.at = payload, p.HeaderLen(frame.LayoutEthernet)+n
	return body[:n:n], body[n+len(payload):], crc, true
}

// within reports whether b is a part of mem.
func within(mem, b []byte) bool {
	at := uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&mem[0]))
	return at < uintptr(len(mem)) && at+uintptr(len(b)) <= uintptr(len(mem))
}

func (l *lender) Begin(p *frame.Path, n int) ([]byte, bth.CRC, bool) {
	l.payload = nil
	return l.node.Begin(p, n)
}

func (l *lender) Commit() {
	if l.payload != nil {
		copy(l.buf[l.at:], l.payload)
	}
	var p frame.Packet
	if err := p.Parse(l.buf, frame.LayoutEthernet); err != nil || !p.CheckICRC() {
		l.t.Fatalf("packet sent with a wrong ICRC, or malformed: %v", err)
	}
	op := bth.Opcode(p.Data[0])
	request := op.Info().Flags&bth.Request != 0
	if l.payload != nil {
		if l.count++; l.seen[p.PSN()] || !request {
			l.t.Fatalf("%v, PSN %v: sent in place, but it is a repetition or a response", op, p.PSN())
		}
		l.payload = nil
	}
	if request {
		l.seen[p.PSN()] = true
	}
	l.node.Commit()
}

// TestInPlace: packets that are sent in place equal those that are sent by copying, also if packets are lost. Only
// first transmissions of reliable requests are sent in place.
func TestInPlace(t *testing.T) {
	for _, typ := range []qp.Type{qp.RC, qp.UC} {
		for seed := range uint64(40) {
			var cc *qp.DCQCN
			if seed%2 > 0 {
				cc = &qp.DCQCN{LineRate: qp.Gbps}
			}
			copied, _ := runInPlace(t, typ, cc, seed, false)
			lent, count := runInPlace(t, typ, cc, seed, true)
			for i, f := range copied {
				if i >= len(lent) || !bytes.Equal(f, lent[i]) {
					t.Fatalf("%v, seed %d: packet %d of %d and %d differs", typ, seed, i, len(copied), len(lent))
				}
			}
			if (count > 0) != (typ == qp.RC) {
				t.Errorf("%v, seed %d: %d of %d packets in place", typ, seed, count, len(lent))
			}
		}
	}
}

// runInPlace runs some random transfers and returns all frames that were sent.
func runInPlace(t *testing.T, typ qp.Type, cc *qp.DCQCN, seed uint64, inPlace bool) (frames [][]byte, count int) {
	imp := impairment{loss: 0.02, dup: 0.02, reorder: 0.02, jitter: 20 * time.Microsecond}
	if typ == qp.UC {
		imp = impairment{}
	}
	a, b, w := newPair(t, seed, imp, pairConfig{typ: typ, cc: cc})
	w.tap = func(f []byte) { frames = append(frames, bytes.Clone(f)) }
	rng := rand.New(rand.NewPCG(seed, 7))

	const size = 20000
	mem := make([]byte, size)
	for i := range mem {
		mem[i] = byte(rng.Uint32())
	}
	all := mr.LocalWrite | mr.RemoteWrite | mr.RemoteRead
	own := must(a.mem.Register(a.pd, mem, all, mr.Options{IOVA: 1 << 20, HasIOVA: true, InPlace: inPlace}))
	plain := must(a.mem.Register(a.pd, bytes.Clone(mem), all, mr.Options{IOVA: 2 << 20, HasIOVA: true}))
	far := must(b.mem.Register(b.pd, make([]byte, size), all, mr.Options{IOVA: 3 << 20, HasIOVA: true}))
	if inPlace {
		l := &lender{node: a, t: t, mem: mem, seen: make(map[bth.PSN]bool)}
		a.via = l
		defer func() { count = l.count }()
	}
	for range 20 {
		k := rng.IntN(3) + 1
		wr := qp.SendWR{Opcode: qp.Write, Flags: qp.Signaled, RemoteAddr: far.Addr(), RKey: far.RKey()}
		for range k { // elements
			m := own
			if rng.IntN(4) == 0 {
				m = plain
			}
			n := rng.IntN(size / 3)
			if rng.IntN(3) == 0 {
				n = rng.IntN(30)
			}
			wr.SG = append(wr.SG, m.SGE(rng.IntN(size-n), n))
		}
		switch rng.IntN(4) {
		case 0:
			wr.Opcode = qp.Send
			if err := b.PostRecv(&qp.RecvWR{SG: []mr.SGE{far.SGE(0, size)}}); err != nil {
				t.Fatal(err)
			}
		case 1:
			if typ == qp.RC {
				wr.Opcode, wr.SG = qp.Read, []mr.SGE{own.SGE(0, 3000)}
				wr.RemoteAddr += uint64(rng.IntN(size - 3000))
			}
		}
		if err := a.PostSend(&wr); err != nil {
			t.Fatal(err)
		}
		for done := 0; done < 1; { // one by one: a READ must not change what is to be sent
			if !w.step(a, b) {
				t.Fatalf("seed %d: nothing happens any more", seed)
			}
			for _, wc := range drain(a.send) {
				if done++; wc.Status != cq.Success {
					t.Fatalf("seed %d: %+v", seed, wc)
				}
			}
		}
	}
	return frames, count
}
