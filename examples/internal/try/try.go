// Package try lets the example programs be read beside their originals in C, where each call is followed by
// "goto out" in case it fails. Here Do and Get end the function that has deferred Catch, which returns the error.
//
//	func (e *example) connect() (err error) {
//		defer try.Catch(&err)
//		id := try.Get(host.CreateID(nil, rdmacm.TCP, nil))
//		try.Do(id.Listen(1))
//		return nil
//	}
//
// Programs of more than a page do better without it.
package try

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// Main is the main function of a program: it prints the error of run.
func Main(name string, run func(ctx context.Context, args []string, out io.Writer) error) {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// failure is the error that Do and Get hand to Catch.
type failure struct{ error }

// Do goes on if err is nil.
func Do(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Get returns what a call has returned, if it has not failed.
func Get[T any](v T, err error) T {
	Do(err)
	return v
}

// Catch is deferred by the function that Do and Get end, in the same goroutine.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = errors.Join(*err, r.error)
	default:
		panic(r)
	}
}

// Opened is what a program has opened, and closes in reverse.
type Opened []func() error

// Add notes the function that closes something.
func (o *Opened) Add(closers ...func() error) { *o = append(*o, closers...) }

// Close closes all, and adds what fails to err. It is deferred before Catch, so that it comes after it.
func (o *Opened) Close(err *error) {
	for n := len(*o); n > 0; n-- {
		*err = errors.Join(*err, (*o)[n-1]())
	}
}
