package perftest

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/goroce/roce/bth"
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

// DestLen is the length of a [Dest] on the wire, that of perftest's buffer for it:
// text, and a NUL. RoCE always has a GID; without one it would be 59.
const DestLen = 108

// Append appends the record.
func (d Dest) Append(b []byte) []byte {
	b = fmt.Appendf(b, "%04x:%04x:%06x:%06x:%08x:%016x:", d.LID, d.OutReads, uint32(d.QPN), uint32(d.PSN), uint32(d.RKey), d.VAddr)
	for _, c := range d.GID {
		b = fmt.Appendf(b, "%02x:", c)
	}
	return fmt.Appendf(b, "%08x:\x00", d.SRQN)
}

// ParseDest reads a record. Like strtol in the C program it takes numbers of any
// width, but none that do not fit what they are.
func ParseDest(b []byte) (d Dest, err error) {
	text, _, _ := strings.Cut(string(b), "\x00")
	fail := func(what string) (Dest, error) {
		return Dest{}, fmt.Errorf("perftest: address %.120q: %s", text, what)
	}
	var lid, out, qpn, psn, rkey, srqn uint64
	type field struct {
		name string
		bits int
		to   *uint64
	}
	fields := []field{{"lid", 16, &lid}, {"out_reads", 32, &out}, {"qpn", 24, &qpn}, {"psn", 24, &psn}, {"rkey", 32, &rkey}, {"vaddr", 64, &d.VAddr}}
	var gid [16]uint64
	for i := range gid {
		fields = append(fields, field{"gid", 8, &gid[i]})
	}
	fields = append(fields, field{"srqn", 32, &srqn})
	part := strings.Split(text, ":")
	if len(part) != len(fields)+1 || part[len(fields)] != "" {
		return fail("want lid:out_reads:qpn:psn:rkey:vaddr:, 16 bytes of GID, srqn:")
	}
	for i, f := range fields {
		if *f.to, err = strconv.ParseUint(part[i], 16, f.bits); err != nil {
			return fail(fmt.Sprintf("%s %q is not a number of %d bits", f.name, part[i], f.bits))
		}
	}
	for i, v := range gid {
		d.GID[i] = byte(v)
	}
	d.LID, d.OutReads, d.QPN, d.PSN, d.RKey, d.SRQN = uint16(lid), uint32(out), bth.QPN(qpn), bth.PSN(psn), bth.RKey(rkey), uint32(srqn)
	return d, nil
}

// BinaryLen is the length of a [Dest] on a connection of the connection manager.
const BinaryLen = 56

// AppendBinary appends the record for such a connection: struct pingpong_dest, big endian, with the
// index of the GID, which is not used, at the end.
func (d Dest) AppendBinary(b []byte) []byte {
	for _, v := range [...]uint32{uint32(d.LID), d.OutReads, uint32(d.QPN), uint32(d.PSN), uint32(d.RKey), 0} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	b = binary.BigEndian.AppendUint64(b, d.VAddr)
	b = append(b, d.GID[:]...)
	b = binary.BigEndian.AppendUint32(b, d.SRQN)
	return binary.BigEndian.AppendUint32(b, 0)
}

// ParseBinary reads a record that AppendBinary made.
func ParseBinary(b []byte) (d Dest, err error) {
	if len(b) != BinaryLen {
		return Dest{}, fmt.Errorf("perftest: an address of %d bytes, want %d", len(b), BinaryLen)
	}
	word := func(i int) uint32 { return binary.BigEndian.Uint32(b[4*i:]) }
	lid, qpn, psn := word(0), word(2), word(3)
	if lid > 1<<16-1 || qpn > 1<<24-1 || psn > 1<<24-1 {
		return Dest{}, fmt.Errorf("perftest: address with LID %#x, QPN %#x, PSN %#x: want 16, 24 and 24 bits", lid, qpn, psn)
	}
	return Dest{LID: uint16(lid), OutReads: word(1), QPN: bth.QPN(qpn), PSN: bth.PSN(psn), RKey: bth.RKey(word(4)),
		VAddr: binary.BigEndian.Uint64(b[24:]), GID: bth.GID(b[32:48]), SRQN: word(12)}, nil
}

// String returns the address as perftest prints it.
func (d Dest) String() string {
	return fmt.Sprintf("LID %04x QPN 0x%04x PSN 0x%x OUT 0x%02x RKey 0x%08x VAddr 0x%016x GID %v",
		d.LID, uint32(d.QPN), uint32(d.PSN), d.OutReads, uint32(d.RKey), d.VAddr, d.GID)
}
