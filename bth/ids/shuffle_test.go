package ids

import (
	"math/rand/v2"
	"testing"
)

// A shuffle is a permutation, and different keys give different permutations.
func TestShuffle(t *testing.T) {
	a, b := NewShuffle([16]byte{1}), NewShuffle([16]byte{2})
	seen := make([]uint64, Space/64)
	same := 0
	step := uint32(16)
	if testing.Short() { // where the processor is emulated
		step = 256
	}
	for n := uint32(0); n < Space; n += step {
		x := a.of(n)
		if x >= Space || seen[x/64]>>(x%64)&1 != 0 {
			t.Fatalf("%#x becomes %#x, as another number does, or it is too large", n, x)
		}
		seen[x/64] |= 1 << (x % 64)
		if x == b.of(n) {
			same++
		}
	}
	if same > 10 {
		t.Errorf("two shuffles agree in %d of %d numbers", same, Space/step)
	}
}

// Tables of different parts never hand out the same number, and the numbers of one shuffled part are in
// all classes.
func TestParts(t *testing.T) {
	const class = 64
	shuffle := NewShuffle([16]byte{3})
	owner := map[uint32]uint32{}
	for residue := range uint32(4) {
		tab := NewTable[thing](Config{Max: Space, Rand: rand.New(rand.NewPCG(uint64(residue), 2)).Uint64})
		var classes uint64
		for range 5000 {
			n, ok := tab.Draw(0, new(thing), Part{Residue: residue, Class: class, Shuffle: shuffle})
			if other, taken := owner[n]; !ok || taken {
				t.Fatalf("part %d: number %#x, %v, which part %d has", residue, n, ok, other)
			}
			owner[n] = residue
			classes |= 1 << (n % class)
		}
		if classes != ^uint64(0) {
			t.Errorf("part %d: its numbers are in the classes %#b only", residue, classes)
		}
	}
}

// A table hands out at least half of the numbers of its part, and none of another part, for any sequence
// of random numbers.
func TestPartRunsOut(t *testing.T) {
	const class = 1 << 14
	shuffle := NewShuffle([16]byte{4})
	p := Part{Residue: 7, Class: class, Shuffle: shuffle}
	own := map[uint32]bool{}
	for i := range uint32(p.Size()) {
		own[shuffle.of(i*class+7)] = true
	}
	tab := NewTable[thing](Config{Max: Space, Rand: func() uint64 { return 0 }})
	for given := 0; ; given++ {
		n, ok := tab.Draw(0, new(thing), p)
		if !ok {
			if given < p.Size()/2 {
				t.Errorf("no number is free after %d of %d", given, p.Size())
			}
			return
		}
		if !own[n] {
			t.Fatalf("number %#x is of another part, or was given twice", n)
		}
		delete(own, n)
	}
}
