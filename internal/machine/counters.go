package machine

import (
	"fmt"
	"io"

	"github.com/goroce/roce"
)

// printCounters prints the counters that are not zero, one a line.
func printCounters(w io.Writer, c roce.Counters) {
	line := func(name string, v uint64) {
		if v != 0 {
			fmt.Fprintf(w, "%-32s %d\n", name, v)
		}
	}
	for _, f := range c.Fields() {
		line(f.Name, *f.V)
	}
	for _, f := range []struct {
		name string
		v    uint64
	}{
		{"drop_malformed", c.Drops.Malformed}, {"drop_not_for_us", c.Drops.NotForUs}, {"drop_no_qp", c.Drops.NoQP},
		{"drop_pkey", c.Drops.PKey}, {"drop_no_mad", c.Drops.NoMAD}, {"drop_mad_flood", c.Drops.MADFlood},
		{"drop_overrun", c.Drops.Overrun}, {"port_errors", c.PortErrors}, {"lost_events", c.LostEvents},
		{"link_rx_packets", c.Link.RxPackets}, {"link_rx_drops", c.Link.RxDrops}, {"link_rx_errors", c.Link.RxErrors}, {"link_rx_floods", c.Link.RxFloods},
		{"link_tx_packets", c.Link.TxPackets}, {"link_tx_in_place", c.Link.TxInPlace}, {"link_tx_drops", c.Link.TxDrops}, {"link_tx_errors", c.Link.TxErrors},
		{"link_tx_oversize", c.Link.TxOversize}, {"link_downs", c.Link.LinkDowns},
		{"share_tx_packets", c.Shared.Sent}, {"share_rx_packets", c.Shared.Received}, {"share_rx_strays", c.Shared.Strays}, {"share_tx_drops", c.Shared.Dropped},
	} {
		line(f.name, f.v)
	}
	c.CM.Each(line)
}
