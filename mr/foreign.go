package mr

import (
	"runtime/debug"
	"unsafe"
)

// Foreign memory is outside of Go's heap: the program got it from the system or from a C library. It
// differs from Go memory in two ways. The program may unmap or protect it while it is registered: an
// access that the processor refuses then fails with [Unmapped] and does not end the process. And
// programs for adapters poll the last byte of a message to find out whether the whole message has
// arrived: the engine therefore stores the last word of every piece last, with one store.

// guard ends an access to foreign memory: it turns a refusal of the processor into a Fault. was
// is the result of debug.SetPanicOnFault before the access. The caller defers guard.
func guard(was bool, f *Fault) {
	debug.SetPanicOnFault(was)
	switch r := recover().(type) {
	case nil:
	case interface{ Addr() uintptr }: // as package runtime/debug documents
		*f = Unmapped
	default:
		panic(r)
	}
}

// getForeign is [MR.get] for foreign memory.
func getForeign(dst, b []byte) (f Fault) {
	defer guard(debug.SetPanicOnFault(true), &f)
	copy(dst, b)
	return OK
}

// putForeign is [MR.put] for foreign memory.
func putForeign(b, src []byte) (f Fault) {
	defer guard(debug.SetPanicOnFault(true), &f)
	n := len(src)
	if n == 0 {
		return OK
	}
	end := uintptr(unsafe.Pointer(unsafe.SliceData(b))) + uintptr(n)
	if last := int((end-1)&7) + 1; last < n { // last is the number of bytes in the last word
		copy(b, src[:n-last])
		b, src = b[n-last:], src[n-last:]
	}
	StoreWords(b[:len(src)], src)
	return OK
}

// touch executes an operation on memory of the region. On foreign memory the
// operation may fail.
func (m *MR) touch(do func()) (f Fault) {
	if m.foreign {
		defer guard(debug.SetPanicOnFault(true), &f)
	}
	do()
	return OK
}
