package verbs

import (
	"os"
	"sync"
	"syscall"
	"unsafe"

	"github.com/goroce/roce/cverbs/internal/abi"
)

// madvPopulate are the advices that map pages as a read or a write would (Linux 5.14).
const (
	madvPopulateRead  = 22
	madvPopulateWrite = 23
)

var pageSize = uint64(os.Getpagesize())

// mapped checks that memory is there, as pinning it would: EFAULT if a part is not mapped, or if its first
// or last page may not be read, or written if the region is to be. It does not bring more
// than those two pages into memory.
func mapped(addr, length uint64, write bool) error {
	first, last := addr&^(pageSize-1), (addr+length-1)&^(pageSize-1)
	for _, page := range []uint64{first, last} {
		if !usable(page, write) {
			return syscall.EFAULT
		}
	}
	var resident [4096]byte // of each page; of no interest
	for page := first; page <= last; page += pageSize * uint64(len(resident)) {
		n := min(last+pageSize-page, pageSize*uint64(len(resident)))
		if _, _, errno := syscall.Syscall(syscall.SYS_MINCORE, uintptr(page), uintptr(n), uintptr(unsafe.Pointer(&resident))); errno == syscall.ENOMEM {
			return syscall.EFAULT
		}
		if page+n < page {
			break // the last page there is
		}
	}
	return nil
}

// populates says whether the kernel has the advices.
var populates = sync.OnceValue(func() bool {
	_, _, errno := syscall.Syscall(syscall.SYS_MADVISE, uintptr(abi.Pointer(pageSize)), 0, madvPopulateRead)
	return errno == 0
})

// usable reports whether a page may be read, or written. Without a kernel that says so it reports
// true.
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
