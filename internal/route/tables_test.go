package route

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// TestGIDTable changes the addresses at random: an address keeps its index while it is
// present. An address that returns gets its former index, if that is free.
func TestGIDTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var all []bth.GID
	for i := range 2 * MaxGIDs {
		all = append(all, bth.GID{0: 0xFD, 14: byte(i >> 8), 15: byte(i)})
	}
	table := new(GIDTable)
	full := 30 // rounds with a full table
	if testing.Short() {
		full = 5
	}
	for round := range 150 + full {
		pool := all[:10] // first few, later more than fit
		if round >= 150 {
			pool = all
		}
		var want []bth.GID
		wanted := make(map[bth.GID]bool)
		for _, i := range rng.Perm(len(pool))[:rng.IntN(min(len(pool), MaxGIDs)+1)] {
			want = append(want, pool[i])
			wanted[pool[i]] = true
		}
		next, changed := table.update(want)
		first := make(map[bth.GID]int) // slot of each address
		for i, g := range slices.Backward(next.slots) {
			first[g] = i
		}
		differ := 0
		for i, g := range next.slots {
			old, _ := table.At(i)
			if g != old && !old.IsZero() {
				differ++ // one removed
			}
			if g != old && !g.IsZero() {
				differ++ // one added
			}
			if !old.IsZero() && wanted[old] && g != old {
				t.Fatalf("round %d: %v lost its index %d", round, old, i)
			}
			if !g.IsZero() && (!wanted[g] || first[g] != i) {
				t.Fatalf("round %d: %v is at index %d", round, g, i)
			}
			if round < 150 && old.IsZero() && i < len(table.was) && !g.IsZero() && g != table.was[i] {
				t.Fatalf("round %d: index %d was %v's, and is given to %v", round, i, table.was[i], g)
			}
		}
		if changed != differ {
			t.Fatalf("round %d: %d changes reported, %d made", round, changed, differ)
		}
		for _, g := range want {
			if i, ok := next.Index(g); !ok || next.slots[i] != g || !next.Has(&g) {
				t.Fatalf("round %d: %v is not found", round, g)
			}
		}
		if len(next.slots) > MaxGIDs || len(next.used) != len(want) {
			t.Fatalf("round %d: %d slots, %d of them used, want %d", round, len(next.slots), len(next.used), len(want))
		}
		if _, ok := next.Index(bth.GID{}); ok || next.Has(new(bth.GID)) {
			t.Fatalf("round %d: an empty slot is an address", round)
		}
		table = next
	}
}

// TestPaths: the users of a configuration share one path. Without users the table forgets it.
func TestPaths(t *testing.T) {
	ps := newPaths()
	c := frame.PathConfig{Src: bth.GID{15: 1, 10: 0xFF, 11: 0xFF}, Dst: bth.GID{15: 2, 10: 0xFF, 11: 0xFF}, SrcPort: 49152, HopLimit: 64}
	get := func() *frame.Path {
		p, err := ps.get(c)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := get()
	runtime.GC()
	if q := get(); q != p {
		t.Error("made a second path while the first is in use")
	}
	other := c
	other.TrafficClass = 2
	if q, err := ps.get(other); err != nil || q.Equal(p) {
		t.Errorf("another configuration: %v, %v", q, err)
	}
	table := &Table{srcPort: c.SrcPort, paths: ps}
	if q, err := table.Undivided(p); err != nil || !q.Config().Undivided || q.Equal(p) {
		t.Errorf("undivided: %v, %v", q, err)
	} else if again, err := table.Undivided(p); err != nil || again != q {
		t.Errorf("a second undivided path: %v, %v", again, err)
	}
	if _, err := ps.get(frame.PathConfig{}); err == nil {
		t.Error("a path from nowhere to nowhere")
	}
	runtime.KeepAlive(p)
	size := func() int {
		ps.mu.Lock()
		defer ps.mu.Unlock()
		return len(ps.inUse)
	}
	for end := time.Now().Add(10 * time.Second); size() > 0; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d paths are kept that nobody has", size())
		}
		runtime.GC()
	}
	if q := get(); !q.Equal(mustPath(t, c)) {
		t.Error("a path made again differs")
	}
}

func mustPath(t *testing.T, c frame.PathConfig) *frame.Path {
	t.Helper()
	p, err := frame.NewPath(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
