package wireshark

import "github.com/goroce/roce/bth"

// field is a field of a header, as Wireshark shows it. If the objects of "rocectl pcap decode --json" have the field, it has the
// same name there.
type field struct {
	name  string // roce.NAME in filters
	label string
	at    int    // bytes from the start of the header
	size  int    // bytes: 1, 2, 3, 4 or 8
	mask  uint64 // the bits of the field in these bytes; 0: all
	show  show
	info  string // its name in the Info column; empty: not shown there
}

// show says how the value of a field is printed.
type show uint8

const (
	decimal show = iota
	hexadecimal
	flag  // one bit
	named // by the name that values has for it
)

// header is an extended header: its bit in the opcode table, and its fields.
type header struct {
	set    bth.HeaderSet
	name   string
	len    int
	fields []field
}

// base are the fields of the BTH, without the opcode: roce.lua adds that itself.
var base = []field{
	{name: "solicited", label: "Solicited event", at: 1, size: 1, mask: 0x80, show: flag},
	{name: "mig_req", label: "Migration request", at: 1, size: 1, mask: 0x40, show: flag},
	{name: "pad", label: "Pad count", at: 1, size: 1, mask: 0x30},
	{name: "tver", label: "Transport header version", at: 1, size: 1, mask: 0x0F},
	{name: "pkey", label: "Partition key", at: 2, size: 2, show: hexadecimal},
	{name: "fecn", label: "Forward congestion", at: 4, size: 1, mask: 0x80, show: flag},
	{name: "becn", label: "Backward congestion", at: 4, size: 1, mask: 0x40, show: flag},
	{name: "dest_qpn", label: "Destination queue pair", at: 5, size: 3, show: hexadecimal, info: "qpn"},
	{name: "ack_req", label: "Acknowledge request", at: 8, size: 1, mask: 0x80, show: flag},
	{name: "psn", label: "Packet sequence number", at: 9, size: 3, show: hexadecimal, info: "psn"},
}

// extended are the extended headers in wire order, the order of [bth.HeaderSet].
var extended = []header{
	{bth.HasRDETH, "RDETH", bth.RDETHLen, []field{
		{name: "ee_context", label: "EE context", at: 1, size: 3, show: hexadecimal, info: "ee"},
	}},
	{bth.HasDETH, "DETH", bth.DETHLen, []field{
		{name: "qkey", label: "Queue key", at: 0, size: 4, show: hexadecimal, info: "qkey"},
		{name: "src_qpn", label: "Source queue pair", at: 5, size: 3, show: hexadecimal, info: "from"},
	}},
	{bth.HasXRCETH, "XRCETH", bth.XRCETHLen, []field{
		{name: "srqn", label: "Shared receive queue", at: 1, size: 3, show: hexadecimal, info: "srq"},
	}},
	{bth.HasDCETH, "DCETH", bth.DCETHLen, []field{
		{name: "src_qpn", label: "Source queue pair", at: 1, size: 3, show: hexadecimal, info: "from"},
		{name: "context", label: "Context number", at: 4, size: 4, info: "context"},
	}},
	{bth.HasFETH, "FETH", bth.FETHLen, []field{
		{name: "flush_selectivity", label: "Selectivity", at: 3, size: 1, mask: 0x30, show: named, info: "selectivity"},
		{name: "flush_type", label: "Placement type", at: 3, size: 1, mask: 0x0F, show: named, info: "type"},
	}},
	{bth.HasRETH, "RETH", bth.RETHLen, []field{
		{name: "va", label: "Virtual address", at: 0, size: 8, show: hexadecimal, info: "va"},
		{name: "rkey", label: "Remote key", at: 8, size: 4, show: hexadecimal, info: "rkey"},
		{name: "dma_len", label: "DMA length", at: 12, size: 4, info: "len"},
	}},
	{bth.HasAtomicETH, "AtomicETH", bth.AtomicETHLen, []field{
		{name: "va", label: "Virtual address", at: 0, size: 8, show: hexadecimal, info: "va"},
		{name: "rkey", label: "Remote key", at: 8, size: 4, show: hexadecimal, info: "rkey"},
		{name: "swap_add", label: "Swap or add data", at: 12, size: 8, show: hexadecimal, info: "swap/add"},
		{name: "compare", label: "Compare data", at: 20, size: 8, show: hexadecimal, info: "compare"},
	}},
	{bth.HasMaskETH, "MaskETH (goroce)", bth.MaskETHLen, []field{
		{name: "swap_mask", label: "Swap mask, or boundary of the fields of an add", at: 0, size: 8, show: hexadecimal, info: "swap mask"},
		{name: "compare_mask", label: "Compare mask", at: 8, size: 8, show: hexadecimal, info: "compare mask"},
		{name: "operand_size", label: "Size of the operand", at: 19, size: 1, info: "size"},
	}},
	{bth.HasDCCETH, "DCCETH (goroce)", bth.DCCETHLen, []field{
		{name: "dc_key", label: "Access key", at: 0, size: 8, show: hexadecimal},
		{name: "connection", label: "Connection number", at: 8, size: 4, info: "connection"},
		{name: "depth", label: "READs and atomics at once", at: 12, size: 1, info: "depth"},
		{name: "mtu", label: "Path MTU", at: 13, size: 1, show: named, info: "mtu"},
		{name: "reason", label: "Reason", at: 14, size: 1, show: named},
	}},
	{bth.HasAETH, "AETH", bth.AETHLen, []field{
		{name: "syndrome", label: "Syndrome", at: 0, size: 1, mask: 0x7F, show: named, info: "-"},
		{name: "msn", label: "Message sequence number", at: 1, size: 3, info: "msn"},
	}},
	{bth.HasAtomicAckETH, "AtomicAckETH", bth.AtomicAckETHLen, []field{
		{name: "original", label: "Value before the operation", at: 0, size: 8, show: hexadecimal, info: "value"},
	}},
	{bth.HasImm, "ImmDt", bth.ImmLen, []field{
		{name: "imm", label: "Immediate data", at: 0, size: 4, show: hexadecimal, info: "imm"},
	}},
	{bth.HasIETH, "IETH", bth.IETHLen, []field{
		{name: "inv_rkey", label: "Key to invalidate", at: 0, size: 4, show: hexadecimal, info: "inv"},
	}},
	{bth.HasCNPReserved, "CNP, reserved", bth.CNPReservedLen, nil},
}

// values returns the names of the values of a field, by number.
func values(name string) map[int]string {
	names := map[int]string{}
	switch name {
	case "syndrome":
		for s := range 0x80 {
			names[s] = bth.Syndrome(s).String()
		}
	case "reason":
		for r := bth.DCReason(0); r <= bth.DCBadParameter; r++ {
			names[int(r)] = r.String()
		}
	case "mtu":
		for m := bth.MTU256; m <= bth.MTU4096; m++ {
			names[int(m)] = m.String()
		}
	case "flush_selectivity":
		names = map[int]string{int(bth.FlushRange): "range", int(bth.FlushMR): "memory region"}
	case "flush_type":
		names = map[int]string{
			0:                        "none",
			int(bth.FlushGlobal):     "global visibility",
			int(bth.FlushPersistent): "persistence",
			int(bth.FlushGlobal | bth.FlushPersistent): "global visibility and persistence",
		}
	}
	return names
}
