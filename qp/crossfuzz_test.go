package qp_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// crossWorld is two pairs of queue pairs and their model: a master with its peer, and a pair whose queues are managed. The master
// enables sends of the managed queue pair, its peer enables receives of the other one.
type crossWorld struct {
	t      testing.TB
	net    *network
	nodes  []*node // master, its peer, managed, its peer
	model  []*modelQP
	cqs    []*cq.CQ // sends and receives of each, and one that no queue pair has
	mcqs   []*modelCQ
	src    []*mr.MR
	sbuf   [][]byte
	dst    []*mr.MR
	dbuf   [][]byte
	next   uint64
	waited int // completion queue of the last wait
	stats  map[string]int
}

const (
	master, masterPeer, managed, managedPeer = 0, 1, 2, 3

	crossSlots = 16 // of 16 bytes, which WRITEs go to
	crossCap   = 16
)

func newCrossWorld(t testing.TB, seed uint64) *crossWorld {
	w := &crossWorld{t: t, net: newNetwork(seed, impairment{dup: 0.1, reorder: 0.1, jitter: 3 * time.Microsecond}), stats: map[string]int{}}
	caps := qp.Caps{MaxSendWR: crossCap, MaxRecvWR: crossCap, MaxSendSGE: 2, MaxRecvSGE: 1}
	for i := range 2 {
		a, b := w.net.pair(t, pairConfig{cross: true, managed: i == 1, caps: caps, minRNR: 8}, i)
		w.nodes = append(w.nodes, a, b)
	}
	for i, n := range w.nodes {
		m := &modelQP{managed: i >= managed, sendCap: crossCap, recvCap: crossCap, memory: make([]byte, crossSlots*16)}
		m.sendCQ, m.recvCQ = &modelCQ{name: "send"}, &modelCQ{name: "receive"}
		w.model, w.mcqs, w.cqs = append(w.model, m), append(w.mcqs, m.sendCQ, m.recvCQ), append(w.cqs, n.send, n.recv)
		buf, region := n.region(t, 64)
		for k := range buf {
			buf[k] = byte(w.net.rng.Uint32())
		}
		w.sbuf, w.src = append(w.sbuf, buf), append(w.src, region)
		buf, region = n.region(t, crossSlots*16)
		w.dbuf, w.dst = append(w.dbuf, buf), append(w.dst, region)
	}
	for i := range w.model {
		w.model[i].peer = w.model[i^1]
	}
	w.cqs, w.mcqs = append(w.cqs, must(cq.New(1, cq.Options{CrossChannel: true}))), append(w.mcqs, &modelCQ{name: "spare"})
	return w
}

// crossScript hands out the bytes of a script, zeros behind its end.
type crossScript struct{ b []byte }

func (s *crossScript) next() byte {
	if len(s.b) == 0 {
		return 0
	}
	c := s.b[0]
	s.b = s.b[1:]
	return c
}

// send reads a work request for a queue pair.
func (w *crossWorld) send(s *crossScript, i int) (*modelWR, *qp.SendWR) {
	w.next++
	c, x := s.next(), s.next()
	m := &modelWR{id: w.next, kind: modelKind(c % 7), signaled: c&0x80 == 0}
	wr := &qp.SendWR{ID: m.id}
	switch {
	case m.kind == modelBad && i != managed,
		m.kind == modelSendEnable && i != master, m.kind == modelRecvEnable && i != masterPeer:
		m.kind = modelSend
	}
	switch m.kind {
	case modelWrite:
		m.slot = int(x%crossSlots) * 16
		w.reduction(m, wr, i, x)
	case modelBad:
		wr.SG = []mr.SGE{{Addr: w.src[i].Addr() + 60, Length: 8, LKey: w.src[i].LKey()}}
	case modelWait:
		if c&0x20 == 0 { // otherwise the one of the last wait: most lists have several waits
			w.waited = int(x) % len(w.cqs)
		}
		k := w.waited
		m.wait, m.count, m.last = w.mcqs[k], uint64(x>>6), c&0x40 != 0
		wr.WaitCQ, wr.Count = w.cqs[k], uint32(m.count)
		if m.last {
			wr.Flags |= qp.WaitEnLast
		}
	case modelSendEnable:
		m.enable, m.count = w.model[managed], uint64(x%5)
		wr.Enable, wr.Count = w.nodes[managed].QP, uint32(m.count)
	case modelRecvEnable:
		m.enable, m.count = w.model[managedPeer], uint64(x%5)
		wr.Enable, wr.Count = w.nodes[managedPeer].QP, uint32(m.count)
	}
	if wr.Opcode = m.opcode(); m.signaled {
		wr.Flags |= qp.Signaled
	}
	return m, wr
}

// reduction makes a WRITE of two numbers. Each is a reduction of two numbers of memory, or a copy of one.
func (w *crossWorld) reduction(m *modelWR, wr *qp.SendWR, i int, x byte) {
	at := int(x>>5) * 4
	list := []mr.SGE{{Addr: w.src[i].Addr() + uint64(at), Length: 16, LKey: w.src[i].LKey()}, {Addr: w.src[i].Addr() + 32, Length: 16, LKey: w.src[i].LKey()}}
	a, b := w.sbuf[i][at:at+16], w.sbuf[i][32:48]
	wr.RemoteAddr, wr.RKey = w.dst[i^1].Addr()+uint64(m.slot), w.dst[i^1].RKey()
	if x&0x10 != 0 {
		m.data, wr.SG = slices.Clone(a), list[:1]
		return
	}
	c := calcCases[int(x)%len(calcCases)]
	if c.calc.Type == qp.CalcFloat {
		c = calcCases[0] // bytes are no good floats
	}
	wr.SG, wr.Flags, wr.Calc = list, qp.WithCalc, c.calc
	m.data = make([]byte, 16)
	for k := 0; k < 16; k += 8 {
		binary.BigEndian.PutUint64(m.data[k:], c.of(binary.BigEndian.Uint64(a[k:]), binary.BigEndian.Uint64(b[k:])))
	}
}

// refused checks that a call has the error of the model, and reports whether the call was refused.
func (w *crossWorld) refused(what string, got, want error) bool {
	w.t.Helper()
	if want == nil && got != nil || want != nil && !errors.Is(got, want) {
		w.t.Fatalf("%s: %v, want %v", what, got, want)
	}
	if want != nil {
		w.stats[want.Error()]++
	}
	return want != nil
}

func (w *crossWorld) postSend(s *crossScript) {
	i := int(s.next()) % 3 // the model has no receives for messages of the last one
	m, wr := w.send(s, i)
	if !w.refused("post "+wr.Opcode.String(), w.nodes[i].PostSend(wr), w.model[i].checkSend(m, 0)) {
		w.model[i].postSend(m)
	}
}

func (w *crossWorld) postRecv(s *crossScript) {
	i := int(s.next()) % 4
	w.next++
	if !w.refused("post receive", w.nodes[i].PostRecv(&qp.RecvWR{ID: w.next}), w.model[i].checkRecv(0)) {
		w.model[i].postRecv(w.next)
	}
}

// tasks posts work requests of several queue pairs, or none of them, as Device.PostTask does.
func (w *crossWorld) tasks(s *crossScript) {
	type task struct {
		i  int
		m  *modelWR
		wr *qp.SendWR // nil: a receive
		id uint64
	}
	var list []task
	var sends, recvs [4]int
	for range 2 + s.next()%4 {
		c := s.next()
		t := task{i: int(c) % 3}
		var got, want error
		if c&0x80 != 0 {
			t.i = int(c) % 4
			w.next++
			t.id = w.next
			got, want = w.nodes[t.i].CheckRecv(&qp.RecvWR{ID: t.id}, recvs[t.i]), w.model[t.i].checkRecv(recvs[t.i])
			recvs[t.i]++
		} else {
			t.m, t.wr = w.send(s, t.i)
			got, want = w.nodes[t.i].CheckSend(t.wr, sends[t.i]), w.model[t.i].checkSend(t.m, sends[t.i])
			sends[t.i]++
		}
		if w.refused("check", got, want) {
			return
		}
		list = append(list, t)
	}
	for _, t := range list {
		var err error
		if t.wr == nil {
			err = w.nodes[t.i].PostRecv(&qp.RecvWR{ID: t.id})
			w.model[t.i].postRecv(t.id)
		} else {
			err = w.nodes[t.i].PostSend(t.wr)
			w.model[t.i].postSend(t.m)
		}
		if err != nil {
			w.t.Fatalf("refused after it was checked: %v", err)
		}
	}
	w.stats["task lists"]++
}

// fail moves both ends of a pair to ERR.
func (w *crossWorld) fail(s *crossScript) {
	w.run()
	pair := int(s.next()) % 2 * 2
	for i := pair; i < pair+2; i++ {
		if err := w.nodes[i].Modify(&qp.Attr{State: qp.Err}, qp.AttrState); err != nil {
			w.t.Fatal(err)
		}
		w.model[i].fail()
	}
}

// closeSpare closes the completion queue that no queue pair has.
func (w *crossWorld) closeSpare() {
	spare := w.mcqs[len(w.mcqs)-1]
	var want error
	switch {
	case spare.closed:
		return
	case spare.waits > 0:
		want = syscall.EBUSY
	}
	if !w.refused("close", w.cqs[len(w.cqs)-1].Close(), want) {
		spare.closed = true
	}
}

// run steps the engines and the model until nothing happens any more, and compares what has completed. The requester
// repeats a SEND without a receive for ever, so run stops when nothing completes for longer than the RNR timer.
func (w *crossWorld) run() {
	w.t.Helper()
	count := func() (n uint64) {
		for _, c := range w.cqs {
			n += c.Count()
		}
		return n
	}
	for before, again := uint64(0), true; again; again = count() != before {
		before = count()
		for end := w.net.now.Add(2 * time.Millisecond); w.net.now < end && w.net.step(w.nodes...); {
		}
	}
	runModel(w.model...)
	for k, c := range w.cqs {
		m := w.mcqs[k]
		var got []string
		for _, wc := range drain(c) {
			got = append(got, outcomes([]cq.WC{wc}))
			w.stats[wc.Status.String()]++
		}
		for i := range m.fresh {
			m.fresh[i] = "[" + m.fresh[i] + "]"
		}
		if !slices.Equal(got, m.fresh) {
			w.t.Fatalf("%s queue of %d: %v, want %v", m.name, k/2, got, m.fresh)
		}
		if m.fresh = nil; c.Count() != m.count {
			w.t.Fatalf("%s queue of %d has counted %d completions, want %d", m.name, k/2, c.Count(), m.count)
		}
	}
	for i, n := range w.nodes {
		m := w.model[i]
		if sends, recvs := n.Outstanding(); sends != len(m.sq) || recvs != len(m.rq)+len(m.heldRecvs) {
			w.t.Fatalf("%d: %d sends and %d receives outstanding, want %d and %d", i, sends, recvs, len(m.sq), len(m.rq)+len(m.heldRecvs))
		}
		if got := n.State() == qp.Err; got != m.failed {
			w.t.Fatalf("%d: in ERR is %v, want %v", i, got, m.failed)
		}
		if !slices.Equal(w.dbuf[i], m.memory) {
			w.t.Fatalf("%d: memory is %x, want %x", i, w.dbuf[i], m.memory)
		}
	}
}

// crossPosts are the steps of a script that post.
var crossPosts = []func(*crossWorld, *crossScript){
	(*crossWorld).postSend, (*crossWorld).postSend, (*crossWorld).postRecv, (*crossWorld).postRecv, (*crossWorld).tasks,
}

func runCross(t testing.TB, script []byte) map[string]int {
	s := &crossScript{script}
	w := newCrossWorld(t, uint64(s.next()))
	for len(s.b) > 0 {
		c := s.next()
		switch op := c & 0x7F; {
		case op == 0x7F:
			w.fail(s)
		case op >= 0x78:
			w.closeSpare()
		default:
			crossPosts[int(op)%len(crossPosts)](w, s)
		}
		if c&0x80 == 0 {
			w.run()
		}
	}
	w.run()
	return w.stats
}

// FuzzCross reads bytes as a script. It posts CQE_WAITs, SEND_ENABLEs, RECV_ENABLEs, reductions and messages, one by
// one and as lists of tasks. Queue pairs fail, and completion queues are closed. The completions must be those of the
// model.
func FuzzCross(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 12 {
		f.Add(randomScript(rng, 120))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 1024 {
			t.Skip("longer scripts find nothing more")
		}
		runCross(t, script)
	})
}

// TestCrossScripts runs random scripts of FuzzCross, and checks that each kind of outcome occurs.
func TestCrossScripts(t *testing.T) {
	n := 300
	if testing.Short() || raceEnabled {
		n = 60
	}
	stats := map[string]int{}
	for seed := range n {
		for k, v := range runCross(t, randomScript(rand.New(rand.NewPCG(uint64(seed), 9)), 200)) {
			stats[k] += v
		}
	}
	outcomes := []string{"SUCCESS", "WR_FLUSH_ERR", "LOC_PROT_ERR", "task lists", syscall.EINVAL.Error()}
	if n == 300 { // rarer ones
		outcomes = append(outcomes, syscall.ENOMEM.Error(), syscall.EBUSY.Error())
	}
	for _, k := range outcomes {
		if stats[k] == 0 {
			t.Errorf("no %s in %v", k, stats)
		}
	}
	t.Log(stats)
}
