package bth

import (
	"fmt"
	"time"
)

// Syndrome is byte 0 of the AETH: two bits say what kind of acknowledgement it
// is, five bits hold its value. Bit 7 is reserved.
//
//	  7   6   5   4   3   2   1   0
//	+---+---+---+---+---+---+---+---+
//	| 0 | kind  |      value        |
//	+---+---+---+---+---+---+---+---+
//	     0 0     credit code (ACK)
//	     0 1     timer code (RNR NAK)
//	     1 0     reserved
//	     1 1     NAK code
type Syndrome uint8

// AckKind is the kind of an acknowledgement, bits 6:5 of a [Syndrome].
type AckKind uint8

// The kinds.
const (
	KindACK      AckKind = 0 // positive; the value is a credit code
	KindRNR      AckKind = 1 // receiver not ready; the value is an [RNRTimer]
	KindReserved AckKind = 2
	KindNAK      AckKind = 3 // negative; the value is one of the NAK codes
)

var ackKindNames = [...]string{"ACK", "RNR", "RESERVED", "NAK"}

// String returns "ACK", "RNR", "RESERVED" or "NAK".
func (k AckKind) String() string {
	if int(k) < len(ackKindNames) {
		return ackKindNames[k]
	}
	return fmt.Sprintf("AckKind(%d)", uint8(k))
}

// AckNoCredits is a positive acknowledgement that does not use end-to-end flow
// control. rxe sends no other.
const AckNoCredits Syndrome = 0x1F

// The negative acknowledgements (IBTA table 45, "NAK Codes").
const (
	NAKSequence         Syndrome = 0x60 // PSN sequence error: requester goes back
	NAKInvalidRequest   Syndrome = 0x61 // IBV_WC_REM_INV_REQ_ERR at the requester
	NAKRemoteAccess     Syndrome = 0x62 // IBV_WC_REM_ACCESS_ERR
	NAKRemoteOp         Syndrome = 0x63 // IBV_WC_REM_OP_ERR
	NAKInvalidRDRequest Syndrome = 0x64 // reliable datagram only
)

// RNR returns the receiver-not-ready NAK that asks the requester to wait t.
func RNR(t RNRTimer) Syndrome { return Syndrome(KindRNR)<<5 | Syndrome(t&0x1F) }

// Kind returns what kind of acknowledgement s is; the reserved bit is ignored.
func (s Syndrome) Kind() AckKind { return AckKind(s >> 5 & 3) }

// Value returns the lower five bits: a credit code, a timer code or a NAK code.
func (s Syndrome) Value() uint8 { return uint8(s & 0x1F) }

// creditTable is the number of receive work requests a credit code stands for
// (IBTA table 46; rdmavt credit_table). Code 31 means no flow control.
var creditTable = [31]uint16{
	0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
}

// Credits returns the number of receive work requests the responder has beyond
// the MSN of the same AETH. ok is false if s is no ACK or does not use flow
// control.
func (s Syndrome) Credits() (n int, ok bool) {
	v := int(s.Value())
	if s.Kind() != KindACK || v >= len(creditTable) {
		return 0, false
	}
	return int(creditTable[v]), true
}

var nakNames = [...]string{"sequence error", "invalid request", "remote access error", "remote operational error", "invalid RD request"}

// String prints s as in "ACK", "ACK credits 4", "RNR 0.64ms" or "NAK remote
// access error".
func (s Syndrome) String() string {
	switch v := s.Value(); s.Kind() {
	case KindACK:
		if n, ok := s.Credits(); ok {
			return fmt.Sprintf("ACK credits %d", n)
		}
		return "ACK"
	case KindRNR:
		return "RNR " + RNRTimer(v).Duration().String()
	case KindNAK:
		if int(v) < len(nakNames) {
			return "NAK " + nakNames[v]
		}
		return fmt.Sprintf("NAK code %d", v)
	}
	return fmt.Sprintf("reserved syndrome %#02x", uint8(s))
}

// RNRTimer is the five-bit code of the time a requester must wait after a
// receiver-not-ready NAK; it is also the code of ibv_qp_attr.min_rnr_timer.
// Code 0, the default of rdma_cm, is the longest time of all.
type RNRTimer uint8

// rnrTable is the time of each code in units of 10 µs (IBTA table 47). rxe
// has 61.41 ms for code 25, an error.
var rnrTable = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// Duration returns the time to wait, 10 µs to 655.36 ms. Bits above the lower
// five are ignored.
func (t RNRTimer) Duration() time.Duration {
	return time.Duration(rnrTable[t&0x1F]) * 10 * time.Microsecond
}

// String prints the time, as in "640µs".
func (t RNRTimer) String() string { return t.Duration().String() }

// RNRTimerFor returns the code of the shortest time that is at least d, or of
// the longest there is, 655.36 ms.
func RNRTimerFor(d time.Duration) RNRTimer {
	for t := RNRTimer(1); t < 32; t++ {
		if t.Duration() >= d {
			return t
		}
	}
	return 0
}

// AckTimeout returns the local ACK timeout of a code as in
// ibv_qp_attr.timeout: 4.096 µs · 2^code for 1 to 31, and 0, which stands for
// no timeout at all, for 0. Bits above the lower five are ignored.
func AckTimeout(code uint8) time.Duration {
	if code &= 0x1F; code != 0 {
		return 4096 * time.Nanosecond << code
	}
	return 0
}
