package mr

import (
	"bytes"
	"encoding/binary"
	"math/big"
	"math/rand/v2"
	"sync"
	"testing"
)

// wideNumber returns an operand of n bytes as one number, with the first word lowest.
func wideNumber(w *Words, n int) *big.Int {
	b := make([]byte, n)
	for i := range n / 8 {
		binary.BigEndian.PutUint64(b[n-8-8*i:], w[i])
	}
	return new(big.Int).SetBytes(b)
}

// wideAdd is the definition of an addition to fields, bit by bit over the whole operand.
func wideAdd(x, add, boundary *big.Int, bits int) *big.Int {
	sum, carry := new(big.Int), uint(0)
	for i := range bits {
		n := carry + x.Bit(i) + add.Bit(i)
		sum.SetBit(sum, i, n&1)
		if carry = n >> 1; boundary.Bit(i) == 1 || i%64 == 63 {
			carry = 0
		}
	}
	return sum
}

// TestWideAtomics compares the atomics with their definitions, which take the operand as one number, for both sizes,
// on aligned and misaligned memory. Nothing beside the operand changes.
func TestWideAtomics(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	words := func() (w Words) {
		for i := range w {
			switch w[i] = rnd.Uint64(); rnd.IntN(4) {
			case 0:
				w[i] = 0
			case 1:
				w[i] = ^uint64(0)
			case 2:
				w[i] &= 0x8080808080808080
			}
		}
		return w
	}
	swapped := 0
	for shift := range 8 {
		v, buf := operandRegion(t, shift)
		v.m.table.AllowWide()
		for range 1000 {
			size := 16 << rnd.IntN(2)
			off := uint64(rnd.IntN(64/size) * size)
			for i := range buf {
				buf[i] = byte(rnd.Uint32())
			}
			rest := bytes.Clone(buf)
			var was, now, got Words
			for i := range size / 8 {
				was[i] = load(buf[off+uint64(8*i):])
			}
			x, o := wideNumber(&was, size), Operand{off, size}
			var want *big.Int
			var f Fault
			if rnd.IntN(2) == 0 {
				add, boundary := words(), words()
				want = wideAdd(x, wideNumber(&add, size), wideNumber(&boundary, size), 8*size)
				got, f = v.WideFetchAdd(off, o, &add, &boundary)
			} else {
				cmp, cmpMask, swap, swapMask := words(), words(), words(), words()
				if rnd.IntN(2) == 0 { // all bits are equal but one, which the mask may leave out
					cmp = was
					cmp[rnd.IntN(size/8)] ^= 1 << rnd.IntN(64)
				}
				diff := new(big.Int).Xor(x, wideNumber(&cmp, size))
				if want = new(big.Int).Set(x); diff.And(diff, wideNumber(&cmpMask, size)).Sign() == 0 {
					mask := wideNumber(&swapMask, size)
					want.AndNot(want, mask).Or(want, mask.And(mask, wideNumber(&swap, size)))
					swapped++
				}
				got, f = v.WideCompareSwap(off, o, &cmp, &cmpMask, &swap, &swapMask)
			}
			for i := range size / 8 {
				now[i] = load(buf[off+uint64(8*i):])
			}
			if got != was || f != OK || wideNumber(&now, size).Cmp(want) != 0 {
				t.Fatalf("shift %d, size %d at %d: returned %x %v, want %x; is %x, want %x", shift, size, off, got, f, was, now, want)
			}
			clear(buf[off : off+uint64(size)])
			clear(rest[off : off+uint64(size)])
			if !bytes.Equal(buf, rest) {
				t.Fatalf("shift %d, size %d at %d: the memory beside it has changed", shift, size, off)
			}
		}
	}
	if swapped < 500 {
		t.Errorf("%d comparisons were equal", swapped)
	}
}

// TestWideAtomicsFromManyShards: an operand of 16 bytes changes as one for all other atomics, including those on its
// words. No atomic sees a change of one word without the other.
func TestWideAtomicsFromManyShards(t *testing.T) {
	v, buf := operandRegion(t, 0)
	v.m.table.AllowWide()
	const rounds = 2000
	o := Operand{0, 16}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range rounds {
				old, _ := v.WideFetchAdd(0, o, &Words{1, 1}, &Words{})
				if old[0] != old[1] {
					t.Errorf("words %d and %d", old[0], old[1])
					return
				}
			}
		})
	}
	wg.Go(func() {
		for range rounds { // subtracts one from each word, if both still have the values it read
			for {
				seen, _ := v.WideFetchAdd(0, o, &Words{}, &Words{})
				all := Words{^uint64(0), ^uint64(0)}
				if old, _ := v.WideCompareSwap(0, o, &seen, &all, &Words{seen[0] - 1, seen[1] - 1}, &all); old == seen {
					break
				}
			}
		}
	})
	wg.Wait()
	if a, b := load(buf), load(buf[8:]); a != 2*rounds || b != 2*rounds {
		t.Errorf("words %d and %d, want %d", a, b, 2*rounds)
	}
	v.FetchAdd(0, 5)
	v.MaskedFetchAdd(8, Operand{8, 4}, 5, 0)
	if old, _ := v.CompareSwap(0, 2*rounds+5, 7); old != 2*rounds+5 || v.AtomicWrite(8, 9) != OK || load(buf) != 7 || load(buf[8:]) != 9 {
		t.Errorf("the atomics on 8 bytes: found %d, left %x", old, buf[:16])
	}
}

func TestWideAtomicsDoNotAllocate(t *testing.T) {
	v, _ := operandRegion(t, 0)
	v.m.table.AllowWide()
	var a, b Words
	if n := testing.AllocsPerRun(100, func() {
		v.WideFetchAdd(32, Operand{32, 32}, &a, &b)
		v.WideCompareSwap(16, Operand{16, 16}, &a, &b, &a, &b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
