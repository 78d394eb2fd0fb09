package cm

import "fmt"

// Counters counts MADs; the arrays are indexed by attribute ID − 0x10, see
// [Counters.Each]. The first four groups are those of Linux under
// /sys/class/infiniband_cm.
type Counters struct {
	Sent       [11]uint64 // cm_tx_msgs, retransmissions included
	Retries    [11]uint64 // cm_tx_retries
	Received   [11]uint64 // cm_rx_msgs
	Duplicates [11]uint64 // cm_rx_duplicates

	Malformed      uint64 // not 256 bytes, or not of this class and version
	Unsupported    uint64 // attribute without a handler
	Unmatched      uint64 // of no known exchange
	Foreign        uint64 // unmatched MADs for a known exchange, but from another address
	RequestsFull   uint64 // REQ or SIDR_REQ dropped: backlog or a limit is reached
	Evicted        uint64 // half-open connections and inquiries that made room for others
	Expired        uint64 // requests that the owner did not answer in time
	RepliesLimited uint64 // replies to strangers dropped: too many in a second
	RepliesDropped uint64 // replies dropped: the owner does not poll NextMAD
}

// Each calls f for every counter with its name in Linux, like
// "cm_rx_msgs/req", or a name in this style.
func (c *Counters) Each(f func(name string, v uint64)) {
	for _, g := range []struct {
		name string
		v    *[11]uint64
	}{
		{"cm_tx_msgs", &c.Sent}, {"cm_tx_retries", &c.Retries},
		{"cm_rx_msgs", &c.Received}, {"cm_rx_duplicates", &c.Duplicates},
	} {
		for i, v := range g.v {
			f(fmt.Sprintf("%s/%s", g.name, counterNames[i]), v)
		}
	}
	f("cm_rx_malformed", c.Malformed)
	f("cm_rx_unsupported", c.Unsupported)
	f("cm_rx_unmatched", c.Unmatched)
	f("cm_rx_foreign", c.Foreign)
	f("cm_rx_requests_full", c.RequestsFull)
	f("cm_rx_requests_evicted", c.Evicted)
	f("cm_rx_requests_expired", c.Expired)
	f("cm_tx_replies_limited", c.RepliesLimited)
	f("cm_tx_replies_dropped", c.RepliesDropped)
}

var counterNames = [11]string{"req", "mra", "rej", "rep", "rtu", "dreq", "drep", "sidr_req", "sidr_rep", "lap", "apr"}
