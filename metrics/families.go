package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/goroce/roce"
)

// family is a metric with its samples.
type family struct {
	name, help string
	labels     []string // besides "device"
	kind       prometheus.ValueType
	samples    func(c *roce.Counters, emit func(v uint64, labels ...string))
}

// single is a family of one sample.
func single(name, help string, kind prometheus.ValueType, value func(c *roce.Counters) uint64) family {
	return family{name, help, nil, kind, func(c *roce.Counters, emit func(uint64, ...string)) { emit(value(c)) }}
}

// counter is a family of one sample of a counter.
func counter(name, help string, value func(c *roce.Counters) uint64) family {
	return single(name, help, prometheus.CounterValue, value)
}

// families are all metrics except roce_device_info. Each counter of a device is in exactly one of them.
var families = []family{
	{"roce_protocol_events_total", "Events of all queue pairs. Label counter is the name of the counter in rxe's hw_counters, or a name in their style.",
		[]string{"counter"}, prometheus.CounterValue, protocolEvents},
	{"roce_receive_drops_total", "Packets that were dropped before they reached a queue pair, by the first check that they failed.",
		[]string{"reason"}, prometheus.CounterValue, drops},
	counter("roce_link_receive_packets_total", "Packets that the ports received.", func(c *roce.Counters) uint64 { return c.Link.RxPackets }),
	counter("roce_link_receive_bytes_total", "Bytes of the frames that the ports received.", func(c *roce.Counters) uint64 { return c.Link.RxBytes }),
	counter("roce_link_receive_batches_total", "Receive calls of the ports that returned at least one packet.", func(c *roce.Counters) uint64 { return c.Link.RxBatches }),
	counter("roce_link_transmit_packets_total", "Packets that the ports sent.", func(c *roce.Counters) uint64 { return c.Link.TxPackets }),
	counter("roce_link_transmit_bytes_total", "Bytes of the frames that the ports sent.", func(c *roce.Counters) uint64 { return c.Link.TxBytes }),
	counter("roce_link_transmit_batches_total", "Send calls of the ports that accepted at least one packet.", func(c *roce.Counters) uint64 { return c.Link.TxBatches }),
	counter("roce_link_transmit_in_place_packets_total", "Packets whose payload the ports sent without a copy.", func(c *roce.Counters) uint64 { return c.Link.TxInPlace }),
	counter("roce_link_transmit_retries_total", "Send calls that were repeated because the driver had no room.", func(c *roce.Counters) uint64 { return c.Link.TxRetries }),
	counter("roce_link_receive_floods_total", "Times that the ports began to drop early because of a flood.", func(c *roce.Counters) uint64 { return c.Link.RxFloods }),
	{"roce_link_drops_total", "Packets that the ports dropped.",
		[]string{"direction", "reason"}, prometheus.CounterValue, linkDrops},
	counter("roce_link_downs_total", "Times that the link was found down.", func(c *roce.Counters) uint64 { return c.Link.LinkDowns }),
	single("roce_link_up", "Whether the link is up: 1, or 0.", prometheus.GaugeValue, func(c *roce.Counters) uint64 {
		if c.Link.LinkUp {
			return 1
		}
		return 0
	}),
	{"roce_shared_packets_total", "Packets between processes that share the address of the device, by result.",
		[]string{"result"}, prometheus.CounterValue, shared},
	counter("roce_port_errors_total", "Calls of ports that failed, except while the link was down.", func(c *roce.Counters) uint64 { return c.PortErrors }),
	counter("roce_events_lost_total", "Asynchronous events that were lost because the queue was full.", func(c *roce.Counters) uint64 { return c.LostEvents }),
	{"roce_cm_messages_total", "Messages of the connection manager, by the name that Linux gives the counter and by the message.",
		[]string{"counter", "message"}, prometheus.CounterValue, messages},
	{"roce_cm_events_total", "Messages of the connection manager that were refused or could not be used.",
		[]string{"counter"}, prometheus.CounterValue, cmEvents},
}

func protocolEvents(c *roce.Counters, emit func(uint64, ...string)) {
	for _, f := range c.Fields() {
		emit(*f.V, f.Name)
	}
}

func drops(c *roce.Counters, emit func(uint64, ...string)) {
	d := &c.Drops
	emit(d.Malformed, "malformed")
	emit(d.NotForUs, "not_for_us")
	emit(d.NoQP, "no_qp")
	emit(d.PKey, "pkey")
	emit(d.NoMAD, "no_mad")
	emit(d.MADFlood, "mad_flood")
	emit(d.Overrun, "overrun")
}

func linkDrops(c *roce.Counters, emit func(uint64, ...string)) {
	l := &c.Link
	emit(l.RxDrops, "receive", "queue_full")
	emit(l.RxErrors, "receive", "error")
	emit(l.TxDrops, "transmit", "given_up")
	emit(l.TxErrors, "transmit", "error")
	emit(l.TxOversize, "transmit", "oversize")
}

func shared(c *roce.Counters, emit func(uint64, ...string)) {
	s := &c.Shared
	emit(s.Sent, "sent")
	emit(s.Received, "received")
	emit(s.Strays, "stray")
	emit(s.Dropped, "dropped")
}

// messages are the counters of the connection manager that Linux has, like "cm_tx_msgs/req".
func messages(c *roce.Counters, emit func(uint64, ...string)) {
	c.CM.Each(func(name string, v uint64) {
		if counter, message, ok := strings.Cut(name, "/"); ok {
			emit(v, counter, message)
		}
	})
}

// cmEvents are the other counters of the connection manager.
func cmEvents(c *roce.Counters, emit func(uint64, ...string)) {
	c.CM.Each(func(name string, v uint64) {
		if !strings.Contains(name, "/") {
			emit(v, name)
		}
	})
}
