package mr

import (
	"runtime/debug"
	"unsafe"
)

// Foreign memory is not of Go's heap: the program got it from the system or from a C
// library. Two things are different about it. It may be unmapped or protected while it is
// registered: an access that the processor refuses is then [Unmapped] instead of the end
// of the process. And programs for adapters look at the last byte of a message to see that all of it is
// there: the engine stores the last word of every piece behind the rest, at once.

// guard ends an access to foreign memory: what the processor has refused becomes a Fault. was is
// what debug.SetPanicOnFault returned before the access. The caller defers it.
func guard(was bool, f *Fault) {
	debug.SetPanicOnFault(was)
	switch r := recover().(type) {
	case nil:
	case interface{ Addr() uintptr }: // as package runtime/debug has it
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
	if last := int((end-1)&7) + 1; last < n { // of the bytes are in the last word
		copy(b, src[:n-last])
		b, src = b[n-last:], src[n-last:]
	}
	StoreWords(b[:len(src)], src)
	return OK
}

// touch does an operation on memory of the region, which for foreign memory may fail.
func (m *MR) touch(do func()) (f Fault) {
	if m.foreign {
		defer guard(debug.SetPanicOnFault(true), &f)
	}
	do()
	return OK
}
