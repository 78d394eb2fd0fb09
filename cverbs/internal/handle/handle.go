// Package handle gives objects numbers that a C program can hold.
//
// The low bits of a handle are the number of a slot. The bits above count how often the slot was used. A handle
// that was freed, was never given out, or belongs to an object of another type finds nothing.
package handle

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
)

// A handle has slotBits for the number of the slot and the rest for its generation. Slots are reused in the
// order in which they were freed, and only while more than resting are free. So a freed handle finds nothing
// until its slot was used 2^generationBits times.
const (
	slotBits       = 22
	generationBits = 32 - slotBits
	slotMask       = 1<<slotBits - 1

	chunkBits = 10
	chunkLen  = 1 << chunkBits
	chunks    = 1 << (slotBits - chunkBits)

	resting = 1024
)

// ErrFull says that all slots are in use.
var ErrFull = errors.New("too many objects")

// entry is what a slot holds. It does not change.
type entry struct {
	handle uint32
	object any
}

type chunk [chunkLen]atomic.Pointer[entry]

// Table holds objects of any types. The zero value is empty. Any goroutine may call its methods; Get takes no
// lock.
type Table struct {
	chunks [chunks]atomic.Pointer[chunk]

	// mu guards the fields below, and all changes.
	mu   sync.Mutex
	used uint32   // number of slots ever used; slot 0 is never used
	free []uint32 // freed handles, oldest first
}

// Add returns a new handle of an object.
func (t *Table) Add(object any) (uint32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var h uint32
	switch {
	case len(t.free) > resting || t.used == slotMask && len(t.free) > 0:
		old := t.free[0]
		t.free = t.free[1:]
		h = old + 1<<slotBits // the next generation, which wraps around
	case t.used == slotMask:
		return 0, ErrFull
	default:
		t.used++
		h = t.used
	}
	slot := h & slotMask
	c := t.chunks[slot>>chunkBits].Load()
	if c == nil {
		c = new(chunk)
		t.chunks[slot>>chunkBits].Store(c)
	}
	c[slot&(chunkLen-1)].Store(&entry{h, object})
	return h, nil
}

// Get returns the object of a handle. It returns false if the handle has none or one of
// another type.
func Get[T any](t *Table, h uint32) (object T, ok bool) {
	slot := h & slotMask
	c := t.chunks[slot>>chunkBits].Load()
	if c == nil {
		return object, false
	}
	e := c[slot&(chunkLen-1)].Load()
	if e == nil || e.handle != h {
		return object, false
	}
	object, ok = e.object.(T)
	return object, ok
}

// Find is Get with an error: EINVAL if it finds nothing.
func Find[T any](t *Table, h uint32) (T, error) {
	object, ok := Get[T](t, h)
	if !ok {
		return object, syscall.EINVAL
	}
	return object, nil
}

// Free ends a handle. It returns false if the handle has ended already.
func (t *Table) Free(h uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := h & slotMask
	c := t.chunks[slot>>chunkBits].Load()
	if c == nil {
		return false
	}
	p := &c[slot&(chunkLen-1)]
	if e := p.Load(); e == nil || e.handle != h {
		return false
	}
	p.Store(nil)
	t.free = append(t.free, h)
	return true
}
