package qp_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// rxeRequester is the requester and completer of Linux rxe, for WRITEs only: how it handles acknowledgements and
// NAKs, and when it sends again.
type rxeRequester struct {
	*node  // gives its address and its place on the network
	target *mr.MR

	wqes      []rxeWQE
	cons, req int     // oldest not complete; the one to send from
	reqPSN    bth.PSN // next to send
	compPSN   bth.PSN // next to be acknowledged
	started   bool    // a retry was begun and no ACK has come since
	needRetry bool
	timer     mono.Time
	rng       *rand.Rand
	paced     mono.Time // when the next packet may be sent: the host is busy with others
	posted    int       // WRITEs that the program has posted: two at a time
}

type rxeWQE struct {
	first, last bth.PSN
	state       rxeState
}

type rxeState int

const (
	rxePosted     rxeState = iota
	rxeProcessing          // a part is sent
	rxePending             // all is sent
)

const (
	rxeTimeout = 500 * time.Microsecond
	rxeUnacked = 128 // packets in flight
)

// send sends the packets that the window allows.
func (r *rxeRequester) send() {
	if r.needRetry {
		r.needRetry = false
		r.req, r.reqPSN = r.cons, r.compPSN
		for i := r.cons; i < len(r.wqes) && r.wqes[i].state != rxePosted; i++ {
			r.wqes[i].state = rxePosted
		}
	}
	r.posted = min(r.cons+2, len(r.wqes))
	for r.req < r.posted && r.paced <= r.net.now && r.reqPSN.Sub(r.compPSN) < rxeUnacked {
		w := &r.wqes[r.req]
		n, i := int(w.last.Sub(w.first))+1, int(r.reqPSN.Sub(w.first))
		if i >= n { // comp.psn is beyond this one: only its completion is missing
			w.state, r.req = rxePending, r.req+1
			continue
		}
		p := packet{op: bth.RCWriteMiddle, psn: r.reqPSN, ack: i == n-1, payload: bytes.Repeat([]byte{byte(r.req)}, 256)}
		switch {
		case n == 1:
			p.op = bth.RCWriteOnly
		case i == 0:
			p.op = bth.RCWriteFirst
		case i == n-1:
			p.op = bth.RCWriteLast
		}
		p.va, p.key, p.length = r.target.Addr()+uint64(r.req*256*16), r.target.RKey(), uint32(n*256)
		w.state = rxeProcessing
		if i == n-1 {
			w.state, r.req = rxePending, r.req+1
		}
		r.reqPSN = r.reqPSN.Add(1)
		if r.timer == mono.Never {
			r.timer = r.net.now.Add(rxeTimeout)
		}
		if r.rng.IntN(4) == 0 {
			r.paced = r.net.now.Add(time.Duration(r.rng.IntN(800)) * us)
		}
		r.net.carry(r.peer, buildFrame(r.path, r.peer.Num(), p))
	}
}

// receive is the completer for one packet.
func (r *rxeRequester) receive(p *frame.Packet) {
	psn := p.PSN()
	for r.cons < r.posted {
		w := &r.wqes[r.cons]
		if w.state == rxePosted {
			break
		}
		if psn.Sub(w.last) > 0 {
			if w.state != rxePending {
				break
			}
			r.started = false
			if w.last.Sub(r.compPSN) >= 0 {
				r.compPSN = w.last.Add(1)
			}
			r.cons++
			continue
		}
		switch d := psn.Sub(r.compPSN); {
		case d < 0 && psn == w.last:
			r.cons++
		case d < 0:
		case p.Syndrome().Kind() == bth.KindACK:
			r.started = false
			if w.state == rxePending && w.last == psn {
				r.cons++
			}
			r.compPSN = psn.Add(1)
		case p.Syndrome() == bth.NAKSequence:
			r.compPSN = psn
			if !r.started {
				r.retry()
			}
		}
		break
	}
	if r.reqPSN.Sub(r.compPSN) > 0 {
		r.timer = r.net.now.Add(rxeTimeout)
	}
}

// retry sends again what was sent, unless all of it seems to be acknowledged.
func (r *rxeRequester) retry() {
	if r.reqPSN.Sub(r.compPSN) > 0 {
		r.needRetry, r.started = true, true
	}
}

// expire is its retransmission timer.
func (r *rxeRequester) expire() {
	r.timer = mono.Never
	if r.cons < r.posted && r.wqes[r.cons].state != rxePosted {
		r.retry()
	}
	if r.reqPSN.Sub(r.compPSN) > 0 {
		r.timer = r.net.now.Add(rxeTimeout)
	}
}

// rxeWrites runs WRITEs of an rxe requester to an engine, and reports whether all completed.
func rxeWrites(t testing.TB, seed uint64, repair bool) (done bool, counted qp.Counters) {
	rng := rand.New(rand.NewPCG(seed, 77))
	w := newNetwork(seed, impairment{loss: rng.Float64() * 0.15})
	a, b := w.pair(t, pairConfig{mtu: bth.MTU256, psnA: 0xFFFFF0, repairB: repair}, 0)
	_, m := b.region(t, 24*256*16)
	r := &rxeRequester{node: a, target: m, reqPSN: 0xFFFFF0, compPSN: 0xFFFFF0, timer: mono.Never, rng: rng}
	for first := r.reqPSN; len(r.wqes) < 24; {
		last := first.Add(rng.IntN(16))
		r.wqes = append(r.wqes, rxeWQE{first: first, last: last})
		first = last.Add(1)
	}
	for range 100_000 {
		r.send()
		w.pump(b)
		next := min(r.timer, b.NextTimeout())
		if r.paced > w.now && r.req < r.posted {
			next = min(next, r.paced)
		}
		if len(w.queue) > 0 {
			next = min(next, w.queue[0].at)
		}
		if r.cons == len(r.wqes) {
			return b.repair == nil || b.repair.Lent() == 0 || b.NextTimeout() != mono.Never, b.cnt
		}
		if next == mono.Never {
			if r.posted < min(r.cons+2, len(r.wqes)) {
				continue // the program posts
			}
			return false, b.cnt
		}
		for w.now = max(w.now, next); len(w.queue) > 0 && w.queue[0].at <= w.now; {
			d := w.next()
			if d.to != a {
				w.deliver(d)
				continue
			}
			var p frame.Packet
			if p.Parse(d.b, frame.LayoutEthernet) == nil {
				r.receive(&p)
			}
		}
		if b.NextTimeout() <= w.now {
			b.HandleTimeout(w.now)
		}
		if r.timer <= w.now {
			r.expire()
		}
	}
	return false, b.cnt
}

// TestRxeRequester: a requester of rxe hangs with a responder that holds no more often than with one that drops. It
// hangs with either, if an acknowledgement of the last packet of a message arrives while it sends that message again,
// and the next acknowledgement is lost.
func TestRxeRequester(t *testing.T) {
	var held uint64
	hangs := map[bool]int{}
	seeds := uint64(400)
	if testing.Short() || raceEnabled {
		seeds = 100
	}
	for seed := range seeds {
		for _, repair := range []bool{false, true} {
			done, c := rxeWrites(t, seed, repair)
			if held += c.HeldRequests; !done {
				hangs[repair]++
			}
		}
	}
	t.Logf("of %d runs %d hang with a responder that drops, %d with one that holds", seeds, hangs[false], hangs[true])
	if hangs[true] > hangs[false] {
		t.Errorf("%d runs hang, %d without holding", hangs[true], hangs[false])
	}
	if held < seeds {
		t.Errorf("%d requests were held: the test covers too little", held)
	}
}

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
