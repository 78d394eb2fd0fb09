package qp_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// calcCases are the reductions, each with a second definition of its own.
var calcCases = []struct {
	calc qp.Calc
	of   func(a, b uint64) uint64
}{
	{qp.Calc{Op: qp.CalcAdd, Type: qp.CalcInt}, func(a, b uint64) uint64 { return uint64(int64(a) + int64(b)) }},
	{qp.Calc{Op: qp.CalcAdd, Type: qp.CalcUint}, func(a, b uint64) uint64 { return a + b }},
	{qp.Calc{Op: qp.CalcAdd, Type: qp.CalcFloat}, func(a, b uint64) uint64 {
		return math.Float64bits(math.Float64frombits(a) + math.Float64frombits(b))
	}},
	{qp.Calc{Op: qp.CalcBAnd, Type: qp.CalcInt}, func(a, b uint64) uint64 { return a & b }},
	{qp.Calc{Op: qp.CalcBAnd, Type: qp.CalcUint}, func(a, b uint64) uint64 { return a & b }},
	{qp.Calc{Op: qp.CalcBXor, Type: qp.CalcInt}, func(a, b uint64) uint64 { return a ^ b }},
	{qp.Calc{Op: qp.CalcBXor, Type: qp.CalcUint}, func(a, b uint64) uint64 { return a ^ b }},
	{qp.Calc{Op: qp.CalcBOr, Type: qp.CalcInt}, func(a, b uint64) uint64 { return a | b }},
	{qp.Calc{Op: qp.CalcBOr, Type: qp.CalcUint}, func(a, b uint64) uint64 { return a | b }},
}

// TestCalc: a message is the reduction of its elements, whether it has one packet or many, and also if packets are
// lost.
func TestCalc(t *testing.T) {
	for _, c := range calcCases {
		for _, numbers := range []int{1, 100, 5000} {
			t.Run(fmt.Sprintf("%v/%v/%d", c.calc.Op, c.calc.Type, numbers), func(t *testing.T) {
				w := newNetwork(1, impairment{loss: 0.1, reorder: 0.1, jitter: 20 * time.Microsecond})
				a, b := w.pair(t, pairConfig{cross: true}, 0)
				const elements = 3
				n := numbers * 8
				buf, region := a.region(t, elements*n)
				rnd := rand.New(rand.NewPCG(1, uint64(numbers)))
				want := make([]uint64, numbers)
				var list []mr.SGE
				for e := range elements {
					list = append(list, mr.SGE{Addr: region.Addr() + uint64(e*n), Length: uint32(n), LKey: region.LKey()})
					for i := range want {
						v := rnd.Uint64()
						if c.calc.Type == qp.CalcFloat {
							v = math.Float64bits(rnd.NormFloat64())
						}
						binary.BigEndian.PutUint64(buf[e*n+i*8:], v)
						if e == 0 {
							want[i] = v
						} else {
							want[i] = c.of(want[i], v)
						}
					}
				}
				got, into := b.region(t, n)
				if err := b.PostRecv(&qp.RecvWR{SG: []mr.SGE{{Addr: into.Addr(), Length: uint32(n), LKey: into.LKey()}}}); err != nil {
					t.Fatal(err)
				}
				post(t, a, qp.SendWR{ID: 1, Opcode: qp.Send, Flags: qp.Signaled | qp.WithCalc, Calc: c.calc, SG: list})
				run(t, w, a, b)
				if s := outcomes(drain(a.send)) + outcomes(drain(b.recv)); s != "[1 SUCCESS][0 SUCCESS]" {
					t.Fatal(s)
				}
				for i := range want {
					if v := binary.BigEndian.Uint64(got[i*8:]); v != want[i] {
						t.Fatalf("number %d is %#x, want %#x", i, v, want[i])
					}
				}
			})
		}
	}
}

// TestCalcFaults: an element outside of its region ends the work request with LOC_PROT_ERR.
func TestCalcFaults(t *testing.T) {
	for bad := range 2 {
		w := newNetwork(1, impairment{})
		a, b := w.pair(t, pairConfig{cross: true}, 0)
		_, region := a.region(t, 64)
		list := make([]mr.SGE, 2)
		for i := range list {
			list[i] = mr.SGE{Addr: region.Addr(), Length: 64, LKey: region.LKey()}
		}
		list[bad].Addr += 8
		post(t, a, qp.SendWR{ID: 1, Opcode: qp.Send, Flags: qp.WithCalc, SG: list})
		run(t, w, a, b)
		if s := outcomes(drain(a.send)); s != "[1 LOC_PROT_ERR]" {
			t.Errorf("element %d is outside: %s", bad, s)
		}
	}
}
