package qp

import (
	"fmt"
	"net/netip"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mr"
)

// Type is the service type of a queue pair, with the values of enum
// ibv_qp_type. GSI is the kernel's IB_QPT_GSI: the UD queue pair that answers
// on wire QPN 1.
type Type uint8

const (
	GSI     Type = 1
	RC      Type = 2
	UC      Type = 3
	UD      Type = 4
	XRCSend Type = 9  // XRC initiator: sends
	XRCRecv Type = 10 // XRC target: answers
	DCI     Type = 32 // dynamically connected initiator: sends (IBV_EXP_QPT_DC_INI)
	DCT     Type = 33 // dynamically connected target: answers; the verbs have a separate object for it
)

var typeNames = map[Type]string{GSI: "GSI", RC: "RC", UC: "UC", UD: "UD", XRCSend: "XRC_SEND", XRCRecv: "XRC_RECV", DCI: "DC_INI", DCT: "DC_TGT"}

func (t Type) String() string { return name(typeNames, t, "Type") }

// State is the state of a queue pair, with the values of enum ibv_qp_state.
type State uint8

const (
	Reset State = iota // nothing works
	Init               // receives may be posted
	RTR                // ready to receive: requests are executed and answered
	RTS                // ready to send
	SQD                // send queue draining: started work requests finish, none starts
	SQE                // send queue error (UC, UD)
	Err                // everything is flushed
)

var stateNames = map[State]string{Reset: "RESET", Init: "INIT", RTR: "RTR", RTS: "RTS", SQD: "SQD", SQE: "SQE", Err: "ERR"}

func (s State) String() string { return name(stateNames, s, "State") }

// name looks a value up in its table and never returns an empty string.
func name[K ~uint8](table map[K]string, k K, kind string) string {
	if s, ok := table[k]; ok {
		return s
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(k))
}

// AttrMask says which fields of an [Attr] a Modify sets, with the bits of
// enum ibv_qp_attr_mask.
type AttrMask uint32

const (
	AttrState           AttrMask = 1 << 0
	AttrCurState        AttrMask = 1 << 1
	AttrSQDNotify       AttrMask = 1 << 2
	AttrAccess          AttrMask = 1 << 3
	AttrPKeyIndex       AttrMask = 1 << 4
	AttrPort            AttrMask = 1 << 5
	AttrQKey            AttrMask = 1 << 6
	AttrAV              AttrMask = 1 << 7
	AttrPathMTU         AttrMask = 1 << 8
	AttrTimeout         AttrMask = 1 << 9
	AttrRetryCnt        AttrMask = 1 << 10
	AttrRNRRetry        AttrMask = 1 << 11
	AttrRQPSN           AttrMask = 1 << 12
	AttrMaxRdAtomic     AttrMask = 1 << 13
	AttrAltPath         AttrMask = 1 << 14
	AttrMinRNRTimer     AttrMask = 1 << 15
	AttrSQPSN           AttrMask = 1 << 16
	AttrMaxDestRdAtomic AttrMask = 1 << 17
	AttrPathMigState    AttrMask = 1 << 18
	AttrCap             AttrMask = 1 << 19
	AttrDestQPN         AttrMask = 1 << 20
	AttrDCKey           AttrMask = 1 << 22 // of the experimental verbs

	// AttrFlushICRCQuirk is an extension: the verbs do not have it. Modify accepts it for an RC queue pair with any
	// change of state.
	AttrFlushICRCQuirk AttrMask = 1 << 30
)

var attrNames = [...]string{"STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX", "PORT", "QKEY", "AV",
	"PATH_MTU", "TIMEOUT", "RETRY_CNT", "RNR_RETRY", "RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH", "MIN_RNR_TIMER", "SQ_PSN",
	"MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN", 22: "DC_KEY", 30: "FLUSH_ICRC_QUIRK"}

// String lists the attributes of m by their verbs names.
func (m AttrMask) String() string {
	s := ""
	for i, n := range attrNames {
		if n != "" && m&(1<<i) != 0 {
			if s != "" {
				s += "|"
			}
			s += n
		}
	}
	return s
}

// AH is an address handle (struct ibv_ah): a resolved path from an address of the device to a
// peer or a multicast group. It never changes, except that the Ethernet addresses follow the
// host's neighbour table.
type AH frame.Path

// NewAH returns the address handle of a path, nil for nil.
func NewAH(p *frame.Path) *AH { return (*AH)(p) }

func (a *AH) path() *frame.Path { return (*frame.Path)(a) }

// Src returns the address of the device that packets leave from.
func (a *AH) Src() netip.Addr { return a.path().Config().Src.Addr() }

// Dst returns the address of the peer or the multicast group.
func (a *AH) Dst() netip.Addr { return a.path().Config().Dst.Addr() }

// String returns the two addresses: "10.0.0.1 to 10.0.0.2".
func (a *AH) String() string {
	if a == nil {
		return "no address handle"
	}
	return a.Src().String() + " to " + a.Dst().String()
}

// Attr is struct ibv_qp_attr. An [AttrMask] says which of its fields are valid.
type Attr struct {
	State    State
	CurState State

	SQDNotify  bool // raise [EventSQDrained] when the send queue has drained
	SQDraining bool // set by Query: the queue pair is in SQD and started work requests are not complete yet

	Access    mr.Access // rights of the peer: RemoteWrite, RemoteRead, RemoteAtomic, FlushGlobal, FlushPersistent
	PKeyIndex uint16    // only index 0 (0xFFFF) exists on RoCE
	Port      uint8     // only port 1 exists
	QKey      bth.QKey  // UD
	DCKey     uint64    // DCI: the key that replaces that of a work request whose key has the top bit set

	// AV is the address vector, resolved: where packets go and from where the
	// peer's packets must come.
	AV *AH

	PathMTU bth.MTU
	DestQPN bth.QPN
	RQPSN   bth.PSN // first PSN expected from the peer; Query returns the current one
	SQPSN   bth.PSN // first PSN sent; Query returns the next one

	Timeout         uint8 // local ACK timeout code, 4.096 µs·2^code; 0: none
	RetryCnt        uint8 // transport retries, 0…7
	RNRRetry        uint8 // receiver-not-ready retries, 0…6; 7: for ever
	MinRNRTimer     bth.RNRTimer
	MaxRdAtomic     uint8 // READs and atomics this side may have outstanding
	MaxDestRdAtomic uint8 // READs and atomics the peer may have outstanding here

	// The alternate path (AttrAltPath), for RC and UC. Each end loads its own: the source and destination of one end
	// must be the destination and source of the other.
	AltAV        *AH    // resolved like AV
	AltPKeyIndex uint16 // only index 0 exists
	AltPort      uint8  // only port 1 exists
	AltTimeout   uint8  // local ACK timeout code on it; 0: none

	// PathMigState may be set to [Rearm], and in state [Armed] to [Migrated].
	PathMigState MigState

	// FlushICRCQuirk says that the peer computes the ICRC of a FLUSH as rxe of Linux 6.12 does. That rxe accepts no
	// other ICRC; see [bth.CRC.UpdateFlushQuirk].
	FlushICRCQuirk bool
}

// Limits of a device of this stack, as ibv_query_device reports them.
const (
	MaxWR        = 1 << 15 // work requests a queue may hold
	MaxSGE       = 32      // scatter/gather elements of one work request
	MaxInline    = 1024    // bytes of inline data of one work request
	MaxRdAtomic  = 252     // READs and atomics outstanding per queue pair and direction: two super-packets of requests
	MaxMessage   = 1 << 31 // bytes of one message
	defaultSGE   = 1
	maxTimeout   = 31
	maxRetry     = 7
	infiniteRNR  = 7
	maxRNRTimer  = 31
	supportedAcc = mr.LocalWrite | mr.RemoteWrite | mr.RemoteRead | mr.RemoteAtomic | mr.MWBind | mr.FlushGlobal | mr.FlushPersistent
)

// DefaultRdAtomic is the number of outstanding READs and atomics that the connection manager offers and requests by
// default. rxe has the same limit. If an application accepts the requested number and its device supports fewer,
// librdmacm refuses the call.
const DefaultRdAtomic = 128

// Caps is struct ibv_qp_cap: the sizes of the queues. [New] rounds them up and
// Query returns what was granted.
type Caps struct {
	MaxSendWR     int
	MaxRecvWR     int
	MaxSendSGE    int
	MaxRecvSGE    int
	MaxInlineData int
}
