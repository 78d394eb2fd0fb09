package frame

import "github.com/goroce/roce/bth"

// ParseError is the reason why a frame is not a valid RoCEv2 packet. Its
// values are constants: bad frames allocate nothing.
type ParseError uint8

// The errors in an envelope. ErrNotRoCE means that the frame is other traffic; the others
// are errors of frames to UDP port 4791.
const (
	ErrNotRoCE     ParseError = 1 + iota // not UDP to port 4791
	ErrTruncated                         // frame ends before its headers or lengths say
	ErrIPHeader                          // IPv4 options (their ICRC is not defined) or an IPv4 address in IPv6
	ErrFragment                          // RoCEv2 packets are never fragmented
	ErrIPChecksum                        // IPv4 header checksum wrong
	ErrUDPLength                         // UDP length less than a header or more than the IP payload
	ErrUDPChecksum                       // UDP checksum present and wrong
)

var parseErrors = [...]string{
	ErrNotRoCE:     "frame: not a RoCEv2 packet (UDP to port 4791)",
	ErrTruncated:   "frame: truncated",
	ErrIPHeader:    "frame: IPv4 header with options, or v4-mapped address in an IPv6 header",
	ErrFragment:    "frame: IP fragment",
	ErrIPChecksum:  "frame: wrong IPv4 header checksum",
	ErrUDPLength:   "frame: UDP length does not fit the IP packet",
	ErrUDPChecksum: "frame: wrong UDP checksum",
}

func (e ParseError) Error() string {
	if int(e) < len(parseErrors) && parseErrors[e] != "" {
		return parseErrors[e]
	}
	return "frame: bad packet"
}

// Packet is a view of a received packet with its envelope. It points into the
// buffer given to Parse. Reuse one Packet for many frames.
type Packet struct {
	bth.Packet

	Src, Dst       bth.GID
	SrcPort        uint16
	TrafficClass   uint8
	HopLimit       uint8
	FlowLabel      uint32 // only of a packet without IP header
	IP             []byte // IP header, 20 or 40 bytes; nil with [LayoutUDP] and of [Packet.ParseBody]
	SrcMAC, DstMAC MAC
	VLAN           uint16 // VLAN identifier, 0: none
	UDPChecksum    uint16 // as received; 0: none

	// IgnoreUDPChecksum lets a wrong UDP checksum pass. A driver sets it for a
	// frame whose checksum the kernel has verified or has not filled in yet.
	IgnoreUDPChecksum bool

	intact  bool      // the ICRC is known to be right
	env     *Envelope // of ParseBody
	segment uint16
	id      uint16 // Identification that makes the ICRC right
	unseen  bool   // with a pass: the driver has not read the Identification
	pass    *Pass  // of the queue pair that has accepted the addresses; nil: none
	epoch   uint64 // of pass
}

// Parse checks and strips the envelope of the frame in b and parses the packet
// inside. The UDP length decides where it ends; the bytes after it are Ethernet
// padding. It returns nil, a [ParseError] of this package about the envelope
// or a [bth.ParseError] about the packet.
//
// It sets the fields the layout shows and leaves the others alone: with
// [LayoutIP] the driver may fill in SrcMAC, DstMAC and VLAN, with [LayoutUDP]
// also Src, Dst, SrcPort, TrafficClass, HopLimit and UDPChecksum.
func (p *Packet) Parse(b []byte, l Layout) error {
	p.env, p.intact, p.pass = nil, false, nil
	switch l {
	case LayoutUDP:
		p.IP = nil
		return p.Packet.Parse(b)
	case LayoutIP:
		if len(b) == 0 {
			return ErrTruncated
		}
		switch b[0] >> 4 {
		case 4:
			return p.parseIPv4(b)
		case 6:
			return p.parseIPv6(b)
		}
		return ErrNotRoCE
	}
	return p.parseEthernet(b)
}

// parseEthernet takes the frame header:
//
//	+-----------------------+-----------------------+-----------+
//	| Destination (6)       | Source (6)            | Type (2)  |
//	+-----------------------+-----------------------+-----------+
//
// or, with an 802.1Q tag, type 0x8100 and behind it
//
//	+---------+---+---------------------+-----------+
//	| PCP (3) |DEI| VLAN identifier (12)| Type (2)  |
//	+---------+---+---------------------+-----------+
func (p *Packet) parseEthernet(b []byte) error {
	if len(b) < ethernetLen {
		return ErrTruncated
	}
	p.DstMAC, p.SrcMAC, p.VLAN = MAC(b), MAC(b[6:]), 0
	typ, b := be.Uint16(b[12:]), b[ethernetLen:]
	if typ == etherVLAN {
		if len(b) < vlanLen {
			return ErrTruncated
		}
		p.VLAN = be.Uint16(b) & 0x0FFF
		typ, b = be.Uint16(b[2:]), b[vlanLen:]
	}
	switch typ {
	case etherIPv4:
		return p.parseIPv4(b)
	case etherIPv6:
		return p.parseIPv6(b)
	}
	return ErrNotRoCE
}

// parseIPv4 takes the header
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-------+-------+---------------+-------------------------------+
//	|   4   |   5   |Type of Service|         Total Length          |
//	+-------+-------+---------------+-----+-------------------------+
//	|        Identification         |0 D M|     Fragment Offset     |
//	+---------------+---------------+-----+-------------------------+
//	| Time to Live  | Protocol 17   |        Header Checksum        |
//	+---------------+---------------+-------------------------------+
//	|                         Source Address                        |
//	+---------------------------------------------------------------+
//	|                      Destination Address                      |
//	+---------------------------------------------------------------+
func (p *Packet) parseIPv4(b []byte) error {
	if len(b) < ipv4Len {
		return ErrTruncated
	}
	h := int(b[0]&0x0F) * 4
	flags := be.Uint16(b[6:])
	// Recognize other traffic first: it is no error.
	if b[0]>>4 != 4 || b[9] != protoUDP || flags&fragmentMask != 0 {
		return ErrNotRoCE
	}
	if len(b) < h+udpLen {
		return ErrTruncated
	}
	if h < ipv4Len || be.Uint16(b[h+2:]) != bth.UDPPort {
		return ErrNotRoCE
	}
	total := int(be.Uint16(b[2:]))
	switch {
	case h != ipv4Len:
		return ErrIPHeader
	case flags&moreFragments != 0:
		return ErrFragment
	case total > len(b) || total < ipv4Len+udpLen:
		return ErrTruncated
	case !validIPv4((*[ipv4Len]byte)(b)):
		return ErrIPChecksum
	}
	p.IP = b[:ipv4Len:ipv4Len]
	p.TrafficClass, p.HopLimit = b[1], b[8]
	setIPv4(&p.Src, le.Uint32(b[12:]))
	setIPv4(&p.Dst, le.Uint32(b[16:]))
	return p.parseUDP(b[ipv4Len:total], 12)
}

// setIPv4 makes g the v4-mapped address a, in two stores.
func setIPv4(g *bth.GID, a uint32) {
	le.PutUint64(g[0:], 0)
	le.PutUint64(g[8:], 0xFFFF0000|uint64(a)<<32)
}

// parseIPv6 takes the header
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-------+---------------+---------------------------------------+
//	|   6   | Traffic Class |              Flow Label               |
//	+-------+---------------+-------+---------------+---------------+
//	|        Payload Length         |Next Header 17 |   Hop Limit   |
//	+-------------------------------+---------------+---------------+
//	|                      Source Address (16)                      |
//	+---------------------------------------------------------------+
//	|                   Destination Address (16)                    |
//	+---------------------------------------------------------------+
//
// Extension headers are other traffic: the ICRC is not defined with them.
func (p *Packet) parseIPv6(b []byte) error {
	if len(b) < ipv6Len {
		return ErrTruncated
	}
	if b[0]>>4 != 6 || b[6] != protoUDP {
		return ErrNotRoCE
	}
	if len(b) < ipv6Len+udpLen {
		return ErrTruncated
	}
	if be.Uint16(b[ipv6Len+2:]) != bth.UDPPort {
		return ErrNotRoCE
	}
	total := ipv6Len + int(be.Uint16(b[4:]))
	if total > len(b) || total < ipv6Len+udpLen {
		return ErrTruncated
	}
	p.IP = b[:ipv6Len:ipv6Len]
	p.TrafficClass, p.HopLimit = b[0]<<4|b[1]>>4, b[7]
	p.Src, p.Dst = bth.GID(b[8:]), bth.GID(b[24:])
	if p.Src.Is4() || p.Dst.Is4() {
		// Such an address must not be on the wire (RFC 4291, RFC 4942 2.2.1). The stack would take
		// the sender for the IPv4 host with that address.
		return ErrIPHeader
	}
	return p.parseUDP(b[ipv6Len:total], 8)
}

// parseUDP takes the header
//
//	+-------------------------------+-------------------------------+
//	|          Source Port          |     Destination Port 4791     |
//	+-------------------------------+-------------------------------+
//	|            Length             |    Checksum, usually 0        |
//	+-------------------------------+-------------------------------+
//
// from b, which is the IP payload. The addresses start at byte addrs of p.IP.
func (p *Packet) parseUDP(b []byte, addrs int) error {
	p.SrcPort = be.Uint16(b)
	n := int(be.Uint16(b[4:]))
	if n < udpLen || n > len(b) {
		return ErrUDPLength
	}
	p.UDPChecksum = be.Uint16(b[6:])
	if p.UDPChecksum != 0 && !p.IgnoreUDPChecksum {
		s := Sum16(p.IP[addrs:]) + protoUDP + uint32(n) + Sum16(b[:n])
		if Fold16(s) != 0xFFFF {
			return ErrUDPChecksum
		}
	}
	return p.Packet.Parse(b[udpLen:n])
}

// CE reports whether a switch marked the packet: congestion experienced (RFC
// 3168). The receiver answers with a CNP.
func (p *Packet) CE() bool { return p.TrafficClass&3 == 3 }

// CheckICRC reports whether the ICRC of a parsed packet is right.
//
// Over IPv4 without the headers ([LayoutUDP], or an [Envelope] without IDSeen) the
// Identification, 16 bits that the ICRC covers, is not known. CheckICRC then reports whether
// any Identification makes the ICRC right. It accepts one damaged packet in 65536; see
// [Packet.RecoverIPv4ID]. [Packet.UnseenID] returns that Identification, for a caller that
// knows the expected one. With IDMerged CheckICRC accepts one damaged packet in ten million.
func (p *Packet) CheckICRC() bool {
	if p.intact {
		return true
	}
	h := p.headerCRC()
	return p.checkRegister(&h, p.bodyCRC(h.crc), 0)
}

// SetIntact says that the ICRC of a parsed packet was found right by other means, such as
// [Envelope.CheckFour]: with the Identification that the envelope expects. CheckICRC then
// reports true until the next Parse.
func (p *Packet) SetIntact() {
	p.intact = true
	if p.env != nil {
		p.id = p.env.ID + p.segment
	}
}

// is4 is g.Is4 without a copy of g, because it is called for every packet.
func is4(g *bth.GID) bool { return le.Uint64(g[:]) == 0 && be.Uint32(g[8:]) == 0xFFFF }

// UnseenID returns the IPv4 Identification that CheckICRC has computed for a packet with a
// right ICRC; unseen is false if the driver has read it from the headers. For a damaged
// packet it is random.
func (p *Packet) UnseenID() (id uint16, unseen bool) {
	if len(p.IP) != 0 || p.env != nil && p.env.IDSeen || !is4(&p.Src) {
		return 0, false
	}
	return p.id, true
}

// CheckICRCFlushQuirk is [Packet.CheckICRC] for a FLUSH from a peer that feeds
// its headers twice: rxe of Linux 6.12, see [bth.CRC.UpdateFlushQuirk]. For a
// packet other than a FLUSH it checks the plain ICRC, so a caller can use it
// for all packets of such a peer.
func (p *Packet) CheckICRCFlushQuirk() bool {
	const again = bth.BTHLen + bth.FETHLen + bth.RETHLen
	if p.Info.Flags&bth.Flush == 0 || p.Info.HeaderLen != again {
		return p.CheckICRC()
	}
	h := p.headerCRC()
	return p.checkRegister(&h, p.bodyCRC(h.crc).UpdateFlushQuirk(p.Data), again)
}

// PutICRC makes the ICRC of a parsed packet right for the bytes that the packet has now. A caller
// that changed the UDP source port sets SrcPort first. It does nothing to a packet for whose headers
// no ICRC is defined.
func (p *Packet) PutICRC() {
	if h := p.headerCRC(); h.ok {
		bth.PutICRC(p.Data[len(p.Data)-bth.ICRCLen:], p.bodyCRC(h.crc))
	}
}

// PutICRCFlushQuirk is [Packet.PutICRC] for a FLUSH to a peer that computes its ICRC as
// [Packet.CheckICRCFlushQuirk] does.
func (p *Packet) PutICRCFlushQuirk() {
	if h := p.headerCRC(); h.ok && p.Info.Flags&bth.Flush != 0 {
		bth.PutICRC(p.Data[len(p.Data)-bth.ICRCLen:], p.bodyCRC(h.crc).UpdateFlushQuirk(p.Data))
	}
}

// header describes the headers before the BTH.
type header struct {
	crc    bth.CRC // register after them
	ok     bool    // the ICRC is defined for them
	unseen bool    // the driver has not read the identification: it is a guess
	merged bool    // the identification is probably near the expected one: see Envelope.IDMerged
	id     uint16
}

// headerCRC returns the header, from p.IP or from the envelope.
func (p *Packet) headerCRC() header {
	length := uint16(len(p.Data)) + udpLen
	switch {
	case p.env != nil:
		id := p.env.ID + p.segment
		v4 := is4(&p.Src)
		return header{
			crc: p.env.register(length, id), ok: true, id: id,
			unseen: v4 && !p.env.IDSeen, merged: v4 && p.env.IDSeen && p.env.IDMerged && p.segment > 0,
		}
	case len(p.IP) == ipv4Len, len(p.IP) == ipv6Len:
		return header{crc: maskedCRC(p.IP, p.SrcPort, length), ok: true}
	case len(p.IP) == 0:
		return header{crc: unseenCRC(&p.Src, &p.Dst, p.SrcPort, length), ok: true, unseen: is4(&p.Src)}
	}
	return header{}
}

// checkRegister compares the register after a packet with its ICRC. If the driver has not seen the
// identification, it accepts any identification that makes the ICRC right. extra is how many bytes
// were fed in addition to the packet.
func (p *Packet) checkRegister(h *header, c bth.CRC, extra int) bool {
	p.id = h.id
	if !h.ok || c.Sum() == p.ICRC() || !h.unseen && !h.merged {
		return h.ok && c.Sum() == p.ICRC()
	}
	id, ok := p.solve(c, h.id, len(p.Data)-bth.ICRCLen+extra)
	if h.merged {
		return ok && p.env.mergedID(id, h.id)
	}
	if p.id = id; ok && p.env != nil {
		p.env.ID = id - p.segment
	}
	return ok
}

// bodyCRC feeds the packet to its pad.
func (p *Packet) bodyCRC(c bth.CRC) bth.CRC {
	return c.UpdateBody(p.Data[:len(p.Data)-bth.ICRCLen])
}
