package xsk

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// memory is the memory of a ring that the kernel would share: a test makes both ends of it.
type memory[T any] struct {
	producer, consumer, flags uint32
	entries                   []T
}

func newMemory[T any](size int, at uint32) *memory[T] {
	return &memory[T]{producer: at, consumer: at, entries: make([]T, size)}
}

func (m *memory[T]) ends() (*Producer[T], *Consumer[T]) {
	p := NewProducer(&m.producer, &m.consumer, &m.flags, m.entries)
	c := NewConsumer(&m.producer, &m.consumer, &m.flags, m.entries)
	return &p, &c
}

// TestRing compares a ring with a queue over random steps. The indexes start just before their wrap-around.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := 1 << rapid.IntRange(0, 5).Draw(t, "size")
		start := uint32(0) - uint32(rapid.IntRange(0, 40).Draw(t, "before the wrap-around"))
		m := newMemory[uint64](size, start)
		p, c := m.ends()
		var written, published []uint64 // entries put in; those of them not released
		next := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				n := rapid.IntRange(0, size).Draw(t, "n")
				free := int(p.Free(uint32(n)))
				if room := size - len(written) - len(published); free > room || free < min(n, room) {
					t.Fatalf("Free(%d) = %d, there is room for %d", n, free, room)
				}
				for range min(n, free) {
					index := p.Put(next)
					if *p.At(index) != next || p.Next() != index+1 {
						t.Fatalf("entry %d is not where it was put", index)
					}
					written = append(written, next)
					next++
				}
			},
			"submit": func(*rapid.T) {
				p.Submit()
				published = append(published, written...)
				written = nil
			},
			"take": func(t *rapid.T) {
				n := rapid.IntRange(0, size).Draw(t, "n")
				ready := int(c.Ready(uint32(n)))
				if ready > len(published) || ready < min(n, len(published)) {
					t.Fatalf("Ready(%d) = %d of %d", n, ready, len(published))
				}
				k := rapid.IntRange(0, ready).Draw(t, "k")
				for i := range k {
					if got := *c.Get(uint32(i)); got != published[i] {
						t.Fatalf("entry %d is %d, want %d", i, got, published[i])
					}
				}
				c.Release(uint32(k))
				published = published[k:]
				if got := p.Next() - p.Consumed(); int(got) != len(written)+len(published) {
					t.Fatalf("%d entries in the ring, want %d", got, len(written)+len(published))
				}
			},
		})
	})
}

// TestRingNeedWakeup: NeedWakeup is true if the kernel has set the flag.
func TestRingNeedWakeup(t *testing.T) {
	m := newMemory[Desc](4, 0)
	p, _ := m.ends()
	if p.NeedWakeup() {
		t.Error("a wake-up is needed")
	}
	m.flags = needWakeup
	if !p.NeedWakeup() {
		t.Error("no wake-up is needed")
	}
}

// TestRingHostile: whatever a broken kernel writes, Ready never returns more than the size of the ring.
func TestRingHostile(t *testing.T) {
	m := newMemory[Desc](4, 0)
	_, c := m.ends()
	m.producer = 1 << 31
	if n := c.Ready(1); n != 4 {
		t.Errorf("%d entries of 4 are ready", n)
	}
}

// TestMirror runs a socket's rings against a goroutine that acts as the kernel at the other ends of the rings: it returns
// sent frames as received ones. The race detector then proves that the order of the accesses is sufficient.
func TestMirror(t *testing.T) {
	const size, slots, total = 8, 24, 20000
	g := Geometry{Chunk: 2048, Slot: 4096}
	pool := NewPool(g, 0, slots)
	mem := make([]uint64, slots*g.Slot/8) // one word for each eight bytes
	fillM, txM := newMemory[uint64](size, ^uint32(3)), newMemory[Desc](size, ^uint32(5))
	rxM, compM := newMemory[Desc](size, 0), newMemory[uint64](size, 7)
	fill, kFill := fillM.ends()
	tx, kTX := txM.ends()
	kRX, rx := rxM.ends()
	kComp, comp := compM.ends()

	var kernel sync.WaitGroup
	kernel.Go(func() {
		for done := 0; done < total; {
			if kTX.Ready(1) == 0 || kFill.Ready(1) == 0 || kRX.Free(1) == 0 || kComp.Free(1) == 0 {
				runtime.Gosched()
				continue
			}
			from, to := *kTX.Get(0), *kFill.Get(0)
			mem[to/8] = mem[from.Addr/8]
			kTX.Release(1)
			kFill.Release(1)
			kComp.Put(from.Addr)
			kComp.Submit()
			kRX.Put(Desc{Addr: to, Len: from.Len})
			kRX.Submit()
			done++
		}
	})

	for range size {
		addr, _ := pool.Get(Filling)
		fill.Put(addr)
	}
	fill.Submit()
	sent := 0
	for got := 0; got < total; {
		for ; comp.Ready(1) > 0; comp.Release(1) {
			if !pool.Complete(*comp.Get(0)) {
				t.Fatalf("the kernel completed %#x, which it did not have", *comp.Get(0))
			}
		}
		for sent < total && tx.Free(1) > 0 {
			addr, ok := pool.Get(Building)
			if !ok {
				break
			}
			mem[addr/8] = uint64(sent)
			pool.Send(addr, 1)
			tx.Put(Desc{Addr: addr, Len: 8})
			sent++
		}
		tx.Submit()
		n := rx.Ready(size)
		for i := range n {
			d := rx.Get(i)
			if v := mem[d.Addr/8]; v != uint64(got) || d.Len != 8 {
				t.Fatalf("frame %d has %d in it", got, v)
			}
			got++
			pool.Pass(d.Addr, Filling, Reading)
			pool.Pass(d.Addr, Reading, Filling)
			fill.Put(d.Addr)
		}
		rx.Release(n)
		fill.Submit()
		if n == 0 {
			runtime.Gosched()
		}
	}
	kernel.Wait()
	for ; comp.Ready(1) > 0; comp.Release(1) {
		pool.Complete(*comp.Get(0))
	}
	if pool.Len() != slots-size {
		t.Errorf("%d slots in the pool, want %d", pool.Len(), slots-size)
	}
}

func TestGeometry(t *testing.T) {
	for _, test := range []struct {
		size, chunk, slot int
		descs             uint32
		driver            string
	}{
		{1518, 2048, 2048, 1, "veth"},
		{1792, 2048, 2048, 1, "veth"},
		{1793, 4096, 4096, 1, "veth"},
		{3840, 4096, 4096, 1, "veth"},
		{4096, 4096, 8192, 1, "veth"},
		{4097, 4096, 8192, 2, "veth"},
		{4218, 4096, 8192, 2, "veth"},
		{9018, 4096, 16384, 3, "veth"},
		{1024, 2048, 2048, 1, "igb"},
		{1025, 4096, 4096, 1, "igb"},
		{1518, 4096, 4096, 1, "igb"},
		{9018, 4096, 16384, 3, "igb"},
	} {
		g := GeometryFor(test.size, test.driver)
		if g.Chunk != test.chunk || g.Slot != test.slot || g.Descs(test.size) != test.descs {
			t.Errorf("frames of %d bytes on %s: %+v, %d descriptors; want chunks of %d, slots of %d, %d descriptors",
				test.size, test.driver, g, g.Descs(test.size), test.chunk, test.slot, test.descs)
		}
	}
}

// TestFill: with igb a full RX ring and a reader that holds as many frames leave one for each entry of the card's ring.
func TestFill(t *testing.T) {
	for _, test := range []struct {
		ring, card, frames, fill int
		driver                   string
	}{
		{512, 256, 512, 512, "veth"},
		{64, 256, 64, 64, "virtio_net"},
		{512, 256, 1280, 2048, "igb"},
		{64, 256, 384, 512, "igb"},
		{128, 256, 512, 512, "igb"},
		{4096, 4096, 12288, 16384, "igb"},
	} {
		if n := FillFor(test.ring, test.card, test.driver); n != test.frames || RingFor(n) != test.fill {
			t.Errorf("rings of %d and %d on %s: %d frames in a Fill ring of %d, want %d in %d", test.ring, test.card, test.driver, n, RingFor(n), test.frames, test.fill)
		}
	}
}

// TestPool: a slot returns to the pool with the last of its descriptors; Complete refuses an address that the kernel
// does not have.
func TestPool(t *testing.T) {
	g := GeometryFor(4200, "")
	p := NewPool(g, 5*uint64(g.Slot), 3)
	var all []uint64
	for {
		addr, ok := p.Get(Building)
		if !ok {
			break
		}
		if addr%uint64(g.Slot) != 0 || !p.Has(addr) || p.Start(addr+5000) != addr {
			t.Errorf("slot at %d", addr)
		}
		all = append(all, addr)
	}
	if len(all) != 3 || p.Len() != 0 {
		t.Fatalf("slots %v, want 3", all)
	}
	a := all[1]
	p.Send(a, 2)
	steps := []struct {
		addr uint64
		ok   bool
		n    int
	}{
		{0, false, 0}, {all[0], false, 0}, {a + 4096, true, 0}, {a, true, 1}, {a, false, 1}, {1 << 62, false, 1},
		{8 * uint64(g.Slot), false, 1},
	}
	for _, s := range steps {
		if ok := p.Complete(s.addr); ok != s.ok || p.Len() != s.n {
			t.Errorf("Complete(%d) = %v, %d slots in the pool; want %v, %d", s.addr, ok, p.Len(), s.ok, s.n)
		}
	}
	if again, _ := p.Get(Building); again != a {
		t.Errorf("got slot %d, want the one used last, %d", again, a)
	}
}

// TestOwners: with the tag roceframes, and only with it, touching a slot of another owner panics.
func TestOwners(t *testing.T) {
	for what, f := range map[string]func(p *Pool, addr uint64){
		"put twice":     func(p *Pool, addr uint64) { p.Put(addr, Building); p.Put(addr, Building) },
		"not the owner": func(p *Pool, addr uint64) { p.Pass(addr, Reading, Filling) },
		"sent twice":    func(p *Pool, addr uint64) { p.Send(addr, 1); p.Send(addr, 1) },
	} {
		func() {
			defer func() {
				if r := recover(); (r != nil) != debugging {
					t.Errorf("%s: panic %v with debugging %v", what, fmt.Sprint(r), debugging)
				}
			}()
			p := NewPool(GeometryFor(1518, ""), 0, 2)
			addr, _ := p.Get(Building)
			f(p, addr)
		}()
	}
	for o := Pooled; o <= Reading; o++ {
		if o.String() == "" {
			t.Errorf("owner %d has no name", o)
		}
	}
}
