package frame

import "github.com/goroce/roce/bth"

// The UDP source port only carries entropy, by which switches spread flows
// over links. These are the formulas of Linux. Both ends of a connection
// compute the same port, but a receiver must accept any port, 0 included.

// maxFlowLabel is the largest 20-bit flow label.
const maxFlowLabel = 1<<20 - 1

// GSISourcePort is the port Linux sends all management datagrams from: that of
// QP 1 by [HashPort].
const GSISourcePort = 0xD872

// SourcePort returns the UDP source port for a 20-bit flow label, 0xC000 to
// 0xFFFF (Linux rdma_flow_label_to_udp_sport).
func SourcePort(flowLabel uint32) uint16 {
	fl := flowLabel & maxFlowLabel
	return uint16(0xC000 | (fl&0x3FFF ^ fl>>14))
}

// FlowLabelFromQPNs returns the flow label of a connection that has none of
// its own. The order of the queue pairs does not matter (Linux
// rdma_calc_flow_label).
func FlowLabelFromQPNs(a, b bth.QPN) uint32 {
	v := uint64(a) * uint64(b)
	v ^= v >> 20
	v ^= v >> 40
	return uint32(v) & maxFlowLabel
}

// FlowLabelFromPorts returns the flow label rdma_cm chooses from the source and
// destination port of the side that connects. Both sides use it: it travels in
// the REQ.
func FlowLabelFromPorts(src, dst uint16) uint32 {
	return (uint32(src)*31 + uint32(dst)) & maxFlowLabel
}

// HashPort returns the UDP source port a queue pair has from its creation on.
// UD and GSI queue pairs keep it (rxe; kernel hash_32 of 14 bits).
func HashPort(qpn bth.QPN) uint16 {
	return 0xC000 + uint16(uint32(qpn)*0x61C88647>>18)
}
