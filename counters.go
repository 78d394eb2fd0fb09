package roce

import (
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/qp"
)

// Counters is a snapshot of everything a device counts.
type Counters struct {
	qp.Counters              // of all queue pairs, with rxe's hw_counters names
	Drops       DropCounters // packets that reached none
	Link        link.Stats   // of all ports together
	PortErrors  uint64       // calls of ports that failed, other than because the link is down
	LostEvents  uint64       // asynchronous events nobody took
	CM          cm.Counters
}

// Counters returns the device's counters (rdma statistic show).
func (d *Device) Counters() Counters {
	var c Counters
	for _, s := range d.shards {
		s.mu.Lock()
		c.Counters.Add(&s.counters)
		c.Drops.add(&s.drops)
		c.PortErrors += s.health.errors
		if s == d.shards[0] {
			c.CM = d.gsi.manager.Counters()
		}
		s.mu.Unlock()
		addStats(&c.Link, s.port.Stats())
	}
	c.LostEvents = d.events.lost.Load()
	return c
}

func (c *DropCounters) add(o *DropCounters) {
	c.Malformed += o.Malformed
	c.NotForUs += o.NotForUs
	c.NoQP += o.NoQP
	c.PKey += o.PKey
	c.NoMAD += o.NoMAD
	c.MADFlood += o.MADFlood
	c.Overrun += o.Overrun
}

func addStats(a *link.Stats, b link.Stats) {
	a.RxPackets += b.RxPackets
	a.RxBytes += b.RxBytes
	a.TxPackets += b.TxPackets
	a.TxBytes += b.TxBytes
	a.RxDrops += b.RxDrops
	a.RxErrors += b.RxErrors
	a.TxDrops += b.TxDrops
	a.TxErrors += b.TxErrors
	a.TxOversize += b.TxOversize
	a.TxInPlace += b.TxInPlace
	a.TxRetries += b.TxRetries
	a.RxBatches += b.RxBatches
	a.TxBatches += b.TxBatches
	a.LinkDowns += b.LinkDowns
	a.LinkUp = a.LinkUp || b.LinkUp
}
