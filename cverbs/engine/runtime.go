package main

// #include "cgo.h"
import "C"

import (
	"runtime"
	"sync"
)

// minProcs is how many threads at least may run Go code at once. The default of the runtime follows the
// affinity of the process: a rank that is pinned to one processor gets 1, and a thread of
// the program that polls in a loop then keeps the engine's own goroutines from running.
const minProcs = 4

// engineProcs is how many of these the engine itself needs beside the threads that poll.
const engineProcs = 2

func init() { runtime.GOMAXPROCS(max(minProcs, runtime.NumCPU())) }

// pollers is how many threads of the program poll.
var pollers struct {
	sync.Mutex
	n int
}

// rocePollingThreads counts threads that poll. When there are more than the scheduler lets run at once it
// lets twice as many. It never goes back: changing it stops the world.
//
//export rocePollingThreads
func rocePollingThreads(change C.int) {
	pollers.Lock()
	defer pollers.Unlock()
	pollers.n += int(change)
	if procs := runtime.GOMAXPROCS(0); pollers.n+engineProcs > procs {
		runtime.GOMAXPROCS(2 * procs)
	}
}
