// Package sched yields the processor to other programs.
package sched

import "runtime"

// OneProcessor reports whether this process may use only one processor. Then a peer on the same machine cannot run
// while this process busy-polls.
var OneProcessor = canYield && runtime.NumCPU() == 1
