// Package verbs implements the calls of engine.h, except the connection manager's: handles, devices, and
// objects of package roce behind them. It needs no cgo; package main of cverbs/engine has the functions that C
// calls.
//
// A function that creates an object returns its handle. Errors have an errno: see [Errno]. Any goroutine may
// call any function.
package verbs

import (
	"errors"
	"sync"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/handle"
)

// handles has all objects of the process.
var handles handle.Table

// find returns the object of a handle; EINVAL if there is none of that type.
func find[T any](h abi.Handle) (T, error) { return handle.Find[T](&handles, h) }

// findOptional is find, but returns nil without an error for handle 0.
func findOptional[T any](h abi.Handle) (o T, err error) {
	if h == 0 {
		return o, nil
	}
	return find[T](h)
}

// Errno returns the errno of an error, 0 for nil. A closed object gives EINVAL, like one that never existed.
func Errno(err error) syscall.Errno {
	var errno syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.Is(err, roce.ErrClosed):
		return syscall.EINVAL
	case errors.Is(err, roce.ErrNoDevice):
		return syscall.ENODEV
	case errors.Is(err, handle.ErrFull):
		return syscall.ENOMEM
	case errors.As(err, &errno) && errno != 0:
		return errno
	}
	return syscall.EINVAL
}

// object is an object of a context.
type object interface {
	// close destroys the object. It fails with EBUSY while other objects use it.
	close() error
	context() *Context
}

// base has the fields that all objects of a context have.
type base struct {
	ctx    *Context
	cookie uint64 // the program's, returned in events
	gone   bool   // destroyed: no more events. Guarded by ctx.mu
}

func (b *base) context() *Context { return b.ctx }

// owned are the objects of a context by their handles. Closing a context closes the remaining objects, as the
// kernel does.
type owned struct {
	mu      sync.Mutex
	closed  bool
	objects map[abi.Handle]object
}

// add gives an object a handle.
func (o *owned) add(obj object) (abi.Handle, error) {
	h, err := handles.Add(obj)
	if err != nil {
		return 0, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		handles.Free(h)
		return 0, syscall.EINVAL
	}
	o.objects[h] = obj
	return h, nil
}

// adopt gives a new object a handle. If that fails, it destroys the object.
func (c *Context) adopt(obj object) (abi.Handle, error) {
	h, err := c.owned.add(obj)
	if err != nil {
		obj.close()
	}
	return h, err
}

// drop frees a handle.
func (o *owned) drop(h abi.Handle) {
	o.mu.Lock()
	delete(o.objects, h)
	o.mu.Unlock()
	handles.Free(h)
}

// closeAll closes all objects. It tries an object that is in use again after the others.
func (o *owned) closeAll() {
	o.mu.Lock()
	left := o.objects
	o.objects, o.closed = nil, true
	o.mu.Unlock()
	for n := len(left) + 1; len(left) < n; {
		n = len(left)
		for h, obj := range left {
			if Errno(obj.close()) == syscall.EBUSY {
				continue
			}
			handles.Free(h)
			delete(left, h)
		}
	}
	for h := range left {
		handles.Free(h)
	}
}

// destroy closes an object of a type and frees its handle.
func destroy[T object](h abi.Handle) error {
	o, err := find[T](h)
	if err != nil {
		return err
	}
	if err := o.close(); err != nil {
		return err
	}
	o.context().owned.drop(h)
	return nil
}
