package scenario_test

import (
	"sync/atomic"
	"time"

	"github.com/goroce/roce/link"
)

// smallPort reports an MTU that is smaller than the real one.
type smallPort struct{ link.Port }

func (p smallPort) Info() link.Info {
	i := p.Port.Info()
	i.MTU = 1500
	return i
}

// countingPort counts calls of Wait and Wake.
type countingPort struct {
	link.Port
	waits, wakes *atomic.Int64
}

func newCountingPort(p link.Port) countingPort {
	return countingPort{p, new(atomic.Int64), new(atomic.Int64)}
}

func (p countingPort) Wait(d time.Duration) error {
	p.waits.Add(1)
	return p.Port.Wait(d)
}

func (p countingPort) Wake() {
	p.wakes.Add(1)
	p.Port.Wake()
}

// splitPort counts calls of SplitMADs.
type splitPort struct {
	link.Port
	splits *atomic.Int64
}

func newSplitPort(p link.Port) splitPort { return splitPort{p, new(atomic.Int64)} }

func (p splitPort) SplitMADs() { p.splits.Add(1) }
