package raw

import (
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/driver"
	"github.com/goroce/roce/internal/share"
)

// notForUs precedes the filter in the kernel: it rejects frames for other
// hosts, which a promiscuous interface receives. Packet types are those of
// <linux/if_packet.h>.
func notForUs() []bpf.Instruction {
	const otherHost = 3
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: otherHost, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
	}
}

// inVLAN precedes the filter in the kernel: it rejects frames of other VLANs. With vlan 0, for no
// VLAN, it accepts frames without a tag, or with a tag that has a priority only. The kernel has
// already removed the first tag from the frame; roceFilter handles a second one.
func inVLAN(vlan uint16) []bpf.Instruction {
	const vid = 0x0FFF
	reject := bpf.RetConstant{Val: 0}
	tag := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtVLANTag},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: vid},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(vlan), SkipTrue: 1},
		reject,
	}
	present := bpf.LoadExtension{Num: bpf.ExtVLANTagPresent}
	if vlan == 0 {
		return append([]bpf.Instruction{present, bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: uint8(len(tag))}}, tag...)
	}
	return append([]bpf.Instruction{
		present,
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 1},
		reject,
		bpf.LoadExtension{Num: bpf.ExtVLANProto},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_8021Q, SkipTrue: 1},
		reject,
	}, tag...)
}

// otherQueuePair precedes the filter of a socket for management datagrams: it rejects the usual data packet, one over
// IPv4 without options, by its queue pair, because every data packet passes through this filter, too. Of others it rejects
// at most packets over IPv6 with a wrong version in the header, which are invalid.
func otherQueuePair() []bpf.Instruction {
	const ip, qpn = 14, 14 + 20 + 8 + 4 // with a byte in front
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: ip, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0x45, SkipTrue: 4},
		bpf.LoadAbsolute{Off: qpn, Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(bth.PSNMask)},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(bth.QPNGSI), SkipTrue: 1},
		bpf.RetConstant{Val: 0},
	}
}

// kind is the kind of packets that a socket accepts.
type kind int

const (
	everything kind = iota
	onlyMADs        // management datagrams: those for QP 1
	noMADs          // all others, including those that are too short for a BTH
)

// byQueuePair returns the end of a filter, which decides by the queue pair. The BTH begins at X +
// off. screen is the early drop during a flood; nil: none.
func (k kind) byQueuePair(off uint32, slots []share.Slot, screen *driver.Screened) []bpf.Instruction {
	const qpn = 4 // in the BTH, with a byte in front
	accept, reject := bpf.RetConstant{Val: 1 << 18}, bpf.RetConstant{Val: 0}
	var ours []bpf.Instruction
	if slots != nil {
		ours = share.Filter(off, slots, k != onlyMADs, k != noMADs)
	}
	switch {
	case screen != nil && k != onlyMADs:
		return append(ours, screen.Program(bpf.LoadIndirect{Off: off + qpn, Size: 4}, k == everything)...)
	case k == everything || slots != nil:
		return append(ours, accept)
	}
	mad, other := bpf.Instruction(accept), bpf.Instruction(reject)
	if k == noMADs {
		mad, other = other, mad
	}
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtLen}, // a load after the end of the packet would end the program
		bpf.ALUOpX{Op: bpf.ALUOpSub},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: off + qpn + 4, SkipTrue: 4},
		bpf.LoadIndirect{Off: off + qpn, Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(bth.PSNMask)},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(bth.QPNGSI), SkipTrue: 1},
		mad,
		other,
	}
}

// roceFilter accepts Ethernet frames without a VLAN tag that carry UDP to port 4791 over IPv4 (any
// header length, not a fragment) or IPv6 (no extension headers), and are of the kind take. slots
// are the slots of the process, or nil if it does not share the interface. The filter sees only the
// first packet of a super-packet.
func roceFilter(take kind, slots []share.Slot, screen *driver.Screened) []bpf.Instruction {
	type ins = bpf.Instruction
	load := func(off uint32, size int) ins { return bpf.LoadAbsolute{Off: off, Size: size} }
	reject := bpf.RetConstant{Val: 0}

	const eth, udp = 14, 8 // bytes of their headers
	v6 := []ins{
		load(eth+6, 1),
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 2},
		load(eth+40+2, 2),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: bth.UDPPort, SkipTrue: 1},
		reject,
		bpf.LoadConstant{Dst: bpf.RegX, Val: 40},
	}
	v4 := []ins{
		load(eth+9, 1),
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 5},
		load(eth+6, 2),
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x3FFF, SkipTrue: 3}, // more fragments, or an offset
		bpf.LoadMemShift{Off: eth},                                  // X = 4*ihl
		bpf.LoadIndirect{Off: eth + 2, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: bth.UDPPort, SkipTrue: 1},
		reject,
		bpf.Jump{Skip: uint32(len(v6))},
	}
	var first []ins
	if take == onlyMADs {
		first = otherQueuePair()
	}
	return slices.Concat(first, []ins{
		load(12, 2),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IPV6, SkipTrue: uint8(len(v4)) + 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 7}, // the reject of v4
	}, v4, v6, take.byQueuePair(eth+udp, slots, screen))
}

// steering chooses one of n sockets for a packet that roceFilter accepts: the
// destination queue pair modulo n, and 0 for the management queue pairs and
// multicast. Unlike a filter it sees packets from the IP header on.
func steering(n uint32) []bpf.Instruction {
	return append(queuePair(),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(bth.QPNMulticast), SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: uint32(bth.QPNGSI), SkipTrue: 1},
		bpf.Jump{Skip: 1},
		bpf.RetConstant{Val: 0},
		bpf.ALUOpConstant{Op: bpf.ALUOpMod, Val: n},
		bpf.RetA{})
}

// queuePair begins a program that chooses a socket. It loads the destination queue pair.
func queuePair() []bpf.Instruction {
	const destQPN = 8 + 4 // behind the UDP header; with a byte in front
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 6, SkipTrue: 3},
		bpf.LoadMemShift{Off: 0},
		bpf.LoadIndirect{Off: destQPN, Size: 4},
		bpf.Jump{Skip: 1},
		bpf.LoadAbsolute{Off: 40 + destQPN, Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(bth.QPNMulticast)},
	}
}
