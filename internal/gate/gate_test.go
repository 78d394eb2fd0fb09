package gate

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestGate: all users have left when Drain returns, and Enter fails afterwards.
func TestGate(t *testing.T) {
	for range 100 {
		g := New()
		var gone atomic.Bool
		var users, closers sync.WaitGroup
		for range 4 {
			users.Go(func() {
				for g.Enter() {
					if gone.Load() {
						t.Error("somebody is inside")
					}
					g.Leave()
				}
			})
		}
		var closed atomic.Int64
		for range 2 {
			closers.Go(func() {
				if g.Close() {
					closed.Add(1)
					g.Drain()
					gone.Store(true)
				}
			})
		}
		users.Wait()
		closers.Wait()
		if closed.Load() != 1 || !g.Closed() || g.Enter() {
			t.Fatalf("closed %d times", closed.Load())
		}
	}
}
