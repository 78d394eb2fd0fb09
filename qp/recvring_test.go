package qp_test

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// ringOf has the receives that a program adds without a call.
type ringOf struct {
	open  bool
	wrs   []qp.RecvWR
	added int
	done  int
	slots int
	most  int // receives of the queue pair
}

func (r *ringOf) engine() *qp.RecvRing {
	return &qp.RecvRing{Open: func(open bool) { r.open = open }, Len: func() int { return len(r.wrs) }, Done: func(n int) { r.done += n },
		Next: func() (id uint64, sg [1]mr.SGE, elements int, ok bool) {
			if len(r.wrs) == 0 {
				return
			}
			wr := r.wrs[0]
			r.wrs = r.wrs[1:]
			return wr.ID, sg, copy(sg[:], wr.SG), true
		}}
}

// PostRecv posts as a program with a ring does: what is not for the ring goes to the queue pair.
func (n *node) PostRecv(wr *qp.RecvWR) error {
	r := n.ring
	if r == nil || !r.open || len(wr.SG) > 1 || len(r.wrs) == r.slots || r.added-r.done >= r.most {
		return n.QP.PostRecv(wr)
	}
	n.addToRing(wr)
	return nil
}

func (n *node) addToRing(wr *qp.RecvWR) {
	n.ring.added++
	n.ring.wrs = append(n.ring.wrs, qp.RecvWR{ID: wr.ID, SG: slices.Clone(wr.SG)})
}

// newRingBench is a bench with a ring of four receives.
func newRingBench(t *testing.T, typ qp.Type) (*bench, *mr.MR) {
	t.Helper()
	b := newBench(t, pairConfig{typ: typ, ring: true, caps: qp.Caps{MaxSendWR: 2, MaxRecvWR: 3, MaxRecvSGE: 2}})
	_, m := b.region(t, 4096)
	return b, m
}

// TestRecvRing: messages take the receives of the ring in order. A receive that is posted with a call comes behind
// those that the ring has.
func TestRecvRing(t *testing.T) {
	for typ, op := range map[qp.Type]bth.Opcode{qp.RC: bth.RCSendOnly, qp.UC: bth.UCSendOnly} {
		b, m := newRingBench(t, typ)
		two := []mr.SGE{m.SGE(0, 1), m.SGE(1, 64)}
		for id, sg := range [][]mr.SGE{two[1:], two, nil, two[1:]} {
			must(0, b.PostRecv(&qp.RecvWR{ID: uint64(id), SG: sg}))
		}
		if _, recvs := b.Outstanding(); recvs != 4 || len(b.ring.wrs) != 2 {
			t.Errorf("%v: %d receives, %d of them in the ring", typ, recvs, len(b.ring.wrs))
		}
		if err := b.PostRecv(&qp.RecvWR{}); !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("%v: one too many: %v", typ, err)
		}
		for i := range 4 {
			payload := []byte{1, 2, 3}
			if i == 2 {
				payload = nil
			}
			b.inject(packet{op: op, psn: bth.PSN(i), payload: payload})
		}
		if got, want := ids(drain(b.recv)), []outcome{{0, 0}, {1, 0}, {2, 0}, {3, 0}}; !slices.Equal(got, want) {
			t.Errorf("%v: completed %v, want %v", typ, got, want)
		}
		b.inject(packet{op: op, psn: 4})
		if n := len(drain(b.recv)); n != 0 {
			t.Errorf("%v: %d completions without a receive", typ, n)
		}
		must(0, b.PostRecv(&qp.RecvWR{ID: 9}))
		b.inject(packet{op: op, psn: 4 + bth.PSN(typ-qp.RC)}) // UC drops the message before
		if got := ids(drain(b.recv)); !slices.Equal(got, []outcome{{9, 0}}) {
			t.Errorf("%v: completed %v after a receive was added", typ, got)
		}
		if b.ring.added != b.ring.done {
			t.Errorf("%v: %d receives added, %d done", typ, b.ring.added, b.ring.done)
		}
	}
}

// TestRecvRingLimit: the queue pair has as many receives as it has room for, wherever they are: in the ring, in the queue, or in use by a
// message. A program that adds more loses none of those before.
func TestRecvRingLimit(t *testing.T) {
	const most = 4
	b, m := newRingBench(t, qp.RC)
	count := func(what string, want int) {
		t.Helper()
		n := 0
		for ; n < 10 && b.PostRecv(&qp.RecvWR{ID: 100, SG: []mr.SGE{m.SGE(0, 2048)}}) == nil; n++ {
		}
		if n != want {
			t.Errorf("%s: %d more receives were accepted, want %d", what, n, want)
		}
	}
	must(0, b.PostRecv(&qp.RecvWR{ID: 1, SG: []mr.SGE{m.SGE(0, 2048)}}))
	must(0, b.PostRecv(&qp.RecvWR{ID: 2, SG: []mr.SGE{m.SGE(0, 1), m.SGE(1, 64)}}))
	count("two are queued", most-2)
	b.inject(packet{op: bth.RCSendFirst, psn: 0, payload: make([]byte, 1024)})
	count("a message has begun", 0)
	b.inject(packet{op: bth.RCSendLast, psn: 1, payload: make([]byte, 10)})
	count("a message is complete", 1)
	for range 3 * most {
		b.addToRing(&qp.RecvWR{ID: 200})
	}
	if err := b.QP.PostRecv(&qp.RecvWR{ID: 300}); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("after too many: %v", err)
	}
	must(0, b.Modify(&qp.Attr{State: qp.Err}, qp.AttrState))
	got := map[uint64]int{}
	for _, wc := range drain(b.recv) {
		got[wc.ID]++
	}
	if got[1] != 1 || got[2] != 1 || got[100] != 3 || got[200] != 3*most || b.ring.added != b.ring.done {
		t.Errorf("completed %v; %d added, %d done", got, b.ring.added, b.ring.done)
	}
}

// TestRecvRingCloses: in ERR and RESET the ring is closed. What the program adds before it notices is flushed in ERR, and dropped
// in RESET.
func TestRecvRingCloses(t *testing.T) {
	b, _ := newRingBench(t, qp.RC)
	flushed := func(want ...uint64) {
		t.Helper()
		for i, wc := range drain(b.recv) {
			if i >= len(want) || wc.ID != want[i] || wc.Status != cq.WRFlushErr {
				t.Errorf("completion %d: ID %d, %v", i, wc.ID, wc.Status)
			}
			want[i] = 99
		}
		for _, id := range want {
			if id != 99 {
				t.Errorf("receive %d was not flushed", id)
			}
		}
	}
	must(0, b.PostRecv(&qp.RecvWR{ID: 1}))
	must(0, b.PostRecv(&qp.RecvWR{ID: 2}))
	must(0, b.Modify(&qp.Attr{State: qp.Err}, qp.AttrState))
	if b.ring.open {
		t.Error("the ring is open in ERR")
	}
	flushed(1, 2)
	b.addToRing(&qp.RecvWR{ID: 3})
	b.EndRecvs()
	flushed(3)
	b.addToRing(&qp.RecvWR{ID: 4})
	must(0, b.PostRecv(&qp.RecvWR{ID: 5}))
	flushed(4, 5)

	b.addToRing(&qp.RecvWR{ID: 6})
	must(0, b.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState))
	b.addToRing(&qp.RecvWR{ID: 7})
	b.EndRecvs()
	if _, recvs := b.Outstanding(); b.ring.open || recvs != 0 || len(drain(b.recv)) != 0 || b.ring.added != b.ring.done {
		t.Errorf("in RESET: open %t, %d receives", b.ring.open, recvs)
	}
	if err := b.PostRecv(&qp.RecvWR{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a post in RESET: %v", err)
	}
	must(0, b.Modify(&qp.Attr{State: qp.Init, Port: 1}, qp.AttrState|qp.AttrPKeyIndex|qp.AttrPort|qp.AttrAccess))
	if !b.ring.open {
		t.Error("the ring is closed in INIT")
	}
	b.EndRecvs() // of a program that noticed late
	must(0, b.PostRecv(&qp.RecvWR{ID: 8}))
	b.ForgetRecvRing()
	if _, recvs := b.Outstanding(); recvs != 0 {
		t.Errorf("%d receives of a ring that was forgotten", recvs)
	}
}

// TestRecvRingRefused: what cannot have a ring is refused.
func TestRecvRingRefused(t *testing.T) {
	h := newHost(newNetwork(1, impairment{}).rng).shareRecvs(qp.SRQConfig{MaxWR: 4})
	done := must(cq.New(4, cq.Options{}))
	for name, c := range map[string]qp.Config{
		"UD":      {Type: qp.UD},
		"SRQ":     {Type: qp.RC, SRQ: h.srq},
		"managed": {Type: qp.RC, ManagedRecv: true},
	} {
		c.Num, c.PD, c.Memory, c.SendCQ, c.RecvCQ, c.RecvRing = 5, h.pd, h.mem, done, done, new(ringOf).engine()
		if _, err := qp.New(c); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
