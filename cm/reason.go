package cm

import "fmt"

// RejectReason is the reason of a REJ. It is not an error by itself: see
// [RejectError]. IBTA 12.6.7.2.
type RejectReason uint16

// The reject reasons. rdma_reject sends RejectConsumer.
const (
	RejectNoQP                  RejectReason = 1
	RejectNoEEC                 RejectReason = 2
	RejectNoResources           RejectReason = 3
	RejectTimeout               RejectReason = 4
	RejectUnsupported           RejectReason = 5
	RejectInvalidCommID         RejectReason = 6
	RejectInvalidCommInstance   RejectReason = 7
	RejectInvalidServiceID      RejectReason = 8
	RejectInvalidTransport      RejectReason = 9
	RejectStaleConn             RejectReason = 10
	RejectNoRDC                 RejectReason = 11
	RejectInvalidGID            RejectReason = 12
	RejectInvalidLID            RejectReason = 13
	RejectInvalidSL             RejectReason = 14
	RejectInvalidTrafficClass   RejectReason = 15
	RejectInvalidHopLimit       RejectReason = 16
	RejectInvalidRate           RejectReason = 17
	RejectInvalidAltGID         RejectReason = 18
	RejectInvalidAltLID         RejectReason = 19
	RejectInvalidAltSL          RejectReason = 20
	RejectInvalidAltTC          RejectReason = 21
	RejectInvalidAltHopLimit    RejectReason = 22
	RejectInvalidAltRate        RejectReason = 23
	RejectPortCMRedirect        RejectReason = 24
	RejectPortRedirect          RejectReason = 25
	RejectInvalidMTU            RejectReason = 26
	RejectInsufficientResources RejectReason = 27
	RejectConsumer              RejectReason = 28
	RejectInvalidRNRRetry       RejectReason = 29
	RejectDuplicateCommID       RejectReason = 30
	RejectInvalidClassVersion   RejectReason = 31
	RejectInvalidFlowLabel      RejectReason = 32
	RejectInvalidAltFlowLabel   RejectReason = 33
	RejectVendorOption          RejectReason = 35
)

var rejectNames = [...]string{
	RejectNoQP: "no QP available", RejectNoEEC: "no EE context available",
	RejectNoResources: "no resources available", RejectTimeout: "timeout", RejectUnsupported: "unsupported request",
	RejectInvalidCommID: "invalid communication ID", RejectInvalidCommInstance: "invalid communication instance",
	RejectInvalidServiceID: "invalid service ID", RejectInvalidTransport: "invalid transport service type",
	RejectStaleConn: "stale connection", RejectNoRDC: "RDC does not exist",
	RejectInvalidGID: "primary remote GID rejected", RejectInvalidLID: "primary remote LID rejected",
	RejectInvalidSL: "primary SL rejected", RejectInvalidTrafficClass: "primary traffic class rejected",
	RejectInvalidHopLimit: "primary hop limit rejected", RejectInvalidRate: "primary packet rate rejected",
	RejectInvalidAltGID: "alternate remote GID rejected", RejectInvalidAltLID: "alternate remote LID rejected",
	RejectInvalidAltSL: "alternate SL rejected", RejectInvalidAltTC: "alternate traffic class rejected",
	RejectInvalidAltHopLimit: "alternate hop limit rejected", RejectInvalidAltRate: "alternate packet rate rejected",
	RejectPortCMRedirect: "port and CM redirection", RejectPortRedirect: "port redirection",
	RejectInvalidMTU: "invalid path MTU", RejectInsufficientResources: "insufficient responder resources",
	RejectConsumer: "consumer reject", RejectInvalidRNRRetry: "RNR retry count rejected",
	RejectDuplicateCommID:     "duplicate local communication ID",
	RejectInvalidClassVersion: "unsupported class version", RejectInvalidFlowLabel: "primary flow label rejected",
	RejectInvalidAltFlowLabel: "alternate flow label rejected", RejectVendorOption: "vendor option not supported",
}

// String names the reason.
func (r RejectReason) String() string { return lookup(rejectNames[:], int(r), "reject reason") }

// Subject is the message that a REJ answers or an MRA delays. IBTA 12.6.6,
// 12.6.7.
type Subject uint8

// The subjects of MRA and REJ.
const (
	OfREQ   Subject = 0
	OfREP   Subject = 1
	OfOther Subject = 2 // REJ: none in particular; MRA: LAP
)

var subjectNames = [...]string{OfREQ: "REQ", OfREP: "REP", OfOther: "other"}

// String names the message.
func (s Subject) String() string { return lookup(subjectNames[:], int(s), "message") }

// SIDRStatus is the answer of a SIDR_REP. IBTA 12.11.2.1.
type SIDRStatus uint8

// The SIDR statuses. The QPN and Q_Key have a meaning only with SIDRValid.
const (
	SIDRValid       SIDRStatus = 0
	SIDRUnsupported SIDRStatus = 1 // no such service
	SIDRReject      SIDRStatus = 2 // the application refused: rdma_reject
	SIDRNoQP        SIDRStatus = 3
	SIDRRedirect    SIDRStatus = 4
	SIDRVersion     SIDRStatus = 5
)

var sidrNames = [...]string{
	SIDRValid: "valid", SIDRUnsupported: "service ID not supported", SIDRReject: "rejected by service provider",
	SIDRNoQP: "no QP available", SIDRRedirect: "redirect", SIDRVersion: "unsupported version",
}

// String names the status.
func (s SIDRStatus) String() string { return lookup(sidrNames[:], int(s), "SIDR status") }

// APStatus is the answer of an APR to a proposed alternate path. IBTA 12.8.2.
type APStatus uint8

// The AP statuses. The path may be used only after APLoaded.
const (
	APLoaded           APStatus = 0
	APInvalidCommID    APStatus = 1 // the peer does not know the connection
	APUnsupported      APStatus = 2 // no alternate paths supported
	APReject           APStatus = 3 // the application refused
	APRedirect         APStatus = 4
	APIsCurrent        APStatus = 5 // it is the path in use
	APInvalidQPN       APStatus = 6
	APInvalidLID       APStatus = 7
	APInvalidGID       APStatus = 8 // not an address of the peer, or not reachable for it
	APInvalidFlowLabel APStatus = 9
	APInvalidTC        APStatus = 10
	APInvalidHopLimit  APStatus = 11
	APInvalidRate      APStatus = 12
	APInvalidSL        APStatus = 13
)

var apNames = [...]string{
	APLoaded: "loaded", APInvalidCommID: "invalid communication ID", APUnsupported: "alternate paths not supported",
	APReject: "rejected", APRedirect: "redirect", APIsCurrent: "is the current path", APInvalidQPN: "invalid QPN",
	APInvalidLID: "alternate LID rejected", APInvalidGID: "alternate GID rejected",
	APInvalidFlowLabel: "alternate flow label rejected", APInvalidTC: "alternate traffic class rejected",
	APInvalidHopLimit: "alternate hop limit rejected", APInvalidRate: "alternate packet rate rejected",
	APInvalidSL: "alternate SL rejected",
}

// String names the status.
func (s APStatus) String() string { return lookup(apNames[:], int(s), "AP status") }

// Failover is the answer of a REP to the alternate path of the REQ. IBTA
// 12.6.8.
type Failover uint8

// The answers to an alternate path. The first is also for a REQ without one.
const (
	FailoverAccepted    Failover = 0
	FailoverUnsupported Failover = 1
	FailoverRejected    Failover = 2
)

var failoverNames = [...]string{FailoverAccepted: "accepted", FailoverUnsupported: "not supported", FailoverRejected: "rejected"}

// String names the answer.
func (f Failover) String() string { return lookup(failoverNames[:], int(f), "failover") }

// Transport is the transport service type in a REQ. IBTA 12.6.5.
type Transport uint8

// The transports of a REQ.
const (
	RC       Transport = 0
	UC       Transport = 1
	RD       Transport = 2
	Extended Transport = 3 // see REQ.ExtTransport
)

// ExtXRC is the only extended transport type. IBTA annex A14.
const ExtXRC uint8 = 1

var transportNames = [...]string{RC: "RC", UC: "UC", RD: "RD", Extended: "extended"}

// String names the transport.
func (t Transport) String() string { return lookup(transportNames[:], int(t), "transport") }

// lookup returns names[i], or "what i" for a gap in the table.
func lookup(names []string, i int, what string) string {
	if i < len(names) && names[i] != "" {
		return names[i]
	}
	return fmt.Sprintf("%s %d", what, i)
}
