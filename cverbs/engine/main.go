// Command engine is libroce-engine.so: the devices behind libibverbs.so.1 and librdmacm.so.1.
//
// Built with -buildmode=c-shared it exports one symbol, roce_engine, which returns the table
// of calls that engine.h describes. This package has the functions of that table. They
// convert pointers and errors; what the calls do is in package verbs (cverbs/internal/verbs).
package main

/*
#cgo CFLAGS: -Wall -Wextra -Werror
#cgo LDFLAGS: -Wl,--wrap=mmap -Wl,--wrap=munmap -Wl,--wrap=pthread_create -Wl,--wrap=pthread_detach
#include "cgo.h"
*/
import "C"

import (
	"runtime"
	"runtime/debug"
	"syscall"
	"unsafe"

	"github.com/goroce/roce/cverbs/internal/verbs"
)

func main() {} // -buildmode=c-shared wants one

// errnoOf returns what a call of the table returns: 0, or a negative errno.
func errnoOf(err error) C.int {
	if err == nil {
		return 0
	}
	return -C.int(verbs.Errno(err))
}

// count returns how many, or a negative errno.
func count(n int, err error) C.int {
	if err != nil {
		return errnoOf(err)
	}
	return C.int(n)
}

// guard makes an access to memory of the program that is not there a panic, and is called before
// such an access. That lasts for the thread.
func guard() { debug.SetPanicOnFault(true) }

// caught is deferred by calls that touch memory of the program. It turns an access to memory that is not
// there into -EFAULT. Any other panic is a bug of the engine and ends the process.
func caught(rc *C.int) {
	switch r := recover().(type) {
	case nil:
	case interface {
		runtime.Error
		Addr() uintptr
	}:
		*rc = -C.int(syscall.EFAULT)
	default:
		panic(r)
	}
}

// as returns a pointer to a structure of C as one to the Go type that has its layout.
func as[T any, P any](p *P) *T { return (*T)(unsafe.Pointer(p)) }

// list returns an array of C.
func list[T any, P any](p *P, n C.int) []T { return unsafe.Slice((*T)(unsafe.Pointer(p)), max(n, 0)) }
