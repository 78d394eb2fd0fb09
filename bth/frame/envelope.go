package frame

import "github.com/goroce/roce/bth"

// Envelope has the headers of datagrams for a driver that delivers only their payload: a plain
// UDP socket, or a super-packet, whose segments share their headers. The driver sets the fields
// and calls Seal.
type Envelope struct {
	Src, Dst       bth.GID // both IPv4 (v4-mapped) or both IPv6
	SrcPort        uint16
	TrafficClass   uint8
	HopLimit       uint8
	FlowLabel      uint32 // 20 bits, 0 with IPv4
	SrcMAC, DstMAC MAC
	VLAN           uint16 // VLAN identifier, 0: none

	// ID is the IPv4 Identification of datagram 0; datagram i has ID+i, as segmentation
	// offload numbers them. With IDSeen the driver has read ID from the headers, and the
	// ICRC is checked in full. Otherwise ID is a guess, which is tried first: see
	// [Packet.CheckICRC].
	ID     uint16
	IDSeen bool

	// IDMerged says that the driver has seen the headers of datagram 0 only, and that the
	// kernel may have merged the others with it on receipt (GRO). Some kernels do not
	// compare Identifications then, so one close to ID+i, or equal to ID, is accepted, too.
	IDMerged bool

	crc bth.CRC // after masked IP and UDP headers with lengths and id zero
}

// Seal prepares the envelope for [Packet.ParseBody]. It must be called again
// when Src, Dst or SrcPort have changed.
func (e *Envelope) Seal() {
	e.crc = unseenCRC(&e.Src, &e.Dst, e.SrcPort, 0)
	if is4(&e.Src) {
		e.crc ^= crcIPv4Len.of(ipv4Len) // unseenCRC has used this total length instead of zero
	}
}

// register returns the ICRC register after the headers of a datagram with a UDP
// length and an identification.
func (e *Envelope) register(length, id uint16) bth.CRC {
	c := e.crc ^ crcUDPLen.of(length)
	if is4(&e.Src) {
		return c ^ crcIPv4Len.of(length+ipv4Len) ^ crcIPv4ID.of(id)
	}
	return c ^ crcIPv6Len.of(length)
}

// CheckFour reports whether the ICRCs of four datagrams with these numbers, all of one length,
// are right with the Identifications that the envelope expects. It takes little longer for
// four datagrams than for one. If it reports false the caller calls [Packet.CheckICRC] for
// each.
func (e *Envelope) CheckFour(b *[4][]byte, i *[4]uint16) bool {
	n := len(b[0]) - bth.ICRCLen
	if n < bth.BTHLen {
		return false
	}
	length := uint16(n) + bth.ICRCLen + udpLen
	zero := e.register(length, 0) // the register for Identification 0
	c := [4]bth.CRC{zero, zero, zero, zero}
	if is4(&e.Src) {
		for k := range c {
			c[k] ^= crcIPv4ID.of(e.ID + i[k])
		}
	}
	bth.UpdateBodies(&c, b, n)
	for k := range c {
		if c[k].Sum() != le.Uint32(b[k][n:]) {
			return false
		}
	}
	return true
}

// mergedID reports whether a datagram that was merged with datagram 0 of an envelope may have
// an Identification other than the expected one. Some senders count Identifications, and some
// of their datagrams may be missing or late; other senders use the same Identification in
// all.
func (e *Envelope) mergedID(id, expected uint16) bool {
	const late, missing = 64, 256
	return id == e.ID || id-expected+late < late+missing
}

// Envelope returns the envelope that a driver without headers would give a packet on the path.
func (p *Path) Envelope() Envelope {
	c := p.Config()
	e := Envelope{Src: c.Src, Dst: c.Dst, SrcPort: c.SrcPort, TrafficClass: c.TrafficClass, HopLimit: c.HopLimit,
		SrcMAC: c.SrcMAC, DstMAC: c.DstMAC, VLAN: c.VLAN, crc: p.crc}
	if !p.is4 {
		e.FlowLabel = c.FlowLabel
	}
	return e
}

// ParseBody is [Packet.Parse] for the body of datagram i of an envelope, BTH to
// ICRC. The packet points to e until the next Parse or ParseBody, and
// [Packet.CheckICRC] may improve its guess of the identification.
func (p *Packet) ParseBody(b []byte, e *Envelope, i uint16) error {
	p.env, p.segment = e, i
	p.Src, p.Dst, p.SrcPort = e.Src, e.Dst, e.SrcPort
	p.TrafficClass, p.HopLimit, p.FlowLabel = e.TrafficClass, e.HopLimit, e.FlowLabel
	p.SrcMAC, p.DstMAC, p.VLAN = e.SrcMAC, e.DstMAC, e.VLAN
	p.UDPChecksum, p.IP, p.intact, p.pass = 0, nil, false, nil
	err := p.Packet.Parse(b)
	if err != nil {
		p.env = nil // so that Next does not compare with this packet
	}
	return err
}

// Next is a short cut for [Packet.ParseBody] of datagram i of an envelope. It needs that the
// packet parsed last is valid and of the same envelope, and that this one has the same length
// and the same first eight bytes of the BTH: operation, flags, P_Key and queue pair. Then
// ParseBody would set all fields but the data to the same values. Otherwise Next does nothing
// and reports false.
//
// Invariant: after Next a packet is the same as after ParseBody. Like ParseBody, Next does not
// check the ICRC, nor whether the queue pair accepts the packet.
func (p *Packet) Next(b []byte, e *Envelope, i uint16) bool {
	if e == nil || p.env != e || len(b) != len(p.Data) || le.Uint64(b) != le.Uint64(p.Data) {
		return false
	}
	p.Data, p.segment, p.intact = b, i, false
	return true
}
