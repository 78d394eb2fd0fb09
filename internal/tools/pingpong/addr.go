package pingpong

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/goroce/roce/bth"
)

// Addr is the address of a queue pair, which the two sides exchange over TCP before they
// connect (struct pingpong_dest).
type Addr struct {
	LID uint16 // always 0 on RoCE
	QPN bth.QPN
	PSN bth.PSN // the first PSN this side sends
	GID bth.GID
}

// RecordLen is the length of an [Addr] on the wire: text, with a NUL behind it.
const RecordLen = len("0000:000000:000000:00000000000000000000000000000000") + 1

// Append appends the record: lid:qpn:psn:gid in hexadecimal, and a NUL.
func (a Addr) Append(b []byte) []byte {
	return fmt.Appendf(b, "%04x:%06x:%06x:%x\x00", a.LID, uint32(a.QPN), uint32(a.PSN), [16]byte(a.GID))
}

// ParseAddr reads a record. Like sscanf in the C tool it takes numbers of any
// width, but it insists on a whole GID and on 24-bit numbers.
func ParseAddr(b []byte) (Addr, error) {
	text, _, _ := strings.Cut(string(b), "\x00")
	fail := func(what string) (Addr, error) {
		return Addr{}, fmt.Errorf("pingpong: address %.60q: %s", text, what)
	}
	part := strings.Split(text, ":")
	if len(part) != 4 {
		return fail("want lid:qpn:psn:gid")
	}
	var num [3]uint64
	for i, bits := range [3]int{16, 24, 24} {
		v, err := strconv.ParseUint(part[i], 16, bits)
		if err != nil {
			return fail(fmt.Sprintf("%s is not a number of %d bits", [3]string{"lid", "qpn", "psn"}[i], bits))
		}
		num[i] = v
	}
	gid, err := hex.DecodeString(part[3])
	if err != nil || len(gid) != 16 {
		return fail("the GID is not 32 hexadecimal digits")
	}
	return Addr{LID: uint16(num[0]), QPN: bth.QPN(num[1]), PSN: bth.PSN(num[2]), GID: bth.GID(gid)}, nil
}

// String prints the address as ibv_rc_pingpong does.
func (a Addr) String() string {
	return fmt.Sprintf("LID 0x%04x, QPN 0x%06x, PSN 0x%06x, GID %v", a.LID, uint32(a.QPN), uint32(a.PSN), a.GID)
}
