package translate

import (
	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

// Service levels of datagrams. RoCE has none. mlx5 reports the type of the packet in the low 3 bits, and UCX
// drops a datagram over IPv4 without that type.
const (
	slIPv6 = 1
	slIPv4 = 2
)

// WC fills in a completion.
func WC(dst *abi.WC, src *roce.WC) {
	dst.ID, dst.Status, dst.Opcode = src.ID, uint32(src.Status), uint32(src.Opcode)
	dst.VendorErr, dst.ByteLen = src.VendorErr, src.ByteLen
	dst.QPN, dst.SrcQPN, dst.Flags = uint32(src.QPN), uint32(src.SrcQPN), uint32(src.Flags)
	dst.PKeyIndex, dst.SLID, dst.SL, dst.DLIDPathBits = src.PKeyIndex, src.SLID, src.SL, src.DLIDPathBits
	if src.Flags&roce.WCGRH != 0 {
		dst.SL = slIPv6
		if src.IPv4 {
			dst.SL = slIPv4
		}
	}
	dst.Imm = 0
	switch {
	case src.Flags&roce.WCWithInv != 0:
		dst.Imm = uint32(src.InvKey)
	case src.Flags&roce.WCWithImm != 0:
		dst.Imm = Network(src.Imm)
	}
}
