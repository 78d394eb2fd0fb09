package main

// #include "cgo.h"
import "C"

import (
	"runtime"
	"sync"
)

// minProcs is the lower bound of GOMAXPROCS. The runtime's default follows the affinity of the process: a rank
// pinned to one processor gets 1, and a thread of the program that polls in a loop then keeps the engine's
// goroutines from running.
const minProcs = 4

// engineProcs is how many of these the engine needs in addition to polling threads.
const engineProcs = 2

func init() { runtime.GOMAXPROCS(max(minProcs, runtime.NumCPU())) }

// pollers is how many threads of the program poll.
var pollers struct {
	sync.Mutex
	n int
}

// rocePollingThreads counts polling threads, and doubles GOMAXPROCS when that is too small for them and the
// engine. It never lowers it: each change stops the world.
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
