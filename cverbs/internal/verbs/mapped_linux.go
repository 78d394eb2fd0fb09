package verbs

import (
	"os"
	"sync"
	"syscall"
	"unsafe"

	"github.com/goroce/roce/cverbs/internal/abi"
)

// madvPopulate are the advice values that map pages as a read or a write would (Linux 5.14).
const (
	madvPopulateRead  = 22
	madvPopulateWrite = 23
)

var pageSize = uint64(os.Getpagesize())

// mapped checks memory as pinning would. EFAULT: a part is not mapped, or the first or last page is not
// readable, or not writable if write is set. It brings at most these two pages into memory.
func mapped(addr, length uint64, write bool) error {
	first, last := addr&^(pageSize-1), (addr+length-1)&^(pageSize-1)
	for _, page := range []uint64{first, last} {
		if !usable(page, write) {
			return syscall.EFAULT
		}
	}
	var resident [4096]byte // one byte for each page; unused
	for page := first; page <= last; page += pageSize * uint64(len(resident)) {
		n := min(last+pageSize-page, pageSize*uint64(len(resident)))
		if _, _, errno := syscall.Syscall(syscall.SYS_MINCORE, uintptr(page), uintptr(n), uintptr(unsafe.Pointer(&resident))); errno == syscall.ENOMEM {
			return syscall.EFAULT
		}
		if page+n < page {
			break // the last page of the address space
		}
	}
	return nil
}

// populates reports whether the kernel has these advice values.
var populates = sync.OnceValue(func() bool {
	_, _, errno := syscall.Syscall(syscall.SYS_MADVISE, uintptr(abi.Pointer(pageSize)), 0, madvPopulateRead)
	return errno == 0
})

// usable reports whether a page may be read, or written. It reports true if the kernel cannot tell.
func usable(page uint64, write bool) bool {
	if !populates() {
		return true
	}
	advice := uintptr(madvPopulateRead)
	if write {
		advice = madvPopulateWrite
	}
	for {
		_, _, errno := syscall.Syscall(syscall.SYS_MADVISE, uintptr(page), uintptr(pageSize), advice)
		switch errno {
		case 0:
			return true
		case syscall.EINTR, syscall.EAGAIN:
		default:
			return false
		}
	}
}
