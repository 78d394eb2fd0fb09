package message

import "sync"

// arrival is a message in the receive buffer.
type arrival struct{ slot, length int }

// inbox holds the messages that nobody has received, oldest first. Several goroutines
// may wait for it: each takes a token from signal and leaves one if there is more.
type inbox struct {
	signal chan struct{}

	mu         sync.Mutex
	ring       []arrival
	head, held int
}

func newInbox(n int) *inbox {
	return &inbox{signal: make(chan struct{}, 1), ring: make([]arrival, n)}
}

// push adds a message. False: there is no room.
func (b *inbox) push(a arrival) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held == len(b.ring) {
		return false
	}
	b.ring[(b.head+b.held)%len(b.ring)] = a
	b.held++
	b.wake()
	return true
}

// take removes the oldest message if it has at most room bytes. there is false if
// there is no message; fits is false if it is longer, then it stays.
func (b *inbox) take(room int) (a arrival, there, fits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held == 0 {
		return a, false, false
	}
	a = b.ring[b.head]
	if a.length <= room {
		b.head = (b.head + 1) % len(b.ring)
		b.held--
		fits = true
	}
	if b.held > 0 {
		b.wake() // for another receiver
	}
	return a, true, fits
}

func (b *inbox) wake() {
	select {
	case b.signal <- struct{}{}:
	default:
	}
}
