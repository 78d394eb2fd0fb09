package bth

import "fmt"

// DCReason says why a target rejects a connect.
type DCReason uint8

// The reasons. The field is zero in packets other than REJECT.
const (
	DCKeyViolation DCReason = 1 // the access key is not the target's
	DCNoResources  DCReason = 2 // the target has no context left for this initiator
	DCBadParameter DCReason = 3 // a path MTU that does not exist or is more than the target's
)

var dcReasons = [...]string{0: "none", DCKeyViolation: "access key violation", DCNoResources: "no resources", DCBadParameter: "bad parameter"}

// String returns "access key violation", ….
func (r DCReason) String() string {
	if int(r) < len(dcReasons) {
		return dcReasons[r]
	}
	return fmt.Sprintf("DCReason(%d)", uint8(r))
}

// DCETHFields are the fields of a DCETH.
type DCETHFields struct {
	QPN     QPN    // of the sender: of the initiator, or of the target
	Context uint32 // the target's number of the connection; zero in a CONNECT and a REJECT
}

// PutDCETH writes a Dynamically Connected Extended Transport Header at b[0:] and
// returns its length, 8. Every request of the transport and the answers to CONNECT
// have one. The header is specific to this stack.
//
//	+---------------+-----------------------------------------------+
//	|   reserved    |               QPN of the sender               |
//	+---------------+-----------------------------------------------+
//	|                        Context Number                         |
//	+---------------------------------------------------------------+
func PutDCETH(b []byte, f DCETHFields) int {
	_ = b[DCETHLen-1]
	be.PutUint32(b, uint32(f.QPN)&PSNMask)
	be.PutUint32(b[4:], f.Context)
	return DCETHLen
}

// DCETH returns the fields of the DCETH, all zero if the opcode has none.
func (p *Packet) DCETH() DCETHFields {
	return DCETHFields{QPN(p.u32(hdrDCETH, 0) & PSNMask), p.u32(hdrDCETH, 4)}
}

// DCCETHFields are the fields of a DCCETH. [Fields.String] leaves the key out: it
// is a secret, and traces are passed on.
type DCCETHFields struct {
	Key        uint64 // the access key; zero in the packets of a target
	Connection uint32 // the initiator's number of the attempt
	Depth      uint8  // outstanding READs and atomics: requested in a CONNECT, granted in an ACCEPT
	MTU        uint8  // code of the path MTU, 1 (256) to 5 (4096)
	Reason     DCReason
}

// PutDCCETH writes a Dynamically Connected Connect Extended Transport Header at
// b[0:] and returns its length, 16.
//
//	+---------------------------------------------------------------+
//	|                      Access Key 63:32                         |
//	+---------------------------------------------------------------+
//	|                      Access Key 31:0                          |
//	+---------------------------------------------------------------+
//	|                      Connection Number                        |
//	+---------------+---------------+---------------+---------------+
//	|     Depth     |      MTU      |    Reason     |   reserved    |
//	+---------------+---------------+---------------+---------------+
func PutDCCETH(b []byte, f *DCCETHFields) int {
	_ = b[DCCETHLen-1]
	be.PutUint64(b, f.Key)
	be.PutUint32(b[8:], f.Connection)
	be.PutUint32(b[12:], uint32(f.Depth)<<24|uint32(f.MTU)<<16|uint32(f.Reason)<<8)
	return DCCETHLen
}

// DCCETH returns the fields of the DCCETH, all zero if the opcode has none.
func (p *Packet) DCCETH() DCCETHFields {
	rest := p.u32(hdrDCCETH, 12)
	return DCCETHFields{
		Key:        p.u64(hdrDCCETH, 0),
		Connection: p.u32(hdrDCCETH, 8),
		Depth:      uint8(rest >> 24),
		MTU:        uint8(rest >> 16),
		Reason:     DCReason(rest >> 8),
	}
}
