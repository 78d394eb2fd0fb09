package cq

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// inUse returns how many pages a queue has.
func (p *pages) inUse() (n int) {
	for _, pg := range p.table {
		if pg != nil {
			n++
		}
	}
	return n
}

// TestPages: queues of all sizes are filled and polled in many patterns, resized, and begin at any count. They keep
// their order and overflow only when they are full. They have no more pages than the longest queue so far needs.
func TestPages(t *testing.T) {
	rounds := 5000
	if testing.Short() {
		rounds = 500
	}
	for _, size := range []int{1, 2, 16, 32, 64, 128, 1024} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(size), 1))
			c := mustNew(t, size, Options{})
			beginAt(c, rng.Uint64()) // the counters wrap, too
			next, want, most := uint64(0), uint64(0), 0
			for range rounds {
				limit := size
				if rng.IntN(4) > 0 {
					limit = rng.IntN(size) + 1
				}
				for c.Len() < limit {
					if !push(c, next) {
						t.Fatalf("no room for one more than %d of %d", c.Len(), c.Cap())
					}
					next++
				}
				most = max(most, c.Len())
				if c.Len() == c.Cap() && push(c, next) {
					t.Fatal("room in a full queue")
				}
				for _, id := range poll(c, rng.IntN(limit)+1) {
					if id != want {
						t.Fatalf("got %d, want %d", id, want)
					}
					want++
				}
				if rng.IntN(100) == 0 {
					if err := c.Resize(size); err != nil {
						t.Fatal(err)
					}
				}
				// The first page may be half read, and the last one half filled.
				if n := c.pages.inUse(); n > (most+pageLen-2)/pageLen+1 {
					t.Fatalf("%d pages, though never more than %d entries waited", n, most)
				}
			}
		})
	}
}

// TestPagesComeLate: a queue without completions so far has no pages. A large queue that stays short has at most two.
func TestPagesComeLate(t *testing.T) {
	c := mustNew(t, MaxEntries, Options{})
	if n := c.pages.inUse(); n != 0 {
		t.Errorf("%d pages of an empty queue", n)
	}
	for i := range uint64(100_000) {
		if !push(c, i) || len(poll(c, 1)) != 1 {
			t.Fatal(i)
		}
	}
	if n := c.pages.inUse(); n > 2 {
		t.Errorf("%d pages of a queue in which one entry waits at most", n)
	}
}
