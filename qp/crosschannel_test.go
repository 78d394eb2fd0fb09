package qp_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// chain makes two pairs of queue pairs. The queues of the second pair are managed.
func chain(t testing.TB, seed uint64, imp impairment, wake func(*qp.QP)) (w *network, master, masterPeer, managed, managedPeer *node) {
	t.Helper()
	w = newNetwork(seed, imp)
	master, masterPeer = w.pair(t, pairConfig{cross: true, wake: wake}, 0)
	managed, managedPeer = w.pair(t, pairConfig{cross: true, managed: true, wake: wake}, 1)
	return w, master, masterPeer, managed, managedPeer
}

// run steps until nothing happens any more.
func run(t testing.TB, w *network, nodes ...*node) {
	t.Helper()
	for range 100000 {
		if !w.step(nodes...) {
			return
		}
	}
	t.Fatal("the simulation does not come to an end")
}

func post(t testing.TB, n *node, wrs ...qp.SendWR) {
	t.Helper()
	for i := range wrs {
		if err := n.PostSend(&wrs[i]); err != nil {
			t.Fatal(err)
		}
	}
}

func postEmptyRecvs(t testing.TB, n *node, count int) {
	t.Helper()
	for i := range count {
		if err := n.PostRecv(&qp.RecvWR{ID: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
}

func outcomes(wcs []cq.WC) string {
	var s []string
	for _, w := range wcs {
		s = append(s, fmt.Sprintf("%d %v", w.ID, w.Status))
	}
	return fmt.Sprint(s)
}

// TestWaitThenEnable: a managed send leaves only when the message that the master waits for has come, also if packets
// are lost.
func TestWaitThenEnable(t *testing.T) {
	for seed := range uint64(40) {
		imp := impairment{loss: 0.2, dup: 0.1, reorder: 0.2, jitter: 20 * time.Microsecond}
		woken := 0
		w, m, mp, s, sp := chain(t, seed, imp, func(*qp.QP) { woken++ })
		postEmptyRecvs(t, m, 2)
		postEmptyRecvs(t, sp, 2)
		post(t, s, qp.SendWR{ID: 1, Opcode: qp.Send, Flags: qp.Signaled}, qp.SendWR{ID: 2, Opcode: qp.Send, Flags: qp.Signaled})
		post(t, m,
			qp.SendWR{ID: 10, Opcode: qp.CQEWait, WaitCQ: m.recv, Count: 2, Flags: qp.Signaled | qp.WaitEnLast},
			qp.SendWR{ID: 11, Opcode: qp.SendEnable, Enable: s.QP, Count: 1, Flags: qp.Signaled})
		post(t, mp, qp.SendWR{Opcode: qp.Send})
		run(t, w, m, mp, s, sp)
		if got := outcomes(drain(m.send)) + outcomes(drain(s.send)); got != "[][]" || woken != 0 {
			t.Fatalf("seed %d: one of two completions, and %s completed; %d wakes", seed, got, woken)
		}
		// The receives at the peer of the managed queue pair are held as well.
		post(t, mp, qp.SendWR{Opcode: qp.RecvEnable, Enable: sp.QP}, qp.SendWR{Opcode: qp.Send})
		run(t, w, m, mp, s, sp)
		if got := outcomes(drain(m.send)); got != "[10 SUCCESS 11 SUCCESS]" {
			t.Fatalf("seed %d: the master completed %s", seed, got)
		}
		if got := outcomes(drain(s.send)) + outcomes(drain(sp.recv)); got != "[1 SUCCESS][0 SUCCESS]" {
			t.Fatalf("seed %d: one send was enabled, and completed are %s", seed, got)
		}
		if woken != 2 { // the master by the completion, the managed queue pair by the enabling
			t.Fatalf("seed %d: %d wakes, want 2", seed, woken)
		}
	}
}

// TestEnableInAdvance: work requests that are posted after they were enabled are not held.
func TestEnableInAdvance(t *testing.T) {
	w, m, mp, s, sp := chain(t, 1, impairment{}, nil)
	post(t, m, qp.SendWR{Opcode: qp.SendEnable, Enable: s.QP, Count: 1})
	post(t, mp, qp.SendWR{Opcode: qp.RecvEnable, Enable: sp.QP, Count: 1})
	run(t, w, m, mp, s, sp)
	postEmptyRecvs(t, sp, 2)
	post(t, s, qp.SendWR{ID: 1, Opcode: qp.Send, Flags: qp.Signaled}, qp.SendWR{ID: 2, Opcode: qp.Send, Flags: qp.Signaled})
	run(t, w, m, mp, s, sp)
	if got := outcomes(drain(s.send)); got != "[1 SUCCESS]" {
		t.Errorf("one send was enabled, and completed are %s", got)
	}
	if sends, _ := s.Outstanding(); sends != 1 {
		t.Errorf("%d sends outstanding, want the held one", sends)
	}
	if _, recvs := sp.Outstanding(); recvs != 1 {
		t.Errorf("%d receives outstanding, want the held one", recvs)
	}
}

// TestWaitFlushed: a wait and the held work requests end with WR_FLUSH_ERR. The completion queue can be closed only
// after that.
func TestWaitFlushed(t *testing.T) {
	for _, to := range []qp.State{qp.Err, qp.Reset} {
		w, m, mp, s, sp := chain(t, 1, impairment{}, nil)
		never := must(cq.New(1, cq.Options{Num: 7, CrossChannel: true}))
		postEmptyRecvs(t, s, 1)
		post(t, s, qp.SendWR{ID: 1, Opcode: qp.Write})
		post(t, m, qp.SendWR{ID: 2, Opcode: qp.CQEWait, WaitCQ: never, Count: 1}, qp.SendWR{ID: 3, Opcode: qp.SendEnable, Enable: s.QP})
		run(t, w, m, mp, s, sp)
		if err := never.Close(); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("%v: close of a completion queue with a wait: %v, want EBUSY", to, err)
		}
		for _, n := range []*node{m, s} {
			if err := n.Modify(&qp.Attr{State: to}, qp.AttrState); err != nil {
				t.Fatal(err)
			}
		}
		run(t, w, m, mp, s, sp)
		want := "[2 WR_FLUSH_ERR 3 WR_FLUSH_ERR][1 WR_FLUSH_ERR][0 WR_FLUSH_ERR]"
		if to == qp.Reset {
			want = "[][][]"
		}
		if got := outcomes(drain(m.send)) + outcomes(drain(s.send)) + outcomes(drain(s.recv)); got != want {
			t.Errorf("%v: %s, want %s", to, got, want)
		}
		if err := never.Close(); err != nil {
			t.Errorf("%v: %v", to, err)
		}
	}
}

// TestCycleOfWaits: two queue pairs that wait for each other do so without a deadline, and an
// error of one of them lets the other go on.
func TestCycleOfWaits(t *testing.T) {
	w := newNetwork(1, impairment{})
	a, ap := w.pair(t, pairConfig{cross: true}, 0)
	b, bp := w.pair(t, pairConfig{cross: true}, 1)
	post(t, a, qp.SendWR{ID: 1, Opcode: qp.CQEWait, WaitCQ: b.send, Count: 1, Flags: qp.Signaled})
	post(t, b, qp.SendWR{ID: 2, Opcode: qp.CQEWait, WaitCQ: a.send, Count: 1, Flags: qp.Signaled})
	run(t, w, a, ap, b, bp)
	if got := outcomes(drain(a.send)) + outcomes(drain(b.send)); got != "[][]" {
		t.Fatalf("a wait in a cycle ended: %s", got)
	}
	if err := a.Modify(&qp.Attr{State: qp.Err}, qp.AttrState); err != nil {
		t.Fatal(err)
	}
	run(t, w, a, ap, b, bp)
	if got := outcomes(drain(a.send)) + outcomes(drain(b.send)); got != "[1 WR_FLUSH_ERR][2 SUCCESS]" {
		t.Errorf("after the error: %s", got)
	}
}

func TestCrossRefusals(t *testing.T) {
	_, m, _, s, _ := chain(t, 1, impairment{}, nil)
	plain, _ := newNetwork(2, impairment{}).pair(t, pairConfig{}, 2)
	closed := must(cq.New(1, cq.Options{CrossChannel: true}))
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	foreign := must(cq.New(1, cq.Options{CrossChannel: true, Producer: t}))
	calc := func(c qp.Calc, lengths ...uint32) qp.SendWR {
		wr := qp.SendWR{Opcode: qp.Send, Flags: qp.WithCalc, Calc: c}
		for _, n := range lengths {
			wr.SG = append(wr.SG, mr.SGE{Length: n})
		}
		return wr
	}
	for name, tt := range map[string]struct {
		on *node
		wr qp.SendWR
	}{
		"ordinary queue pair":    {plain, qp.SendWR{Opcode: qp.CQEWait, WaitCQ: m.recv, Count: 1}},
		"unmarked queue":         {m, qp.SendWR{Opcode: qp.CQEWait, WaitCQ: plain.recv, Count: 1}},
		"closed queue":           {m, qp.SendWR{Opcode: qp.CQEWait, WaitCQ: closed, Count: 1}},
		"foreign queue":          {m, qp.SendWR{Opcode: qp.CQEWait, WaitCQ: foreign, Count: 1}},
		"negative count":         {m, qp.SendWR{Opcode: qp.CQEWait, WaitCQ: m.recv, Count: 1 << 31}},
		"wait with a list":       {m, qp.SendWR{Opcode: qp.CQEWait, WaitCQ: m.recv, Count: 1, SG: make([]mr.SGE, 1)}},
		"calc, ordinary":         {plain, calc(qp.Calc{}, 8)},
		"calc, READ":             {m, qp.SendWR{Opcode: qp.Read, Flags: qp.WithCalc, SG: []mr.SGE{{Length: 8}}}},
		"calc, MAXLOC":           {m, calc(qp.Calc{Op: 1}, 8)},
		"calc, unknown op":       {m, calc(qp.Calc{Op: 5}, 8)},
		"calc, unknown type":     {m, calc(qp.Calc{Type: 3}, 8)},
		"calc, unknown size":     {m, calc(qp.Calc{Size: 1}, 8)},
		"calc, bits of floats":   {m, calc(qp.Calc{Op: qp.CalcBXor, Type: qp.CalcFloat}, 8)},
		"calc, and of floats":    {m, calc(qp.Calc{Op: qp.CalcBAnd, Type: qp.CalcFloat}, 8)},
		"calc, or of floats":     {m, calc(qp.Calc{Op: qp.CalcBOr, Type: qp.CalcFloat}, 8)},
		"calc, no list":          {m, calc(qp.Calc{})},
		"calc, inline":           {m, qp.SendWR{Opcode: qp.Send, Flags: qp.WithCalc, Inline: make([]byte, 8)}},
		"calc, part of a number": {m, calc(qp.Calc{}, 12)},
		"calc, nothing":          {m, calc(qp.Calc{}, 0)},
		"calc, lengths differ":   {m, calc(qp.Calc{}, 8, 16)},
		"no completion queue":    {m, qp.SendWR{Opcode: qp.CQEWait, Count: 1}},
		"no completion":          {m, qp.SendWR{Opcode: qp.CQEWait, WaitCQ: m.recv}},
		"no queue pair":          {m, qp.SendWR{Opcode: qp.SendEnable, Count: 1}},
		"sends not managed":      {s, qp.SendWR{Opcode: qp.SendEnable, Enable: m.QP, Count: 1}},
		"receives not managed":   {s, qp.SendWR{Opcode: qp.RecvEnable, Enable: plain.QP, Count: 1}},
		"too many work requests": {m, qp.SendWR{Opcode: qp.SendEnable, Enable: s.QP, Count: qp.MaxWR + 1}},
	} {
		if err := tt.on.CheckSend(&tt.wr, 0); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: check %v, want EINVAL", name, err)
		}
		if err := tt.on.PostSend(&tt.wr); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: post %v, want EINVAL", name, err)
		}
		if sends, _ := tt.on.Outstanding(); sends != 0 {
			t.Errorf("%s: %d sends are queued", name, sends)
		}
	}
}
