// Package pcap captures the packets of a link.Port, and reads and writes
// capture files: classic pcap and pcapng.
//
// tcpdump does not see the packets of a driver that bypasses the kernel;
// [Wrap] adds a tap to the stack instead. A tap around a link/fault Port
// sees the sent packets before the faults; a tap inside one sees them after
// the faults.
package pcap

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/goroce/roce/bth/frame"
)

// LinkType is the link layer of a captured packet (the LINKTYPE_ values of
// the tcpdump group).
type LinkType uint32

// The link types that this package knows.
const (
	Null      LinkType = 0 // loopback of BSD and macOS: address family in the byte order of the host
	Ethernet  LinkType = 1
	Raw       LinkType = 101 // IPv4 or IPv6 header
	Loop      LinkType = 108 // loopback of OpenBSD: Null in network byte order
	LinuxSLL  LinkType = 113 // "cooked" capture of the interface "any"
	IPv4      LinkType = 228
	IPv6      LinkType = 229
	LinuxSLL2 LinkType = 276
)

var linkNames = map[LinkType]string{
	Null: "NULL", Ethernet: "EN10MB", Raw: "RAW", Loop: "LOOP", LinuxSLL: "LINUX_SLL", IPv4: "IPV4", IPv6: "IPV6", LinuxSLL2: "LINUX_SLL2",
}

// String returns the name of the link type in tcpdump's manual.
func (l LinkType) String() string {
	return cmp.Or(linkNames[l], fmt.Sprintf("LinkType(%d)", uint32(l)))
}

// Direction is the direction of a packet; Unknown if the file does not tell.
type Direction uint8

// The directions.
const (
	Unknown Direction = iota
	In                // received
	Out               // sent
)

// String returns "in", "out" or "?".
func (d Direction) String() string {
	switch d {
	case In:
		return "in"
	case Out:
		return "out"
	}
	return "?"
}

// Record is one captured packet.
type Record struct {
	Time     time.Time
	Data     []byte // the captured bytes; from a Reader, valid until the next call of Next
	OrigLen  int    // length on the wire, at least len(Data)
	LinkType LinkType

	// Only pcapng and the cooked captures of Linux have a Direction, and only pcapng has an
	// Interface, which counts from 0 within the file. IfIndex is the number the kernel
	// gives an interface; only LINUX_SLL2 has it.
	Direction Direction
	Interface int
	IfIndex   int

	// Only pcapng has these: a remark about the packet, and a number that identifies one packet in
	// captures at several places; 0: none.
	Comment string
	ID      uint64

	// A Reader sets the rest. Number counts the frames of the file from 1. If a frame is a
	// super-packet, its packets are records with the same Number: number Segment, from 1,
	// of Segments. Otherwise both are 0.
	Number            int
	Segment, Segments int
	Marks             Mark
}

// cooked sets the fields of a record from the header of LINUX_SLL and LINUX_SLL2.
func (r *Record) cooked() {
	var kind uint16
	switch {
	case r.LinkType == LinuxSLL && len(r.Data) >= 16:
		kind = be.Uint16(r.Data)
	case r.LinkType == LinuxSLL2 && len(r.Data) >= 20:
		kind = uint16(r.Data[10])
		r.IfIndex = int(be.Uint32(r.Data[4:]))
	default:
		return
	}
	const outgoing = 4 // PACKET_OUTGOING
	if kind == outgoing {
		r.Direction = cmp.Or(r.Direction, Out)
	}
	r.Direction = cmp.Or(r.Direction, In)
}

// Frame returns the part of the record for frame.Packet.Parse, and its layout: it
// removes link headers that Parse does not know. ok is false for packets that are
// not Ethernet or IP.
func (r *Record) Frame() (data []byte, layout frame.Layout, ok bool) {
	switch r.LinkType {
	case Ethernet:
		// Parse accepts one tag.
		if typ, n := etherType(r.Data, 12); n > 14+4 && isIP(typ) {
			return r.Data[n:], frame.LayoutIP, true
		}
		return r.Data, frame.LayoutEthernet, true
	case Raw, IPv4, IPv6:
		return r.Data, frame.LayoutIP, true
	case Null, Loop:
		// The address family has a different value on each system, so use the version in the IP
		// header.
		if len(r.Data) > 4 {
			return r.Data[4:], frame.LayoutIP, true
		}
	case LinuxSLL:
		if typ, n := etherType(r.Data, 14); isIP(typ) {
			return r.Data[n:], frame.LayoutIP, true
		}
	case LinuxSLL2:
		if len(r.Data) < 20 {
			return nil, 0, false
		}
		if typ, n := be.Uint16(r.Data), 20; isIP(typ) {
			return r.Data[n:], frame.LayoutIP, true
		} else if isVLAN(typ) && len(r.Data) >= n+4 {
			if typ, n = etherType(r.Data, n+2); isIP(typ) {
				return r.Data[n:], frame.LayoutIP, true
			}
		}
	}
	return nil, 0, false
}

// ErrFormat means that a file is not a capture, or is damaged. The error that
// wraps it has the fault and its place.
var ErrFormat = errors.New("not a valid capture file")

// MaxPacket is the largest packet that a Reader accepts, in bytes: the
// largest snapshot length in use. It bounds the memory that a hostile file
// can use.
const MaxPacket = 262144

// The first four bytes of a file, in the byte order of its writer.
const (
	magicMicro = 0xA1B2C3D4
	magicNano  = 0xA1B23C4D
	magicNG    = 0x0A0D0D0A // the block type of a section header, a palindrome
)

// pcapng: block types, the mark of the byte order, and option codes.
const (
	blockSection   = magicNG
	blockInterface = 1
	blockPacketOld = 2
	blockSimple    = 3
	blockStats     = 5
	blockPacket    = 6

	orderMark = 0x1A2B3C4D

	optEnd      = 0
	optComment  = 1  // of any block
	optUserAppl = 4  // section: program that wrote it
	optIfName   = 2  // interface
	optIfDesc   = 3  // interface
	optTsResol  = 9  // interface
	optTsOffset = 14 // interface
	optFlags    = 2  // packet
	optPacketID = 5  // packet
	optDrops    = 4  // packet: lost before it
	optIfDrop   = 5  // statistics: lost by the interface
	optOSDrop   = 7  // statistics: lost by the operating system

	flagsDirection = 3
	flagsIn        = 1
	flagsOut       = 2
)
