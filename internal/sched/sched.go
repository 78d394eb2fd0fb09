// Package sched lets other programs have the processor.
package sched

import "runtime"

// OneProcessor is whether this process may use one processor only. Then a peer on the same
// machine cannot run while this process busy-polls.
var OneProcessor = canYield && runtime.NumCPU() == 1
