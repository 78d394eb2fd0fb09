package bth

import "fmt"

// PSN is a packet sequence number: 24 bits that wrap. Comparisons look at the
// signed distance, so they are meaningful between numbers less than 2^23 apart,
// which the protocol guarantees (IBTA 9.7.2: at most half the PSN space may be
// outstanding).
type PSN uint32

// PSNMask has the bits of a [PSN], an [MSN], a [QPN] and an [SRQN] set.
const PSNMask = 1<<24 - 1

// Add returns the PSN n packets after p; n may be negative.
func (p PSN) Add(n int) PSN { return PSN(uint32(p)+uint32(n)) & PSNMask }

// Sub returns the signed distance from q to p, in [-2^23, 2^23): positive
// when p is later.
func (p PSN) Sub(q PSN) int32 { return int32((uint32(p)-uint32(q))<<8) >> 8 }

// Less reports whether p is earlier than q. Of two numbers exactly 2^23 apart
// each is earlier than the other.
func (p PSN) Less(q PSN) bool { return p.Sub(q) < 0 }

// String prints p in hexadecimal, as in "0xfffff0".
func (p PSN) String() string { return fmt.Sprintf("%#06x", uint32(p)) }

// MSN is a message sequence number: the responder's count of completed
// messages, 24 bits that wrap.
type MSN uint32

// Add returns the MSN n messages after m; n may be negative.
func (m MSN) Add(n int) MSN { return MSN(uint32(m)+uint32(n)) & PSNMask }

// Sub returns the signed distance from n to m, in [-2^23, 2^23).
func (m MSN) Sub(n MSN) int32 { return int32((uint32(m)-uint32(n))<<8) >> 8 }

// QPN is the number of a queue pair, 24 bits.
type QPN uint32

// Queue pair numbers with a meaning.
const (
	QPNGSI       QPN = 1        // general services interface: CM and other management datagrams
	QPNMulticast QPN = 0xFFFFFF // destination of multicast datagrams
)

// String prints q in hexadecimal, as rdma(8) and ibv_*_pingpong do.
func (q QPN) String() string { return fmt.Sprintf("%#x", uint32(q)) }

// Object names the queue pair in errors: "qp 0x11".
func (q QPN) Object() string { return "qp " + q.String() }

// SRQN is the number of a shared receive queue, 24 bits.
type SRQN uint32

// String prints s in hexadecimal.
func (s SRQN) String() string { return fmt.Sprintf("%#x", uint32(s)) }

// Object names the shared receive queue in errors: "srq 0x11".
func (s SRQN) Object() string { return "srq " + s.String() }

// RKey is the key a remote peer shows to reach a memory region or window.
type RKey uint32

// String prints k in hexadecimal.
func (k RKey) String() string { return fmt.Sprintf("%#x", uint32(k)) }

// LKey is the key of a memory region in local work requests. It never appears
// on the wire and lives here because it belongs to the same family.
type LKey uint32

// String prints k in hexadecimal.
func (k LKey) String() string { return fmt.Sprintf("%#x", uint32(k)) }

// Object names the memory region in errors: "mr 0x100".
func (k LKey) Object() string { return "mr " + k.String() }

// QKey guards a datagram queue pair: a datagram is delivered only if its
// Q_Key equals that of the receiver.
type QKey uint32

// QKeyGSI is the Q_Key of QP 1.
const QKeyGSI QKey = 0x80010000

// Privileged reports whether the top bit is set. A send with such a key uses
// the Q_Key of its own queue pair instead (IBTA 10.2.5).
func (k QKey) Privileged() bool { return k>>31 != 0 }

// String prints k in hexadecimal.
func (k QKey) String() string { return fmt.Sprintf("%#x", uint32(k)) }

// PKey is a partition key: bit 15 says full member, bits 14:0 name the
// partition.
type PKey uint16

// DefaultPKey is the only partition key in use on RoCE.
const DefaultPKey PKey = 0xFFFF

// Match reports whether a packet with key k may reach a port with key own: the
// same partition, and not both limited members (IBTA 10.9.3). rxe compares the
// partition alone, which is the same for own = [DefaultPKey].
func (k PKey) Match(own PKey) bool {
	return (k^own)&0x7FFF == 0 && (k|own)&0x8000 != 0
}

// String prints k in hexadecimal.
func (k PKey) String() string { return fmt.Sprintf("%#04x", uint16(k)) }

// UDPPort is the UDP destination port of RoCEv2, in both directions.
const UDPPort = 4791
