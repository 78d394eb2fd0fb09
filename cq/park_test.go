package cq

import "testing"

type sleeper int

func (s *sleeper) Wake() { *s++ }

// TestPark: a parked waiter is woken once, at its count, even if the queue is full.
func TestPark(t *testing.T) {
	for _, ignore := range []bool{false, true} {
		overflows := 0
		c := mustNew(t, 2, Options{IgnoreOverrun: ignore, Overflow: func() { overflows++ }})
		var early, late, gone sleeper
		c.Park(1, &early)
		c.Park(4, &late)
		c.Park(4, &gone)
		c.Unpark(&gone)
		for i, want := range [][2]sleeper{{1, 0}, {1, 0}, {1, 0}, {1, 1}, {1, 1}} {
			if ok := push(c, uint64(i)); ok != (i < 2 || ignore) {
				t.Errorf("push %d: %v with IgnoreOverrun %v", i, ok, ignore)
			}
			if got := [2]sleeper{early, late}; got != want {
				t.Errorf("after %d completions woken %v, want %v", i+1, got, want)
			}
		}
		if gone != 0 || c.Count() != 5 || (overflows == 0) != ignore {
			t.Errorf("woken after Unpark: %d; count %d, want 5; %d overflows with IgnoreOverrun %v", gone, c.Count(), overflows, ignore)
		}
	}
}

// TestAwait: the waits of one list wait for the same completions. The last wait of the list consumes them.
func TestAwait(t *testing.T) {
	c := mustNew(t, 2, Options{})
	for i, s := range []struct {
		n    uint32
		last bool
		want uint64
	}{{1, false, 1}, {3, false, 3}, {2, true, 2}, {1, true, 4}, {1, true, 5}} {
		if got := c.Await(s.n, s.last); got != s.want {
			t.Errorf("wait %d for %d: until %d, want %d", i, s.n, got, s.want)
		}
	}
}
