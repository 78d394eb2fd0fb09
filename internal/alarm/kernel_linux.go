package alarm

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// kernelAlarm is a timerfd on which a goroutine sleeps in the runtime's poller.
type kernelAlarm struct {
	file *os.File
	conn syscall.RawConn
	rung atomic.Bool

	postpone func(fd uintptr)
	ring     func(fd uintptr)
	expired  [8]byte
}

// newKernel returns nil if the process has no descriptors left, or the kernel no timers.
func newKernel(d time.Duration) Alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil
	}
	a := &kernelAlarm{file: os.NewFile(uintptr(fd), "timerfd"), postpone: setter(d), ring: setter(1)}
	// A descriptor that is not in the runtime's poller has no deadlines, and a sleep would return at once.
	if a.conn, err = a.file.SyscallConn(); err != nil || a.file.SetReadDeadline(time.Time{}) != nil {
		a.file.Close()
		return nil
	}
	return a
}

// setter returns a function that makes a timer expire after d.
func setter(d time.Duration) func(fd uintptr) {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	return func(fd uintptr) { unix.TimerfdSettime(int(fd), 0, &at, nil) }
}

func (a *kernelAlarm) Sleep() (rung bool) {
	a.Postpone()
	a.file.Read(a.expired[:])
	return a.rung.Swap(false)
}

func (a *kernelAlarm) Postpone() {
	a.conn.Control(a.postpone)
	if a.rung.Load() { // a goroutine has called Ring, perhaps before the timer was set
		a.conn.Control(a.ring)
	}
}

func (a *kernelAlarm) Ring() {
	a.rung.Store(true)
	a.conn.Control(a.ring)
}

func (a *kernelAlarm) Close() { a.file.Close() }
