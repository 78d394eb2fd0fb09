package gsi

import (
	"testing"
	"testing/synctest"
	"time"
)

// Two requests that come so close that they leave one token wake two waiters.
func TestRequestQueueWakesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q RequestQueue[int]
		q.Init(testAgent(t, &testHost{}).nic)
		got := make(chan int, 2)
		for range 2 {
			go func() {
				r, err := q.Next(t.Context())
				if err != nil {
					t.Error(err)
				}
				got <- r
			}()
		}
		synctest.Wait()
		q.mu.Lock()
		q.requests = append(q.requests, queuedRequest[int]{request: 1}, queuedRequest[int]{request: 2})
		q.mu.Unlock()
		q.ready.Notify()
		select {
		case <-got:
		case <-time.After(time.Minute):
		}
		select {
		case <-got:
		case <-time.After(time.Minute):
			t.Fatal("the second request woke nobody")
		}
	})
}
