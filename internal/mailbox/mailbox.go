// Package mailbox has a queue of events or messages between goroutines.
package mailbox

import (
	"sync"

	"github.com/goroce/roce/internal/fifo"
	"github.com/goroce/roce/internal/notify"
)

// Box holds items until goroutines take them, oldest first. Each item is taken once. Make it
// with [New].
type Box[T any] struct {
	limit int
	ready notify.Chan

	mu     sync.Mutex
	items  fifo.Queue[T]
	closed bool
}

// New returns an empty box for limit items, or for any number if limit is 0.
func New[T any](limit int) *Box[T] { return &Box[T]{limit: limit, ready: notify.New()} }

// Ready returns a channel that holds a token when there may be an item, and when the box is
// closed. A goroutine that took the token must call Take or TakeIf: they notify the next
// goroutine if there is more.
func (b *Box[T]) Ready() <-chan struct{} { return b.ready }

// Len returns the number of items.
func (b *Box[T]) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.items.Len()
}

// Closed reports whether Close was called.
func (b *Box[T]) Closed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// Put adds an item. It returns false if the box is full or closed.
func (b *Box[T]) Put(v T) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.limit > 0 && b.items.Len() >= b.limit {
		return false
	}
	*b.items.Push() = v
	b.ready.Notify()
	return true
}

// PutBack returns an item that was taken to its place as the oldest. A closed box drops it.
func (b *Box[T]) PutBack(v T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	*b.items.PushFront() = v
	b.ready.Notify()
}

// Take removes the oldest item. ok is false if there is none.
func (b *Box[T]) Take() (v T, ok bool) {
	_, v, ok = b.TakeIf(func(T) bool { return true })
	return v, ok
}

// TakeIf removes the oldest item if want accepts it. there is false if there is no item; taken
// is false if want refused the oldest item, v. want must not use the box.
func (b *Box[T]) TakeIf(want func(T) bool) (there bool, v T, taken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if there = b.items.Len() > 0; there {
		if v, taken = *b.items.At(0), want(*b.items.At(0)); taken {
			b.items.Pop()
		}
	}
	if b.closed || b.items.Len() > 0 {
		b.ready.Notify()
	}
	return there, v, taken
}

// Remove removes all items that match and returns them.
func (b *Box[T]) Remove(match func(T) bool) (removed []T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.items.DeleteFunc(func(v T) bool {
		hit := match(v)
		if hit {
			removed = append(removed, v)
		}
		return hit
	})
	return removed
}

// Close makes the box refuse items from now on; those in it can still be taken. It returns
// false if the box was closed already.
func (b *Box[T]) Close() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.closed = true
	b.ready.Notify()
	return true
}
