//go:build !race

// The race detector accesses the memory in its own code, where a fault cannot be caught.

package mr

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// fromSystem maps n pages that a test may protect or unmap.
func fromSystem(t *testing.T, n int) []byte {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, n*os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(b) })
	return b
}

func foreign(t *testing.T, buf []byte, iova uint64) (Memory, *Table) {
	t.Helper()
	tab := newTable()
	m, err := tab.Register(NewPD(), buf, LocalWrite|RemoteWrite|RemoteAtomic, Options{IOVA: iova, HasIOVA: true, Foreign: true})
	if err != nil {
		t.Fatal(err)
	}
	return memoryOf(t, tab, m), tab
}

// TestForeignCopies: at every offset and for every length, a copy has the result of a plain copy.
func TestForeignCopies(t *testing.T) {
	buf := fromSystem(t, 1)[:64]
	v, _ := foreign(t, buf, 0)
	rnd := rand.New(rand.NewPCG(1, 2))
	for off := range uint64(64) {
		for n := range 64 - int(off) + 1 {
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
}

// TestForeignGone: every access to memory that the program has protected or unmapped returns a fault. Accesses to
// other memory succeed, and no lock stays taken.
func TestForeignGone(t *testing.T) {
	page := uint64(os.Getpagesize())
	for name, misaligned := range map[string]uint64{"aligned": 0, "misaligned": 4} {
		buf := fromSystem(t, 2)
		v, _ := foreign(t, buf[misaligned:], 0)
		b := make([]byte, 64)
		all := map[string]func(off uint64) Fault{
			"ReadAt":         func(off uint64) Fault { return v.ReadAt(b, off) },
			"WriteAt":        func(off uint64) Fault { return v.WriteAt(off, b) },
			"WriteAt a byte": func(off uint64) Fault { return v.WriteAt(off, b[:1]) },
			"CompareSwap":    func(off uint64) Fault { _, f := v.CompareSwap(off, 0, 1); return f },
			"FetchAdd":       func(off uint64) Fault { _, f := v.FetchAdd(off, 1); return f },
			"AtomicWrite":    func(off uint64) Fault { return v.AtomicWrite(off, 1) },
		}
		want := func(when string, off uint64, readable bool, f Fault) {
			t.Helper()
			for op, do := range all {
				w := f
				if readable && op == "ReadAt" {
					w = OK
				}
				if got := do(off); got != w {
					t.Errorf("%s, %s at %d, %s: %v, want %v", name, op, off, when, got, w)
				}
			}
		}
		want("mapped", page, false, OK)
		if err := syscall.Mprotect(buf[page:], syscall.PROT_READ); err != nil {
			t.Fatal(err)
		}
		// A compare that fails changes nothing.
		delete(all, "CompareSwap")
		want("read only", page, true, Unmapped)
		if err := syscall.Mprotect(buf[page:], syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		want("protected", page, false, Unmapped)
		if f := v.WriteAt(page-misaligned-32, b); f != Unmapped {
			t.Errorf("%s: WriteAt over the edge: %v", name, f)
		}
		want("the page before", 64, false, OK)
	}
}

// TestForeignOthers: a panic for another reason is not turned into a fault.
func TestForeignOthers(t *testing.T) {
	v, _ := foreign(t, fromSystem(t, 1), 0)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	v.m.touch(func() { panic("a bug") })
}

// TestForeignErrors: a region cannot be both foreign and watched. A reregistered region stays foreign.
func TestForeignErrors(t *testing.T) {
	tab, pd := newTable(), NewPD()
	buf := fromSystem(t, 1)
	if _, err := tab.Register(pd, buf, LocalWrite|Watched, Options{Foreign: true}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("foreign and watched: %v, want EINVAL", err)
	}
	m, err := tab.Register(pd, buf, LocalWrite, Options{Foreign: true})
	if err != nil {
		t.Fatal(err)
	}
	other := fromSystem(t, 1)
	if err := m.Reregister(ReregTranslation, nil, other, 0, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mprotect(other, syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	if f := memoryOf(t, tab, m).ReadAt(make([]byte, 8), uint64(uintptr(unsafe.Pointer(&other[0])))-m.Addr()); f != Unmapped {
		t.Errorf("reregistered: %v, want %v", f, Unmapped)
	}
}
