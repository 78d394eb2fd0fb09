package qp_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// dcWorld is a network of initiators and targets, each with an address of its own.
type dcWorld struct {
	*network
	nodes   []*node
	byAddr  map[bth.GID]*node
	targets []*dcTarget
	learned int // paths back that were kept
}

// dcTarget is a target with its queue of receives and a region that peers may use.
type dcTarget struct {
	*node
	buf  []byte
	mr   *mr.MR
	next uint64 // ID of the next receive
	slot int    // bytes of a receive
	bufs []byte
	recv *mr.MR
}

const dcKey = 0x1234_5678_9ABC_DEF0

func newDCWorld(seed uint64, imp impairment) *dcWorld {
	return &dcWorld{network: newNetwork(seed, imp), byAddr: map[bth.GID]*node{}}
}

// dcSink sends a node's packets to the node that they are addressed to.
type dcSink struct {
	w *dcWorld
	n *node
}

func (s dcSink) Begin(p *frame.Path, size int) ([]byte, bth.CRC, bool) { return s.n.Begin(p, size) }

func (s dcSink) Commit() {
	var p frame.Packet
	if err := p.Parse(s.n.buf, frame.LayoutEthernet); err != nil {
		panic(fmt.Sprintf("engine built a malformed packet: %v", err))
	}
	if s.n.peer = s.w.byAddr[p.Dst]; s.n.peer != nil {
		s.n.Commit()
	}
}

// dcMAC and dcNext are the Ethernet addresses of an end and of its next hop.
var dcMAC, dcNext = frame.MAC{2, 1}, frame.MAC{2, 2}

// path returns the path from one address to another.
func (w *dcWorld) path(from, to netip.Addr) *frame.Path { return w.pathTo(dcNext, from, to) }

// pathTo returns the path by a next hop.
func (w *dcWorld) pathTo(next frame.MAC, from, to netip.Addr) *frame.Path {
	return must(frame.NewPath(frame.PathConfig{Src: bth.GIDFrom(from), Dst: bth.GIDFrom(to), SrcMAC: dcMAC, DstMAC: next, SrcPort: 0xC000, HopLimit: 64}))
}

func (w *dcWorld) add(t testing.TB, c qp.Config) *node {
	t.Helper()
	i := len(w.nodes)
	h := newHost(w.rng)
	n := &node{net: w.network, addr: netip.AddrFrom4([4]byte{10, 77, byte(i >> 8), byte(i)}), pd: h.pd, mem: h.mem, host: h}
	n.send, n.recv = must(cq.New(1023, cq.Options{})), must(cq.New(1023, cq.Options{}))
	c.Num, c.PD, c.Memory, c.SendCQ, c.RecvCQ, c.Counters = 0x100+bth.QPN(i), n.pd, n.mem, n.send, n.recv, &n.cnt
	c.Event = func(_ *qp.QP, e qp.EventType) { n.events = append(n.events, e) }
	if c.DCT != nil {
		c.DCT.Own, c.DCT.Rand = bth.GIDFrom(n.addr), w.rng.Uint64
		c.DCT.PathBack = func(p *frame.Packet, keep bool) *frame.Path {
			if keep {
				w.learned++
			}
			return w.pathTo(p.SrcMAC, p.Dst.Addr(), p.Src.Addr())
		}
		h.shareRecvs(qp.SRQConfig{MaxWR: 256, MaxSGE: 1})
		c.SRQ = h.srq
	}
	n.QP = must(qp.New(c))
	n.via = dcSink{w, n}
	w.nodes = append(w.nodes, n)
	w.byAddr[bth.GIDFrom(n.addr)] = n
	return n
}

// target adds a target with a region of some bytes.
func (w *dcWorld) target(t testing.TB, c qp.DCTConfig, size int) *dcTarget {
	t.Helper()
	if c.Key == 0 {
		c.Key = dcKey
	}
	if c.MTU == 0 {
		c.MTU = bth.MTU1024
	}
	if c.MinRNRTimer == 0 {
		c.MinRNRTimer = 1
	}
	c.Access = mr.RemoteRead | mr.RemoteWrite | mr.RemoteAtomic
	d := &dcTarget{node: w.add(t, qp.Config{Type: qp.DCT, DCT: &c}), slot: 4096}
	d.buf, d.mr = d.region(t, size)
	d.bufs, d.recv = d.region(t, 256*d.slot)
	w.targets = append(w.targets, d)
	return d
}

// post queues n receives.
func (d *dcTarget) post(t testing.TB, n int) {
	t.Helper()
	for range n {
		at := d.recv.Addr() + uint64(int(d.next%256)*d.slot)
		if err := d.host.srq.PostRecv(&qp.RecvWR{ID: d.next, SG: []mr.SGE{{Addr: at, Length: uint32(d.slot), LKey: d.recv.LKey()}}}); err != nil {
			t.Fatal(err)
		}
		d.next++
	}
}

// data is what receive id holds.
func (d *dcTarget) data(id uint64, n uint32) []byte {
	return d.bufs[int(id%256)*d.slot:][:n]
}

// dciStates are the changes of state of a DCI as the experimental verbs list them.
var dciStates = []struct {
	from, to           qp.State
	required, optional qp.AttrMask
}{
	{qp.Reset, qp.Init, qp.AttrPKeyIndex | qp.AttrPort | qp.AttrDCKey, 0},
	{qp.Init, qp.Init, 0, qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccess},
	{qp.Init, qp.RTR, qp.AttrAV | qp.AttrPathMTU, qp.AttrPKeyIndex | qp.AttrDCKey},
	{qp.RTR, qp.RTS, qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrMaxRdAtomic,
		qp.AttrAltPath | qp.AttrMinRNRTimer | qp.AttrPathMigState},
	{qp.RTS, qp.RTS, 0, qp.AttrAltPath | qp.AttrPathMigState | qp.AttrMinRNRTimer},
}

// dciAttr are attributes that every row of the table takes.
func (w *dcWorld) dciAttr(n *node) qp.Attr {
	return qp.Attr{Port: 1, DCKey: dcKey, AV: qp.NewAH(w.path(n.addr, n.addr)), PathMTU: bth.MTU1024,
		Timeout: 8, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 4}
}

// initiator adds an initiator in RTS; set changes its attributes.
func (w *dcWorld) initiator(t testing.TB, set func(*qp.Attr)) *node {
	t.Helper()
	n := w.add(t, qp.Config{Type: qp.DCI, Caps: qp.Caps{MaxSendWR: 64, MaxSendSGE: 4, MaxInlineData: 128}, FirstNumber: w.rng.Uint64()})
	a := w.dciAttr(n)
	if set != nil {
		set(&a)
	}
	for _, row := range []int{0, 2, 3} {
		a.State = dciStates[row].to
		if err := n.Modify(&a, qp.AttrState|dciStates[row].required); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// to completes a work request with the target that it goes to.
func (w *dcWorld) to(n *node, d *dcTarget, wr qp.SendWR) *qp.SendWR {
	wr.AH, wr.RemoteQPN, wr.RKey = qp.NewAH(w.path(n.addr, d.addr)), d.Num(), d.mr.RKey()
	if wr.DCKey == 0 {
		wr.DCKey = 1 << 63 // the initiator's own
	}
	wr.Flags |= qp.Signaled
	return &wr
}

// run steps the network until done returns true. The test fails if that takes longer than limit of simulated time.
func (w *dcWorld) run(t testing.TB, limit time.Duration, done func() bool) {
	t.Helper()
	for end := w.now.Add(limit); !done(); {
		if !w.step(w.nodes...) || end < w.now {
			t.Fatalf("stuck at %v", w.now)
		}
	}
}

// idle lets simulated time pass.
func (w *dcWorld) idle(d time.Duration) {
	w.pump(w.nodes...)
	for end := w.now.Add(d); w.now < end; {
		next := mono.Never
		for _, n := range w.nodes {
			next = min(next, n.NextTimeout())
		}
		if len(w.queue) == 0 && next > end {
			w.now = end
		} else if !w.step(w.nodes...) {
			w.now = end
		}
	}
	w.pump(w.nodes...)
}
