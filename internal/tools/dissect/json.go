package dissect

import (
	"fmt"
	"time"

	"github.com/goroce/roce/bth"
)

// JSON is a packet as an object for other programs. Numbers are decimal; keys and
// addresses of memory, which do not fit a double, are strings of hexadecimal
// digits. Headers the packet does not have are left out.
type JSON struct {
	Number    int       `json:"number"` // of the frame
	Time      time.Time `json:"time"`
	Seconds   float64   `json:"seconds"` // since the first frame of the file
	Length    int       `json:"length"`  // of the frame, of a super-packet that of the packet
	Kind      string    `json:"kind"`    // "roce", "other", "malformed", "truncated"
	Error     string    `json:"error,omitempty"`
	Segment   int       `json:"segment,omitempty"`  // of a super-packet, from 1
	Segments  int       `json:"segments,omitempty"` // in it
	IfIndex   int       `json:"ifindex,omitempty"`
	Marks     []string  `json:"marks,omitempty"` // what was not as on the wire
	*RoCEJSON           // of kind "roce"
}

// RoCEJSON is what a decoded packet adds.
type RoCEJSON struct {
	Src     string `json:"src"`
	Dst     string `json:"dst"`
	SrcPort uint16 `json:"src_port"`
	VLAN    uint16 `json:"vlan,omitempty"`

	Opcode  uint8  `json:"opcode"`
	Name    string `json:"name"`
	DestQPN uint32 `json:"dest_qpn"`
	PSN     uint32 `json:"psn"`
	PKey    uint16 `json:"pkey"`
	Pad     int    `json:"pad"`
	AckReq  bool   `json:"ack_req"`
	SE      bool   `json:"solicited"`
	MigReq  bool   `json:"mig_req"`
	FECN    bool   `json:"fecn,omitempty"`
	BECN    bool   `json:"becn,omitempty"`

	QKey    *uint32 `json:"qkey,omitempty"`
	SrcQPN  *uint32 `json:"src_qpn,omitempty"`
	SRQN    *uint32 `json:"srqn,omitempty"`
	VA      string  `json:"va,omitempty"`
	RKey    string  `json:"rkey,omitempty"`
	DMALen  *uint32 `json:"dma_len,omitempty"`
	Compare string  `json:"compare,omitempty"`
	SwapAdd string  `json:"swap_add,omitempty"`

	CompareMask string `json:"compare_mask,omitempty"`
	SwapMask    string `json:"swap_mask,omitempty"` // of a FETCH_ADD: the field boundary
	Size        *uint8 `json:"operand_size,omitempty"`
	FlushType   *uint8 `json:"flush_type,omitempty"`
	Selectivity *uint8 `json:"flush_selectivity,omitempty"`

	Ack      string  `json:"ack,omitempty"` // the syndrome in words
	Syndrome *uint8  `json:"syndrome,omitempty"`
	MSN      *uint32 `json:"msn,omitempty"`
	Original string  `json:"original,omitempty"` // the value an atomic found
	Imm      *uint32 `json:"imm,omitempty"`
	InvKey   string  `json:"inv_rkey,omitempty"`

	Payload int    `json:"payload"`       // bytes
	Cut     bool   `json:"cut,omitempty"` // the capture lacks the end: payload and ICRC are not known
	ICRC    string `json:"icrc,omitempty"`
	ICRCOK  bool   `json:"icrc_ok"`
	Quirk   bool   `json:"icrc_flush_quirk,omitempty"` // wrong, but as rxe has it for FLUSH
	CM      string `json:"cm,omitempty"`               // "REQ"
	CMText  string `json:"cm_text,omitempty"`
}

var kindNames = [...]string{Other: "other", Malformed: "malformed", Truncated: "truncated", RoCE: "roce"}

// String returns the kind as it is in [JSON].
func (k Kind) String() string { return kindNames[k] }

// JSON returns the packet as an object to be marshalled.
func (p *Packet) JSON() JSON {
	j := JSON{Number: p.Num, Time: p.Time, Seconds: p.At.Seconds(), Length: p.Len, Kind: p.Kind.String(),
		Segment: p.Segment, Segments: p.Segments, IfIndex: p.IfIndex, Marks: p.Marks.Names()}
	if p.Err != nil && p.Kind == Malformed {
		j.Error = p.Err.Error()
	}
	if p.Kind == RoCE {
		j.RoCEJSON = p.roceJSON()
	}
	return j
}

func (p *Packet) roceJSON() *RoCEJSON {
	f := &p.Frame
	j := &RoCEJSON{
		Src: f.Src.Addr().String(), Dst: f.Dst.Addr().String(), SrcPort: f.SrcPort, VLAN: f.VLAN,
		Opcode: uint8(f.Op), Name: f.Op.String(), DestQPN: uint32(f.DestQPN()), PSN: uint32(f.PSN()),
		PKey: uint16(f.PKey()), Pad: f.Pad(), AckReq: f.AckReq(), SE: f.Solicited(), MigReq: f.MigReq(),
		FECN: f.FECN(), BECN: f.BECN(),
		Payload: len(f.Payload()), Cut: p.Cut, ICRCOK: p.ICRCOK, Quirk: p.FlushQuirk,
	}
	if !p.Cut {
		j.ICRC = fmt.Sprintf("%08x", f.ICRC())
	}
	has := f.Info.Headers
	if has&bth.HasDETH != 0 {
		j.QKey, j.SrcQPN = ptr(uint32(f.QKey())), ptr(uint32(f.SrcQPN()))
	}
	if has&bth.HasXRCETH != 0 {
		j.SRQN = ptr(uint32(f.SRQN()))
	}
	if has&(bth.HasRETH|bth.HasAtomicETH) != 0 {
		j.VA, j.RKey = hexString(f.VA()), f.RKey().String()
	}
	if has&bth.HasRETH != 0 {
		j.DMALen = ptr(f.DMALen())
	}
	if has&bth.HasAtomicETH != 0 {
		j.Compare, j.SwapAdd = hexString(f.Compare()), hexString(f.Swap())
	}
	if has&bth.HasMaskETH != 0 {
		j.CompareMask, j.SwapMask, j.Size = hexString(f.CompareMask()), hexString(f.SwapMask()), ptr(f.OperandSize())
	}
	if has&bth.HasFETH != 0 {
		j.FlushType, j.Selectivity = ptr(uint8(f.FlushType())), ptr(uint8(f.FlushSelectivity()))
	}
	if has&bth.HasAETH != 0 {
		j.Ack, j.Syndrome, j.MSN = f.Syndrome().String(), ptr(uint8(f.Syndrome())), ptr(uint32(f.MSN()))
	}
	if has&bth.HasAtomicAckETH != 0 {
		j.Original = hexString(f.AtomicValue())
	}
	if has&bth.HasImm != 0 {
		j.Imm = ptr(f.Imm())
	}
	if has&bth.HasIETH != 0 {
		j.InvKey = f.InvKey().String()
	}
	if p.CM != nil {
		j.CM, j.CMText = p.CM.Attribute().String(), fmt.Sprint(p.CM)
	}
	return j
}

func hexString(v uint64) string { return fmt.Sprintf("%#x", v) }

func ptr[T any](v T) *T { return &v }
