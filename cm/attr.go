package cm

import "github.com/goroce/roce/bth"

// Offer is the peer's proposal in its REQ or REP, seen from this side: the
// conn_param of an rdma_cm event. ResponderResources is the number of READs and
// atomics that this side should serve, because the peer wants to initiate so
// many; InitiatorDepth is the number that this side may initiate.
type Offer struct {
	ResponderResources uint8
	InitiatorDepth     uint8
	FlowControl        bool
	RetryCount         uint8
	RNRRetryCount      uint8
	SRQ                bool // the peer's QP uses an SRQ
	QPN                bth.QPN
	Transport          Transport
	MTU                bth.MTU // path MTU of the REQ; check it against the port's
	PKey               bth.PKey
}

// Offer returns the peer's proposal. It is valid after ConnectRequest or
// ConnectResponse.
func (c *Conn) Offer() Offer {
	return Offer{c.resources, c.depth, c.flowControl, c.retryCount, c.rnrRetry, c.srq, c.remoteQPN,
		c.transport, c.mtu, c.pkey}
}

// QPAttr has the attributes of a connection's QP for the changes to INIT, RTR and
// RTS: those of rdma_init_qp_attr. Timeout, retry counts and the rd_atomic fields
// have no meaning for UC.
type QPAttr struct {
	// INIT. The QP's access is remote write, and if RemoteRead also remote read and
	// atomic: IBV_ACCESS_REMOTE_*.
	PKey       bth.PKey
	RemoteRead bool

	// RTR.
	Local, Remote   bth.GID
	FlowLabel       uint32
	TrafficClass    uint8
	HopLimit        uint8
	SL              uint8
	PathMTU         bth.MTU
	DestQPN         bth.QPN
	RemoteID        CommID  // the communication ID of the peer
	RQPSN           bth.PSN // the PSN this side told the peer to start with
	MaxDestRdAtomic uint8
	MinRNRTimer     uint8 // always 0, which means 655 ms, as in Linux

	// RTS.
	SQPSN       bth.PSN // the PSN the peer told this side to start with
	Timeout     uint8   // local ACK timeout
	RetryCount  uint8
	RNRRetry    uint8
	MaxRdAtomic uint8

	// Alternate is the alternate path to load and arm in the change to RTS, or
	// nil. Its AckTimeout is the local ACK timeout for that path.
	Alternate *Path
}

// QPAttr returns the attributes for this side's QP: on the active side from
// ConnectResponse on, on the passive side from ConnectRequest on. On the passive
// side, before Accept, it assumes that the owner accepts the offer unchanged.
// See [Conn.AcceptAttr].
func (c *Conn) QPAttr() (QPAttr, error) {
	switch c.state {
	case StateReqRcvd, StateMRAReqSent, StateRepRcvd, StateMRARepSent, StateRepSent, StateMRARepRcvd,
		StateEstablished:
		return c.qpAttr(c.resources, c.depth, true), nil
	}
	return QPAttr{}, stateError("QP attributes", c.state)
}

// AcceptAttr returns the attributes of the passive side's QP for Accept with p.
// The QP must be in RTS with them before Accept.
func (c *Conn) AcceptAttr(p AcceptParam) (QPAttr, error) {
	if !c.state.pendingRequest() {
		return QPAttr{}, stateError("accept attributes", c.state)
	}
	return c.qpAttr(p.ResponderResources, min(p.InitiatorDepth, c.depth), p.Failover == FailoverAccepted), nil
}

func (c *Conn) qpAttr(resources, depth uint8, failover bool) QPAttr {
	a := QPAttr{
		PKey:            c.pkey,
		RemoteRead:      resources > 0,
		Local:           c.path.LocalGID,
		Remote:          c.path.RemoteGID,
		FlowLabel:       c.path.FlowLabel,
		TrafficClass:    c.path.TrafficClass,
		HopLimit:        c.path.HopLimit,
		SL:              c.path.SL,
		PathMTU:         c.mtu,
		DestQPN:         c.remoteQPN,
		RemoteID:        c.remoteID,
		RQPSN:           c.rqPSN,
		MaxDestRdAtomic: resources,
		SQPSN:           c.sqPSN,
		Timeout:         c.ackTimeout,
		RetryCount:      c.retryCount,
		RNRRetry:        c.rnrRetry,
		MaxRdAtomic:     depth,
	}
	if alt, ok := c.Alternate(); ok && failover {
		a.Alternate = &alt
	}
	return a
}
