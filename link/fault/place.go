package fault

import (
	"encoding/binary"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// place has the parts of a frame: the IP header or, without one, its envelope, and
// BTH..ICRC. Parts that the frame lacks are nil.
type place struct {
	packet, ip, udp, body []byte // from the IP header on; IP header; UDP header and body
	env                   *frame.Envelope

	crc    bth.CRC // ICRC register after the headers
	seeded bool    // it is known
}

// markable reports whether an ECN mark is possible. It is not for a sent packet with
// an envelope, because the kernel writes its headers.
func (p *place) markable(dir Direction) bool { return p.ip != nil || p.env != nil && dir == Rx }

// locate finds the parts of a frame.
func locate(layout frame.Layout, f *link.Frame) (p place) {
	if f.Env != nil || layout == frame.LayoutUDP {
		return place{body: f.Data, env: f.Env}
	}
	p.dissect(layout, f.Data)
	return p
}

// dissect finds the IP header, the UDP header and BTH..ICRC in a frame. It checks no more than
// it needs to stay inside the frame.
func (p *place) dissect(layout frame.Layout, data []byte) {
	if layout == frame.LayoutEthernet {
		at := 14
		for n := 0; n < 2 && len(data) >= at; n++ { // VLAN tags
			if t := binary.BigEndian.Uint16(data[at-2:]); t != 0x8100 && t != 0x88A8 {
				break
			}
			at += 4
		}
		if len(data) < at {
			return
		}
		if t := binary.BigEndian.Uint16(data[at-2:]); t != 0x0800 && t != 0x86DD {
			return
		}
		data = data[at:]
	}
	if len(data) < 20 {
		return
	}
	header := 40
	next := data[6]
	if data[0]>>4 == 4 {
		if binary.BigEndian.Uint16(data[6:])&0x3FFF != 0 { // a fragment
			return
		}
		header, next = int(data[0]&0xF)*4, data[9]
	}
	if header < 20 || len(data) < header+8 || next != 17 {
		return
	}
	p.packet, p.ip = data, data[:header]
	udp := data[header:]
	length := int(binary.BigEndian.Uint16(udp[4:]))
	if length < 8 || length > len(udp) || binary.BigEndian.Uint16(udp[2:]) != bth.UDPPort {
		return
	}
	p.udp, p.body = udp[:length:length], udp[8:length:length]
}

// addrs returns the addresses of the packet; they are zero if they are not known.
func (p *place) addrs() (src, dst bth.GID) {
	switch {
	case p.env != nil:
		return p.env.Src, p.env.Dst
	case len(p.ip) >= 40 && p.ip[0]>>4 == 6:
		return bth.GID(p.ip[8:]), bth.GID(p.ip[24:])
	case len(p.ip) >= 20 && p.ip[0]>>4 == 4:
		return mapped(p.ip[12:]), mapped(p.ip[16:])
	}
	return src, dst
}

// mapped returns the IPv4 address at b[0:] as a GID.
func mapped(b []byte) bth.GID {
	return bth.GID{10: 0xFF, 11: 0xFF, 12: b[0], 13: b[1], 14: b[2], 15: b[3]}
}

// mendChecksums updates the checksums of IP and UDP of the changed packet, so that only the
// ICRC shows the damage. If the packet has no UDP checksum, it gets none.
func (p *place) mendChecksums() {
	if len(p.ip) == 0 || len(p.udp) == 0 {
		return
	}
	be := binary.BigEndian
	addrs := p.ip[8:]
	if p.ip[0]>>4 == 4 {
		be.PutUint16(p.ip[10:], 0)
		be.PutUint16(p.ip[10:], ^frame.Fold16(frame.Sum16(p.ip)))
		addrs = p.ip[12:20]
	}
	if be.Uint16(p.udp[6:]) == 0 {
		return
	}
	be.PutUint16(p.udp[6:], 0)
	sum := ^frame.Fold16(frame.Sum16(addrs) + 17 + uint32(len(p.udp)) + frame.Sum16(p.udp))
	if sum == 0 {
		sum = 0xFFFF // zero means none
	}
	be.PutUint16(p.udp[6:], sum)
}

// markCE sets the ECN field of an IP header to Congestion Experienced, and
// mends the IPv4 checksum (RFC 1624).
func markCE(ip []byte) {
	switch {
	case len(ip) >= 20 && ip[0]>>4 == 4:
		old := binary.BigEndian.Uint16(ip)
		ip[1] |= 3
		sum := uint32(^binary.BigEndian.Uint16(ip[10:])) + uint32(^old) + uint32(binary.BigEndian.Uint16(ip))
		sum = sum&0xFFFF + sum>>16
		sum = sum&0xFFFF + sum>>16
		binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	case len(ip) >= 40 && ip[0]>>4 == 6:
		ip[1] |= 3 << 4
	}
}
