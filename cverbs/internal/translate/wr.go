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

// operands are the fields of a work request besides its data.
type operands uint8

const (
	known     operands = 1 << iota // a program can post the operation
	remote                         // RemoteAddr and RKey
	immediate                      // Imm is immediate data
	inv                            // Imm is a key
	atomic                         // CompareAdd and Swap
	flush                          // FlushType, FlushLevel and FlushLength
)

// sendOps has the operands of each operation, by enum ibv_wr_opcode. The caller of SendWR handles those of BIND_MW and
// ATOMIC_WRITE that are not here.
var sendOps = [16]operands{
	roce.Write:       known | remote,
	roce.WriteImm:    known | remote | immediate,
	roce.Send:        known,
	roce.SendImm:     known | immediate,
	roce.Read:        known | remote,
	roce.CompareSwap: known | remote | atomic,
	roce.FetchAdd:    known | remote | atomic,
	roce.LocalInv:    known | inv,
	roce.BindMW:      known,
	roce.SendInv:     known | inv,
	roce.Flush:       known | remote | flush,
	roce.AtomicWrite: known | remote,
}

// SendWR sets all fields of a work request except the data and those that the caller looks up by handles: SG,
// Inline, AH, MW and MR. It reports whether the data are inline. The caller handles BIND_MW.
func SendWR(dst *roce.SendWR, src *abi.SendWR) (inline bool, err error) {
	if src.Opcode >= uint32(len(sendOps)) || sendOps[src.Opcode]&known == 0 || src.Flags&^sendFlags != 0 {
		return false, syscall.EINVAL
	}
	has := sendOps[src.Opcode]
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
