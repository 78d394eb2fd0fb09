package frame

import "github.com/goroce/roce/bth"

// Envelope is what a driver knows of the headers of datagrams whose payload it
// hands out alone: those of a plain UDP socket, or the segments of one
// super-packet, which share their headers. The driver fills it in and calls
// Seal.
type Envelope struct {
	Src, Dst       bth.GID // both IPv4 (v4-mapped) or both IPv6
	SrcPort        uint16
	TrafficClass   uint8
	HopLimit       uint8
	FlowLabel      uint32 // 20 bits, 0 with IPv4
	SrcMAC, DstMAC MAC
	VLAN           uint16 // VLAN identifier, 0: none

	// ID is the IPv4 identification of datagram 0; datagram i has ID+i, as
	// segmentation offload makes them. With IDSeen the headers were there to be
	// read, and the ICRC is checked in full. Otherwise it is only a guess, tried
	// first: see [Packet.CheckICRC].
	ID     uint16
	IDSeen bool

	// IDMerged says that the headers seen are those of datagram 0, and that the
	// others may have been joined to it on receipt (GRO). Not every kernel
	// compares identifications then, so one a little off ID+i, or equal to ID,
	// is accepted too.
	IDMerged bool

	crc bth.CRC // after masked IP and UDP headers with lengths and id zero
}

// Seal prepares the envelope for [Packet.ParseBody]. It must be called again
// when Src, Dst or SrcPort have changed.
func (e *Envelope) Seal() {
	e.crc = unseenCRC(&e.Src, &e.Dst, e.SrcPort, 0)
	if e.Src.Is4() {
		e.crc ^= crcIPv4Len.of(ipv4Len) // its total length was not zero
	}
}

// register returns the ICRC register after the headers of a datagram with a UDP
// length and an identification.
func (e *Envelope) register(length, id uint16) bth.CRC {
	c := e.crc ^ crcUDPLen.of(length)
	if e.Src.Is4() {
		return c ^ crcIPv4Len.of(length+ipv4Len) ^ crcIPv4ID.of(id)
	}
	return c ^ crcIPv6Len.of(length)
}

// CheckFour reports whether the ICRCs of four datagrams of these numbers, all of one
// length, are right with the identifications that the envelope expects. Looking at four
// takes little longer than at one. False says nothing: [Packet.CheckICRC] has to.
func (e *Envelope) CheckFour(b *[4][]byte, i *[4]uint16) bool {
	n := len(b[0]) - bth.ICRCLen
	if n < bth.BTHLen {
		return false
	}
	length := uint16(n) + bth.ICRCLen + udpLen
	zero := e.register(length, 0) // to which an identification of zero adds nothing
	c := [4]bth.CRC{zero, zero, zero, zero}
	if e.Src.Is4() {
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

// mergedID reports whether a datagram that was joined to datagram 0 of an
// envelope may have an identification, when it is not the one expected: senders
// count, and some datagrams may be missing or late, or they number none.
func (e *Envelope) mergedID(id, expected uint16) bool {
	const late, missing = 64, 256
	return id == e.ID || id-expected+late < late+missing
}

// Envelope returns what a receiver without the headers would be told of a
// packet on the path.
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
	p.UDPChecksum, p.IP, p.intact = 0, nil, false
	err := p.Packet.Parse(b)
	if err != nil {
		p.env = nil // Next must not take it for an example
	}
	return err
}

// Next is [Packet.ParseBody] of datagram i of an envelope, if it differs from the last
// packet parsed only behind the first eight bytes of the BTH: that was right and of the
// same envelope, and this one is as long, of the same operation, with the same flags and
// P_Key, and for the same queue pair. Then ParseBody would set the same fields to the same
// values, but for the data. Otherwise Next does nothing and reports false, as it does if
// the last packet was not parsed by ParseBody.
//
// Invariant: after Next a packet is what it is after ParseBody. Nothing is said of what
// ParseBody does not check: the ICRC, and whether the queue pair wants the packet.
func (p *Packet) Next(b []byte, e *Envelope, i uint16) bool {
	if e == nil || p.env != e || len(b) != len(p.Data) || le.Uint64(b) != le.Uint64(p.Data) {
		return false
	}
	p.Data, p.segment, p.intact = b, i, false
	return true
}
