package mr

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// watched registers n bytes that are watched.
func watched(t testing.TB, n int) (v Memory, m *MR, buf []byte) {
	t.Helper()
	tab, pd := newTable(), NewPD()
	buf = aligned(n)
	m, err := tab.Register(pd, buf, LocalWrite|RemoteWrite|RemoteAtomic|Watched, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return memoryOf(t, tab, m), m, buf
}

func TestWatchedErrors(t *testing.T) {
	tab, pd := newTable(), NewPD()
	mem := aligned(64)
	for _, tt := range []struct {
		name string
		buf  []byte
		want error
	}{
		{"aligned", mem[8:56], nil},
		{"not aligned", mem[4:60], syscall.EINVAL},
		{"no whole words", mem[:60], syscall.EINVAL},
		{"less than a word", mem[:4], syscall.EINVAL},
	} {
		if _, err := tab.Register(pd, tt.buf, LocalWrite|Watched, Options{}); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if got := (LocalWrite | Watched).String(); got != "LOCAL_WRITE|WATCHED" {
		t.Error(got)
	}
	for name, f := range map[string]func(){
		"Load64":  func() { Load64(mem[4:]) },
		"Store64": func() { Store64(mem[1:], 1) },
		"short":   func() { Load64(mem[:4:4]) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// TestWatchedCopies: at every offset and for every length, a copy has the result of a plain copy.
func TestWatchedCopies(t *testing.T) {
	v, _, buf := watched(t, 64)
	rnd := rand.New(rand.NewPCG(1, 2))
	for off := range uint64(64) {
		for n := range 64 - int(off) + 1 {
			for i := range buf {
				buf[i] = byte(rnd.Uint32())
			}
			src, want := make([]byte, n), bytes.Clone(buf)
			for i := range src {
				src[i] = byte(rnd.Uint32())
			}
			copy(want[off:], src)
			if f := v.WriteAt(off, src); f != OK || !bytes.Equal(buf, want) {
				t.Fatalf("WriteAt(%d, %d bytes): %v\n%x\n%x", off, n, f, buf, want)
			}
			got := make([]byte, n)
			if f := v.ReadAt(got, off); f != OK || !bytes.Equal(got, src) {
				t.Fatalf("ReadAt(%d, %d bytes): %v %x, want %x", off, n, f, got, src)
			}
		}
	}
	Store64(buf[8:], 0x1122334455667788)
	if Load64(buf[8:]) != 0x1122334455667788 || binary.NativeEndian.Uint64(buf[8:]) != 0x1122334455667788 {
		t.Error("Load64, Store64")
	}
}

// TestWatchedOrder: a program reads memory while the engine writes it. It sees whole words. If it sees a later word
// of a message, it also sees the earlier ones. The race detector reports nothing.
func TestWatchedOrder(t *testing.T) {
	v, _, buf := watched(t, 256)
	const rounds = 3000
	var wg sync.WaitGroup
	wg.Go(func() {
		msg := make([]byte, 250)
		for i := range uint64(rounds) {
			for k := 0; k+8 <= len(msg); k += 8 {
				binary.NativeEndian.PutUint64(msg[k:], (i+1)<<32|(i+1))
			}
			v.WriteAt(0, msg)
		}
	})
	for last := uint64(0); last < rounds; {
		at := 240 // backwards: reads the word that is stored first last
		newest := Load64(buf[at:])
		for ; at >= 0; at -= 8 {
			w := Load64(buf[at:])
			if w>>32 != w&0xFFFFFFFF || w < newest {
				t.Fatalf("word %d is %#x, behind it %#x", at/8, w, newest)
			}
			newest = w
		}
		last = newest & 0xFFFFFFFF
	}
	wg.Wait()
}

// TestWatchedNeighbours: the program may store the bytes beside those that the engine writes, at the same time.
func TestWatchedNeighbours(t *testing.T) {
	v, _, buf := watched(t, 16)
	const rounds = 5000
	var wg sync.WaitGroup
	for _, part := range [][2]int{{0, 3}, {3, 6}, {6, 13}, {13, 16}} {
		wg.Go(func() {
			for i := range rounds {
				v.WriteAt(uint64(part[0]), bytes.Repeat([]byte{byte(i)}, part[1]-part[0]))
				got := make([]byte, part[1]-part[0])
				LoadWords(got, buf[part[0]:])
				for _, b := range got {
					if b != byte(i) {
						t.Errorf("bytes %v are %x, want %x", part, got, byte(i))
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestFlushes: a program that sees a FLUSH counted also sees the bytes that were written before it, with plain loads,
// even in memory that is not watched.
func TestFlushes(t *testing.T) {
	tab, pd := newTable(), NewPD()
	buf := aligned(64)
	m, err := tab.Register(pd, buf, LocalWrite|RemoteWrite|FlushGlobal, Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := memoryOf(t, tab, m)
	var seen atomic.Uint64
	var wg sync.WaitGroup
	const rounds = 500
	wg.Go(func() {
		for i := range uint64(rounds) {
			for seen.Load() != i {
				runtime.Gosched()
			}
			v.WriteAt(0, bytes.Repeat([]byte{byte(i + 1)}, 64))
			v.Flush(0, 64, false)
		}
	})
	for i := range uint64(rounds) {
		for m.Flushes() != i+1 {
			runtime.Gosched()
		}
		for _, b := range buf {
			if b != byte(i+1) {
				t.Fatalf("FLUSH %d: memory %x", i+1, buf)
			}
		}
		seen.Store(i + 1)
	}
	wg.Wait()
}

func BenchmarkWriteAt4096(b *testing.B) {
	for _, acc := range []Access{LocalWrite, LocalWrite | Watched} {
		b.Run(acc.String(), func(b *testing.B) {
			tab, pd := newTable(), NewPD()
			m, err := tab.Register(pd, aligned(4096), acc, Options{})
			if err != nil {
				b.Fatal(err)
			}
			v, src := memoryOf(b, tab, m), make([]byte, 4096)
			b.SetBytes(4096)
			b.ReportAllocs()
			for b.Loop() {
				v.WriteAt(0, src)
			}
		})
	}
}
