package qp_test

import (
	"bytes"
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// accepted is a work request that was posted and has not been reported.
type accepted struct {
	id       uint64
	signaled bool
	gone     bool // its queue pair went to RESET since: it may get no completion
}

// apiNode is one end of a pair that a script drives, with the work requests that have no completion yet.
type apiNode struct {
	*node
	buf    []byte
	region *mr.MR
	local  apiLocal
	state  qp.State
	id     uint64
	sends  []accepted
	recvs  []accepted
	seen   map[cq.Status]int
}

// apiScript reads bytes as calls of the API on two connected queue pairs, and as what happens to every packet between
// them.
type apiScript struct {
	t     testing.TB
	bytes []byte
	cfg   pairConfig
	net   *network
	nodes [2]*apiNode
	stats map[string]int

	retry, rnr uint8 // as of the last connect
}

func (s *apiScript) next() byte {
	if len(s.bytes) == 0 {
		return 0
	}
	x := s.bytes[0]
	s.bytes = s.bytes[1:]
	return x
}

// Steps of a script; the more frequent ones several times.
var apiSteps = [...]func(*apiScript, *apiNode){
	(*apiScript).postSend, (*apiScript).postSend, (*apiScript).postSend, (*apiScript).postRecv, (*apiScript).postRecv,
	(*apiScript).pump, (*apiScript).pump, (*apiScript).deliver, (*apiScript).deliver, (*apiScript).deliver, (*apiScript).deliver,
	(*apiScript).lose, (*apiScript).duplicate, (*apiScript).overtake, (*apiScript).timeout, (*apiScript).wait, (*apiScript).poll,
	(*apiScript).modify, (*apiScript).connect, (*apiScript).connect, (*apiScript).full, (*apiScript).exchange,
	(*apiScript).postLocal,
}

// runAPI runs a script to its end and then flushes. The first bytes choose the
// pair.
func runAPI(t testing.TB, script []byte) map[string]int {
	s := &apiScript{t: t, bytes: script, stats: map[string]int{}}
	s.cfg = pairConfig{typ: []qp.Type{qp.RC, qp.RC, qp.UC, qp.UD}[s.next()%4], rd: 3, cqEntries: []int{1023, 1023, 3}[s.next()%3],
		caps: qp.Caps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 64}, window: []int{0, 3}[s.next()%2],
		psnA: 0xFFFFF8, psnB: 5, stopAt: inReset}
	s.cfg.masked = s.cfg.typ == qp.RC
	a, b, w := newPair(t, 1, impairment{}, s.cfg)
	s.cfg = s.cfg.withDefaults()
	s.net = w
	w.drop = func(*frame.Packet) bool { return false } // drops nothing, but has the network parse each packet
	for i, n := range []*node{a, b} {
		x := &apiNode{node: n, seen: map[cq.Status]int{}}
		x.buf, x.region = n.region(t, 8192)
		x.local = newAPILocal(n, x.buf)
		s.nodes[i] = x
	}
	s.connect(nil)
	guard, _ := a.region(t, 64) // no script knows its key
	for len(s.bytes) > 0 {
		x := s.next()
		s.step(apiSteps[int(x>>1)%len(apiSteps)], s.nodes[x&1])
	}
	for _, n := range s.nodes {
		s.finish(n)
	}
	for _, n := range s.nodes {
		s.release(n)
	}
	if !bytes.Equal(guard, make([]byte, 64)) {
		t.Fatal("memory whose key no peer has was changed")
	}
	return s.stats
}

// step runs one step and checks what must hold after it.
func (s *apiScript) step(do func(*apiScript, *apiNode), n *apiNode) {
	do(s, n)
	for len(s.net.queue) > 300 { // a router's buffer, too, is finite
		s.lose(n)
	}
	for _, n := range s.nodes {
		s.check(n)
	}
}

// check checks what must always hold.
func (s *apiScript) check(n *apiNode) {
	t := s.t
	sends, recvs := n.Outstanding()
	if _, caps := n.Query(); sends < 0 || sends > caps.MaxSendWR || recvs < 0 || recvs > caps.MaxRecvWR {
		t.Fatalf("%d sends and %d receives outstanding, the queues take %d and %d", sends, recvs, caps.MaxSendWR, caps.MaxRecvWR)
	}
	if got := n.State(); got != n.state {
		// A queue pair enters ERR by itself, or SQE after a local error of a send.
		fault := got == qp.SQE && n.Type() != qp.RC && (n.state == qp.RTS || n.state == qp.SQD)
		if !fault && (got != qp.Err || n.state == qp.Reset || n.state == qp.Init) {
			t.Fatalf("%v queue pair went from %v to %v by itself", n.Type(), n.state, got)
		}
		n.state = got
	}
	s.stats["in "+n.state.String()]++
	switch n.state {
	case qp.Err, qp.Reset:
		if sends+recvs != 0 {
			t.Fatalf("in %v with %d sends and %d receives", n.state, sends, recvs)
		}
		if at := n.NextTimeout(); at != mono.Never && !n.Owes() {
			t.Fatalf("in %v a timer runs until %v", n.state, at)
		}
	case qp.SQE:
		if sends != 0 {
			t.Fatalf("in SQE with %d sends", sends)
		}
	}
	if s.cfg.cqEntries > 3 {
		s.poll(n)
	}
}

// poll takes the completions of both queues.
func (s *apiScript) poll(n *apiNode) {
	s.reported(n, drain(n.send), &n.sends, n.send)
	s.reported(n, drain(n.recv), &n.recvs, n.recv)
}

// reported checks that each completion is of a posted work request, comes once, and comes in order.
func (s *apiScript) reported(n *apiNode, wcs []cq.WC, posted *[]accepted, q *cq.CQ) {
	for _, wc := range wcs {
		n.seen[wc.Status]++
		s.stats[wc.Status.String()]++
		i := slices.IndexFunc(*posted, func(a accepted) bool { return a.id == wc.ID })
		if i < 0 || wc.QPN != n.Num() {
			s.t.Fatalf("completion %+v of what was not posted, or twice, or out of order", wc)
		}
		for _, a := range (*posted)[:i] {
			if a.signaled && !a.gone && q.Dropped() == 0 {
				s.t.Fatalf("completion of %d, but %d before it has none", wc.ID, a.id)
			}
		}
		if !(*posted)[i].signaled && wc.Status == cq.Success {
			s.t.Fatalf("work request %d is not signaled and has succeeded, but there is a completion", wc.ID)
		}
		*posted = (*posted)[i+1:]
	}
}

// finish flushes a queue pair: everything that was queued is reported now.
func (s *apiScript) finish(n *apiNode) {
	s.poll(n)
	sends, recvs := n.Outstanding()
	if n.State() != qp.Reset {
		if err := n.Modify(&qp.Attr{State: qp.Err}, qp.AttrState); err != nil {
			s.t.Fatal(err)
		}
		n.state = qp.Err
	}
	due := map[*[]accepted]int{&n.sends: sends, &n.recvs: recvs}
	for posted, q := range map[*[]accepted]*cq.CQ{&n.sends: n.send, &n.recvs: n.recv} {
		last := slices.Clone((*posted)[max(len(*posted)-due[posted], 0):])
		s.poll(n)
		for _, a := range *posted {
			if q.Dropped() > 0 || a.gone {
				continue
			}
			if a.signaled || slices.Contains(last, a) {
				s.t.Fatalf("work request %d has no completion after the flush", a.id)
			}
		}
	}
	s.check(n)
}

func (s *apiScript) peerOf(n *apiNode) *apiNode {
	if s.nodes[0] == n {
		return s.nodes[1]
	}
	return s.nodes[0]
}

// postSend posts a work request that is correct in most cases.
func (s *apiScript) postSend(n *apiNode) {
	peer := s.peerOf(n)
	x, y := s.next(), s.next()
	n.id++
	wr := qp.SendWR{ID: n.id, Opcode: qp.Opcode(x & 15), Flags: qp.SendFlags(x>>4) & 7, AH: qp.NewAH(n.path), RemoteQPN: peer.Num(), RemoteQKey: 0x11111111,
		RemoteAddr: peer.region.Addr() + uint64(y)*8, RKey: peer.region.RKey(), Imm: uint32(y), InvKey: peer.region.RKey(),
		SG: []mr.SGE{n.region.SGE(int(y), int(s.next())*11)}}
	switch wr.Opcode {
	case qp.CompareSwap, qp.FetchAdd, qp.MaskedCompareSwap, qp.MaskedFetchAdd, qp.AtomicWrite:
		wr.SG[0].Length = 8
	case qp.Flush:
		wr.SG, wr.Length, wr.FlushType = nil, uint32(y)*9, 1
	}
	switch s.next() % 40 {
	case 1:
		wr.SG = append(wr.SG, n.region.SGE(4000, int(y)))
	case 2:
		wr.SG, wr.Inline = nil, n.buf[:y%70]
	case 3:
		wr.RKey++
	case 4:
		wr.RemoteAddr += 8000
	case 5:
		if len(wr.SG) > 0 {
			wr.SG[0].LKey++
		}
	case 6:
		wr.AH, wr.RemoteQPN = nil, 1<<24
	case 7:
		wr.RemoteQKey++
	}
	if n.PostSend(&wr) == nil {
		s.stats["send posted"]++
		n.sends = append(n.sends, accepted{id: n.id, signaled: wr.Flags&qp.Signaled != 0})
	}
}

func (s *apiScript) postRecv(n *apiNode) {
	x := s.next()
	n.id++
	wr := qp.RecvWR{ID: n.id, SG: []mr.SGE{n.region.SGE(4096, 4096>>(x&3))}}
	switch x >> 2 {
	case 1:
		wr.SG[0].LKey++
	case 2:
		wr.SG = append(wr.SG, n.region.SGE(0, 100))
	case 3:
		wr.SG = nil
	}
	if n.PostRecv(&wr) == nil {
		s.stats["receive posted"]++
		n.recvs = append(n.recvs, accepted{id: n.id, signaled: true})
	}
}

// pump lets an engine send until it has no more.
func (s *apiScript) pump(n *apiNode) {
	n.used = 0
	for range 1000 {
		if !n.Emit(s.net.now, n) || n.room > 0 && n.used >= n.room {
			return
		}
	}
	s.t.Fatal("Emit finds no end")
}

// full leaves an engine's port little room, or plenty again.
func (s *apiScript) full(n *apiNode) { n.room = int(s.next() % 4) }

// take takes the packet that comes next off the network.
func (s *apiScript) take() (d delivery, ok bool) {
	if len(s.net.queue) == 0 {
		return d, false
	}
	d = heap.Pop(&s.net.queue).(delivery)
	s.net.now = max(s.net.now, d.at)
	return d, true
}

func (s *apiScript) deliver(*apiNode) {
	if d, ok := s.take(); ok {
		s.stats["delivered"]++
		s.net.deliver(d)
	}
}

// exchange delivers everything and the answers, for some rounds.
func (s *apiScript) exchange(*apiNode) {
	for range s.next() % 8 {
		for range len(s.net.queue) {
			s.deliver(nil)
		}
		for _, n := range s.nodes {
			s.pump(n)
		}
	}
}

func (s *apiScript) lose(*apiNode) {
	if d, ok := s.take(); ok {
		s.net.free = append(s.net.free, d.b)
	}
}

// duplicate delivers the next packet, and keeps a copy for later.
func (s *apiScript) duplicate(*apiNode) {
	if d, ok := s.take(); ok {
		s.net.push(s.net.now.Add(time.Duration(s.next())*time.Microsecond), d.to, append(make([]byte, 0, 4400), d.b...))
		s.net.deliver(d)
	}
}

// overtake puts the next packet behind others.
func (s *apiScript) overtake(*apiNode) {
	if d, ok := s.take(); ok {
		s.net.push(s.net.now.Add(time.Duration(s.next())*time.Microsecond), d.to, d.b)
	}
}

// timeout advances the time to the engine's next deadline, if it has one.
func (s *apiScript) timeout(n *apiNode) {
	if at := n.NextTimeout(); at != mono.Never {
		s.net.now = max(s.net.now, at)
		n.HandleTimeout(s.net.now)
		if at := n.NextTimeout(); at <= s.net.now {
			s.t.Fatalf("the timer that has just expired is set to %v, now is %v", at, s.net.now)
		}
	}
}

// wait lets time pass, perhaps none.
func (s *apiScript) wait(n *apiNode) {
	s.net.now = s.net.now.Add(1<<(s.next()%35) - 1)
	n.HandleTimeout(s.net.now)
}

// modify asks for a change of state, mostly with the attributes it needs.
func (s *apiScript) modify(n *apiNode) {
	to := qp.State(s.next() % 8)
	mask := qp.AttrState | required[n.Type()][[2]qp.State{n.State(), to}]
	if x := s.next(); x < 64 {
		mask ^= 1 << (x % 26)
	}
	s.change(n, to, mask)
}

func (s *apiScript) change(n *apiNode, to qp.State, mask qp.AttrMask) {
	own, peers := s.cfg.psnA, s.cfg.psnB
	if n == s.nodes[1] {
		own, peers = peers, own
	}
	a := qp.Attr{State: to, CurState: n.State(), SQDNotify: true, Port: 1, Access: s.cfg.access, QKey: 0x11111111, AV: qp.NewAH(n.path), PathMTU: s.cfg.mtu,
		DestQPN: n.peer.Num(), RQPSN: peers, SQPSN: own, Timeout: s.cfg.timeout, RetryCnt: s.retry, RNRRetry: s.rnr, MinRNRTimer: s.cfg.minRNR,
		MaxRdAtomic: s.cfg.rd, MaxDestRdAtomic: s.cfg.rd, AltAV: qp.NewAH(n.path), AltPort: 1, AltTimeout: 10}
	if mask&qp.AttrState == 0 {
		to = n.State()
	}
	if err := n.Modify(&a, mask); err != nil {
		if n.State() != n.state {
			s.t.Fatalf("refused (%v), but the state went from %v to %v", err, n.state, n.State())
		}
		return
	}
	if n.State() != to && n.State() != qp.Err {
		s.t.Fatalf("modified to %v, but the state is %v", to, n.State())
	}
	n.state = n.State()
	if to == qp.Reset {
		for _, posted := range []*[]accepted{&n.sends, &n.recvs} {
			for i := range *posted {
				(*posted)[i].gone = true
			}
		}
	}
}

// connect moves both ends through RESET to RTS, unless both are in RTS. In some cases it leaves one end in RTR.
func (s *apiScript) connect(*apiNode) {
	if s.nodes[0].State() == qp.RTS && s.nodes[1].State() == qp.RTS {
		return
	}
	s.retry, s.rnr = s.next()%3, s.next()%3
	late := s.next()%4 == 0 // one end is not ready to send yet
	for _, to := range []qp.State{qp.Reset, qp.Init, qp.RTR, qp.RTS} {
		for i, n := range s.nodes {
			if late && i == 1 && to == qp.RTS {
				continue
			}
			s.change(n, to, qp.AttrState|required[n.Type()][[2]qp.State{n.State(), to}])
		}
	}
}

// apiSamples are scripts made by hand: for each step one byte (twice the number of the step, plus the number of the
// end), then the bytes that the step reads.
var apiSamples = [][]byte{
	// A receive posted, b sends, everything arrives; then both are flushed.
	{0, 0, 0, 6, 20, 1, 0x22, 0, 50, 0, 11, 14, 10, 15, 14, 14},
	// A WRITE of several packets, one of which is lost, and the timer.
	{0, 0, 1, 0, 0x20, 0, 250, 0, 10, 14, 22, 14, 14, 28, 10, 14, 14, 14, 11, 14, 14},
	// READ and atomics, answers twice.
	{1, 0, 0, 0, 0x24, 0, 200, 0, 0, 0x25, 1, 8, 0, 10, 14, 14, 11, 24, 3, 24, 9, 14, 14},
	// No receive: RNR, then one comes.
	{0, 0, 0, 0, 0x22, 0, 40, 0, 10, 14, 11, 14, 7, 60, 28, 10, 14, 11, 14},
	// A small completion queue that overflows.
	{0, 2, 0, 0, 0x20, 0, 1, 0, 0, 0x20, 0, 1, 0, 0, 0x20, 0, 1, 0, 0, 0x20, 0, 1, 0, 0, 0x20, 0, 1, 0, 10, 14, 14, 14, 14, 14, 11, 14, 14, 14, 14, 14},
	// UC and UD with a local error: SQE, and back.
	{2, 0, 0, 0, 0x20, 0, 1, 5, 10, 34, 3, 255, 0, 0x20, 0, 1, 0, 10, 14},
	{3, 0, 0, 7, 200, 0, 0x22, 0, 10, 0, 10, 14, 0, 0x22, 0, 10, 5, 10, 34, 3, 255, 0, 0x22, 0, 10, 0, 10, 14},
	// SQD with work under way, and out of it too early.
	{0, 0, 1, 0, 0x20, 0, 250, 0, 10, 34, 4, 255, 34, 3, 255, 14, 14, 14, 11, 14, 34, 3, 255, 0, 0x20, 0, 1, 0, 10, 14, 11, 14},
}

// FuzzAPI reads bytes as a script of calls on a pair of queue pairs, and of what happens to the packets between them:
// delivered, lost, duplicated, overtaken. For every script, nothing panics and no loop is endless. Every accepted
// work request completes at most once and in order, and after a flush at least once if a completion is due. Queues
// never exceed their sizes, and states change only as the table allows.
func FuzzAPI(f *testing.F) {
	for _, s := range apiSamples {
		f.Add(s)
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for range 20 {
		f.Add(randomScript(rng, 300))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 4096 {
			t.Skip("longer scripts find nothing more")
		}
		runAPI(t, script)
	})
}

func randomScript(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// TestAPIScripts runs random scripts of FuzzAPI, and checks that each kind of outcome occurs often enough.
func TestAPIScripts(t *testing.T) {
	stats := map[string]int{}
	add := func(more map[string]int) {
		for k, n := range more {
			stats[k] += n
		}
	}
	for _, s := range apiSamples {
		add(runAPI(t, s))
	}
	n := 1500
	if testing.Short() || raceEnabled {
		n = 200
	}
	for seed := range n {
		add(runAPI(t, randomScript(rand.New(rand.NewPCG(uint64(seed), 1)), 600)))
	}
	for _, want := range []string{"send posted", "receive posted", "delivered", "SUCCESS", "WR_FLUSH_ERR", "LOC_PROT_ERR", "REM_ACCESS_ERR",
		"REM_INV_REQ_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "in RESET", "in INIT", "in RTR", "in RTS", "in SQD", "in SQE", "in ERR",
		"MW_BIND_ERR", "posted BIND_MW", "posted REG_MR", "posted LOCAL_INV", "posted SEND_WITH_INV"} {
		if stats[want] < 10 {
			t.Errorf("%s: %d times in %d scripts", want, stats[want], n)
		}
	}
	t.Log(stats)
}
