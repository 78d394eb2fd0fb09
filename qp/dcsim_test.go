package qp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// dcModel is a model of initiators and targets without packets: each work request of an initiator takes effect once
// and in order.
type dcModel struct {
	w     *dcWorld
	inits []*dcActor
}

// dcSlice is how much of a target's region belongs to one initiator. The first 8 bytes
// of the region are a counter that all of them add to.
const dcSlice = 4096

// dcActor is an initiator and what the model expects of it.
type dcActor struct {
	*node
	i      int
	mem    []byte
	mr     *mr.MR
	wrs    []dcWork // in the order of posting
	done   int
	sends  []uint32             // of each target: messages that were sent
	slices map[*dcTarget][]byte // what the initiator's slice of a target holds
}

// dcWork is a work request with what its completion must bring.
type dcWork struct {
	op   qp.Opcode
	at   int    // of the result in mem
	want []byte // what a READ brings
	to   *dcTarget
}

func newDCModel(t testing.TB, seed uint64, imp impairment, targets, inits int) *dcModel {
	m := &dcModel{w: newDCWorld(seed, imp)}
	for range targets {
		m.w.target(t, qp.DCTConfig{}, 8+inits*dcSlice).post(t, 200)
	}
	for i := range inits {
		a := &dcActor{node: m.w.initiator(t, func(a *qp.Attr) { a.Timeout = 10 }), i: i, sends: make([]uint32, targets), slices: map[*dcTarget][]byte{}}
		a.mem, a.mr = a.region(t, 1<<20)
		for _, d := range m.w.targets {
			a.slices[d] = make([]byte, dcSlice)
		}
		m.inits = append(m.inits, a)
	}
	return m
}

// post posts one random work request to a random target.
func (m *dcModel) post(t testing.TB, a *dcActor) {
	t.Helper()
	rng := m.w.rng
	k := rng.IntN(len(m.w.targets))
	d := m.w.targets[k]
	slice := a.slices[d]
	at := len(a.wrs) * dcSlice
	off := rng.IntN(dcSlice)
	n := rng.IntN(dcSlice - off + 1)
	base := d.mr.Addr() + 8 + uint64(a.i*dcSlice)
	work := dcWork{at: at, to: d}
	wr := qp.SendWR{ID: uint64(len(a.wrs)), SG: []mr.SGE{{Addr: a.mr.Addr() + uint64(at), Length: uint32(n), LKey: a.mr.LKey()}}, RemoteAddr: base + uint64(off)}
	data := a.mem[at : at+n]
	switch rng.IntN(6) {
	case 0, 1: // its number, to be found in order
		wr.Opcode, wr.Imm = qp.SendImm, uint32(a.i)<<16|a.sends[k]
		a.sends[k]++
		for i := range data {
			data[i] = byte(wr.Imm) ^ byte(i)
		}
	case 2, 3:
		wr.Opcode, wr.Flags = qp.Write, qp.Fence // a READ before it may not see it
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		copy(slice[off:], data)
	case 4:
		wr.Opcode, work.want = qp.Read, bytes.Clone(slice[off:off+n])
	case 5:
		wr.Opcode, wr.RemoteAddr, wr.CompareAdd, wr.SG[0].Length = qp.FetchAdd, d.mr.Addr(), 1, 8
	}
	work.op = wr.Opcode
	if err := a.PostSend(m.w.to(a.node, d, wr)); err != nil {
		t.Fatal(err)
	}
	a.wrs = append(a.wrs, work)
}

// collect checks completions, and reports whether all are there.
func (m *dcModel) collect(t testing.TB, added map[*dcTarget]map[uint64]bool) (all bool) {
	t.Helper()
	all = true
	for _, a := range m.inits {
		for _, wc := range drain(a.node.send) {
			if wc.Status != cq.Success || wc.ID != uint64(a.done) {
				t.Fatalf("initiator %d: completion %d is %d, %v", a.i, a.done, wc.ID, wc.Status)
			}
			work := &a.wrs[a.done]
			got := a.mem[work.at:]
			switch work.op {
			case qp.Read:
				if !bytes.Equal(got[:len(work.want)], work.want) {
					t.Fatalf("initiator %d: READ %d brought other data", a.i, a.done)
				}
			case qp.FetchAdd:
				old := binary.NativeEndian.Uint64(got)
				if added[work.to] == nil {
					added[work.to] = map[uint64]bool{}
				}
				if added[work.to][old] {
					t.Fatalf("initiator %d: FETCH_ADD %d found %d, as another did", a.i, a.done, old)
				}
				added[work.to][old] = true
			}
			a.done++
		}
		all = all && a.done == len(a.wrs)
	}
	return all
}

// run posts n work requests for each initiator and compares the results with the model.
func (m *dcModel) run(t testing.TB, n int) {
	t.Helper()
	added := map[*dcTarget]map[uint64]bool{}
	next := make(map[*dcTarget][]uint32)
	for _, d := range m.w.targets {
		next[d] = make([]uint32, len(m.inits))
	}
	receive := func() {
		for _, d := range m.w.targets {
			for _, wc := range drain(d.node.recv) {
				i, k := int(wc.Imm>>16), wc.Imm&0xFFFF
				if wc.Status != cq.Success || next[d][i] != k {
					t.Fatalf("target %v: %v, message %d of initiator %d, want %d", d.Num(), wc.Status, k, i, next[d][i])
				}
				for j, b := range d.data(wc.ID, wc.ByteLen) {
					if b != byte(wc.Imm)^byte(j) {
						t.Fatalf("target %v: wrong data in message %d of initiator %d", d.Num(), k, i)
					}
				}
				next[d][i]++
				d.post(t, 1)
			}
		}
	}
	m.w.run(t, 10*time.Minute, func() bool {
		receive()
		all := m.collect(t, added)
		for _, a := range m.inits {
			for len(a.wrs) < n && len(a.wrs)-a.done < 16 && m.w.rng.IntN(3) == 0 {
				m.post(t, a)
			}
			all = all && len(a.wrs) == n
		}
		return all
	})
	receive()
	for k, d := range m.w.targets {
		if v := binary.NativeEndian.Uint64(d.buf); v != uint64(len(added[d])) {
			t.Errorf("target %d: counter %d after %d additions", k, v, len(added[d]))
		}
		for _, a := range m.inits {
			if !bytes.Equal(d.buf[8+a.i*dcSlice:][:dcSlice], a.slices[d]) {
				t.Errorf("target %d: wrong memory of initiator %d", k, a.i)
			}
			if next[d][a.i] != a.sends[k] {
				t.Errorf("target %d: %d messages of initiator %d, want %d", k, next[d][a.i], a.i, a.sends[k])
			}
		}
		if s := d.DCTStatus(); s.KeyViolations != 0 {
			t.Errorf("target %d: %+v", k, s)
		}
	}
}

// TestDCModel compares many initiators on several targets with the model, over networks
// that lose, double, delay and damage packets.
func TestDCModel(t *testing.T) {
	for _, imp := range []impairment{
		{},
		{loss: 0.01},
		{loss: 0.05, dup: 0.02, reorder: 0.05, jitter: 50 * time.Microsecond},
		{dup: 0.3, reorder: 0.3, jitter: 20 * time.Millisecond}, // packets of connections that are long over
		{corrupt: 0.02, loss: 0.02},
	} {
		t.Run(fmt.Sprintf("%+v", imp), func(t *testing.T) {
			for seed := range uint64(3) {
				newDCModel(t, seed, imp, 3, 8).run(t, 60)
			}
		})
	}
}
