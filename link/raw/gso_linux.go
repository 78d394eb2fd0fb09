package raw

import (
	"encoding/binary"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/gso"
)

const udpLen = 8

// describe checks the headers of a super-packet like [frame.Packet.Parse], and
// fills in an envelope. It returns the size of the headers and the payload,
// which is nil if a header is wrong.
func describe(env *frame.Envelope, b []byte) (header int, body []byte) {
	e, ok := gso.Look(b)
	if !ok {
		return 0, nil
	}
	ip, udp := b[e.IP:e.UDP], b[e.UDP:]
	length := int(binary.BigEndian.Uint16(udp[4:]))
	var total int // from the IP header
	*env = frame.Envelope{DstMAC: frame.MAC(b), SrcMAC: frame.MAC(b[6:]), SrcPort: binary.BigEndian.Uint16(udp), IDSeen: true, IDMerged: true}
	if e.IP == 18 {
		env.VLAN = binary.BigEndian.Uint16(b[14:]) & 0x0FFF
	}
	if e.V6 {
		env.TrafficClass, env.HopLimit = ip[0]<<4|ip[1]>>4, ip[7]
		env.FlowLabel = binary.BigEndian.Uint32(ip) & (1<<20 - 1)
		env.Src, env.Dst = bth.GID(ip[8:]), bth.GID(ip[24:])
		if env.Src.Is4() || env.Dst.Is4() {
			return 0, nil
		}
		total = 40 + int(binary.BigEndian.Uint16(ip[4:]))
	} else {
		env.TrafficClass, env.HopLimit = ip[1], ip[8]
		env.ID = binary.BigEndian.Uint16(ip[4:])
		env.Src = bth.GID{10: 0xFF, 11: 0xFF, 12: ip[12], 13: ip[13], 14: ip[14], 15: ip[15]}
		env.Dst = bth.GID{10: 0xFF, 11: 0xFF, 12: ip[16], 13: ip[17], 14: ip[18], 15: ip[19]}
		if frame.Fold16(frame.Sum16(ip)) != 0xFFFF {
			return 0, nil
		}
		total = int(binary.BigEndian.Uint16(ip[2:]))
	}
	if length <= udpLen || len(ip)+length > total || total > len(b)-e.IP {
		return 0, nil
	}
	env.Seal()
	return e.Body, udp[udpLen:length:length]
}
