package bth

import "fmt"

// Opcode is the operation code, byte 0 of the BTH. The upper three bits are
// the transport, the lower five the operation. Names are
// <Transport><Operation><Position>.
type Opcode uint8

// Reliable connection.
const (
	RCSendFirst          Opcode = 0x00
	RCSendMiddle         Opcode = 0x01
	RCSendLast           Opcode = 0x02
	RCSendLastImm        Opcode = 0x03
	RCSendOnly           Opcode = 0x04
	RCSendOnlyImm        Opcode = 0x05
	RCWriteFirst         Opcode = 0x06
	RCWriteMiddle        Opcode = 0x07
	RCWriteLast          Opcode = 0x08
	RCWriteLastImm       Opcode = 0x09
	RCWriteOnly          Opcode = 0x0A
	RCWriteOnlyImm       Opcode = 0x0B
	RCReadRequest        Opcode = 0x0C
	RCReadResponseFirst  Opcode = 0x0D
	RCReadResponseMiddle Opcode = 0x0E
	RCReadResponseLast   Opcode = 0x0F
	RCReadResponseOnly   Opcode = 0x10
	RCAck                Opcode = 0x11
	RCAtomicAck          Opcode = 0x12
	RCCompareSwap        Opcode = 0x13
	RCFetchAdd           Opcode = 0x14
	RCSendLastInv        Opcode = 0x16
	RCSendOnlyInv        Opcode = 0x17
	RCFlush              Opcode = 0x1C
	RCAtomicWrite        Opcode = 0x1D
)

// Unreliable connection.
const (
	UCSendFirst    Opcode = 0x20
	UCSendMiddle   Opcode = 0x21
	UCSendLast     Opcode = 0x22
	UCSendLastImm  Opcode = 0x23
	UCSendOnly     Opcode = 0x24
	UCSendOnlyImm  Opcode = 0x25
	UCWriteFirst   Opcode = 0x26
	UCWriteMiddle  Opcode = 0x27
	UCWriteLast    Opcode = 0x28
	UCWriteLastImm Opcode = 0x29
	UCWriteOnly    Opcode = 0x2A
	UCWriteOnlyImm Opcode = 0x2B
)

// Reliable datagram: obsolete, and no implementation is known. The codes from 0x40 to
// 0x55 are in the table so that a tool can name them; RDResync is the only one
// without an RC counterpart.
const RDResync Opcode = 0x55

// Unreliable datagram.
const (
	UDSendOnly    Opcode = 0x64
	UDSendOnlyImm Opcode = 0x65
)

// Congestion notification packet (IBTA A17.9).
const CNP Opcode = 0x81

// Extended reliable connection. FLUSH and ATOMIC WRITE have the positions of
// RC; no other implementation sends either.
const (
	XRCSendFirst          Opcode = 0xA0
	XRCSendMiddle         Opcode = 0xA1
	XRCSendLast           Opcode = 0xA2
	XRCSendLastImm        Opcode = 0xA3
	XRCSendOnly           Opcode = 0xA4
	XRCSendOnlyImm        Opcode = 0xA5
	XRCWriteFirst         Opcode = 0xA6
	XRCWriteMiddle        Opcode = 0xA7
	XRCWriteLast          Opcode = 0xA8
	XRCWriteLastImm       Opcode = 0xA9
	XRCWriteOnly          Opcode = 0xAA
	XRCWriteOnlyImm       Opcode = 0xAB
	XRCReadRequest        Opcode = 0xAC
	XRCReadResponseFirst  Opcode = 0xAD
	XRCReadResponseMiddle Opcode = 0xAE
	XRCReadResponseLast   Opcode = 0xAF
	XRCReadResponseOnly   Opcode = 0xB0
	XRCAck                Opcode = 0xB1
	XRCAtomicAck          Opcode = 0xB2
	XRCCompareSwap        Opcode = 0xB3
	XRCFetchAdd           Opcode = 0xB4
	XRCSendLastInv        Opcode = 0xB6
	XRCSendOnlyInv        Opcode = 0xB7
	XRCFlush              Opcode = 0xBC
	XRCAtomicWrite        Opcode = 0xBD
)

// Manufacturer specific opcodes (the range from 0xC0). These three are specific to this stack: atomics that use
// only some bits of a word, or that add field by field. Reliable connected queue pairs exchange them. The response
// is RCAtomicAck or, with an operand of more than 8 bytes, MaskedAtomicAck. Other implementations do not know them
// and drop them. See docs/masked-atomics.md.
const (
	MaskedAtomicAck   Opcode = 0xF2
	MaskedCompareSwap Opcode = 0xF3
	MaskedFetchAdd    Opcode = 0xF4
)

// Opcodes by which a dynamically connected initiator makes and ends its connection to a target, also specific to
// this stack. For data the initiator uses the operations of RC, from 0xC0 on. See docs/dc.md.
const (
	DCConnect    Opcode = 0xD8
	DCAccept     Opcode = 0xD9
	DCReject     Opcode = 0xDA
	DCDisconnect Opcode = 0xDB
)

// Info returns the row of the opcode table, never nil. The row of an unknown
// opcode has no name and describes a bare BTH.
func (op Opcode) Info() *OpcodeInfo { return &opcodes[op] }

// Known reports whether the table has the opcode.
func (op Opcode) Known() bool { return opcodes[op].Name != "" }

// Transport returns the upper three bits.
func (op Opcode) Transport() Transport { return Transport(op >> 5) }

// String returns the name, as in "RC WRITE_FIRST", or "opcode 0x15".
func (op Opcode) String() string {
	if n := opcodes[op].Name; n != "" {
		return n
	}
	return fmt.Sprintf("opcode %#02x", uint8(op))
}

// Transport is the upper three bits of an opcode.
type Transport uint8

// The transports.
const (
	RC           Transport = 0 // reliable connection
	UC           Transport = 1 // unreliable connection
	RD           Transport = 2 // reliable datagram (obsolete)
	UD           Transport = 3 // unreliable datagram
	CNPTransport Transport = 4 // congestion notification
	XRC          Transport = 5 // extended reliable connection
	DC           Transport = 6 // dynamically connected, this stack's own
	Manufacturer Transport = 7 // this stack's own operations, on reliable connections
)

var transportNames = [8]string{RC: "RC", UC: "UC", RD: "RD", UD: "UD", CNPTransport: "CNP", XRC: "XRC", DC: "DC", Manufacturer: "MFR"}

// String returns "RC", "UC", ….
func (t Transport) String() string {
	if t < 8 && transportNames[t] != "" {
		return transportNames[t]
	}
	return fmt.Sprintf("Transport(%d)", uint8(t))
}
