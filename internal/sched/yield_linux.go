package sched

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const canYield = true

// Yield lets other runnable threads of this processor run first (sched_yield(2)). If there are none, it returns at
// once.
func Yield() { syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
