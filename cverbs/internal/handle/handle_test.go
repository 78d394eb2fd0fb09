package handle

import (
	"sync"
	"testing"
)

type (
	apple struct{ n int }
	pear  struct{}
)

func TestHandles(t *testing.T) {
	var tab Table
	a := &apple{1}
	h, err := tab.Add(a)
	if err != nil || h == 0 {
		t.Fatalf("Add = %#x, %v", h, err)
	}
	if got, ok := Get[*apple](&tab, h); !ok || got != a {
		t.Errorf("Get = %v, %v", got, ok)
	}
	if _, ok := Get[*pear](&tab, h); ok {
		t.Error("a handle of another type is found")
	}
	for _, bad := range []uint32{0, h + 1, h + 1<<slotBits, 1<<32 - 1, slotMask} {
		if _, ok := Get[*apple](&tab, bad); ok {
			t.Errorf("handle %#x, never given out, is found", bad)
		}
		if tab.Free(bad) {
			t.Errorf("handle %#x, never given out, is freed", bad)
		}
	}
	if !tab.Free(h) {
		t.Error("Free fails")
	}
	if _, ok := Get[*apple](&tab, h); ok || tab.Free(h) {
		t.Error("a freed handle is found")
	}
}

// A freed handle must find nothing for as long as generations allow.
func TestReuse(t *testing.T) {
	var tab Table
	first, _ := tab.Add(&apple{})
	tab.Free(first)
	for i := range resting * 1000 {
		h, err := tab.Add(&apple{i})
		if err != nil {
			t.Fatal(err)
		}
		if h == first {
			t.Fatalf("handle %#x again after %d others", h, i)
		}
		tab.Free(h)
	}
	if tab.used > resting+2 {
		t.Errorf("%d slots for one object at a time", tab.used)
	}
}

func TestFull(t *testing.T) {
	if testing.Short() {
		t.Skip("fills all slots")
	}
	var tab Table
	var last uint32
	for {
		h, err := tab.Add(nil)
		if err != nil {
			break
		}
		last = h
	}
	if tab.used != slotMask {
		t.Errorf("full with %d slots", tab.used)
	}
	tab.Free(last)
	if h, err := tab.Add(nil); err != nil || h&slotMask != last&slotMask || h == last {
		t.Errorf("Add after Free = %#x, %v", h, err)
	}
}

func TestConcurrent(t *testing.T) {
	var tab Table
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 20000 {
				a := &apple{g<<20 | i}
				h, _ := tab.Add(a)
				if got, ok := Get[*apple](&tab, h); !ok || got != a {
					t.Errorf("handle %#x finds %v", h, got)
					return
				}
				tab.Free(h)
			}
		})
	}
	wg.Wait()
}

func BenchmarkGet(b *testing.B) {
	var tab Table
	h, _ := tab.Add(&apple{})
	for b.Loop() {
		if _, ok := Get[*apple](&tab, h); !ok {
			b.Fatal("not found")
		}
	}
}
