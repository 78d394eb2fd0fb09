package frame

import "github.com/goroce/roce/bth"

// GRHLen is the length of the GRH area, the room in front of the payload of
// every received datagram (struct ibv_grh).
const GRHLen = 40

// ErrGRH says that a GRH area holds no IP header of a RoCEv2 packet.
const ErrGRH grhError = "frame: GRH area holds neither an IPv6 nor an IPv4 header of a UDP packet"

type grhError string

func (e grhError) Error() string { return string(e) }

// GRH has the fields of a GRH area: the addresses and the service of a
// received datagram.
type GRH struct {
	Src, Dst     bth.GID
	TrafficClass uint8  // DSCP and ECN
	FlowLabel    uint32 // 20 bits; 0 with IPv4
	HopLimit     uint8  // as received
}

// ParseGRH reads a GRH area: an IPv6 header, or 20 bytes of anything and an
// IPv4 header (IBTA annex A17). Nothing in the area says which of the two it
// is. Like ib_get_rdma_header_version of Linux and ibv_init_ah_from_wc,
// ParseGRH takes an area that begins like an IPv6 header for an IPv4 one if
// byte 20 begins an IPv4 header without options and with the right checksum.
// The error is [ErrTruncated] or [ErrGRH].
func ParseGRH(area []byte) (g GRH, err error) {
	if len(area) < GRHLen {
		return g, ErrTruncated
	}
	v6, v4 := area[:ipv6Len], area[GRHLen-ipv4Len:GRHLen]
	is6 := v6[0]>>4 == 6
	switch {
	case is6 && !(v4[0] == 0x45 && validIPv4((*[ipv4Len]byte)(v4))):
		if v6[6] != protoUDP {
			return g, ErrGRH
		}
		g.Src, g.Dst = bth.GID(v6[8:]), bth.GID(v6[24:])
		g.TrafficClass, g.HopLimit = v6[0]<<4|v6[1]>>4, v6[7]
		g.FlowLabel = be.Uint32(v6) & maxFlowLabel
	case is6 || v4[0]>>4 == 4:
		setIPv4(&g.Src, le.Uint32(v4[12:]))
		setIPv4(&g.Dst, le.Uint32(v4[16:]))
		g.TrafficClass, g.HopLimit = v4[1], v4[8]
	default:
		return g, ErrGRH
	}
	return g, nil
}

// PutGRH fills the GRH area of the packet: its IPv6 header, or 20 zero bytes
// and its IPv4 header. If the driver has not seen the header, PutGRH makes one
// from the known fields, with a right checksum.
func (p *Packet) PutGRH(area *[GRHLen]byte) {
	switch len(p.IP) {
	case ipv6Len:
		copy(area[:], p.IP)
		return
	case ipv4Len:
		clear(area[:GRHLen-ipv4Len])
		copy(area[GRHLen-ipv4Len:], p.IP)
		return
	}
	clear(area[:])
	length := uint16(udpLen + len(p.Data))
	if !p.Src.Is4() {
		be.PutUint32(area[0:], 6<<28|uint32(p.TrafficClass)<<20|p.FlowLabel&maxFlowLabel)
		be.PutUint16(area[4:], length)
		area[6], area[7] = protoUDP, p.HopLimit
		copy(area[8:], p.Src[:])
		copy(area[24:], p.Dst[:])
		return
	}
	ip := area[GRHLen-ipv4Len:]
	ip[0], ip[1] = 0x45, p.TrafficClass
	be.PutUint16(ip[2:], length+ipv4Len)
	if p.env != nil && p.env.IDSeen {
		be.PutUint16(ip[4:], p.env.ID+p.segment)
	}
	be.PutUint16(ip[6:], dontFragment)
	ip[8], ip[9] = p.HopLimit, protoUDP
	copy(ip[12:], p.Src[12:])
	copy(ip[16:], p.Dst[12:])
	be.PutUint16(ip[10:], ^Fold16(Sum16(ip)))
}
