// Command engine is libroce-engine.so: the devices behind libibverbs.so.1 and librdmacm.so.1.
//
// Built with -buildmode=c-shared it exports one symbol, roce_engine, which returns the table
// of calls that engine.h describes. This package has the functions of that table. They
// convert pointers and errors; package verbs (cverbs/internal/verbs) implements the calls.
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

// errnoOf returns the result of a call of the table: 0, or a negative errno.
func errnoOf(err error) C.int {
	if err == nil {
		return 0
	}
	return -C.int(verbs.Errno(err))
}

// count returns n, or a negative errno.
func count(n int, err error) C.int {
	if err != nil {
		return errnoOf(err)
	}
	return C.int(n)
}

// guard turns an access to unmapped memory of the program into a panic, for the rest of the call. A call uses
// guard before it touches such memory.
func guard() { debug.SetPanicOnFault(true) }

// Calls that touch memory of the program defer caught. It turns an access to unmapped memory into -EFAULT.
// Any other panic is a bug of the engine and ends the process.
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

// as converts a pointer to a structure of C to a pointer to the Go type with its layout.
func as[T any, P any](p *P) *T { return (*T)(unsafe.Pointer(p)) }

// list returns an array of C.
func list[T any, P any](p *P, n C.int) []T { return unsafe.Slice((*T)(unsafe.Pointer(p)), max(n, 0)) }
