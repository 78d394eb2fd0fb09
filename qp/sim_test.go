package qp_test

import (
	"container/heap"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// impairment is what the simulated network does to packets, each as a
// probability per packet.
type impairment struct {
	loss, dup, reorder, corrupt float64
	delay                       time.Duration // one way
	jitter                      time.Duration // added to reordered packets
}

// network carries frames between two nodes in simulated time.
type network struct {
	imp   impairment
	rng   *rand.Rand
	now   mono.Time
	seq   int
	queue deliveries
	free  [][]byte
	tap   func(b []byte) // sees every frame before it is impaired
	sent  int
	// drop, when set, decides about a packet before the impairments do.
	drop func(p *frame.Packet) bool
	// rewrite, when set, changes a packet that is delivered, or returns nil to drop it.
	rewrite func(to *node, b []byte) []byte
	// poll, when set, polls the completion queues that are no single actor's.
	poll func() error
	// advance, when set, is called whenever the engines are about to send: time
	// for an operator to act.
	advance func()
	// verdict, when set, judges a finished simulation of the model instead of
	// quiet.
	verdict func() error
}

type delivery struct {
	at  mono.Time
	seq int // keeps order among equal times
	to  *node
	b   []byte
}

type deliveries []delivery

func (d deliveries) Len() int { return len(d) }
func (d deliveries) Less(i, j int) bool {
	return d[i].at < d[j].at || d[i].at == d[j].at && d[i].seq < d[j].seq
}
func (d deliveries) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *deliveries) Push(x any)   { *d = append(*d, x.(delivery)) }
func (d *deliveries) Pop() any {
	o := *d
	x := o[len(o)-1]
	*d = o[:len(o)-1]
	return x
}

// node is one end: an engine with its memory and queues.
type node struct {
	*qp.QP
	net    *network
	peer   *node
	addr   netip.Addr
	host   *host
	mem    *mr.Table
	pd     *mr.PD
	send   *cq.CQ
	recv   *cq.CQ
	cnt    qp.Counters
	events []qp.EventType
	room   int // packets the sink takes per round, 0: no limit
	used   int
	buf    []byte
	id     uint16
	path   *frame.Path
	via    frame.Sink // nil: the node itself
	repair *qp.Repair
	ring   *ringOf // nil: all receives are posted with a call

	maxArg   int  // of pairConfig
	bigReply bool // the same
}

// sink is what the engine sends into.
func (n *node) sink() frame.Sink {
	if n.via != nil {
		return n.via
	}
	return n
}

// Begin and Commit make a node the sink of its own engine.
func (n *node) Begin(p *frame.Path, size int) ([]byte, bth.CRC, bool) {
	if n.room > 0 && n.used >= n.room {
		return nil, 0, false
	}
	total := p.HeaderLen(frame.LayoutEthernet) + size
	if k := len(n.net.free); k > 0 {
		n.buf, n.net.free = n.net.free[k-1], n.net.free[:k-1]
	} else {
		n.buf = make([]byte, 0, 4400)
	}
	n.buf = n.buf[:total]
	n.id++
	body, crc := p.Put(n.buf, frame.LayoutEthernet, size, n.id)
	return body, crc, true
}

func (n *node) Commit() {
	n.used++
	n.net.carry(n.peer, n.buf)
	n.buf = nil
}

// carry applies the impairments to a frame and schedules what is left of it.
func (w *network) carry(to *node, b []byte) {
	w.sent++
	if w.tap != nil {
		w.tap(b)
	}
	if w.drop != nil {
		var p frame.Packet
		if err := p.Parse(b, frame.LayoutEthernet); err != nil {
			panic(fmt.Sprintf("engine built a malformed packet: %v", err))
		}
		if w.drop(&p) {
			w.free = append(w.free, b)
			return
		}
	}
	hit := func(p float64) bool { return p > 0 && w.rng.Float64() < p }
	if hit(w.imp.loss) {
		w.free = append(w.free, b)
		return
	}
	at := w.now.Add(w.imp.delay)
	if hit(w.imp.reorder) {
		at = at.Add(time.Duration(w.rng.Int64N(int64(w.imp.jitter) + 1)))
	}
	if hit(w.imp.dup) {
		w.push(at.Add(time.Duration(w.rng.Int64N(int64(w.imp.jitter)+1))), to, append(make([]byte, 0, 4400), b...))
	}
	if hit(w.imp.corrupt) {
		bit := w.rng.IntN(len(b) * 8)
		b[bit/8] ^= 1 << (bit % 8)
	}
	w.push(at, to, b)
}

func (w *network) push(at mono.Time, to *node, b []byte) {
	w.seq++
	heap.Push(&w.queue, delivery{at, w.seq, to, b})
}

// next takes the packet that arrives next off the network.
func (w *network) next() delivery { return heap.Pop(&w.queue).(delivery) }

// deliver hands a frame to its node as a driver would: parse, ICRC, engine.
func (w *network) deliver(d delivery) {
	if w.rewrite != nil {
		if d.b = w.rewrite(d.to, d.b); d.b == nil {
			return
		}
	}
	var p frame.Packet
	if p.Parse(d.b, frame.LayoutEthernet) == nil && d.to.CheckICRC(&p) && p.DestQPN() == d.to.Num() {
		d.to.HandlePacket(w.now, &p)
	}
	w.free = append(w.free, d.b[:0])
}

// pump lets both engines send until they have nothing more.
func (w *network) pump(nodes ...*node) {
	if w.advance != nil {
		w.advance()
	}
	for _, n := range nodes {
		for n.Emit(w.now, n.sink()) {
			if n.room > 0 && n.used >= n.room {
				break
			}
		}
	}
}

// step advances time to the next event, and reports whether there was one.
func (w *network) step(nodes ...*node) bool {
	for _, n := range nodes {
		n.used = 0
	}
	w.pump(nodes...)
	next := mono.Never
	if len(w.queue) > 0 {
		next = w.queue[0].at
	}
	for _, n := range nodes {
		next = min(next, n.NextTimeout())
	}
	if next == mono.Never {
		return false
	}
	w.now = max(w.now, next)
	for len(w.queue) > 0 && w.queue[0].at <= w.now {
		w.deliver(heap.Pop(&w.queue).(delivery))
	}
	for _, n := range nodes {
		if n.NextTimeout() <= w.now {
			n.HandleTimeout(w.now)
		}
	}
	w.pump(nodes...)
	return true
}

// pairConfig is how two engines are connected.
type pairConfig struct {
	typ          qp.Type
	mtu          bth.MTU
	psnA, psnB   bth.PSN
	caps         qp.Caps
	rd           uint8 // MaxRdAtomic and MaxDestRdAtomic
	retry, rnr   uint8 // 0: 7; none: 0
	timeout      uint8
	minRNR       bth.RNRTimer
	window       int
	stopAt       qp.State // 0: RTS; inReset: not connected at all
	signalAll    bool
	alwaysAckReq bool
	access       mr.Access
	cqEntries    int
	v6           bool
	masked       bool   // masked atomics are enabled
	maxArg       int    // bytes of their operands, at most; 0: 8
	bigReply     bool   // atomics return big-endian numbers
	split        uint32 // response packets a READ request asks for, at most; 0: the usual limit
	quirk        bool   // both ends compute the ICRC of a FLUSH as rxe does
	cc           *qp.DCQCN
	splitting    bool       // WRITEs
	repair       bool       // losses are repaired one by one at the first end
	repairB      bool       // and at the second
	shared       *qp.Repair // what they repair with; nil: each end has its own
	cross        bool       // cross-channel communication, with managed queues
	managed      bool
	ring         bool // receives go into a ring of shared memory, where the queue pair may have one
	wake         func(*qp.QP)

	hostA, hostB *host   // nil: one of its own
	typB         qp.Type // 0: as typ
}

// host is what the queue pairs of a device have in common.
type host struct {
	mem    *mr.Table
	pd     *mr.PD
	srq    *qp.SRQ // nil: receive queues of their own
	xrcd   *qp.XRCD
	xrc    []xrcQueue // shared receive queues of XRC, in xrcd
	events []qp.EventType
}

func newHost(rng *rand.Rand) *host { return &host{mem: mr.NewTable(rng.Uint64), pd: mr.NewPD()} }

// shareRecvs gives the host a shared receive queue.
func (h *host) shareRecvs(c qp.SRQConfig) *host {
	c.Num, c.Event = 0x55, func(s *qp.SRQ, e qp.EventType) { h.events = append(h.events, e) }
	if c.PD == nil {
		c.PD = h.pd
	}
	h.srq = must(qp.NewSRQ(c))
	return h
}

// xrcQueue is a shared receive queue of XRC with the queue it completes into.
type xrcQueue struct {
	*qp.SRQ
	cq *cq.CQ
}

// openXRC gives the host an XRC domain with n shared receive queues, with the
// numbers 0x100 and following.
func (h *host) openXRC(n int, c qp.SRQConfig) *host {
	h.xrcd = qp.NewXRCD()
	for i := range n {
		done := must(cq.New(1023, cq.Options{}))
		c.Num, c.PD, c.XRCD, c.CQ = 0x100+bth.SRQN(i), h.pd, h.xrcd, done
		h.xrc = append(h.xrc, xrcQueue{must(qp.NewSRQ(c)), done})
	}
	return h
}

// inReset is a stopAt: the zero value means RTS.
const inReset qp.State = 99

// none is a count of retries: the zero value means 7.
const none uint8 = 99

func (c pairConfig) withDefaults() pairConfig {
	def := func(p *uint8, v uint8) {
		switch *p {
		case 0:
			*p = v
		case none:
			*p = 0
		}
	}
	if c.typ == 0 {
		c.typ = qp.RC
	}
	if c.mtu == 0 {
		c.mtu = bth.MTU1024
	}
	if c.caps == (qp.Caps{}) {
		c.caps = qp.Caps{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 128}
	}
	def(&c.rd, 4)
	def(&c.retry, 7)
	def(&c.rnr, 7)
	def(&c.timeout, 8)
	if c.minRNR == 0 {
		c.minRNR = 1
	}
	if c.access == 0 {
		c.access = mr.RemoteWrite | mr.RemoteRead | mr.RemoteAtomic | mr.FlushGlobal
	}
	if c.cqEntries == 0 {
		c.cqEntries = 1023
	}
	if c.stopAt == 0 {
		c.stopAt = qp.RTS
	}
	return c
}

// newPair connects two engines over a simulated network.
func newPair(t testing.TB, seed uint64, imp impairment, c pairConfig) (a, b *node, w *network) {
	t.Helper()
	w = newNetwork(seed, imp)
	a, b = w.pair(t, c, 0)
	return a, b, w
}

func newNetwork(seed uint64, imp impairment) *network {
	w := &network{imp: imp, rng: rand.New(rand.NewPCG(seed, 1)), now: 1}
	if w.imp.delay == 0 {
		w.imp.delay = 5 * time.Microsecond
	}
	return w
}

// pair connects two engines; i tells them from other pairs on the network.
func (w *network) pair(t testing.TB, c pairConfig, i int) (a, b *node) {
	t.Helper()
	c = c.withDefaults()
	cb := c
	cb.repair = c.repairB
	if c.typB != 0 {
		cb.typ = c.typB
	}
	a = newNode(t, w, c, c.hostA, 0x11+bth.QPN(i), fmt.Sprintf("10.77.%d.1", i), fmt.Sprintf("fd77::%d:1", i))
	b = newNode(t, w, cb, c.hostB, 0x22+bth.QPN(i), fmt.Sprintf("10.77.%d.2", i), fmt.Sprintf("fd77::%d:2", i))
	a.peer, b.peer = b, a
	a.path, b.path = a.pathTo(b), b.pathTo(a)
	connect(t, a, b, c, c.psnA, c.psnB)
	connect(t, b, a, c, c.psnB, c.psnA)
	return a, b
}

func newNode(t testing.TB, w *network, c pairConfig, h *host, num bth.QPN, v4, v6 string) *node {
	t.Helper()
	if h == nil {
		h = newHost(w.rng)
	}
	n := &node{net: w, addr: netip.MustParseAddr(v4), pd: h.pd, mem: h.mem, host: h, maxArg: c.maxArg, bigReply: c.bigReply}
	if c.v6 {
		n.addr = netip.MustParseAddr(v6)
	}
	n.repair = c.newRepair()
	n.send = must(cq.New(c.cqEntries, cq.Options{CrossChannel: c.cross}))
	n.recv = must(cq.New(c.cqEntries, cq.Options{CrossChannel: c.cross}))
	var ring *qp.RecvRing
	if c.ring && h.srq == nil && !c.cross && (c.typ == qp.RC || c.typ == qp.UC) {
		n.ring = &ringOf{slots: 2, most: 1 << bits.Len(uint(c.caps.MaxRecvWR-1))}
		ring = n.ring.engine()
	}
	xrcd := h.xrcd
	if c.typ != qp.XRCRecv {
		xrcd = nil
	}
	n.QP = must(qp.New(qp.Config{Type: c.typ, Num: num, PD: n.pd, Memory: n.mem, SendCQ: n.send, RecvCQ: n.recv, SRQ: h.srq, XRCD: xrcd,
		Caps: c.caps, RecvRing: ring, Counters: &n.cnt, Window: c.window, SplitWrites: c.splitting, AlwaysAckReq: c.alwaysAckReq, Repair: n.repair, SignalAll: c.signalAll, MaskedAtomics: c.masked, MaxAtomicArg: c.maxArg, BigEndianReply: c.bigReply, Congestion: c.cc,
		CrossChannel: c.cross, ManagedSend: c.managed, ManagedRecv: c.managed, Wake: c.wake,
		Event: func(_ *qp.QP, e qp.EventType) { n.events = append(n.events, e) }}))
	return n
}

// newRepair returns the memory with which an end repairs losses.
func (c pairConfig) newRepair() *qp.Repair {
	if c.shared != nil || !c.repair {
		return c.shared
	}
	return qp.NewRepair(qp.RecoverAll)
}

// mixed turns repair on at both ends, at one or at none, and rings of receives, according to the seed.
func (c pairConfig) mixed(seed uint64) pairConfig {
	c.repair, c.repairB, c.ring = seed&1 != 0, seed&2 != 0, seed&4 != 0
	return c
}

// pathTo is the address vector from one node to another.
func (n *node) pathTo(peer *node) *frame.Path {
	mac := func(n *node) frame.MAC { return frame.MAC{0x52, 0x54, 0, 0, 0, byte(n.Num())} }
	return must(frame.NewPath(frame.PathConfig{Src: bth.GIDFrom(n.addr), Dst: bth.GIDFrom(peer.addr),
		SrcMAC: mac(n), DstMAC: mac(peer), SrcPort: 0xC000, HopLimit: 64}))
}

// connect takes a node to RTS towards its peer, as an application would.
func connect(t testing.TB, n, peer *node, c pairConfig, sq, rq bth.PSN) {
	t.Helper()
	for _, attr := range []qp.Attr{
		{State: qp.Init, Port: 1, Access: c.access},
		{State: qp.RTR, AV: qp.NewAH(n.path), PathMTU: c.mtu, DestQPN: peer.Num(), RQPSN: rq, MaxDestRdAtomic: c.rd, MinRNRTimer: c.minRNR},
		{State: qp.RTS, Timeout: c.timeout, RetryCnt: c.retry, RNRRetry: c.rnr, SQPSN: sq, MaxRdAtomic: c.rd},
	} {
		if n.State() == c.stopAt || c.stopAt == inReset {
			return
		}
		mask := required[n.Type()][[2]qp.State{n.State(), attr.State}]
		if c.quirk {
			attr.FlushICRCQuirk = true
			mask |= qp.AttrFlushICRCQuirk
		}
		if err := n.Modify(&attr, qp.AttrState|mask); err != nil {
			t.Fatal(err)
		}
	}
	if c.split > 0 {
		n.SplitReads(c.split)
	}
}

// region registers fresh memory with every right.
func (n *node) region(t testing.TB, size int) ([]byte, *mr.MR) {
	t.Helper()
	b := make([]byte, size)
	return b, must(n.mem.Register(n.pd, b, mr.LocalWrite|mr.RemoteWrite|mr.RemoteRead|mr.RemoteAtomic|mr.FlushGlobal, mr.Options{}))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// drain takes every completion off a queue.
func drain(c *cq.CQ) (out []cq.WC) {
	var wc [16]cq.WC
	for {
		n := c.Poll(wc[:])
		if n == 0 {
			return out
		}
		out = append(out, wc[:n]...)
	}
}

// failureDir is where a failing simulation leaves its capture.
func failureDir(t testing.TB) string {
	dir := filepath.Join(os.TempDir(), "roce-sim")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
