package pingpong

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/oob"
)

// Addr is the address of a queue pair, which the two sides exchange over TCP before they
// connect (struct pingpong_dest).
type Addr struct {
	LID uint16 // always 0 on RoCE
	QPN bth.QPN
	PSN bth.PSN // the first PSN this side sends
	GID bth.GID
}

// RecordLen is the length of an [Addr] on the wire: text, then a NUL.
const RecordLen = len("0000:000000:000000:00000000000000000000000000000000") + 1

// Append appends the record: lid:qpn:psn:gid in hexadecimal, and a NUL.
func (a Addr) Append(b []byte) []byte {
	return fmt.Appendf(b, "%04x:%06x:%06x:%x\x00", a.LID, uint32(a.QPN), uint32(a.PSN), [16]byte(a.GID))
}

// addrFields are the numbers of a record.
var addrFields = []oob.HexField{{Name: "lid", Bits: 16}, {Name: "qpn", Bits: 24}, {Name: "psn", Bits: 24}}

// ParseAddr parses a record. The GID must have all its 32 digits.
func ParseAddr(b []byte) (Addr, error) {
	text := oob.Text(b)
	fail := func(err error) (Addr, error) { return Addr{}, fmt.Errorf("pingpong: address %.60q: %w", text, err) }
	part := strings.Split(text, ":")
	if len(part) != 4 {
		return fail(errors.New("want lid:qpn:psn:gid"))
	}
	v, err := oob.ParseHex(part, addrFields)
	if err != nil {
		return fail(err)
	}
	gid, err := hex.DecodeString(part[3])
	if err != nil || len(gid) != 16 {
		return fail(errors.New("the GID is not 32 hexadecimal digits"))
	}
	return Addr{LID: uint16(v[0]), QPN: bth.QPN(v[1]), PSN: bth.PSN(v[2]), GID: bth.GID(gid)}, nil
}

// String returns the address as ibv_rc_pingpong prints it.
func (a Addr) String() string {
	return fmt.Sprintf("LID 0x%04x, QPN 0x%06x, PSN 0x%06x, GID %v", a.LID, uint32(a.QPN), uint32(a.PSN), a.GID)
}
