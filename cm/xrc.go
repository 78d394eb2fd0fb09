package cm

// A connection of XRC is between an initiator, which asks for it, and a target. The initiator
// only sends and the target only receives, so the messages have fewer fields than those of RC
// (IBTA annex A14; Linux: cm_format_req, cm_format_rep). The applications agree on the SRQs
// themselves, for instance by private data.

// initiator turns the REQ into that of an XRC initiator. An initiator serves no READs. The
// target does not need to know the retries of the initiator.
func (m *REQ) initiator() {
	m.ExtTransport = ExtXRC
	m.ResponderResources, m.RetryCount, m.RNRRetryCount, m.SRQ = 0, 0, 0, false
}

// target turns the REP into that of an XRC target: the QPN is in the field of the EE context,
// and the target initiates nothing.
func (m *REP) target() {
	m.LocalEECN, m.QPN = uint32(m.QPN), 0
	m.InitiatorDepth, m.FlowControl, m.SRQ = 0, false, true
}
