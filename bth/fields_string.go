package bth

import (
	"fmt"
	"strings"
)

var flagNames = []struct {
	flag BTHFlags
	name string
}{{Solicited, "SE"}, {MigReq, "M"}, {AckReq, "A"}, {FECN, "F"}, {BECN, "B"}}

// String lists the flags by their letters in the header layout, as in "SE|A".
func (f BTHFlags) String() string {
	var s []string
	for _, n := range flagNames {
		if f&n.flag != 0 {
			s = append(s, n.name)
		}
	}
	return strings.Join(s, "|")
}

// String prints the packet on one line, as in
//
//	RC WRITE_FIRST qpn 0x12 psn 0x345678 A va 0x7f00 rkey 0x51c len 4096 payload 1024
func (f *Fields) String() string {
	var b strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }

	put("%v qpn %v psn %v", f.BTH.Op, f.BTH.DestQPN, f.BTH.PSN)
	if f.BTH.Flags != 0 {
		put(" %v", f.BTH.Flags)
	}
	if f.BTH.PKey != DefaultPKey {
		put(" pkey %v", f.BTH.PKey)
	}
	if h := f.RDETH; h != nil {
		put(" ee %#x", h.EEContext)
	}
	if h := f.DETH; h != nil {
		put(" qkey %v from %v", h.QKey, h.SrcQPN)
	}
	if h := f.XRCETH; h != nil {
		put(" srq %v", h.SRQN)
	}
	if h := f.FETH; h != nil {
		put(" type %d selectivity %d", h.Type, h.Selectivity)
	}
	if h := f.RETH; h != nil {
		put(" va %#x rkey %v len %d", h.VA, h.RKey, h.DMALen)
	}
	if h := f.AtomicETH; h != nil {
		put(" va %#x rkey %v", h.VA, h.RKey)
		if f.BTH.Op&0x1F == RCFetchAdd {
			put(" add %#x", h.Swap)
		} else {
			put(" compare %#x swap %#x", h.Compare, h.Swap)
		}
	}
	if h := f.MaskETH; h != nil {
		if f.BTH.Op == MaskedFetchAdd {
			put(" boundary %#x size %d", h.SwapMask, h.Size)
		} else {
			put(" compare mask %#x swap mask %#x size %d", h.CompareMask, h.SwapMask, h.Size)
		}
	}
	if h := f.DCETH; h != nil {
		put(" from %v context %#x", h.QPN, h.Context)
	}
	if h := f.DCCETH; h != nil {
		put(" connection %d depth %d mtu %d", h.Connection, h.Depth, h.MTU)
		if f.BTH.Op == DCReject {
			put(" %v", h.Reason)
		}
	}
	if h := f.AETH; h != nil {
		put(" %v msn %d", h.Syndrome, h.MSN)
	}
	if h := f.AtomicAckETH; h != nil {
		put(" value %#x", h.Value)
	}
	if f.Imm != nil {
		put(" imm %#x", *f.Imm)
	}
	if f.IETH != nil {
		put(" inv %v", *f.IETH)
	}
	if len(f.Payload) > 0 {
		put(" payload %d", len(f.Payload))
	}
	return b.String()
}
