// Package try keeps the example programs parallel to their originals in C, which check each call and "goto out" if
// it fails. Here Do and Get end the function that has deferred Catch, and Catch returns the error.
//
//	func (e *example) connect() (err error) {
//		defer try.Catch(&err)
//		id := try.Get(host.CreateID(nil, rdmacm.TCP, nil))
//		try.Do(id.Listen(1))
//		return nil
//	}
//
// Programs of more than a page are better without it.
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

// Do returns if err is nil. Otherwise it ends the function that has deferred Catch.
func Do(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Get returns v if err is nil. Otherwise it ends the function that has deferred Catch.
func Get[T any](v T, err error) T {
	Do(err)
	return v
}

// Catch recovers from Do and Get, and sets *err. The function that they end must defer it.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = errors.Join(*err, r.error)
	default:
		panic(r)
	}
}

// Opened lists what a program has opened, to close it in reverse order.
type Opened []func() error

// Add notes the function that closes something.
func (o *Opened) Add(closers ...func() error) { *o = append(*o, closers...) }

// Close closes all, and joins errors to err. Defer it before Catch, so that it runs after Catch.
func (o *Opened) Close(err *error) {
	for n := len(*o); n > 0; n-- {
		*err = errors.Join(*err, (*o)[n-1]())
	}
}
