package share

import (
	"slices"

	"golang.org/x/net/bpf"

	"github.com/goroce/roce/bth"
)

// If each process has its own sockets that see all packets of an address, the filter of each
// socket accepts the packets for its process and rejects the others. A filter sees only the
// first packet of a super-packet.

// Filter returns the part of a filter that accepts packets for a process with some slots:
// data, management datagrams, or both. It rejects other packets. For accepted packets the
// program continues behind the end of this part, with register X unchanged. The BTH begins at
// X + base.
//
// Packets to groups are data for all processes. Connection requests are for all processes,
// too: the listener of the service answers, see [Place.Whose]. The filter rejects a packet
// that is too short to identify its process; nothing would answer such a packet. It treats
// management datagrams of other classes like those of the connection manager, so that one
// process gets them and counts them as unknown.
func Filter(base uint32, slots []Slot, data, mads bool) []bpf.Instruction {
	p := []bpf.Instruction{
		word(base, 4), // the queue pair, with a byte in front; a load behind the end of the packet ends the program and rejects the packet
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(bth.QPNMulticast)},
	}
	d, m := takeData(slots), takeMADs(base, slots[0])
	switch {
	case data && mads:
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(bth.QPNGSI), SkipTrue: uint8(len(d)) + 1})
		p = append(p, d...)
		p = append(p, bpf.Jump{Skip: uint32(len(m))})
		return append(p, m...)
	case data:
		p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(bth.QPNGSI), SkipTrue: 1}, reject)
		return append(p, d...)
	default:
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(bth.QPNGSI), SkipTrue: 1}, reject)
		return append(p, m...)
	}
}

// takeData accepts packets to queue pairs of the slots and to groups. The queue pair is in the
// register.
func takeData(slots []Slot) []bpf.Instruction {
	p := []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(bth.QPNMulticast), SkipTrue: uint8(len(slots)) + 2},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: Slots - 1},
	}
	for i, s := range slots {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(s), SkipTrue: uint8(len(slots) - i)})
	}
	return append(p, reject)
}

// takeMADs accepts management datagrams that by [addresseeOf] are for the slot, or for no
// particular slot.
func takeMADs(base uint32, s Slot) []bpf.Instruction {
	const mad = bth.BTHLen + bth.DETHLen
	load := func(off uint32, size int) bpf.Instruction { return bpf.LoadIndirect{Off: base + off, Size: size} }
	return slices.Concat([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtLen},
		bpf.ALUOpX{Op: bpf.ALUOpSub},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: base + mad + madLen, SkipTrue: 12},
	}, loadID(load, 3, 3), []bpf.Instruction{
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: Slots - 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(s), SkipTrue: 1},
		reject,
	})
}

// Queue returns the program that chooses the queue of a process for a packet; the process
// has one queue for each slot. The register has the destination queue pair. Packets for no
// slot of the process go to queue 0.
func Queue(slots []Slot) []bpf.Instruction {
	p := []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(bth.QPNMulticast), SkipTrue: uint8(2*len(slots)) + 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(bth.QPNGSI), SkipTrue: uint8(2*len(slots)) + 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: Slots - 1},
	}
	for i, s := range slots {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(s), SkipTrue: 1}, bpf.RetConstant{Val: uint32(i)})
	}
	return append(p, bpf.RetConstant{Val: 0})
}

var reject = bpf.RetConstant{Val: 0}

func word(base, off uint32) bpf.Instruction { return bpf.LoadIndirect{Off: base + off, Size: 4} }
