package qp_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// rxeParts makes the responder of an end act like that of rxe. It forgets where a READ began when a part of the READ
// is requested again, and drops parts that begin before that part. It answers a part with MIDDLE and LAST.
func rxeParts(w *network, a, b *node) (dropped *int) {
	type resource struct {
		first, last bth.PSN
		origin      uint64
	}
	var known []*resource
	dropped = new(int)
	w.rewrite = func(to *node, raw []byte) []byte {
		var p frame.Packet
		if p.Parse(raw, frame.LayoutEthernet) != nil {
			return raw
		}
		psn := p.PSN()
		find := func() *resource {
			for i := len(known) - 1; i >= 0; i-- {
				if !psn.Less(known[i].first) && !known[i].last.Less(psn) {
					return known[i]
				}
			}
			return nil
		}
		switch {
		case to == b && p.Op == bth.RCReadRequest:
			r := find()
			if r == nil {
				n := (int(p.DMALen()) + 255) / 256
				known = append(known, &resource{psn, psn.Add(max(n, 1) - 1), p.VA()})
				return raw
			}
			if p.VA() < r.origin {
				*dropped++
				return nil
			}
			r.origin = p.VA()
		case to == a && (p.Op == bth.RCReadResponseFirst || p.Op == bth.RCReadResponseOnly):
			if r := find(); r != nil && psn != r.first {
				op := bth.RCReadResponseMiddle
				if p.Op == bth.RCReadResponseOnly {
					op = bth.RCReadResponseLast
				}
				return buildFrame(b.path, a.Num(), packet{op: op, psn: psn, syndrome: p.Syndrome(), msn: p.MSN(), payload: p.Payload()})
			}
		}
		return raw
	}
	return dropped
}

// TestRxeResponder: every READ completes, however many responses are lost. The requester requests a part that rxe has
// forgotten only if it goes back after a timeout and then misses a response again.
func TestRxeResponder(t *testing.T) {
	var parts uint64
	forgotten := 0
	seeds := uint64(400)
	if testing.Short() || raceEnabled {
		seeds = 50
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 78))
		w := newNetwork(seed, impairment{loss: rng.Float64() * 0.1})
		a, b := w.pair(t, pairConfig{mtu: bth.MTU256, timeout: 10, rd: 4, repair: true}, 0)
		dropped := rxeParts(w, a, b)
		dst, local := a.region(t, 16<<10)
		src, remote := b.region(t, 16<<10)
		for i := range src {
			src[i] = byte(i>>8 + 5*i)
		}
		for range 8 {
			must(0, a.PostSend(&qp.SendWR{Opcode: qp.Read, Flags: qp.Signaled, SG: []mr.SGE{local.SGE(0, 16<<10)}, RemoteAddr: remote.Addr(), RKey: remote.RKey()}))
		}
		for done := 0; done < 8; {
			if !w.step(a, b) {
				t.Fatalf("seed %d: nothing happens, %d READs are complete", seed, done)
			}
			for _, wc := range drain(a.send) {
				if done++; wc.Status != cq.Success {
					t.Fatalf("seed %d: %v", seed, wc.Status)
				}
			}
		}
		if !bytes.Equal(src, dst) {
			t.Fatalf("seed %d: data differ", seed)
		}
		forgotten += *dropped
		parts += a.cnt.PartialReads
	}
	if forgotten > int(parts/100) {
		t.Errorf("%d of %d parts were asked for after rxe had forgotten them", forgotten, parts)
	}
	if parts < seeds {
		t.Errorf("%d parts were asked for: the test covers too little", parts)
	}
}
