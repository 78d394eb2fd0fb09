package sched

import "runtime"

// OneThread reports whether only one goroutine of this process runs at a time (GOMAXPROCS is 1). While a goroutine polls, the
// others then run only if it lets them, or when the runtime preempts it after 10 ms.
func OneThread() bool { return runtime.GOMAXPROCS(0) == 1 }

// LetRun lets other goroutines run first: those that can run, and those that wait for descriptors which are ready by now.
//
// Gosched does only the first. The scheduler looks at descriptors if no goroutine can run, and a goroutine that has called
// Gosched can; otherwise the runtime's monitor looks at them every 10 ms. So LetRun waits for an event of a descriptor of its own, and
// goroutines that call Gosched wait with it. This takes as long as two system calls.
func LetRun() {
	if !waitForPoller() {
		runtime.Gosched()
	}
}

// Gosched is runtime.Gosched, for goroutines that poll. While another goroutine is in LetRun, it is LetRun.
func Gosched() {
	if !joinWait() {
		runtime.Gosched()
	}
}
