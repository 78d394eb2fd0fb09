// Package sched lets other programs have the processor.
package sched

import "runtime"

// OneProcessor is whether this process may use one only. Then whoever it waits for
// cannot work meanwhile, if that is on this machine, too.
var OneProcessor = canYield && runtime.NumCPU() == 1
