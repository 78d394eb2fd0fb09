package share

import (
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/goroce/roce/bth"
)

// takes reports whether Filter should accept a packet. b begins with the BTH.
func takes(b []byte, slots []Slot, data, mads bool) bool {
	if len(b) < 8 {
		return false
	}
	switch n := qpnAt(b); n {
	case bth.QPNMulticast:
		return data
	case bth.QPNGSI:
		const mad = bth.BTHLen + bth.DETHLen
		if !mads || len(b) < mad+madLen {
			return false
		}
		a := addresseeOf(b[mad:])
		return a.by != bySlot || a.slot == slots[0]
	default:
		return data && slices.Contains(slots, SlotOf(n))
	}
}

func qpnAt(b []byte) bth.QPN { return bth.QPN(b[5])<<16 | bth.QPN(b[6])<<8 | bth.QPN(b[7]) }

// draw makes a random packet: data or a management datagram, complete or truncated.
func draw(rnd *rand.Rand) []byte {
	qpn := bth.QPN(rnd.Uint32()) & bth.QPNMulticast
	switch rnd.IntN(4) {
	case 0:
		qpn = bth.QPNMulticast
	case 1, 2:
		qpn = bth.QPNGSI
	}
	b := datagram(qpn, 0x10+uint16(rnd.IntN(11)), anID(rnd), anID(rnd), rnd.Uint64())
	if rnd.IntN(4) == 0 {
		b = b[:rnd.IntN(len(b)+1)]
	}
	return b
}

// The filter of a socket accepts the same packets as the function in Go, at any offset of the
// BTH.
func TestFilter(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 7, Slots} {
		var slots []Slot
		for _, s := range rnd.Perm(Slots)[:n] {
			slots = append(slots, Slot(s))
		}
		for _, k := range []struct{ data, mads bool }{{true, false}, {false, true}, {true, true}} {
			const x, header = 8, 20
			vm, err := bpf.NewVM(slices.Concat([]bpf.Instruction{bpf.LoadConstant{Dst: bpf.RegX, Val: x}}, Filter(header-x, slots, k.data, k.mads),
				[]bpf.Instruction{bpf.TXA{}, bpf.RetA{}}))
			if err != nil {
				t.Fatal(err)
			}
			taken := 0
			for range 3000 {
				b := draw(rnd)
				want := 0
				if takes(b, slots, k.data, k.mads) {
					want = x
					taken++
				}
				got, err := vm.Run(append(make([]byte, header), b...))
				if err != nil || got != want {
					t.Fatalf("slots %v, data %v, management %v: %d, %v for % x, want %d", slots, k.data, k.mads, got, err, b[:min(len(b), 50)], want)
				}
			}
			if taken == 0 {
				t.Error("no packet is taken")
			}
		}
	}
}

// All processes accept a packet that is for all. Exactly one process accepts any other packet
// that is long enough.
func TestFilterDeals(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	var vms []*bpf.VM
	for s := 0; s < Slots; s += 2 {
		vm, err := bpf.NewVM(append(Filter(0, []Slot{Slot(s), Slot(s + 1)}, true, true), bpf.RetConstant{Val: 1}))
		if err != nil {
			t.Fatal(err)
		}
		vms = append(vms, vm)
	}
	for range 500 {
		b := draw(rnd)
		if len(b) < bth.BTHLen+bth.DETHLen+madLen {
			continue
		}
		taken := 0
		for _, vm := range vms {
			n, err := vm.Run(b)
			if err != nil {
				t.Fatal(err)
			}
			taken += n
		}
		a := addresseeOf(b[bth.BTHLen+bth.DETHLen:])
		want := 1
		switch n := qpnAt(b); {
		case n == bth.QPNMulticast || n == bth.QPNGSI && a.by != bySlot:
			want = len(vms)
		case n == bth.QPNGSI && a.slot%2 == 1: // communication IDs are of the first slot
			want = 0
		}
		if taken != want {
			t.Fatalf("%d processes take % x, want %d", taken, b[:50], want)
		}
	}
}

func TestQueue(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, n := range []int{1, 3, Slots} {
		var slots []Slot
		for _, s := range rnd.Perm(Slots)[:n] {
			slots = append(slots, Slot(s))
		}
		vm, err := bpf.NewVM(slices.Concat([]bpf.Instruction{bpf.LoadAbsolute{Off: 0, Size: 4}}, Queue(slots)))
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			b := draw(rnd)
			if len(b) < 8 {
				continue
			}
			qpn, want := qpnAt(b), 0
			if qpn != bth.QPNGSI && qpn != bth.QPNMulticast {
				want = max(slices.Index(slots, SlotOf(qpn)), 0)
			}
			if got, err := vm.Run([]byte{0, b[5], b[6], b[7]}); err != nil || got != want {
				t.Errorf("slots %v, queue pair %v: queue %d, %v, want %d", slots, qpn, got, err, want)
			}
		}
	}
}
