package qp_test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "run only this seed of the simulation")
	simSeeds = flag.Int("sim.seeds", 2000, "how many seeds the simulation runs")
)

// arena sizes of the model.
const (
	remoteSize = 64 << 10
	sourceSize = 64 << 10
	recvSize   = 40 << 10
)

// operation is one work request of the model with its expected results.
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
	flushes  int      // FLUSHes among the operations

	// As a receiver of the peer's SENDs:
	peerOps *actor
	in      map[bth.SRQN]*inbox // by what the peer's operations name: 0 without XRC
}

// inbox is what an actor receives from one receive queue.
type inbox struct {
	*pool
	want []int  // indices into peerOps.ops that consume a receive, in order
	done int    // receives completed
	last uint64 // ID of the latest one
}

// pool is the buffers behind a receive queue, of one queue pair or shared by
// several.
type pool struct {
	rng       *rand.Rand
	post      func(*qp.RecvWR) error
	shared    bool
	buf       []byte
	mr        *mr.MR
	free      []int          // slots
	posted    map[uint64]int // slot by ID
	next      uint64         // ID
	reluctant bool           // posts late, to provoke RNR
}

// recvSlots is how many receives are in a queue when it is full.
const recvSlots = 16

func newPool(t testing.TB, n *node, rng *rand.Rand, post func(*qp.RecvWR) error) *pool {
	p := &pool{rng: rng, post: post, posted: map[uint64]int{}, reluctant: rng.IntN(3) == 0}
	p.buf, p.mr = n.region(t, recvSlots*recvSize)
	for slot := range recvSlots {
		p.free = append(p.free, slot)
	}
	p.fill()
	return p
}

// fill posts what is free.
func (p *pool) fill() {
	for _, slot := range p.free {
		must(0, p.post(&qp.RecvWR{ID: p.next, SG: gatherList(p.rng, p.mr, slot*recvSize, recvSize)}))
		p.posted[p.next] = slot
		p.next++
	}
	p.free = p.free[:0]
}

// advance posts the used buffers again.
func (p *pool) advance() {
	if !p.reluctant || p.rng.IntN(4) == 0 {
		p.fill()
	}
}

// complete returns the buffer of a receive that has completed, which may happen
// once.
func (p *pool) complete(id uint64) ([]byte, bool) {
	slot, ok := p.posted[id]
	if ok {
		delete(p.posted, id)
		p.free = append(p.free, slot)
	}
	return p.buf[slot*recvSize:][:recvSize], ok
}

func newActor(t testing.TB, n *node, rng *rand.Rand, mtu, sends int) *actor {
	a := &actor{node: n, rng: rng, mtu: mtu, in: map[bth.SRQN]*inbox{}}
	a.source, a.sourceMR = n.region(t, sourceSize)
	a.sink, a.sinkMR = n.region(t, sends*9*mtu+64)
	a.remote, a.remoteMR = n.peer.region(t, remoteSize)
	a.model = make([]byte, remoteSize)
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
func gatherList(rng *rand.Rand, m *mr.MR, off, n int) []mr.SGE {
	var sg []mr.SGE
	for len(sg) < 3 && n > 1 && rng.IntN(2) == 0 {
		k := rng.IntN(n)
		sg = append(sg, m.SGE(off, k))
		off, n = off+k, n-k
	}
	return append(sg, m.SGE(off, n))
}

// generate makes one operation and applies it to the model.
func (a *actor) generate() operation {
	kinds := []qp.Opcode{qp.Send, qp.SendImm, qp.Write, qp.WriteImm, qp.Read, qp.CompareSwap, qp.FetchAdd, qp.Flush, qp.AtomicWrite,
		qp.MaskedCompareSwap, qp.MaskedFetchAdd}
	if a.Type() != qp.RC {
		kinds = kinds[:len(kinds)-2] // masked atomics are for RC
	}
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
	case qp.Flush:
		a.target(&o, n)
		o.wr.FlushType, o.wr.Selectivity, o.wr.Length = bth.FlushGlobal, bth.FlushSelectivity(a.rng.IntN(2)), uint32(n)
		a.flushes++
	case qp.AtomicWrite:
		at := a.target(&o, 8) &^ 7
		o.wr.RemoteAddr = a.remoteMR.Addr() + uint64(at)
		a.ordered(&o, at, 8)
		copy(a.model[at:], a.payload(&o, 8))
	case qp.MaskedCompareSwap, qp.MaskedFetchAdd:
		a.masked(&o)
		a.reply(&o)
	default:
		a.atomic(&o)
		a.reply(&o)
	}
	return o
}

// atomic makes a COMPARE_SWAP or FETCH_ADD.
func (a *actor) atomic(o *operation) {
	at := a.target(o, 8) &^ 7
	o.wr.RemoteAddr = a.remoteMR.Addr() + uint64(at)
	a.ordered(o, at, 8)
	a.result(o, 8)
	word := a.model[at : at+8]
	old := binary.NativeEndian.Uint64(word)
	o.expect = append([]byte(nil), word...)
	if o.wr.Opcode == qp.FetchAdd {
		o.wr.CompareAdd = a.rng.Uint64()
		binary.NativeEndian.PutUint64(word, old+o.wr.CompareAdd)
		return
	}
	o.wr.CompareAdd, o.wr.Swap = old, a.rng.Uint64()
	if a.rng.IntN(3) == 0 {
		o.wr.CompareAdd++ // must not swap
	} else {
		binary.NativeEndian.PutUint64(word, o.wr.Swap)
	}
}

// reply puts what an atomic returns in the byte order that the requester wants.
func (a *actor) reply(o *operation) {
	if !a.bigReply || binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		return
	}
	for part := range slices.Chunk(o.expect, 8) {
		slices.Reverse(part)
	}
}

// wide makes an atomic under masks of n bytes, more than 8.
func (a *actor) wide(o *operation, n int) {
	at := a.target(o, n) &^ (n - 1)
	o.wr.RemoteAddr = a.remoteMR.Addr() + uint64(at)
	a.ordered(o, at, n)
	a.result(o, n)
	o.expect = bytes.Clone(a.model[at : at+n])
	args := new(qp.MaskedArgs)
	o.wr.Args = args
	swaps := a.rng.IntN(3) > 0
	var next []byte
	for i := range n / 8 {
		was := binary.NativeEndian.Uint64(a.model[at+8*i:])
		mask := a.rng.Uint64() & a.rng.Uint64()
		if args.CompareAdd[i], args.Boundary[i] = a.rng.Uint64(), mask; o.wr.Opcode == qp.MaskedFetchAdd {
			next = binary.NativeEndian.AppendUint64(next, addByBits(was, args.CompareAdd[i], mask))
			continue
		}
		args.CompareAdd[i], args.CompareMask[i], args.Swap[i], args.SwapMask[i] = was, mask, a.rng.Uint64(), a.rng.Uint64()
		if !swaps && i == n/8-1 { // one bit of the last word forbids all
			bit := uint64(1) << a.rng.IntN(64)
			args.CompareAdd[i], args.CompareMask[i] = was^bit, mask|bit
			return
		}
		next = binary.NativeEndian.AppendUint64(next, was&^args.SwapMask[i]|args.Swap[i]&args.SwapMask[i])
	}
	copy(a.model[at:], next)
}

// addByBits adds fields that end at the bits of a mask.
func addByBits(x, add, mask uint64) (sum uint64) {
	var carry uint64
	for i := range 64 {
		s := carry + x>>i&1 + add>>i&1
		sum |= s & 1 << i
		carry = s >> 1 &^ (mask >> i)
	}
	return sum
}

// number returns the part of word that has its n least significant bytes, in host byte order.
func number(word *[8]byte, n int) []byte {
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		return word[8-n:]
	}
	return word[:n]
}

// masked makes an atomic under masks.
func (a *actor) masked(o *operation) {
	if a.maxArg > 8 && a.rng.IntN(3) == 0 {
		a.wide(o, 16<<a.rng.IntN(2))
		return
	}
	n := 1 << a.rng.IntN(4)
	at := a.target(o, n) &^ (n - 1)
	o.wr.RemoteAddr = a.remoteMR.Addr() + uint64(at)
	a.ordered(o, at, n)
	a.result(o, n)
	o.expect = bytes.Clone(a.model[at : at+n])
	var word [8]byte
	copy(number(&word, n), o.expect)
	was := binary.NativeEndian.Uint64(word[:])
	mask := a.rng.Uint64() & a.rng.Uint64()
	if o.wr.Opcode == qp.MaskedFetchAdd {
		o.wr.CompareAdd, o.wr.Boundary = a.rng.Uint64(), mask
		binary.NativeEndian.PutUint64(word[:], addByBits(was, o.wr.CompareAdd, mask))
	} else {
		o.wr.CompareAdd, o.wr.CompareMask, o.wr.Swap, o.wr.SwapMask = was, mask, a.rng.Uint64(), a.rng.Uint64()
		if bit := uint64(1) << a.rng.IntN(8*n); a.rng.IntN(3) > 0 {
			binary.NativeEndian.PutUint64(word[:], was&^o.wr.SwapMask|o.wr.Swap&o.wr.SwapMask)
		} else { // must not swap
			o.wr.CompareAdd, o.wr.CompareMask = was^bit, mask|bit
		}
	}
	copy(a.model[at:at+n], number(&word, n))
}

// payload gives a SEND or WRITE its data, sometimes inline.
func (a *actor) payload(o *operation, n int) []byte {
	at := a.rng.IntN(sourceSize - n)
	if n <= 64 && a.rng.IntN(2) == 0 {
		o.wr.Inline = append([]byte(nil), a.source[at:at+n]...)
	} else {
		o.wr.SG = gatherList(a.rng, a.sourceMR, at, n)
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
	o.wr.SG = gatherList(a.rng, a.sinkMR, a.sinkUsed, n)
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

// advance lets the actor do what an application does: post, poll, repost.
func (a *actor) advance() error {
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
		if err := a.received(a.in[0], wc); err != nil {
			return err
		}
	}
	for _, box := range a.in {
		box.advance()
	}
	return nil
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

// received checks a receive completion against the peer's operations. Receives are taken in the order in which they
// were posted. A queue pair takes all receives of its own queue, but only some of a shared one.
func (a *actor) received(in *inbox, wc cq.WC) error {
	buf, ok := in.complete(wc.ID)
	inOrder := wc.ID == uint64(in.done) || in.shared && (in.done == 0 || wc.ID > in.last)
	if wc.Status != cq.Success || !ok || !inOrder || wc.QPN != a.Num() || in.done >= len(in.want) {
		return fmt.Errorf("receive %d: got ID %d after %d, status %v, QPN %v", in.done, wc.ID, in.last, wc.Status, wc.QPN)
	}
	o := &a.peerOps.ops[in.want[in.done]]
	in.done++
	in.last = wc.ID
	if int(wc.ByteLen) != len(o.payload) {
		return fmt.Errorf("receive %d: %d bytes, sent %d", wc.ID, wc.ByteLen, len(o.payload))
	}
	if o.wr.Opcode != qp.Send && (wc.Flags&cq.WithImm == 0 || wc.Imm != o.wr.Imm) {
		return fmt.Errorf("receive %d: immediate %#x, sent %#x", wc.ID, wc.Imm, o.wr.Imm)
	}
	if o.wr.Opcode != qp.WriteImm && !bytes.Equal(buf[:len(o.payload)], o.payload) {
		return fmt.Errorf("receive %d: data differ", wc.ID)
	}
	return nil
}

// finished reports whether everything is complete, and checks the memory then.
func (a *actor) finished() (bool, error) {
	if sends, _ := a.Outstanding(); a.posted < len(a.ops) || sends > 0 {
		return false, nil
	}
	for _, in := range a.in {
		if in.done < len(in.want) {
			return false, nil
		}
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
	if got := a.remoteMR.Flushes(); got != uint64(a.flushes) {
		return true, fmt.Errorf("%d FLUSHes executed, %d posted", got, a.flushes)
	}
	for i, o := range a.ops {
		if !bytes.Equal(o.read, o.expect) {
			return true, fmt.Errorf("operation %d (%v) brought back %d wrong bytes", i, o.wr.Opcode, len(o.read))
		}
	}
	return true, nil
}

// cast puts actors on a network: pairs that talk to each other.
type cast func(t testing.TB, seed uint64, rng *rand.Rand, imp impairment, c pairConfig) (w *network, pairs [][2]*actor)

// castRC makes two actors, each of which works on the memory of the other.
func castRC(t testing.TB, seed uint64, rng *rand.Rand, imp impairment, c pairConfig) (*network, [][2]*actor) {
	na, nb, w := newPair(t, seed, imp, c)
	if rng.IntN(4) == 0 {
		na.room = 1 + rng.IntN(8)
	}
	a := newActor(t, na, rng, c.mtu.Bytes(), 10+rng.IntN(30))
	b := newActor(t, nb, rng, c.mtu.Bytes(), rng.IntN(30))
	for _, x := range [...]*actor{a, b} {
		x.in[0] = &inbox{pool: newPool(t, x.node, rng, x.PostRecv)}
	}
	return w, [][2]*actor{{a, b}}
}

// castSRQ makes clients of one server, whose queue pairs share a receive queue.
func castSRQ(t testing.TB, seed uint64, rng *rand.Rand, imp impairment, c pairConfig) (w *network, pairs [][2]*actor) {
	w = newNetwork(seed, imp)
	c.hostB = newHost(w.rng).shareRecvs(qp.SRQConfig{MaxWR: recvSlots, MaxSGE: 4})
	var shared *pool
	for i := range 2 + rng.IntN(2) {
		na, nb := w.pair(t, c, i)
		a := newActor(t, na, rng, c.mtu.Bytes(), 10+rng.IntN(20))
		b := newActor(t, nb, rng, c.mtu.Bytes(), rng.IntN(10))
		a.in[0] = &inbox{pool: newPool(t, na, rng, na.PostRecv)}
		if shared == nil {
			shared = newPool(t, nb, rng, c.hostB.srq.PostRecv)
			shared.shared = true
		}
		b.in[0] = &inbox{pool: shared}
		pairs = append(pairs, [2]*actor{a, b})
	}
	return w, pairs
}

// TestSimSRQ is TestSimRC with several queue pairs that take from one receive
// queue: each message gets a receive of its own.
func TestSimSRQ(t *testing.T) { runSeeds(t, castSRQ, *simSeeds/3) }

// castXRC makes initiators that send to the targets of one server. Each operation names one of the shared receive
// queues there, which all of them reach.
func castXRC(t testing.TB, seed uint64, rng *rand.Rand, imp impairment, c pairConfig) (w *network, pairs [][2]*actor) {
	w = newNetwork(seed, imp)
	c.typ, c.typB = qp.XRCSend, qp.XRCRecv
	c.masked, c.maxArg, c.quirk = false, 0, false // these are for RC
	c.hostB = newHost(w.rng).openXRC(2, qp.SRQConfig{MaxWR: recvSlots, MaxSGE: 4})
	var pools []*pool
	targets := map[bth.QPN]*actor{}
	for i := range 2 + rng.IntN(2) {
		na, nb := w.pair(t, c, i)
		a, b := newActor(t, na, rng, c.mtu.Bytes(), 10+rng.IntN(20)), newActor(t, nb, rng, c.mtu.Bytes(), 0)
		for k := range a.ops {
			a.ops[k].wr.RemoteSRQN = c.hostB.xrc[rng.IntN(2)].Num()
		}
		for k, srq := range c.hostB.xrc {
			if i == 0 {
				pools = append(pools, newPool(t, nb, rng, srq.PostRecv))
				pools[k].shared = true
			}
			b.in[srq.Num()] = &inbox{pool: pools[k]}
		}
		targets[nb.Num()] = b
		pairs = append(pairs, [2]*actor{a, b})
	}
	w.poll = func() error {
		for _, srq := range c.hostB.xrc {
			for _, wc := range drain(srq.cq) {
				b := targets[wc.QPN]
				if b == nil {
					return fmt.Errorf("receive of unknown queue pair %v", wc.QPN)
				}
				if err := b.received(b.in[srq.Num()], wc); err != nil {
					return fmt.Errorf("%v, SRQ %v: %w", b.addr, srq.Num(), err)
				}
			}
		}
		return nil
	}
	return w, pairs
}

// TestSimXRC is TestSimRC with XRC: all operations, to targets that share
// receive queues.
func TestSimXRC(t *testing.T) { runSeeds(t, castXRC, *simSeeds/3) }

// simulate runs one seed: actors against each other on a bad network.
func simulate(t testing.TB, seed uint64, with cast, prepare func(*network)) (packets int, err error) {
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
		minRNR: bth.RNRTimer(1 + rng.IntN(12)), window: []int{0, 8, 33}[rng.IntN(3)], quirk: rng.IntN(3) == 0, masked: true, maxArg: rng.IntN(2) * mr.MaxOperand, bigReply: rng.IntN(2) == 0,
		split: []uint32{0, 0, 0, 1, 2, 3}[rng.IntN(6)]}
	w, pairs := with(t, seed, rng, imp, c.mixed(seed))
	if prepare != nil {
		prepare(w)
	}
	var actors []*actor
	var nodes []*node
	for _, p := range pairs {
		p[0].peerOps, p[1].peerOps = p[1], p[0]
		actors, nodes = append(actors, p[:]...), append(nodes, p[0].node, p[1].node)
	}
	for _, x := range actors {
		for i := range x.peerOps.ops {
			if x.peerOps.ops[i].consumesRecv() {
				in := x.in[x.peerOps.ops[i].wr.RemoteSRQN]
				in.want = append(in.want, i)
			}
		}
	}
	for range 200_000 {
		idle, done := true, true
		for _, x := range actors {
			if err := x.advance(); err != nil {
				return w.sent, fmt.Errorf("%v: %w", x.addr, err)
			}
			idle = idle && x.posted == len(x.ops)
		}
		if w.poll != nil {
			if err := w.poll(); err != nil {
				return w.sent, err
			}
		}
		if !w.step(nodes...) && idle {
			w.now += 1000 // only the applications can continue, with late receives
		}
		for _, x := range actors {
			d, err := x.finished()
			if err != nil {
				return w.sent, fmt.Errorf("%v: %w", x.addr, err)
			}
			done = done && d
		}
		if done {
			if w.verdict != nil {
				return w.sent, w.verdict()
			}
			return w.sent, quiet(imp, nodes...)
		}
	}
	err = fmt.Errorf("no end in sight after %v", w.now)
	for _, x := range actors {
		err = fmt.Errorf("%w; %v: %d of %d operations complete", err, x.addr, x.done, len(x.ops))
	}
	return w.sent, err
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
func TestSimRC(t *testing.T) { runSeeds(t, castRC, *simSeeds) }

// runSeeds runs a simulation with n seeds, or with the one that was asked for.
func runSeeds(t *testing.T, with cast, n int) {
	if *simSeed != 0 {
		replay(t, with, *simSeed)
		return
	}
	start, packets := time.Now(), 0
	switch {
	case raceEnabled:
		n = min(n, 40)
	case testing.Short():
		n = min(n, 300)
	}
	for seed := uint64(1); seed <= uint64(n) && !t.Failed(); seed++ {
		packets += runSeed(t, with, seed)
	}
	d := time.Since(start)
	t.Logf("%d seeds, %d packets, %.0f seeds/s", n, packets, float64(n)/d.Seconds())
}

// notUnderRace skips a long computation of one goroutine, which has no races. Its result
// is the same without the detector.
func notUnderRace(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("one goroutine: the race detector cannot find anything")
	}
}

// runSeed runs a seed and, when it fails, once more with a capture.
func runSeed(t *testing.T, with cast, seed uint64) int {
	n, err := simulate(t, seed, with, nil)
	if err != nil {
		replay(t, with, seed)
	}
	return n
}
