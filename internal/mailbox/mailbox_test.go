package mailbox

import (
	"slices"
	"sync"
	"testing"
)

func TestOrder(t *testing.T) {
	b := New[int](3)
	for i := range 4 {
		if got := b.Put(i); got != (i < 3) {
			t.Errorf("Put(%d) = %v", i, got)
		}
	}
	if there, v, taken := b.TakeIf(func(int) bool { return false }); !there || v != 0 || taken || b.Len() != 3 {
		t.Errorf("refused: %v %d %v, %d left", there, v, taken, b.Len())
	}
	v, ok := b.Take()
	if v != 0 || !ok {
		t.Errorf("took %d, %v", v, ok)
	}
	b.PutBack(v)
	if got := b.Remove(func(v int) bool { return v == 1 }); !slices.Equal(got, []int{1}) {
		t.Errorf("removed %v", got)
	}
	for _, want := range []int{0, 2} {
		if v, ok := b.Take(); v != want || !ok {
			t.Errorf("took %d, %v; want %d", v, ok, want)
		}
	}
	if there, _, _ := b.TakeIf(func(int) bool { return true }); there {
		t.Error("an empty box has an item")
	}
}

func TestClose(t *testing.T) {
	b := New[int](0)
	b.Put(1)
	if !b.Close() || b.Close() || !b.Closed() {
		t.Error("a box is closed once")
	}
	if b.Put(2) {
		t.Error("a closed box took an item")
	}
	b.PutBack(3)
	if v, ok := b.Take(); v != 1 || !ok {
		t.Errorf("took %d, %v from the closed box, want 1", v, ok)
	}
	for range 3 { // every waiter learns of it
		<-b.Ready()
		if _, ok := b.Take(); ok {
			t.Error("an item that was dropped")
		}
	}
}

// TestWaiters: although notifications merge, each of n waiting goroutines gets one of n items.
func TestWaiters(t *testing.T) {
	const n = 50
	b := New[int](0)
	got := make(chan int, n)
	var takers sync.WaitGroup
	for range n {
		takers.Go(func() {
			for {
				if v, ok := b.Take(); ok {
					got <- v
					return
				}
				<-b.Ready()
			}
		})
	}
	for i := range n {
		b.Put(i)
	}
	takers.Wait()
	close(got)
	seen := map[int]bool{}
	for v := range got {
		seen[v] = true
	}
	if len(seen) != n {
		t.Errorf("%d different items were taken, want %d", len(seen), n)
	}
}
