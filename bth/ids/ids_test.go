package ids

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/goroce/roce/mono"
)

type thing struct{ n uint32 }

func seeded(rest int) *Table[thing] {
	return NewTable[thing](Config{Max: Space, Rand: rand.New(rand.NewPCG(1, 2)).Uint64, Rest: rest})
}

// draw draws a number from all numbers.
func draw(t *testing.T, tab *Table[thing], now mono.Time) *thing {
	t.Helper()
	return drawOf(t, tab, now, 0, 1)
}

func drawOf(t *testing.T, tab *Table[thing], now mono.Time, residue, class uint32) *thing {
	t.Helper()
	o := new(thing)
	n, ok := tab.Draw(now, o, Part{Residue: residue, Class: class})
	if !ok {
		t.Fatalf("no number is free, with %d objects and %d resting", tab.Len(), tab.Resting())
	}
	if n >= Space || n%class != residue {
		t.Fatalf("number %#x, want one of 24 bits that is %d modulo %d", n, residue, class)
	}
	o.n = n
	return o
}

// Each object has its own number, and Find finds the object by it until the number is freed. For a
// number that no object has, or of more than 24 bits, Find returns nil.
func TestFind(t *testing.T) {
	tab := seeded(100)
	rnd := rand.New(rand.NewPCG(3, 4))
	live := map[uint32]*thing{}
	for range 20000 {
		if len(live) == 0 || rnd.IntN(8) < 5 {
			o := draw(t, tab, 0)
			if live[o.n] != nil {
				t.Fatalf("number %#x was drawn twice", o.n)
			}
			live[o.n] = o
			continue
		}
		for n := range live {
			tab.Free(n, 0)
			delete(live, n)
			if tab.Find(n) != nil {
				t.Fatalf("number %#x finds something when it is free", n)
			}
			break
		}
	}
	all := 0
	tab.All(func(o *thing) bool {
		all++
		return live[o.n] == o
	})
	if all != len(live) || tab.Len() != len(live) {
		t.Errorf("All %d, Len %d, want %d", all, tab.Len(), len(live))
	}
	for n, o := range live {
		if tab.Find(n) != o {
			t.Errorf("number %#x does not find its object", n)
		}
	}
	for range 10000 {
		if n := rnd.Uint32(); tab.Find(n) != live[n] {
			t.Errorf("number %#x finds what is not its object", n)
		}
	}
	for _, n := range []uint32{0, Space - 1, Space, math.MaxUint32} {
		if tab.Find(n) != live[n] {
			t.Errorf("number %#x finds something", n)
		}
	}
	if places := len(tab.places); places > 8*len(live) {
		t.Errorf("%d places for %d objects", places, len(live))
	}
}

// The numbers are spread evenly, and so are the differences between consecutive numbers, also if
// the table is as full as possible, and if all numbers are of one residue.
func TestSpread(t *testing.T) {
	const count, buckets = 8000, 16
	for _, class := range []uint32{1, 2, 7, 64} {
		var numbers, steps [buckets]int
		tab, last := seeded(0), uint32(0)
		for range count {
			n := drawOf(t, tab, 0, class-1, class).n
			numbers[n*buckets/Space]++
			steps[(n-last)%Space*buckets/Space]++
			last = n
		}
		for i := range buckets {
			if lo, hi := count/buckets*3/4, count/buckets*5/4; min(numbers[i], steps[i]) < lo || max(numbers[i], steps[i]) > hi {
				t.Errorf("class %d, bucket %d: %d numbers and %d steps, want %d to %d", class, i, numbers[i], steps[i], lo, hi)
			}
		}
	}
}

// A freed number rests until its time is over, or until more than Rest others were freed.
func TestRest(t *testing.T) {
	const rest = 8
	const class = Space / 18 // has 18 numbers, of which two are reserved
	tab := NewTable[thing](Config{Max: Space, Rand: rand.New(rand.NewPCG(1, 2)).Uint64, Rest: rest,
		Reserved: func(n uint32) bool { return n == 5 || n == class+5 }})
	var things []*thing
	for range 17 {
		things = append(things, drawOf(t, tab, 0, 5, class))
	}
	if _, ok := tab.Draw(0, new(thing), Part{Residue: 5, Class: class}); ok {
		t.Fatal("a number was drawn of none that are free")
	}
	tab.Free(things[0].n, 100)
	if _, ok := tab.Draw(99, new(thing), Part{Residue: 5, Class: class}); ok {
		t.Fatal("a number was drawn that rests")
	}
	if o := drawOf(t, tab, 100, 5, class); o.n != things[0].n {
		t.Fatalf("number %#x was drawn, only %#x is free", o.n, things[0].n)
	}
	for i := range rest {
		tab.Free(things[i].n, mono.Never)
	}
	if _, ok := tab.Draw(mono.Never-1, new(thing), Part{Residue: 5, Class: class}); ok || tab.Resting() != rest {
		t.Fatalf("a number was drawn that rests; %d rest", tab.Resting())
	}
	tab.Free(things[rest].n, mono.Never)
	if o := drawOf(t, tab, 0, 5, class); o.n != things[0].n {
		t.Fatalf("number %#x was drawn, want the one freed first, %#x", o.n, things[0].n)
	}
}

// With a source of randomness that always returns the same value, Draw does not hang, and the table
// does not grow without need.
func TestPoorRandomness(t *testing.T) {
	for _, v := range []uint64{0, 1, Space - 1, math.MaxUint64} {
		tab := NewTable[thing](Config{Max: Space, Rand: func() uint64 { return v }, Rest: 4})
		seen := map[uint32]bool{}
		for range 500 {
			o := drawOf(t, tab, 0, 3, 5)
			if seen[o.n] {
				t.Fatalf("number %#x was drawn twice", o.n)
			}
			seen[o.n] = true
		}
		if len(tab.places) > 4*500 {
			t.Errorf("%d places for 500 objects", len(tab.places))
		}
	}
}

// A table accepts at most Max objects, and a new one after another was freed.
func TestFull(t *testing.T) {
	tab := seeded(0)
	tab.SetMax(2)
	first := draw(t, tab, 0)
	draw(t, tab, 0)
	if _, ok := tab.Draw(0, new(thing), Part{}); ok || !tab.Full() {
		t.Errorf("a third object of two got a number; full: %v", tab.Full())
	}
	tab.Free(first.n, 0)
	draw(t, tab, 0)
}

// Free panics if the caller frees a number twice.
func TestFreeTwice(t *testing.T) {
	tab := seeded(4)
	o := draw(t, tab, 0)
	tab.Free(o.n, 0)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	tab.Free(o.n, 0)
}

func BenchmarkFind(b *testing.B) {
	tab := seeded(0)
	var numbers [1024]uint32
	for i := range numbers {
		numbers[i], _ = tab.Draw(0, new(thing), Part{})
	}
	for i := 0; b.Loop(); i++ {
		if tab.Find(numbers[i%len(numbers)]) == nil {
			b.Fatal("not found")
		}
	}
}

func BenchmarkDrawFree(b *testing.B) {
	b.ReportAllocs()
	tab, o := seeded(64), new(thing)
	for b.Loop() {
		n, _ := tab.Draw(0, o, Part{})
		tab.Free(n, 0)
	}
}
