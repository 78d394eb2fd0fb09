package link

import (
	"sync"
	"testing"
)

// TestOnLink: the function is called once for every change of the link, in order, even if several goroutines report
// it.
func TestOnLink(t *testing.T) {
	var c Counters
	c.SetDown(true) // no function is set yet
	c.SetDown(false)
	var told []bool
	c.OnLink(func(up bool) { told = append(told, up) })
	c.SetDown(false)
	if len(told) != 0 {
		t.Errorf("told %v of no change", told)
	}
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for i := range 1000 {
				c.SetDown((i+n)%2 == 0)
			}
		})
	}
	wg.Wait()
	for i, up := range told {
		if up != (i%2 == 1) {
			t.Fatalf("change %d of %d: up %v", i, len(told), up)
		}
	}
	downs := uint64(len(told)+1) / 2
	if s := c.Stats(); s.LinkDowns != 1+downs || s.LinkUp == c.Down() || s.LinkUp != (len(told)%2 == 0) {
		t.Errorf("%d changes, then %+v", len(told), s)
	}
	c.OnLink(nil)
	c.SetDown(!c.Down())
}
