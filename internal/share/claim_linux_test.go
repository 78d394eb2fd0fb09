package share

import (
	"sync"
	"testing"
)

// Several goroutines claim and drop a service. The process is the listener as long as one of them
// has a claim.
func TestClaimTogether(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	a, b := join(t, k, 1, d), join(t, k, 1, d)
	for _, p := range []*Place{a, b} {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 300 {
					if err := p.Claim(9); err != nil {
						t.Error(err)
						return
					}
					if s, ok := p.board.listener(9); !ok || s != p.slots[0] {
						t.Errorf("listener %d, %v, want %d", s, ok, p.slots[0])
						return
					}
					p.Drop(9)
				}
			})
		}
		wg.Wait()
		if _, ok := a.board.listener(9); ok || len(p.claims) != 0 || len(p.claiming) != 0 {
			t.Errorf("after the last is dropped: listened for %v, claims %v, %v", ok, p.claims, p.claiming)
		}
	}
}
