package qp_test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "run only this seed of the simulation")
	simSeeds = flag.Int("sim.seeds", 3000, "how many seeds the simulation runs")
)

// arena sizes of the model.
const (
	remoteSize = 64 << 10
	sourceSize = 64 << 10
	recvSize   = 40 << 10
)

// operation is one work request of the model with what must come of it.
type operation struct {
	wr      qp.SendWR
	silent  bool   // unsignaled: no completion on success
	read    []byte // READ, atomic: where the result arrives
	expect  []byte // and what it must be
	payload []byte // SEND: what the receiver must see
}

// actor is one direction of the model: a node that issues operations against
// its peer's memory, checked against plain byte arrays.
type actor struct {
	*node
	rng    *rand.Rand
	mtu    int
	ops    []operation
	posted int
	done   int // completed in order, silent ones included

	source   []byte
	sourceMR *mr.MR
	sink     []byte
	sinkMR   *mr.MR
	sinkUsed int

	remote   []byte // the peer's memory this actor works on
	remoteMR *mr.MR
	model    []byte   // what it must look like
	reads    [][2]int // ranges read since the last fence

	// As a receiver of the peer's SENDs:
	peerOps   *actor
	recvBuf   []byte
	recvMR    *mr.MR
	recvSlots int
	recvTotal int   // receives posted
	recvDone  int   // receives completed
	wantRecv  []int // indices into peerOps.ops that consume a receive, in order
	reluctant bool  // posts receives late, to provoke RNR
}

func newActor(t testing.TB, n *node, rng *rand.Rand, mtu, sends int) *actor {
	a := &actor{node: n, rng: rng, mtu: mtu, recvSlots: 16}
	a.source, a.sourceMR = n.region(t, sourceSize)
	a.sink, a.sinkMR = n.region(t, sends*9*mtu+64)
	a.remote, a.remoteMR = n.peer.region(t, remoteSize)
	a.model = make([]byte, remoteSize)
	a.recvBuf, a.recvMR = n.region(t, a.recvSlots*recvSize)
	for i := range a.source {
		a.source[i] = byte(rng.Uint32())
	}
	for i := range a.remote {
		a.remote[i] = byte(rng.Uint32())
	}
	copy(a.model, a.remote)
	for range sends {
		a.ops = append(a.ops, a.generate())
	}
	return a
}

// length picks sizes around the places where segmentation changes.
func (a *actor) length() int {
	m := a.mtu
	switch a.rng.IntN(8) {
	case 0:
		return a.rng.IntN(6)
	case 1:
		return m - 1 + a.rng.IntN(3)
	case 2:
		return 2*m - 1 + a.rng.IntN(3)
	case 3:
		return (1 + a.rng.IntN(8)) * m
	default:
		return a.rng.IntN(8 * m)
	}
}

// gatherList cuts n bytes of a region into up to four elements.
func (a *actor) gatherList(m *mr.MR, off, n int) []mr.SGE {
	var sg []mr.SGE
	for len(sg) < 3 && n > 1 && a.rng.IntN(2) == 0 {
		k := a.rng.IntN(n)
		sg = append(sg, m.SGE(off, k))
		off, n = off+k, n-k
	}
	return append(sg, m.SGE(off, n))
}

// generate makes one operation and applies it to the model.
func (a *actor) generate() operation {
	kinds := []qp.Opcode{qp.Send, qp.SendImm, qp.Write, qp.WriteImm, qp.Read, qp.CompareSwap, qp.FetchAdd}
	var o operation
	o.wr.Opcode = kinds[a.rng.IntN(len(kinds))]
	o.silent = a.rng.IntN(4) == 0
	if !o.silent {
		o.wr.Flags |= qp.Signaled
	}
	if a.rng.IntN(8) == 0 {
		a.fence(&o)
	}
	o.wr.Imm = a.rng.Uint32()
	n := min(a.length(), recvSize)
	switch o.wr.Opcode {
	case qp.Send, qp.SendImm:
		o.payload = a.payload(&o, n)
	case qp.Write, qp.WriteImm:
		o.payload = a.payload(&o, n)
		at := a.target(&o, n)
		a.ordered(&o, at, n)
		copy(a.model[at:], o.payload)
	case qp.Read:
		at := a.target(&o, n)
		a.result(&o, n)
		o.expect = append([]byte(nil), a.model[at:at+n]...)
		a.reads = append(a.reads, [2]int{at, at + n})
	default:
		at := a.target(&o, 8) &^ 7
		o.wr.RemoteAddr = a.remoteMR.Addr() + uint64(at)
		a.ordered(&o, at, 8)
		a.result(&o, 8)
		word := a.model[at : at+8]
		old := binary.NativeEndian.Uint64(word)
		o.expect = append([]byte(nil), word...)
		if o.wr.Opcode == qp.FetchAdd {
			o.wr.CompareAdd = a.rng.Uint64()
			binary.NativeEndian.PutUint64(word, old+o.wr.CompareAdd)
			break
		}
		o.wr.CompareAdd, o.wr.Swap = old, a.rng.Uint64()
		if a.rng.IntN(3) == 0 {
			o.wr.CompareAdd++ // must not swap
		} else {
			binary.NativeEndian.PutUint64(word, o.wr.Swap)
		}
	}
	return o
}

// payload gives a SEND or WRITE its data, inline now and then.
func (a *actor) payload(o *operation, n int) []byte {
	at := a.rng.IntN(sourceSize - n)
	if n <= 64 && a.rng.IntN(2) == 0 {
		o.wr.Inline = append([]byte(nil), a.source[at:at+n]...)
	} else {
		o.wr.SG = a.gatherList(a.sourceMR, at, n)
	}
	return a.source[at : at+n]
}

// target picks remote memory.
func (a *actor) target(o *operation, n int) int {
	at := a.rng.IntN(remoteSize - n)
	o.wr.RemoteAddr, o.wr.RKey = a.remoteMR.Addr()+uint64(at), a.remoteMR.RKey()
	return at
}

// result reserves local memory for what a READ or atomic brings back.
func (a *actor) result(o *operation, n int) {
	o.read = a.sink[a.sinkUsed : a.sinkUsed+n]
	o.wr.SG = a.gatherList(a.sinkMR, a.sinkUsed, n)
	a.sinkUsed += n
}

// ordered fences an operation that changes memory an earlier READ may not have
// read yet: without a fence that order is not defined.
func (a *actor) ordered(o *operation, at, n int) {
	for _, r := range a.reads {
		if at < r[1] && r[0] < at+n {
			a.fence(o)
			return
		}
	}
}

func (a *actor) fence(o *operation) {
	o.wr.Flags |= qp.Fence
	a.reads = a.reads[:0]
}

// consumesRecv reports whether the peer needs a receive for it.
func (o *operation) consumesRecv() bool {
	switch o.wr.Opcode {
	case qp.Send, qp.SendImm, qp.WriteImm:
		return true
	}
	return false
}

// turn lets the actor do what an application does: post, poll, repost.
func (a *actor) turn() error {
	for a.posted < len(a.ops) && a.rng.IntN(3) > 0 {
		if sends, _ := a.Outstanding(); sends >= 60 {
			break
		}
		a.ops[a.posted].wr.ID = uint64(a.posted)
		if err := a.PostSend(&a.ops[a.posted].wr); err != nil {
			return err
		}
		a.posted++
	}
	for _, wc := range drain(a.send) {
		if err := a.completed(wc); err != nil {
			return err
		}
	}
	for _, wc := range drain(a.recv) {
		if err := a.received(wc); err != nil {
			return err
		}
	}
	if !a.reluctant || a.rng.IntN(4) == 0 {
		a.postRecvs()
	}
	return nil
}

func (a *actor) postRecvs() {
	for a.recvTotal-a.recvDone < a.recvSlots {
		slot := a.recvTotal % a.recvSlots
		must(0, a.PostRecv(&qp.RecvWR{ID: uint64(a.recvTotal), SG: a.gatherList(a.recvMR, slot*recvSize, recvSize)}))
		a.recvTotal++
	}
}

// completed checks a send completion: in order, once, successful, with the
// right result.
func (a *actor) completed(wc cq.WC) error {
	for a.done < a.posted && a.ops[a.done].silent {
		a.done++
	}
	if a.done >= a.posted || wc.ID != uint64(a.done) {
		return fmt.Errorf("completion of %d, expected %d", wc.ID, a.done)
	}
	if wc.Status != cq.Success {
		return fmt.Errorf("operation %d (%v): %v", wc.ID, a.ops[wc.ID].wr.Opcode, wc.Status)
	}
	a.done++
	return nil
}

// received checks a receive completion against the peer's operations.
func (a *actor) received(wc cq.WC) error {
	if wc.Status != cq.Success || wc.ID != uint64(a.recvDone) || a.recvDone >= len(a.wantRecv) {
		return fmt.Errorf("receive %d: got ID %d, status %v", a.recvDone, wc.ID, wc.Status)
	}
	o := &a.peerOps.ops[a.wantRecv[a.recvDone]]
	slot := a.recvDone % a.recvSlots
	a.recvDone++
	if int(wc.ByteLen) != len(o.payload) {
		return fmt.Errorf("receive %d: %d bytes, sent %d", wc.ID, wc.ByteLen, len(o.payload))
	}
	if o.wr.Opcode != qp.Send && (wc.Flags&cq.WithImm == 0 || wc.Imm != o.wr.Imm) {
		return fmt.Errorf("receive %d: immediate %#x, sent %#x", wc.ID, wc.Imm, o.wr.Imm)
	}
	if o.wr.Opcode != qp.WriteImm && !bytes.Equal(a.recvBuf[slot*recvSize:][:len(o.payload)], o.payload) {
		return fmt.Errorf("receive %d: data differ", wc.ID)
	}
	return nil
}

// finished reports whether everything is complete, and checks the memory then.
func (a *actor) finished() (bool, error) {
	if sends, _ := a.Outstanding(); a.posted < len(a.ops) || sends > 0 || a.recvDone < len(a.wantRecv) {
		return false, nil
	}
	for a.done < a.posted && a.ops[a.done].silent {
		a.done++
	}
	if a.done < a.posted {
		return false, nil
	}
	if !bytes.Equal(a.remote, a.model) {
		return true, fmt.Errorf("remote memory differs from the model")
	}
	for i, o := range a.ops {
		if !bytes.Equal(o.read, o.expect) {
			return true, fmt.Errorf("operation %d (%v) brought back %d wrong bytes", i, o.wr.Opcode, len(o.read))
		}
	}
	return true, nil
}

// simulate runs one seed: two actors against each other on a bad network.
func simulate(t testing.TB, seed uint64, prepare func(*network)) (packets int, err error) {
	rng := rand.New(rand.NewPCG(seed, 2))
	rate := func(limit float64) float64 {
		if rng.IntN(3) == 0 {
			return 0
		}
		return rng.Float64() * limit
	}
	imp := impairment{loss: rate(0.08), dup: rate(0.2), reorder: rate(0.2), corrupt: rate(0.02),
		delay: time.Duration(1+rng.IntN(50)) * time.Microsecond, jitter: time.Duration(rng.IntN(100)) * time.Microsecond}
	mtu := bth.MTU(1 + rng.IntN(5))
	psn := func() bth.PSN {
		if rng.IntN(2) == 0 {
			return bth.PSN(0xFFFFF0 + rng.IntN(16)) // wraps within the run
		}
		return bth.PSN(rng.Uint32() & uint32(bth.PSNMask))
	}
	c := pairConfig{mtu: mtu, psnA: psn(), psnB: psn(), rd: uint8(1 + rng.IntN(8)), v6: rng.IntN(2) == 0,
		minRNR: bth.RNRTimer(1 + rng.IntN(12)), window: []int{0, 8, 33}[rng.IntN(3)]}
	na, nb, w := newPair(t, seed, imp, c)
	if rng.IntN(4) == 0 {
		na.room = 1 + rng.IntN(8)
	}
	if prepare != nil {
		prepare(w)
	}
	a := newActor(t, na, rng, mtu.Bytes(), 10+rng.IntN(30))
	b := newActor(t, nb, rng, mtu.Bytes(), rng.IntN(30))
	for _, x := range [...][2]*actor{{a, b}, {b, a}} {
		x[0].peerOps = x[1]
		x[0].reluctant = rng.IntN(3) == 0
		for i := range x[1].ops {
			if x[1].ops[i].consumesRecv() {
				x[0].wantRecv = append(x[0].wantRecv, i)
			}
		}
		x[0].postRecvs()
	}
	for range 200_000 {
		for _, x := range [...]*actor{a, b} {
			if err := x.turn(); err != nil {
				return w.sent, fmt.Errorf("%v: %w", x.addr, err)
			}
		}
		if !w.step(na, nb) && a.posted == len(a.ops) && b.posted == len(b.ops) {
			w.now += 1000 // only the applications can go on: late receives
		}
		doneA, err := a.finished()
		if err != nil {
			return w.sent, err
		}
		doneB, err := b.finished()
		if err != nil {
			return w.sent, err
		}
		if doneA && doneB {
			return w.sent, quiet(imp, na, nb)
		}
	}
	return w.sent, fmt.Errorf("no end in sight: %d of %d and %d of %d operations complete after %v", a.done, len(a.ops), b.done, len(b.ops), w.now)
}

// quiet checks that a perfect network needed no recovery.
func quiet(imp impairment, nodes ...*node) error {
	if imp.loss+imp.dup+imp.reorder+imp.corrupt > 0 {
		return nil
	}
	for _, n := range nodes {
		if c := n.cnt; c.LocalAckTimeout+c.SeqNAKSent+c.ImpliedNAK+c.DuplicateRequest > 0 {
			return fmt.Errorf("%v: recovered on a perfect network: %+v", n.addr, c)
		}
	}
	return nil
}

// TestSimRC runs random operations in both directions over networks that
// lose, duplicate, reorder and corrupt, and compares everything with a model
// of plain byte arrays: in order, exactly once, the right bytes, no livelock.
func TestSimRC(t *testing.T) {
	if *simSeed != 0 {
		runSeed(t, *simSeed, true)
		return
	}
	start, packets := time.Now(), 0
	n := *simSeeds
	if testing.Short() {
		n = 300
	}
	for seed := uint64(1); seed <= uint64(n) && !t.Failed(); seed++ {
		packets += runSeed(t, seed, false)
	}
	d := time.Since(start)
	t.Logf("%d seeds, %d packets, %.0f seeds/s", n, packets, float64(n)/d.Seconds())
}

// runSeed runs a seed and, when it fails, once more with a capture.
func runSeed(t *testing.T, seed uint64, capture bool) int {
	if capture {
		return replay(t, seed)
	}
	n, err := simulate(t, seed, nil)
	if err != nil {
		replay(t, seed)
	}
	return n
}
