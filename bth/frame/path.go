package frame

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goroce/roce/bth"
)

// Layout says where the buffers of a driver begin.
type Layout uint8

// The layouts.
const (
	LayoutEthernet Layout = iota // whole frame without FCS
	LayoutIP                     // from the IP header
	LayoutUDP                    // only the UDP payload; the kernel makes the headers
)

var layoutNames = [...]string{"ethernet", "ip", "udp"}

// String returns "ethernet", "ip" or "udp".
func (l Layout) String() string {
	if int(l) < len(layoutNames) {
		return layoutNames[l]
	}
	return fmt.Sprintf("Layout(%d)", uint8(l))
}

// Lengths and numbers of the envelope.
const (
	ethernetLen = 14
	vlanLen     = 4
	ipv4Len     = 20
	ipv6Len     = 40
	udpLen      = 8

	// MaxHeaderLen is the longest envelope: tagged Ethernet, IPv6, UDP.
	MaxHeaderLen = ethernetLen + vlanLen + ipv6Len + udpLen

	etherIPv4 = 0x0800
	etherIPv6 = 0x86DD
	etherVLAN = 0x8100

	protoUDP = 17

	dontFragment  = 0x4000
	moreFragments = 0x2000
	fragmentMask  = 0x1FFF

	// DefaultHopLimit is the hop limit of a path whose PathConfig has none. rxe always sends 64 and ignores
	// the value of the application.
	DefaultHopLimit = 64
)

var be = binary.BigEndian

// PathConfig has the header fields of packets to a peer. An address handle,
// or the address vector of a connected queue pair, resolves to it.
type PathConfig struct {
	Src, Dst       bth.GID // both IPv4 (v4-mapped) or both IPv6
	SrcMAC, DstMAC MAC     // DstMAC may be zero for a multicast group: it follows from Dst
	Hop            *Hop    // if set, it has the Ethernet addresses, which may change later; SrcMAC and DstMAC are ignored
	VLAN           uint16  // VLAN identifier, 1…4094; 0: no tag
	Priority       uint8   // 802.1Q priority, 0…7, of a tagged frame
	SrcPort        uint16  // UDP source port; 0: [SourcePort] of the flow label
	TrafficClass   uint8   // DSCP and ECN
	HopLimit       uint8   // TTL; 0: [DefaultHopLimit]
	FlowLabel      uint32  // 20 bits; goes into the IPv6 header too (rxe sends 0 there)

	// Undivided says that all queue pairs at Dst are of one process, so a super-packet may have packets for several of them.
	Undivided bool
}

// Path is the way to a peer, with the headers made in advance. It may be shared. It is
// immutable except for the Ethernet addresses of its [Hop].
type Path struct {
	cfg  PathConfig // SrcMAC and DstMAC are zero if there is a Hop
	hop  *Hop       // as in cfg
	is4  bool
	skip [3]uint8 // bytes of the template a layout leaves out
	size uint8    // bytes of the template
	sum  uint32   // IPv4: sum of the header without length, id and checksum
	ends uint32   // sum of the UDP pseudo header without length
	crc  bth.CRC  // after masked IP and UDP headers with lengths and id zero
	tmpl [MaxHeaderLen]byte
}

// NewPath checks c and makes the headers.
func NewPath(c PathConfig) (*Path, error) {
	switch {
	case c.Src.IsZero() || c.Dst.IsZero():
		return nil, errors.New("frame: path: source and destination address must be set")
	case c.Src.Is4() != c.Dst.Is4():
		return nil, fmt.Errorf("frame: path: %v and %v are not of one IP version: choose a source GID of the destination's version", c.Src, c.Dst)
	case c.Src.IsMulticast():
		return nil, fmt.Errorf("frame: path: source %v is a multicast group", c.Src)
	case c.VLAN > 4094:
		return nil, fmt.Errorf("frame: path: VLAN %d: want 1 to 4094, or 0 for none", c.VLAN)
	case c.Priority > 7:
		return nil, fmt.Errorf("frame: path: priority %d: want 0 to 7", c.Priority)
	case c.FlowLabel > maxFlowLabel:
		return nil, fmt.Errorf("frame: path: flow label %#x has more than 20 bits", c.FlowLabel)
	}
	if c.SrcPort == 0 {
		c.SrcPort = SourcePort(c.FlowLabel)
	}
	if c.HopLimit == 0 {
		c.HopLimit = DefaultHopLimit
	}
	if c.Hop != nil {
		c.SrcMAC, c.DstMAC = MAC{}, MAC{}
	} else if c.DstMAC.IsZero() {
		c.DstMAC, _ = MulticastMAC(c.Dst)
	}

	p := &Path{cfg: c, hop: c.Hop, is4: c.Src.Is4()}
	t := p.appendEthernet(p.tmpl[:0])
	ip := len(t)
	if p.is4 {
		t = p.appendIPv4(t)
		p.sum = Sum16(t[ip:])
	} else {
		t = p.appendIPv6(t)
	}
	udp := len(t)
	p.ends = protoUDP + Sum16(c.Src[:]) + Sum16(c.Dst[:])
	if p.is4 {
		p.ends = protoUDP + Sum16(c.Src[12:]) + Sum16(c.Dst[12:])
	}
	t = be.AppendUint16(t, c.SrcPort)
	t = be.AppendUint16(t, bth.UDPPort)
	t = append(t, 0, 0, 0, 0) // length, checksum 0: none

	p.size = uint8(len(t))
	p.skip = [3]uint8{LayoutEthernet: 0, LayoutIP: uint8(ip), LayoutUDP: p.size}
	p.crc = maskedCRC(t[ip:udp], c.SrcPort, 0)
	return p, nil
}

func (p *Path) appendEthernet(t []byte) []byte {
	t = append(t, p.cfg.DstMAC[:]...)
	t = append(t, p.cfg.SrcMAC[:]...)
	if p.cfg.VLAN != 0 {
		t = be.AppendUint16(t, etherVLAN)
		t = be.AppendUint16(t, uint16(p.cfg.Priority)<<13|p.cfg.VLAN)
	}
	if p.is4 {
		return be.AppendUint16(t, etherIPv4)
	}
	return be.AppendUint16(t, etherIPv6)
}

func (p *Path) appendIPv4(t []byte) []byte {
	t = append(t, 0x45, p.cfg.TrafficClass, 0, 0, 0, 0)
	t = be.AppendUint16(t, dontFragment)
	t = append(t, p.cfg.HopLimit, protoUDP, 0, 0)
	t = append(t, p.cfg.Src[12:]...)
	return append(t, p.cfg.Dst[12:]...)
}

func (p *Path) appendIPv6(t []byte) []byte {
	t = be.AppendUint32(t, 6<<28|uint32(p.cfg.TrafficClass)<<20|p.cfg.FlowLabel)
	t = append(t, 0, 0, protoUDP, p.cfg.HopLimit)
	t = append(t, p.cfg.Src[:]...)
	return append(t, p.cfg.Dst[:]...)
}

// Config returns the configuration of the path, with defaults filled in and the
// present Ethernet addresses.
func (p *Path) Config() PathConfig {
	c := p.cfg
	if p.hop != nil {
		c.SrcMAC, c.DstMAC = p.hop.Addrs()
	}
	return c
}

// Hop returns the Hop with the Ethernet addresses of the path, or nil.
func (p *Path) Hop() *Hop { return p.hop }

// WithTrafficClass returns the same path in another traffic class: DSCP and
// ECN bits.
func (p *Path) WithTrafficClass(tc uint8) *Path {
	c := p.cfg
	c.TrafficClass = tc
	n, err := NewPath(c)
	if err != nil {
		panic(err) // cannot happen: NewPath made the path and does not check the traffic class
	}
	return n
}

// Is4 reports whether the path is IPv4.
func (p *Path) Is4() bool { return p.is4 }

// Equal reports whether packets on both paths have the same headers.
func (p *Path) Equal(q *Path) bool { return p == q || p.cfg == q.cfg }

// HeaderLen returns the bytes before the BTH in a buffer of layout l.
func (p *Path) HeaderLen(l Layout) int { return int(p.size - p.skip[l]) }

// Put writes the envelope of a packet of n bytes, BTH to ICRC, at b[0:]. It
// returns the n bytes behind it, which it leaves alone, and the ICRC register
// after the envelope, ready for the BTH. b must have HeaderLen(l)+n bytes, and
// n must be at most 65507.
//
// id is the IPv4 identification. The ICRC covers it, so with [LayoutUDP] it
// must be the value that the kernel will write. IPv6 has none.
//
// Put sets don't-fragment and no UDP checksum, also over IPv6, as rxe and
// adapters do: the ICRC protects the datagram.
func (p *Path) Put(b []byte, l Layout, n int, id uint16) (body []byte, crc bth.CRC) {
	skip := p.skip[l]
	h := int(p.size - skip)
	body = b[h : h+n : h+n]
	length := uint16(n) + udpLen

	crc = p.crc ^ crcUDPLen.of(length)
	if p.is4 {
		crc ^= crcIPv4Len.of(length+ipv4Len) ^ crcIPv4ID.of(id)
	} else {
		crc ^= crcIPv6Len.of(length)
	}
	if h == 0 {
		return body, crc
	}

	copy(b[:h], p.tmpl[skip:p.size])
	if skip == 0 && p.hop != nil {
		p.hop.put(b)
	}
	udp := b[h-udpLen : h]
	be.PutUint16(udp[4:], length)
	if p.is4 {
		ip := b[h-udpLen-ipv4Len : h]
		total := length + ipv4Len
		be.PutUint16(ip[2:], total)
		be.PutUint16(ip[4:], id)
		be.PutUint16(ip[10:], ^Fold16(p.sum+uint32(total)+uint32(id)))
	} else {
		be.PutUint16(b[h-udpLen-ipv6Len+4:], length)
	}
	return body, crc
}

// PutSuper turns the headers at b[0:], which Put has written with [LayoutEthernet] for the first packet, into those of a
// super-packet with n bytes behind its UDP header: it sets the lengths of the whole, and the sum of the UDP pseudo header, with
// which the kernel or the device completes the checksum. n must be at most 65507.
func (p *Path) PutSuper(b []byte, n int) {
	h := int(p.size)
	length := uint16(n) + udpLen
	udp := b[h-udpLen : h]
	be.PutUint16(udp[4:], length)
	be.PutUint16(udp[6:], Fold16(p.ends+uint32(length)))
	if p.is4 {
		ip := b[h-udpLen-ipv4Len : h]
		total := length + ipv4Len
		be.PutUint16(ip[2:], total)
		be.PutUint16(ip[10:], ^Fold16(p.sum+uint32(total)+uint32(be.Uint16(ip[4:]))))
	} else {
		be.PutUint16(b[h-udpLen-ipv6Len+4:], length)
	}
}

// WithID returns the register that Put returns for an Identification, if crc is the one for Identification 0
// and all else is the same.
func (p *Path) WithID(crc bth.CRC, id uint16) bth.CRC {
	if p.is4 {
		crc ^= crcIPv4ID.of(id)
	}
	return crc
}
