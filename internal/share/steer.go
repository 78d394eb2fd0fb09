package share

import (
	"encoding/binary"
	"math/bits"

	"golang.org/x/net/bpf"

	"github.com/goroce/roce/bth"
)

// Slots is the number of slots of an address.
const Slots = 64

// Slot is the number of a slot of an address, from 0. Queue pair numbers and communication IDs that
// are equal modulo Slots belong to one process.
type Slot uint8

// SlotOf returns the slot of a queue pair.
func SlotOf(n bth.QPN) Slot { return Slot(n % Slots) }

// MayDivide reports whether the peer of a connection may share its address with other processes. It
// compares the two numbers that the peer has chosen, its queue pair number and its communication
// ID. A process that shares and has one slot chooses both from it. With several slots it chooses an
// ID that contains the first slot twice. A process that does not share chooses such numbers only by
// chance.
func MayDivide(n bth.QPN, communicationID uint32) bool {
	id := Slot(communicationID % Slots)
	return id == SlotOf(n) || id == Slot(communicationID/Slots%Slots)
}

// IDs returns the residue and the modulus of the communication IDs of a process with the given slots:
// see [MayDivide].
func IDs(slots []Slot) (residue, modulus uint32) {
	first := uint32(slots[0])
	if len(slots) == 1 {
		return first, Slots
	}
	return first + first*Slots, Slots * Slots
}

// Part returns the part of a peer that a packet is for: the slot of its queue pair, or ManagementPart. b
// begins with the BTH. Packets for the same part, other than ManagementPart, may share a super-packet,
// because the kernel of the peer delivers them to the same socket.
func Part(b []byte) uint8 {
	if len(b) < bth.BTHLen {
		return 0
	}
	if b[7] == byte(bth.QPNGSI) && b[6]|b[5] == 0 {
		return ManagementPart
	}
	return b[7] % Slots
}

// ManagementPart is the [Part] of management datagrams, each of which may be for another process.
const ManagementPart = Slots

// Dest is where a packet goes at a peer.
type Dest struct {
	Part uint8
	qp   uint64 // the word of the BTH with the queue pair; noQP for management datagrams
}

// DestOf returns the destination of a packet. b begins with the BTH.
func DestOf(b []byte) Dest {
	d := Dest{Part(b), noQP}
	if d.Part != ManagementPart && len(b) >= bth.BTHLen {
		d.qp = qpWord(b)
	}
	return d
}

// noQP differs from every word of a BTH.
const noQP = 1 << 32

// Is reports whether a packet is a data packet for the same queue pair. It may return false although it
// is: Is also compares a byte in front of the QPN.
func (d Dest) Is(b []byte) bool { return len(b) >= bth.BTHLen && qpWord(b) == d.qp }

// qpWord returns the second word of a BTH as it lies in memory.
func qpWord(b []byte) uint64 { return uint64(binary.NativeEndian.Uint32(b[4:])) }

// Spread tells a sender whether a peer may be several processes that share an address: a few
// processes have queue pairs in few parts. For such a peer the sender separates packets for
// different parts. For a peer with queue pairs in many parts, which usually does not share, it
// joins them, because super-packets are faster. The zero value has seen no queue pair.
type Spread struct{ seen uint64 }

// fewParts is the largest number of parts of a peer that may share its
// address.
const fewParts = 32

// Apart reports whether a packet for part b must not follow one for part a in a super-packet.
func (s *Spread) Apart(a, b uint8) bool {
	if a == b {
		return b == ManagementPart
	}
	if a == ManagementPart || b == ManagementPart {
		return true
	}
	s.seen |= 1<<(a%Slots) | 1<<(b%Slots)
	return bits.OnesCount64(s.seen) <= fewParts
}

// Service is a service for which a process listens, with the service ID of its requests.
type Service struct {
	ID   uint64
	Slot Slot
}

// Offsets in a management datagram of the connection manager. IBTA 12.6 and 13.4.
const (
	madLen       = 256
	madAttribute = 16
	madFirstID   = 24 + 0 // the sender's communication ID; of a SIDR_REP the receiver's
	madSecondID  = 24 + 4 // the receiver's communication ID
	madService   = 24 + 8 // of a REQ or SIDR_REQ

	attrREQ     = 0x10
	attrREJ     = 0x12
	attrSIDRREQ = 0x17
	attrSIDRREP = 0x18
)

// addressee is the destination of a management datagram.
type addressee struct {
	by      naming
	slot    Slot   // bySlot
	service uint64 // byService
}

// naming is the way in which a management datagram names its destination.
type naming uint8

const (
	bySlot    naming = iota // by a communication ID
	byService               // by a service
	byNothing               // a REJ of a peer that gave up before it knew a communication ID: each process checks whether it is the destination. This is possible because a REJ has no answer; other datagrams would get one from each process
)

func addresseeOf(mad []byte) addressee {
	if len(mad) < madLen {
		return addressee{}
	}
	at := madSecondID
	attribute := binary.BigEndian.Uint16(mad[madAttribute:])
	switch attribute {
	case attrREQ, attrSIDRREQ:
		return addressee{by: byService, service: binary.BigEndian.Uint64(mad[madService:])}
	case attrSIDRREP:
		at = madFirstID
	}
	id := binary.BigEndian.Uint32(mad[at:])
	if attribute == attrREJ && id == 0 {
		return addressee{by: byNothing}
	}
	return addressee{by: bySlot, slot: Slot(id % Slots)}
}

// loadID returns the part of a program that loads the communication ID by which [addresseeOf] finds the slot of a
// management datagram. load loads a field behind the BTH. For a request the program continues service instructions behind
// the end of the part, for a REJ without a communication ID nothing instructions behind it.
func loadID(load func(off uint32, size int) bpf.Instruction, service, nothing uint8) []bpf.Instruction {
	const mad = bth.BTHLen + bth.DETHLen
	return []bpf.Instruction{
		load(mad+madAttribute, 2),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: attrREQ, SkipTrue: 8 + service},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: attrSIDRREQ, SkipTrue: 7 + service},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: attrSIDRREP, SkipTrue: 5},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: attrREJ, SkipTrue: 2},
		load(mad+madSecondID, 4),
		bpf.Jump{Skip: 3},
		load(mad+madSecondID, 4),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1 + nothing, SkipFalse: 1},
		load(mad+madFirstID, 4),
	}
}

// MaxRules is the number of services that a program distinguishes. Requests for further
// services go to the keeper, which passes them on.
const MaxRules = 500

// Program returns the program for a group of sockets, two for each slot in order: one for data, one for
// management datagrams. It sees a packet from the BTH on, and only the first packet of a super-packet.
// Requests for a service without a listener go to the keeper, and so do REJs without a communication ID.
// A packet that is too short goes to the first socket, which the kernel chooses when a program reads
// behind the end of the packet.
func Program(services []Service, keeper Slot) []bpf.Instruction {
	const mad = bth.BTHLen + bth.DETHLen
	type ins = bpf.Instruction
	load := func(off uint32, size int) ins { return bpf.LoadAbsolute{Off: off, Size: size} }
	word := func(off uint32) ins { return load(off, 4) }
	dataOf := func(s Slot) ins { return bpf.RetConstant{Val: 2 * uint32(s)} }
	madsOf := func(s Slot) ins { return bpf.RetConstant{Val: 2*uint32(s) + 1} }
	// slot computes the index of the slot's socket from a number in the
	// register.
	slot := []ins{bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: Slots - 1}, bpf.ALUOpConstant{Op: bpf.ALUOpMul, Val: 2}}
	p := []ins{
		word(4), // the queue pair, with a byte in front
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(bth.QPNMulticast)},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(bth.QPNGSI), SkipTrue: 5},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(bth.QPNMulticast), SkipTrue: 3},
		slot[0], slot[1],
		bpf.RetA{},
		dataOf(0), // multicast, which the kernel gives to all sockets anyway
	}
	p = append(p, loadID(load, 5, 4)...)
	p = append(p,
		slot[0], slot[1],
		bpf.ALUOpConstant{Op: bpf.ALUOpAdd, Val: 1},
		bpf.RetA{},
		madsOf(keeper)) // a REJ without a communication ID
	for _, s := range services[:min(len(services), MaxRules)] {
		p = append(p,
			word(mad+madService+4),
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(s.ID), SkipTrue: 3},
			word(mad+madService),
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(s.ID >> 32), SkipTrue: 1},
			madsOf(s.Slot))
	}
	return append(p, madsOf(keeper))
}
