package cm

import "github.com/goroce/roce/bth"

// Offer is what the peer proposed in its REQ or REP, seen from this side: the
// conn_param of an rdma_cm event. ResponderResources is what this side should be
// able to serve, because it is what the peer wants to initiate; InitiatorDepth is
// what it may initiate.
type Offer struct {
	ResponderResources uint8
	InitiatorDepth     uint8
	FlowControl        bool
	RetryCount         uint8
	RNRRetryCount      uint8
	SRQ                bool // the peer's QP uses one
	QPN                bth.QPN
	Transport          Transport
	MTU                bth.MTU // path MTU of the REQ; check it against the port's
	PKey               bth.PKey
}

// Offer returns what the peer proposed. It is valid after ConnectRequest or
// ConnectResponse.
func (c *Conn) Offer() Offer {
	return Offer{c.resources, c.depth, c.flowControl, c.retryCount, c.rnrRetry, c.srq, c.remoteQPN,
		c.transport, c.mtu, c.pkey}
}

// QPAttr is what the QP of a connection must be set to on its way to RTS: the
// attributes of rdma_init_qp_attr. Timeout, retry counts and the rd_atomic fields
// are meaningless for UC.
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
	MinRNRTimer     uint8 // always 0, which is 655 ms, as Linux has it

	// RTS.
	SQPSN       bth.PSN // the PSN the peer told this side to start with
	Timeout     uint8   // local ACK timeout
	RetryCount  uint8
	RNRRetry    uint8
	MaxRdAtomic uint8

	// Alternate is the alternate path to load and arm on the way to RTS, nil if
	// there is none. Its AckTimeout is the local ACK timeout on it.
	Alternate *Path
}

// QPAttr returns the attributes for this side's QP: on the active side from
// ConnectResponse on, on the passive side from ConnectRequest on, where before
// Accept it assumes that the offer is accepted unchanged. See [Conn.AcceptAttr].
func (c *Conn) QPAttr() (QPAttr, error) {
	switch c.state {
	case StateReqRcvd, StateMRAReqSent, StateRepRcvd, StateMRARepSent, StateRepSent, StateMRARepRcvd,
		StateEstablished:
		return c.qpAttr(c.resources, c.depth, true), nil
	}
	return QPAttr{}, stateError("QP attributes", c.state)
}

// AcceptAttr returns the attributes that the passive side's QP will have if p is
// accepted. The QP must be in RTS with them before Accept.
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
