package link

import (
	"sync"
	"sync/atomic"
)

// Stats has the counters of a Port since it was opened. Bytes are those of
// whole frames in the Port's layout.
type Stats struct {
	RxPackets, RxBytes uint64
	TxPackets, TxBytes uint64

	RxDrops    uint64 // dropped because the receive queue was full
	RxErrors   uint64 // arrived truncated or otherwise unusable
	RxFloods   uint64 // times the driver began to drop early because of a flood: see [FloodFilter]
	TxDrops    uint64 // dropped: no receiver, its queue full, link down
	TxErrors   uint64 // refused by the driver for another reason
	TxOversize uint64 // larger than the MTU
	TxRetries  uint64 // sends repeated because the driver had no room
	TxInPlace  uint64 // sent with the payload in place: see [Lender]
	RxBatches  uint64 // receives that brought at least one packet
	TxBatches  uint64 // sends that took at least one packet
	LinkDowns  uint64 // times the link was found down
	LinkUp     bool   // by the last observation of the driver
}

// Add adds the counters of another port of the same card. The link counts as up if it is
// up for one of them.
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

// Counters collects [Stats]: the owner of a Port adds to it, any goroutine may
// take a snapshot. The zero value has zero counters and the link up.
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

// OnLink implements OnLink of [Port].
func (c *Counters) OnLink(f func(up bool)) {
	c.change.Lock()
	defer c.change.Unlock()
	c.onLink = f
}

// SetDown records whether the link is down. It counts in LinkDowns when the
// link goes down, and calls the function of OnLink for a change in either
// direction. If there is no change, it costs only a load.
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

// Look calls ask and records whether the link is down. Simultaneous calls run one after the other, so that none of
// them records a state that is older than the recorded one.
func (c *Counters) Look(ask func() (down bool)) {
	c.change.Lock()
	defer c.change.Unlock()
	c.note(ask())
}

// Down returns the last recorded state.
func (c *Counters) Down() bool { return c.down.Load() }

// Received adds one batch of received packets.
func (c *Counters) Received(packets int, bytes uint64) {
	if packets > 0 {
		c.RxPackets.Add(uint64(packets))
		c.RxBytes.Add(bytes)
		c.RxBatches.Add(1)
	}
}

// Sent adds one batch of sent packets.
func (c *Counters) Sent(packets int, bytes uint64) {
	if packets > 0 {
		c.TxPackets.Add(uint64(packets))
		c.TxBytes.Add(bytes)
		c.TxBatches.Add(1)
	}
}

// Stats returns a snapshot. Counters that change meanwhile may be from
// slightly different times.
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
