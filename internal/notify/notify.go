// Package notify wakes goroutines that wait for a change of state.
package notify

// Chan holds at most one token. A token says that the state may have changed since the last
// one was taken. A goroutine that waits takes the token and then looks at the state; if it
// leaves something for other waiters, it notifies them.
type Chan chan struct{}

// New returns a channel without a token.
func New() Chan { return make(Chan, 1) }

// Notify wakes one goroutine that waits for the channel, or else the next one that waits. It never blocks.
func (c Chan) Notify() {
	select {
	case c <- struct{}{}:
	default: // the goroutine that takes the token looks at the state afterwards
	}
}

// Closed reports whether a channel is closed that never has a value. A nil channel is not.
func Closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
