package mr

import (
	"bytes"
	"encoding/binary"
	"sync"
	"testing"
)

// whole looks up a whole region, for the methods of Memory.
func whole(t testing.TB, m *MR) Memory {
	t.Helper()
	v, off, f := m.table.Local(m.pd, m.SGE(0, m.Length()), 0)
	if f != OK || off != 0 {
		t.Fatalf("Local: offset %d, %v", off, f)
	}
	return v
}

func TestCopy(t *testing.T) {
	tab, pd := newTable(), NewPD()
	buf := []byte("the quick brown fox")
	m, err := tab.Register(pd, buf, LocalWrite, Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := whole(t, m)
	got := make([]byte, 5)
	v.ReadAt(got, 4)
	if string(got) != "quick" {
		t.Errorf("ReadAt = %q", got)
	}
	v.WriteAt(4, []byte("slick"))
	if string(buf) != "the slick brown fox" {
		t.Errorf("after WriteAt: %q", buf)
	}
	v.ReadAt(nil, uint64(len(buf))) // a copy of no bytes at the end is allowed
}

// TestAtomics: the operand is a word in host byte order, aligned or misaligned. Both give the same, right results.
func TestAtomics(t *testing.T) {
	for shift := range 8 {
		tab, pd := newTable(), NewPD()
		buf := aligned(40)[shift : shift+32]
		m, err := tab.Register(pd, buf, LocalWrite|RemoteAtomic|ZeroBased, Options{})
		if err != nil {
			t.Fatal(err)
		}
		v := whole(t, m)
		guard := bytes.Repeat([]byte{0xEE}, 32)
		copy(buf, guard)
		word := buf[8:16]
		binary.NativeEndian.PutUint64(word, 40)

		if old, f := v.FetchAdd(8, 2); f != OK || old != 40 {
			t.Errorf("shift %d: FetchAdd = %d, want 40", shift, old)
		}
		if old, f := v.FetchAdd(8, ^uint64(0)); f != OK || old != 42 { // −1
			t.Errorf("shift %d: FetchAdd = %d, want 42", shift, old)
		}
		if old, f := v.CompareSwap(8, 42, 7); f != OK || old != 41 {
			t.Errorf("shift %d: failing CompareSwap = %d, want 41", shift, old)
		}
		if v := binary.NativeEndian.Uint64(word); v != 41 {
			t.Errorf("shift %d: a failing CompareSwap stored %d", shift, v)
		}
		if old, f := v.CompareSwap(8, 41, 1<<63|5); f != OK || old != 41 {
			t.Errorf("shift %d: CompareSwap = %d, want 41", shift, old)
		}
		if v := binary.NativeEndian.Uint64(word); v != 1<<63|5 {
			t.Errorf("shift %d: CompareSwap stored %#x", shift, v)
		}
		if !bytes.Equal(buf[:8], guard[:8]) || !bytes.Equal(buf[16:], guard[16:]) {
			t.Errorf("shift %d: neighbours changed: %x", shift, buf)
		}
	}
}

// TestAtomicsFromManyShards: several shards add to one word, aligned or misaligned. No addition is lost.
func TestAtomicsFromManyShards(t *testing.T) {
	for _, shift := range []int{0, 3} {
		tab, pd := newTable(), NewPD()
		buf := aligned(24)[shift : shift+16]
		m, err := tab.Register(pd, buf, LocalWrite|RemoteAtomic, Options{})
		if err != nil {
			t.Fatal(err)
		}
		v := whole(t, m)
		const shards, rounds = 4, 2000
		var wg sync.WaitGroup
		for range shards {
			wg.Go(func() {
				for range rounds {
					v.FetchAdd(8, 1)
					for {
						old, _ := v.FetchAdd(8, 0)
						if was, _ := v.CompareSwap(8, old, old+1); was == old {
							break
						}
					}
				}
			})
		}
		wg.Wait()
		if got, _ := v.FetchAdd(8, 0); got != 2*shards*rounds {
			t.Errorf("shift %d: %d, want %d", shift, got, 2*shards*rounds)
		}
	}
}

func BenchmarkReadAt1024(b *testing.B) {
	tab, pd := newTable(), NewPD()
	m := register(b, tab, pd, 4096, 0, Options{})
	v := whole(b, m)
	dst := make([]byte, 1024)
	b.SetBytes(1024)
	b.ReportAllocs()
	for b.Loop() {
		v.ReadAt(dst, 100)
	}
}

func BenchmarkFetchAdd(b *testing.B) {
	tab, pd := newTable(), NewPD()
	m := register(b, tab, pd, 4096, LocalWrite|RemoteAtomic, Options{})
	v := whole(b, m)
	b.ReportAllocs()
	for b.Loop() {
		v.FetchAdd(8, 1)
	}
}
