package xsk

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestArena compares an arena with a list of the owner of each page, over random steps.
func TestArena(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const pages, before = 12, 3
		mem := &Memory{Bytes: make([]byte, (before+pages+2)*arenaPage), chunk: arenaPage}
		a := NewArena(mem, before*arenaPage, pages*arenaPage)
		type block struct {
			b    []byte
			lent []uint64
		}
		var blocks, given []*block // allocated; given back while lent
		owner := make([]*block, pages)
		page := func(x *block) (first, n int) {
			at, ok := a.Offset(x.b)
			if !ok {
				t.Fatal("Offset does not find memory of the arena")
			}
			return int(at/arenaPage) - before, pagesOf(len(x.b))
		}
		pick := func(t *rapid.T, list []*block) (int, *block) {
			if len(list) == 0 {
				t.Skip("no block")
			}
			i := rapid.IntRange(0, len(list)-1).Draw(t, "which")
			return i, list[i]
		}
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				n := rapid.IntRange(1, 5*arenaPage).Draw(t, "bytes")
				b, ok := a.Alloc(n)
				run, most := 0, 0 // longest run of free pages
				for _, o := range owner {
					if run++; o != nil {
						run = 0
					}
					most = max(most, run)
				}
				if ok != (pagesOf(n) <= most) {
					t.Fatalf("Alloc(%d) = %v with %d free pages in one piece", n, ok, most)
				}
				if !ok {
					return
				}
				if len(b) != n || cap(b) != n || bytes.ContainsFunc(b, func(r rune) bool { return r != 0 }) {
					t.Fatalf("Alloc(%d) = %d bytes of room for %d, or not zero", n, len(b), cap(b))
				}
				for i := range b {
					b[i] = 0xAA
				}
				x := &block{b: b}
				first, k := page(x)
				for i := range k {
					if owner[first+i] != nil {
						t.Fatalf("page %d is given out twice", first+i)
					}
					owner[first+i] = x
				}
				blocks = append(blocks, x)
			},
			"lend": func(t *rapid.T) {
				_, x := pick(t, blocks)
				at, _ := a.Offset(x.b[rapid.IntRange(0, len(x.b)-1).Draw(t, "byte"):])
				a.Lend(at)
				x.lent = append(x.lent, at)
			},
			"complete": func(t *rapid.T) {
				i, x := pick(t, append(blocks[:len(blocks):len(blocks)], given...))
				if len(x.lent) == 0 {
					t.Skip("nothing lent")
				}
				a.Complete(x.lent[0])
				if x.lent = x.lent[1:]; len(x.lent) == 0 && i >= len(blocks) {
					given = append(given[:i-len(blocks):i-len(blocks)], given[i-len(blocks)+1:]...)
					first, k := page(x)
					clear(owner[first : first+k])
				}
			},
			"free": func(t *rapid.T) {
				i, x := pick(t, blocks)
				a.Free(x.b)
				blocks = append(blocks[:i:i], blocks[i+1:]...)
				if len(x.lent) > 0 {
					given = append(given, x)
					return
				}
				first, k := page(x)
				clear(owner[first : first+k])
			},
		})
		if _, ok := a.Offset(make([]byte, 8)); ok {
			t.Fatal("memory from elsewhere is in the arena")
		}
	})
}
