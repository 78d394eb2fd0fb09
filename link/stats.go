package link

import (
	"sync"
	"sync/atomic"
)

// Stats counts what a Port has done since it was opened. Bytes are those of
// whole frames in the Port's layout.
type Stats struct {
	RxPackets, RxBytes uint64
	TxPackets, TxBytes uint64

	RxDrops    uint64 // arrived but found the receive queue full
	RxErrors   uint64 // arrived truncated or otherwise unusable
	RxFloods   uint64 // times the driver began to drop early because of a flood: see [FloodFilter]
	TxDrops    uint64 // given up: no receiver, its queue full, link down
	TxErrors   uint64 // refused by the driver for another reason
	TxOversize uint64 // larger than the MTU
	TxRetries  uint64 // sends repeated because the driver had no room
	TxInPlace  uint64 // sent with their payload left where it lies: see [Lender]
	RxBatches  uint64 // receives that brought at least one packet
	TxBatches  uint64 // sends that took at least one packet
	LinkDowns  uint64 // times the link was found down
	LinkUp     bool   // as far as the driver has noticed
}

// Add adds what another port of the same card has counted. The link of both is up if one
// of them says so.
func (s *Stats) Add(o Stats) {
	s.RxPackets += o.RxPackets
	s.RxBytes += o.RxBytes
	s.TxPackets += o.TxPackets
	s.TxBytes += o.TxBytes
	s.RxDrops += o.RxDrops
	s.RxErrors += o.RxErrors
	s.RxFloods += o.RxFloods
	s.TxDrops += o.TxDrops
	s.TxErrors += o.TxErrors
	s.TxOversize += o.TxOversize
	s.TxInPlace += o.TxInPlace
	s.TxRetries += o.TxRetries
	s.RxBatches += o.RxBatches
	s.TxBatches += o.TxBatches
	s.LinkDowns += o.LinkDowns
	s.LinkUp = s.LinkUp || o.LinkUp
}

// Counters is [Stats] in the making: the owner of a Port adds to it, anyone may
// take a snapshot. The zero value counts from zero with the link up.
type Counters struct {
	RxPackets, RxBytes atomic.Uint64
	TxPackets, TxBytes atomic.Uint64

	RxDrops, RxErrors, RxFloods     atomic.Uint64
	TxDrops, TxErrors, TxOversize   atomic.Uint64
	TxInPlace                       atomic.Uint64
	TxRetries, RxBatches, TxBatches atomic.Uint64
	LinkDowns                       atomic.Uint64

	down atomic.Bool

	change sync.Mutex    // one change of the link at a time
	onLink func(up bool) // guarded by change
}

// OnLink is that of [Port].
func (c *Counters) OnLink(f func(up bool)) {
	c.change.Lock()
	defer c.change.Unlock()
	c.onLink = f
}

// SetDown notes whether the link is down. Going down counts in LinkDowns; a
// change either way is told to the function of OnLink. To note what is known
// already costs a load.
func (c *Counters) SetDown(down bool) {
	if c.down.Load() == down {
		return
	}
	c.change.Lock()
	defer c.change.Unlock()
	c.note(down)
}

// note is SetDown with the lock held.
func (c *Counters) note(down bool) {
	if c.down.Load() == down {
		return
	}
	c.down.Store(down)
	if down {
		c.LinkDowns.Add(1)
	}
	if c.onLink != nil {
		c.onLink(!down)
	}
}

// Look notes whether the link is down as ask finds it. Of two that look at once none
// can note what was true before the other looked.
func (c *Counters) Look(ask func() (down bool)) {
	c.change.Lock()
	defer c.change.Unlock()
	c.note(ask())
}

// Down reports what was noted last.
func (c *Counters) Down() bool { return c.down.Load() }

// Received adds one batch of packets that arrived.
func (c *Counters) Received(packets int, bytes uint64) {
	if packets > 0 {
		c.RxPackets.Add(uint64(packets))
		c.RxBytes.Add(bytes)
		c.RxBatches.Add(1)
	}
}

// Sent adds one batch of packets that left.
func (c *Counters) Sent(packets int, bytes uint64) {
	if packets > 0 {
		c.TxPackets.Add(uint64(packets))
		c.TxBytes.Add(bytes)
		c.TxBatches.Add(1)
	}
}

// Stats takes a snapshot. Counters that change meanwhile may be of slightly
// different instants.
func (c *Counters) Stats() Stats {
	return Stats{
		RxPackets: c.RxPackets.Load(), RxBytes: c.RxBytes.Load(),
		TxPackets: c.TxPackets.Load(), TxBytes: c.TxBytes.Load(),
		RxDrops: c.RxDrops.Load(), RxErrors: c.RxErrors.Load(), RxFloods: c.RxFloods.Load(),
		TxDrops: c.TxDrops.Load(), TxErrors: c.TxErrors.Load(), TxOversize: c.TxOversize.Load(),
		TxInPlace: c.TxInPlace.Load(),
		TxRetries: c.TxRetries.Load(), RxBatches: c.RxBatches.Load(), TxBatches: c.TxBatches.Load(),
		LinkDowns: c.LinkDowns.Load(), LinkUp: !c.down.Load(),
	}
}
