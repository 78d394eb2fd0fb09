package perftest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/oob"
)

// Dest is the address of a queue pair and of the memory that its end exports (struct pingpong_dest).
type Dest struct {
	LID      uint16 // always 0 on RoCE
	OutReads uint32 // READs and atomics this end answers at a time
	QPN      bth.QPN
	PSN      bth.PSN // the first PSN this end sends
	RKey     bth.RKey
	VAddr    uint64
	GID      bth.GID
	SRQN     uint32
}

// DestLen is the length of a [Dest] on the wire as text, with a NUL at the end. It is the length of perftest's buffer for
// an address with a GID; RoCE always has one.
const DestLen = 108

// Append appends the record.
func (d Dest) Append(b []byte) []byte {
	b = fmt.Appendf(b, "%04x:%04x:%06x:%06x:%08x:%016x:", d.LID, d.OutReads, uint32(d.QPN), uint32(d.PSN), uint32(d.RKey), d.VAddr)
	for _, c := range d.GID {
		b = fmt.Appendf(b, "%02x:", c)
	}
	return fmt.Appendf(b, "%08x:\x00", d.SRQN)
}

// destFields are the numbers of a record.
var destFields = slices.Concat([]oob.HexField{{Name: "lid", Bits: 16}, {Name: "out_reads", Bits: 32}, {Name: "qpn", Bits: 24}, {Name: "psn", Bits: 24},
	{Name: "rkey", Bits: 32}, {Name: "vaddr", Bits: 64}}, slices.Repeat([]oob.HexField{{Name: "gid", Bits: 8}}, 16), []oob.HexField{{Name: "srqn", Bits: 32}})

// ParseDest reads a record.
func ParseDest(b []byte) (Dest, error) {
	text := oob.Text(b)
	var v []uint64
	part, err := strings.Split(text, ":"), errors.New("want lid:out_reads:qpn:psn:rkey:vaddr:, 16 bytes of GID and srqn, each with a colon behind it")
	if len(part) == len(destFields)+1 && part[len(destFields)] == "" {
		v, err = oob.ParseHex(part, destFields)
	}
	if err != nil {
		return Dest{}, fmt.Errorf("perftest: address %.120q: %w", text, err)
	}
	d := Dest{LID: uint16(v[0]), OutReads: uint32(v[1]), QPN: bth.QPN(v[2]), PSN: bth.PSN(v[3]), RKey: bth.RKey(v[4]), VAddr: v[5], SRQN: uint32(v[22])}
	for i := range d.GID {
		d.GID[i] = byte(v[6+i])
	}
	return d, nil
}

// BinaryLen is the length of a [Dest] on a connection of the connection manager.
const BinaryLen = 56

// binaryDest is a [Dest] on such a connection, big endian (struct pingpong_dest).
type binaryDest struct {
	LID, OutReads, QPN, PSN, RKey, _ uint32
	VAddr                            uint64
	GID                              bth.GID
	SRQN, GIDIndex                   uint32 // the index is not used
}

// AppendBinary appends the record for such a connection.
func (d Dest) AppendBinary(b []byte) []byte {
	b, _ = binary.Append(b, binary.BigEndian, binaryDest{LID: uint32(d.LID), OutReads: d.OutReads, QPN: uint32(d.QPN), PSN: uint32(d.PSN),
		RKey: uint32(d.RKey), VAddr: d.VAddr, GID: d.GID, SRQN: d.SRQN}) // cannot fail for a struct of numbers
	return b
}

// ParseBinary reads a record that AppendBinary made.
func ParseBinary(b []byte) (Dest, error) {
	var r binaryDest
	if n, err := binary.Decode(b, binary.BigEndian, &r); err != nil || n != len(b) {
		return Dest{}, fmt.Errorf("perftest: an address of %d bytes, want %d", len(b), BinaryLen)
	}
	if r.LID > 1<<16-1 || r.QPN > 1<<24-1 || r.PSN > 1<<24-1 {
		return Dest{}, fmt.Errorf("perftest: address with LID %#x, QPN %#x, PSN %#x: want 16, 24 and 24 bits", r.LID, r.QPN, r.PSN)
	}
	return Dest{LID: uint16(r.LID), OutReads: r.OutReads, QPN: bth.QPN(r.QPN), PSN: bth.PSN(r.PSN), RKey: bth.RKey(r.RKey), VAddr: r.VAddr, GID: r.GID, SRQN: r.SRQN}, nil
}

// String returns the address as perftest prints it.
func (d Dest) String() string {
	return fmt.Sprintf("LID %04x QPN 0x%04x PSN 0x%x OUT 0x%02x RKey 0x%08x VAddr 0x%016x GID %v",
		d.LID, uint32(d.QPN), uint32(d.PSN), d.OutReads, uint32(d.RKey), d.VAddr, d.GID)
}
