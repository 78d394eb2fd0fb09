package mr

import (
	"bytes"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goroce/roce/bth"
)

// These tests check the promise of Invalidate. One shard registers, binds and invalidates, while other shards look up
// and copy. When Invalidate has returned, or the bind that moves a window, the owner uses the memory without any
// lock. If a copy came too late, the data would show it, or the race detector.

const raceShards = 3 // shards that look up

// hammer is one shard. Until it is told to stop, it writes through the current key, with a new lookup for each write,
// and counts the successful accesses.
func hammer(tab *Table, pd *PD, shard int, key *atomic.Uint32, stop *atomic.Bool, done *atomic.Int64) {
	data := bytes.Repeat([]byte{byte('A' + shard)}, 64)
	for ; !stop.Load(); runtime.Gosched() {
		v, off, f := tab.Remote(pd, q1, bth.RKey(key.Load()), uint64(shard)*64, 64, RemoteWrite)
		if f == OK && v.WriteAt(off, data) == OK {
			done.Add(1)
		}
		v, off, f = tab.Remote(pd, q1, bth.RKey(key.Load()), uint64(shard)*64, 8, RemoteAtomic)
		if f == OK {
			if _, f := v.FetchAdd(off, 1<<56); f == OK {
				done.Add(1)
			}
		}
	}
}

// revoke runs hammers, while give repeatedly gives a key one of two memories, and take takes it away again.
func revoke(t *testing.T, tab *Table, pd *PD, mems [2][]byte, give func(i int) bth.RKey, take func()) {
	var key atomic.Uint32
	var stop atomic.Bool
	var done atomic.Int64
	var wg sync.WaitGroup
	for s := range raceShards {
		wg.Go(func() { hammer(tab, pd, s, &key, &stop, &done) })
	}
	const rounds, enough, patience = 2000, 1000, 50_000
	for round := 0; round < rounds || done.Load() < enough && round < patience; round++ {
		before := done.Load()
		key.Store(uint32(give(round % 2)))
		for i := 0; done.Load() == before && i < 10; i++ {
			runtime.Gosched()
		}
		take()
		mem := mems[round%2]
		for i := range mem {
			mem[i] = byte(round)
		}
		runtime.Gosched()
		for i := range mem {
			if mem[i] != byte(round) {
				t.Errorf("round %d: byte %d changed after the key was revoked", round, i)
				break
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	if done.Load() < enough {
		t.Errorf("only %d accesses succeeded", done.Load())
	}
}

func raceMemory() (mems [2][]byte) {
	return [2][]byte{aligned(raceShards * 64), aligned(raceShards * 64)}
}

func TestRaceFastReg(t *testing.T) {
	tab, pd := newTable(), NewPD()
	m := allocFast(t, tab, pd, 4)
	mems := raceMemory()
	revoke(t, tab, pd, mems, func(i int) bth.RKey {
		mem := mems[i]
		mapped(t, m, Options{HasIOVA: true}, mem[:64], mem[64:136], mem[136:])
		fastReg(t, tab, m, LocalWrite|RemoteWrite|RemoteAtomic)
		return m.RKey()
	}, func() {
		if f := tab.Invalidate(pd, q2, m.RKey()); f != OK {
			t.Error(f)
		}
	})
}

// windowOn returns a function that binds a window to one of two regions.
func windowOn(t *testing.T, tab *Table, w *MW, l *Windows, mems [2][]byte) func(i int) bth.RKey {
	var regions [2]*MR
	for i := range regions {
		var err error
		if regions[i], err = tab.Register(w.PD(), mems[i], bindable, Options{HasIOVA: true}); err != nil {
			t.Fatal(err)
		}
	}
	return func(i int) bth.RKey {
		bind(t, tab, l, w, to(w, regions[i], 0, uint64(len(mems[i])), RemoteWrite|RemoteAtomic))
		return w.RKey()
	}
}

func TestRaceWindow2(t *testing.T) {
	tab, pd := newTable(), NewPD()
	w, mems := allocMW(t, tab, pd, MWType2), raceMemory()
	var l Windows
	revoke(t, tab, pd, mems, windowOn(t, tab, w, &l, mems), func() {
		if f := tab.Invalidate(pd, q1, w.RKey()); f != OK {
			t.Error(f)
		}
	})
}

// TestRaceWindow1: a type 1 window that is bound to another region no longer reaches the first one.
func TestRaceWindow1(t *testing.T) {
	tab, pd := newTable(), NewPD()
	w, mems := allocMW(t, tab, pd, MWType1), raceMemory()
	elsewhere := register(t, tab, pd, 8, bindable, Options{})
	revoke(t, tab, pd, mems, windowOn(t, tab, w, nil, mems), func() {
		bind(t, tab, nil, w, to(w, elsewhere, 0, 8, 0))
	})
}

// TestRaceBind: shards bind and invalidate the same objects at the same time. Each call succeeds or fails, and the
// counts are right in the end.
func TestRaceBind(t *testing.T) {
	tab, pd := newTable(), NewPD()
	m := allocFast(t, tab, pd, 1)
	mapped(t, m, Options{HasIOVA: true}, make([]byte, 64))
	w := allocMW(t, tab, pd, MWType1)
	key, wkey := m.RKey(), w.RKey()
	var wg sync.WaitGroup
	for s := range raceShards {
		q := bth.QPN(0x100 + s)
		wg.Go(func() {
			for i := range 2000 {
				b := &Binding{Key: wkey, MR: m, LKey: bth.LKey(key), Length: 8, Access: RemoteRead}
				switch (i + s) % 4 {
				case 0:
					tab.RegisterFast(pd, m, key, bindable)
				case 1:
					tab.Bind(pd, q, nil, w, b)
				case 2:
					b.Length = 0
					tab.Bind(pd, q, nil, w, b)
				case 3:
					tab.Invalidate(pd, q, key)
				}
			}
		})
	}
	wg.Wait()
	if n := m.g.windows(); (n == 1) != (w.region != nil) || n > 1 {
		t.Errorf("%d windows on the region, the window is bound: %v", n, w.region != nil)
	}
	if err := w.Dealloc(); err != nil {
		t.Error(err)
	}
	if err := m.Deregister(); err != nil {
		t.Error(err)
	}
	if word := m.g.word.Load(); word&^variantMask != 0 {
		t.Errorf("word %#x after all", word)
	}
}

// TestRaceIndirect: the parts of an indirect region are invalidated while it is used.
func TestRaceIndirect(t *testing.T) {
	tab, pd := newTable(), NewPD()
	f, m, mems := allocFast(t, tab, pd, 2), allocIndirect(t, tab, pd, 2), raceMemory()
	revoke(t, tab, pd, mems, func(i int) bth.RKey {
		if m.Valid() { // from the previous round
			if f := tab.Invalidate(pd, q2, m.RKey()); f != OK {
				t.Error(f)
			}
		}
		mem := mems[i]
		mapped(t, f, Options{}, mem[:72], mem[72:])
		fastReg(t, tab, f, LocalWrite|RemoteWrite|RemoteAtomic)
		if err := m.MapParts([]Part{{MR: f, Length: 64}, {MR: f, Offset: 64, Length: uint64(len(mem) - 64)}}, 1, Options{}); err != nil {
			t.Error(err)
		}
		fastReg(t, tab, m, LocalWrite|RemoteWrite|RemoteAtomic)
		return m.RKey()
	}, func() {
		if f := tab.Invalidate(pd, q1, f.RKey()); f != OK {
			t.Error(f)
		}
	})
}
