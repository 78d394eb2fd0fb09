package notify

import "testing"

// TestNotify: notifications merge, and one that comes before the waiter is not lost.
func TestNotify(t *testing.T) {
	c := New()
	for range 3 {
		c.Notify()
		c.Notify()
		<-c
		select {
		case <-c:
			t.Fatal("two tokens")
		default:
		}
	}
}
