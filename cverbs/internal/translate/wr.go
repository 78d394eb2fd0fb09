package translate

import (
	"math"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

// Flags of a send work request (enum ibv_send_flags) that package roce does not have.
const (
	sendInline = 8
	sendFlags  = uint32(roce.Fence|roce.Signaled|roce.Solicited) | sendInline
)

// operands are the fields of a work request besides its data, by its opcode.
type operands uint8

const (
	remote    operands = 1 << iota // RemoteAddr and RKey
	immediate                      // Imm is immediate data
	inv                            // Imm is a key
	atomic                         // CompareAdd and Swap
	flush                          // FlushType, FlushLevel and FlushLength
	store                          // AtomicWrite, unless there are scatter/gather elements
	bind                           // the window's
)

// sendOps are the operations that a program can post, by enum ibv_wr_opcode.
var sendOps = map[uint32]operands{
	uint32(roce.Write):       remote,
	uint32(roce.WriteImm):    remote | immediate,
	uint32(roce.Send):        0,
	uint32(roce.SendImm):     immediate,
	uint32(roce.Read):        remote,
	uint32(roce.CompareSwap): remote | atomic,
	uint32(roce.FetchAdd):    remote | atomic,
	uint32(roce.LocalInv):    inv,
	uint32(roce.BindMW):      bind,
	uint32(roce.SendInv):     inv,
	uint32(roce.Flush):       remote | flush,
	uint32(roce.AtomicWrite): remote | store,
}

// sendOpTable is sendOps for the data path.
var sendOpTable = func() (t [16]struct {
	operands
	known bool
}) {
	for op, o := range sendOps {
		t[op].operands, t[op].known = o, true
	}
	return t
}()

// SendWR sets all fields of a work request except the data and those that the caller looks up by handles: SG,
// Inline, AH, MW and MR. It reports whether the data are inline. The caller handles BIND_MW.
func SendWR(dst *roce.SendWR, src *abi.SendWR) (inline bool, err error) {
	if src.Opcode >= uint32(len(sendOpTable)) || !sendOpTable[src.Opcode].known || src.Flags&^sendFlags != 0 {
		return false, syscall.EINVAL
	}
	has := sendOpTable[src.Opcode].operands
	*dst = roce.SendWR{ID: src.ID, Opcode: roce.Opcode(src.Opcode), Flags: roce.SendFlags(src.Flags &^ sendInline)}
	if has&remote != 0 {
		dst.RemoteAddr, dst.RKey = src.RemoteAddr, roce.RKey(src.RKey)
	}
	switch {
	case has&immediate != 0:
		dst.Imm = Network(src.Imm)
	case has&inv != 0:
		dst.InvKey = roce.RKey(src.Imm)
	case has&atomic != 0:
		dst.CompareAdd, dst.Swap = src.CompareAdd, src.Swap
	case has&flush != 0:
		if src.FlushLength > math.MaxUint32 || src.FlushType > math.MaxUint8 || src.FlushLevel > math.MaxUint8 {
			return false, syscall.EINVAL
		}
		dst.FlushType, dst.Selectivity, dst.Length = roce.FlushType(src.FlushType), roce.FlushSelectivity(src.FlushLevel), uint32(src.FlushLength)
	}
	return src.Flags&sendInline != 0, nil
}

// Datagram sets the destination of a work request of a UD queue pair, except for the address handle.
func Datagram(dst *roce.SendWR, src *abi.SendWR) {
	dst.RemoteQPN, dst.RemoteQKey = roce.QPN(src.RemoteQPN), roce.QKey(src.RemoteQKey)
}

// Bind returns the bind of a work request of BIND_MW, except the region.
func Bind(src *abi.SendWR) roce.Bind {
	return roce.Bind{ID: src.ID, Flags: roce.SendFlags(src.Flags) & (roce.Signaled | roce.Fence), Addr: src.BindAddr,
		Length: src.BindLength, Access: roce.Access(src.BindAccess), Key: roce.RKey(src.NewRKey)}
}
