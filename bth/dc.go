package bth

import "fmt"

// DCReason says why a target rejects a connect.
type DCReason uint8

// The reasons. In a packet that is no REJECT the field is zero.
const (
	DCKeyViolation DCReason = 1 // the access key is not the target's
	DCNoResources  DCReason = 2 // the target has no context left for this initiator
	DCBadParameter DCReason = 3 // a path MTU that does not exist or is not the target's
)

var dcReasons = [...]string{0: "none", DCKeyViolation: "access key violation", DCNoResources: "no resources", DCBadParameter: "bad parameter"}

// String returns "access key violation", ….
func (r DCReason) String() string {
	if int(r) < len(dcReasons) {
		return dcReasons[r]
	}
	return fmt.Sprintf("DCReason(%d)", uint8(r))
}

// DCETHFields are the fields of a DCETH. [Fields.String] leaves the key out: it
// is a secret, and traces are passed on.
type DCETHFields struct {
	Key        uint64 // the access key; zero in what a target sends
	QPN        QPN    // of the sender: of the initiator, or of the target's context
	Connection uint32 // the initiator's number of this connection
	Depth      uint8  // READs and atomics at once: wanted in a CONNECT, granted in an ACCEPT
	MTU        uint8  // code of the path MTU, 1 (256) to 5 (4096)
	Reason     DCReason
}

// PutDCETH writes a Dynamically Connected Extended Transport Header at b[0:] and
// returns its length, 20. The header is this stack's own.
//
//	+---------------------------------------------------------------+
//	|                      Access Key 63:32                         |
//	+---------------------------------------------------------------+
//	|                      Access Key 31:0                          |
//	+---------------+-----------------------------------------------+
//	|   reserved    |               QPN of the sender               |
//	+---------------+-----------------------------------------------+
//	|                      Connection Number                        |
//	+---------------+---------------+---------------+---------------+
//	|     Depth     |      MTU      |    Reason     |   reserved    |
//	+---------------+---------------+---------------+---------------+
func PutDCETH(b []byte, f *DCETHFields) int {
	_ = b[DCETHLen-1]
	be.PutUint64(b, f.Key)
	be.PutUint32(b[8:], uint32(f.QPN)&PSNMask)
	be.PutUint32(b[12:], f.Connection)
	be.PutUint32(b[16:], uint32(f.Depth)<<24|uint32(f.MTU)<<16|uint32(f.Reason)<<8)
	return DCETHLen
}

// DCETH returns the fields of the DCETH, all zero if the opcode has none.
func (p *Packet) DCETH() DCETHFields {
	rest := p.u32(hdrDCETH, 16)
	return DCETHFields{
		Key:        p.u64(hdrDCETH, 0),
		QPN:        QPN(p.u32(hdrDCETH, 8) & PSNMask),
		Connection: p.u32(hdrDCETH, 12),
		Depth:      uint8(rest >> 24),
		MTU:        uint8(rest >> 16),
		Reason:     DCReason(rest >> 8),
	}
}
