package udp

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
)

// forger sends Ethernet frames from one side of a lab.
type forger struct {
	fd       int
	from, to *netlab.Side
}

func newForger(t *testing.T, from, to *netlab.Side) *forger {
	t.Helper()
	f := &forger{from: from, to: to}
	from.Do(t, func() {
		var err error
		if f.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { unix.Close(f.fd) })
	return f
}

func (f *forger) send(t *testing.T, proto uint16, packet []byte) {
	t.Helper()
	b := append(append(append([]byte{}, f.to.MAC[:]...), f.from.MAC[:]...), byte(proto>>8), byte(proto))
	to := &unix.SockaddrLinklayer{Ifindex: f.from.Link().Attrs().Index}
	if err := unix.Sendto(f.fd, append(b, packet...), 0, to); err != nil {
		t.Fatal(err)
	}
}

func checksum(b ...[]byte) uint16 {
	sum := uint32(0)
	for _, part := range b {
		for i := 0; i+1 < len(part); i += 2 {
			sum += uint32(part[i])<<8 | uint32(part[i+1])
		}
	}
	sum = sum&0xFFFF + sum>>16
	return ^uint16(sum + sum>>16)
}

// packet4 is an IPv4 packet.
func packet4(src, dst netip.Addr, proto byte, body []byte) []byte {
	b := make([]byte, 20, 20+len(body))
	b[0], b[6], b[8], b[9] = 0x45, 0x40, 64, proto
	binary.BigEndian.PutUint16(b[2:], uint16(20+len(body)))
	copy(b[12:], src.AsSlice())
	copy(b[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(b[10:], checksum(b))
	return append(b, body...)
}

// packet6 is an IPv6 packet.
func packet6(src, dst netip.Addr, proto byte, body []byte) []byte {
	b := make([]byte, 40, 40+len(body))
	b[0], b[6], b[7] = 0x60, proto, 64
	binary.BigEndian.PutUint16(b[4:], uint16(len(body)))
	copy(b[8:], src.AsSlice())
	copy(b[24:], dst.AsSlice())
	return append(b, body...)
}

// quoted returns the part of a RoCE packet that an ICMP message quotes: UDP from port 4791 to 4791.
func quoted() []byte {
	b := make([]byte, 8+bth.BTHLen)
	binary.BigEndian.PutUint16(b, bth.UDPPort)
	binary.BigEndian.PutUint16(b[2:], bth.UDPPort)
	binary.BigEndian.PutUint16(b[4:], 1032)
	return b
}

// icmp sends an ICMP message of a third host about packets from f.to, the victim, to f.from.
func (f *forger) icmp(t *testing.T, v6 bool, kind, code byte, word uint32) {
	t.Helper()
	m := make([]byte, 8)
	m[0], m[1] = kind, code
	binary.BigEndian.PutUint32(m[4:], word)
	if !v6 {
		stranger := netip.MustParseAddr("10.88.0.66")
		m = append(m, packet4(f.to.IP4, f.from.IP4, unix.IPPROTO_UDP, quoted())...)
		binary.BigEndian.PutUint16(m[2:], checksum(m))
		f.send(t, unix.ETH_P_IP, packet4(stranger, f.to.IP4, unix.IPPROTO_ICMP, m))
		return
	}
	stranger := netip.MustParseAddr("fd88::66")
	m = append(m, packet6(f.to.IP6, f.from.IP6, unix.IPPROTO_UDP, quoted())...)
	pseudo := binary.BigEndian.AppendUint32(append(stranger.AsSlice(), f.to.IP6.AsSlice()...), uint32(len(m)))
	pseudo = append(pseudo, 0, 0, 0, unix.IPPROTO_ICMPV6)
	binary.BigEndian.PutUint16(m[2:], checksum(pseudo, m))
	f.send(t, unix.ETH_P_IPV6, packet6(stranger, f.to.IP6, unix.IPPROTO_ICMPV6, m))
}

// TestForgedICMP: a third host forges ICMP messages about the packets of a connection. The Port
// still sends super-packets, with packets of full size.
func TestForgedICMP(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{MTU: 4300})
	f := newForger(t, b, a)
	for _, bound := range []bool{false, true} {
		for _, v6 := range []bool{false, true} {
			ca, cb := Config{}, Config{}
			if bound {
				if ca.Addr, cb.Addr = a.IP4, b.IP4; v6 {
					ca.Addr, cb.Addr = a.IP6, b.IP6
				}
			}
			from, to := start(t, a, ca), start(t, b, cb)
			p := path(t, a, b, v6, nil)
			linktest.Send(t, from, p, 0, nil) // makes the kernel resolve the neighbour
			from.Flush()
			linktest.Collect(t, to, 1)
			messages := []struct {
				what       string
				kind, code byte
				word       uint32
			}{
				{"fragmentation needed, MTU 576", 3, 4, 576}, {"fragmentation needed, MTU 0", 3, 4, 0},
				{"port unreachable", 3, 3, 0}, {"host unreachable", 3, 1, 0}, {"protocol unreachable", 3, 2, 0},
				{"prohibited", 3, 13, 0}, {"redirect", 5, 1, 0x0A580042}, {"time exceeded", 11, 0, 0}, {"parameter problem", 12, 0, 0},
			}
			if v6 {
				messages = messages[:0:0]
				for _, m := range [][3]uint32{{2, 0, 1280}, {2, 0, 576}, {1, 4, 0}, {1, 3, 0}, {1, 1, 0}, {3, 0, 0}, {4, 0, 0}, {4, 1, 6}} {
					messages = append(messages, struct {
						what       string
						kind, code byte
						word       uint32
					}{"ICMPv6", byte(m[0]), byte(m[1]), m[2]})
				}
			}
			for _, m := range messages {
				before := from.Stats()
				for range 3 {
					f.icmp(t, v6, m.kind, m.code, m.word)
				}
				const n = 40
				for i := range n {
					linktest.Send(t, from, p, bth.PSN(i), make([]byte, 4096))
				}
				if err := from.Flush(); err != nil {
					t.Errorf("bound=%v: %s (%d/%d): Flush: %v", bound, m.what, m.kind, m.code, err)
				}
				s := from.Stats()
				if bad := s.TxOversize + s.TxErrors + s.TxDrops; bad > 0 || !s.LinkUp || s.TxPackets-before.TxPackets != n || s.TxBatches-before.TxBatches > 3 || from.tx.supers.Any() {
					t.Fatalf("bound=%v: %s (%d/%d): %+v, GSO %v", bound, m.what, m.kind, m.code, s, !from.tx.supers.Any())
				}
				linktest.InOrder(t, to, n)
				if k, err := from.Recv(make([]link.Frame, 1)); k != 0 || err != nil {
					t.Errorf("bound=%v: %s: Recv = %d, %v", bound, m.what, k, err)
				}
			}
			from.Close()
			to.Close()
		}
	}
}
