package mr

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"sync"
	"testing"
)

// serialAdd is the definition of a MASKED_FETCH_ADD, bit by bit.
func serialAdd(x, add, boundary uint64) (sum uint64) {
	var carry uint64
	for i := range 64 {
		bit := uint64(1) << i
		n := carry + x>>i&1 + add>>i&1
		sum |= n & 1 << i
		carry = n >> 1
		if boundary&bit != 0 {
			carry = 0
		}
	}
	return sum
}

// operandRegion returns a region of one cache line that starts shift bytes off
// alignment. Its addresses are offsets.
func operandRegion(t testing.TB, shift int) (v Memory, buf []byte) {
	t.Helper()
	tab, pd := newTable(), NewPD()
	buf = aligned(80)[shift : shift+64]
	m, err := tab.Register(pd, buf, LocalWrite|RemoteAtomic|ZeroBased, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return memoryOf(t, tab, m), buf
}

func memoryOf(t testing.TB, tab *Table, m *MR) Memory {
	t.Helper()
	v, _, f := tab.Local(m.PD(), m.SGE(0, m.Length()), 0)
	if f != OK {
		t.Fatal(f)
	}
	return v
}

// TestMaskedAtomics compares the atomics with their definitions, for every operand size, on aligned and misaligned
// memory. Nothing beside the operand changes.
func TestMaskedAtomics(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	masks := []uint64{0, ^uint64(0), 1, 1 << 63, 0x8080808080808080, 0x8888888888888888, 0x8000000080000000, 0xFF00FF00FF00FF00}
	mask := func() uint64 {
		if i := rnd.IntN(2 * len(masks)); i < len(masks) {
			return masks[i]
		}
		return rnd.Uint64() & rnd.Uint64()
	}
	for shift := range 8 {
		v, buf := operandRegion(t, shift)
		for range 4000 {
			size := 1 << rnd.IntN(4)
			off := uint64(rnd.IntN(64/size) * size)
			for i := range buf {
				buf[i] = byte(rnd.Uint32())
			}
			want := bytes.Clone(buf)
			o := Operand{off, size}
			in, out := o.mask(), want[off:off+uint64(size)]
			was := loadOperand(out)
			var got uint64
			var f Fault
			if rnd.IntN(2) == 0 {
				add, boundary := rnd.Uint64(), mask()
				storeOperand(out, serialAdd(was, add&in, boundary)&in)
				got, f = v.MaskedFetchAdd(off, o, add, boundary)
			} else {
				cmp, cmpMask, swap, swapMask := rnd.Uint64(), mask(), rnd.Uint64(), mask()
				if rnd.IntN(2) == 0 {
					cmp = was&cmpMask | cmp&^cmpMask
				}
				if was&cmpMask&in == cmp&cmpMask&in {
					storeOperand(out, was&^swapMask|swap&swapMask)
				}
				got, f = v.MaskedCompareSwap(off, o, cmp, cmpMask, swap, swapMask)
			}
			if got != was || f != OK || !bytes.Equal(buf, want) {
				t.Fatalf("shift %d, size %d at %d: returned %#x %v, want %#x; memory\n%x\n%x", shift, size, off, got, f, was, buf, want)
			}
		}
	}
}

// TestMaskedAtomicsAtTheEdge: an atomic changes an operand whose word is partly outside the region, and changes
// nothing outside.
func TestMaskedAtomicsAtTheEdge(t *testing.T) {
	for _, tt := range []struct{ from, n, off, size int }{
		{1, 7, 0, 1}, {2, 2, 0, 2}, {0, 5, 4, 1}, {0, 6, 4, 2}, {4, 4, 0, 4}, {3, 1, 0, 1},
	} {
		tab, pd := newTable(), NewPD()
		all := aligned(16)
		buf := all[tt.from : tt.from+tt.n]
		m, err := tab.Register(pd, buf, LocalWrite|RemoteAtomic|ZeroBased, Options{})
		if err != nil {
			t.Fatal(err)
		}
		v := memoryOf(t, tab, m)
		o := Operand{uint64(tt.from + tt.off), tt.size} // with the alignment of the memory
		v.MaskedFetchAdd(uint64(tt.off), o, 3, 0)
		if old, _ := v.MaskedCompareSwap(uint64(tt.off), o, 1, 1, 0xFFFFFFFFFFFFFFFF, 4); old != 3 {
			t.Errorf("%+v: found %d", tt, old)
		}
		if got := loadOperand(buf[tt.off : tt.off+tt.size]); got != 7 {
			t.Errorf("%+v: is %d, want 7", tt, got)
		}
		sum := 0
		for _, b := range all {
			sum += int(b)
		}
		if sum != 7 {
			t.Errorf("%+v: memory %x", tt, all)
		}
	}
}

// TestMaskedAtomicsFromManyShards: several shards add to the same word, as one number and as single bytes. No
// addition is lost.
func TestMaskedAtomicsFromManyShards(t *testing.T) {
	for _, shift := range []int{0, 1} {
		v, buf := operandRegion(t, shift)
		const rounds = 2000
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for range rounds {
					v.MaskedFetchAdd(0, Operand{0, 8}, 0x0100000000000001, 0x8080808080808080)
					v.MaskedFetchAdd(uint64(i), Operand{uint64(i), 1}, 2, 0)
					for { // the uppermost bit of byte 5 is a lock
						if old, _ := v.MaskedCompareSwap(4, Operand{4, 4}, 0, 0x8000, 0x8000, 0x8000); bits.OnesCount64(old&0x8000) == 0 {
							break
						}
					}
					v.MaskedCompareSwap(4, Operand{4, 4}, 0, 0, 0, 0x8000)
				}
			})
		}
		wg.Wait()
		if bigEndian {
			t.Skip("the expected bytes are those of a little-endian host")
		}
		all, own := byte(4*rounds%256), byte(2*rounds%256)
		want := []byte{all + own, own, own, own, 0, 0, 0, all}
		if !bytes.Equal(buf[:8], want) {
			t.Errorf("shift %d: %x, want %x", shift, buf[:8], want)
		}
	}
}

func TestMaskedAtomicsDoNotAllocate(t *testing.T) {
	v, _ := operandRegion(t, 0)
	if n := testing.AllocsPerRun(100, func() {
		v.MaskedFetchAdd(8, Operand{8, 8}, 1, 0x80)
		v.MaskedCompareSwap(3, Operand{3, 1}, 1, 2, 3, 4)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
