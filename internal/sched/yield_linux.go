package sched

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const canYield = true

// Yield returns when the others that could run on this processor have had a turn
// (sched_yield(2)), at once if there are none.
func Yield() { syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
