package qp_test

import (
	"testing"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/qp"
)

// BenchmarkCross is a message that starts another one: by a CQE_WAIT and a SEND_ENABLE that are posted before, or by
// a program that polls and posts. The time is that of the engines of all four ends.
func BenchmarkCross(b *testing.B) {
	b.Run("list", func(b *testing.B) { benchCross(b, true) })
	b.Run("step by step", func(b *testing.B) { benchCross(b, false) })
}

func benchCross(b *testing.B, list bool) {
	w := newNetwork(1, impairment{})
	m, mp := w.pair(b, pairConfig{cross: list}, 0)
	s, sp := w.pair(b, pairConfig{cross: list, managed: list}, 1)
	wires := map[*node]*wire{}
	for _, n := range []*node{m, mp, s, sp} {
		wires[n] = newWire(n, true)
	}
	move := func(from, to *node) {
		from.Emit(1, wires[from])
		wires[from].deliver(to)
	}
	var wcs [4]cq.WC
	poll := func(c *cq.CQ) {
		if n := c.Poll(wcs[:]); n != 1 || wcs[0].Status != cq.Success {
			b.Fatalf("%d completions, the first %v", n, wcs[0].Status)
		}
	}
	send := &qp.SendWR{Opcode: qp.Send, Flags: qp.Signaled}
	write := &qp.SendWR{Opcode: qp.Write, Flags: qp.Signaled}
	wait := &qp.SendWR{Opcode: qp.CQEWait, WaitCQ: m.recv, Count: 1, Flags: qp.WaitEnLast}
	enable := &qp.SendWR{Opcode: qp.SendEnable, Enable: s.QP, Count: 1}
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		check(m.PostRecv(&qp.RecvWR{}))
		if list {
			check(s.PostSend(write))
			check(m.PostSend(wait))
			check(m.PostSend(enable))
			m.Emit(1, wires[m]) // the wait is parked
		}
		check(mp.PostSend(send))
		move(mp, m)
		poll(m.recv)
		move(m, mp)
		poll(mp.send)
		if !list {
			check(s.PostSend(write))
		}
		move(s, sp)
		move(sp, s)
		poll(s.send)
	}
}
