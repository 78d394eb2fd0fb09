//go:build linux

package blast

import (
	"encoding/binary"
	"fmt"
	"net"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/sockfilter"
)

// Sizes of headers: struct virtio_net_hdr, Ethernet, IPv4, UDP.
const (
	vnetLen  = 10
	etherLen = 14
	ipLen    = 20
	udpLen   = 8
	headers  = etherLen + ipLen + udpLen
)

// packet is an AF_PACKET socket that sends and receives super-packets with a
// virtio_net_hdr in front (PACKET_VNET_HDR).
type packet struct {
	fd, drain int
	size      int
	buf       []byte // virtio_net_hdr, headers, super-packet
	in        *inbox
}

func newPacket(s harness.Spec) (carrier, error) {
	p := &packet{size: s.Size + overhead, in: newInbox(true)}
	n := segments(p.size, ipLen+udpLen)
	head, err := headersOf(s, p.size, n*p.size)
	if err != nil {
		return nil, err
	}
	if p.fd, p.drain, err = packetSocket(s, true); err != nil {
		return nil, err
	}
	p.buf = make([]byte, vnetLen+headers+n*p.size)
	if n > 1 {
		putVnet(p.buf, p.size)
	}
	copy(p.buf[vnetLen:], head)
	return p, nil
}

// packetSocket makes an AF_PACKET socket that receives the interface's UDP packets to our port.
// drain is a UDP socket that has the port and drops everything, so that the kernel sends no
// ICMP errors.
func packetSocket(s harness.Spec, vnet bool) (fd, drain int, err error) {
	ifi, err := net.InterfaceByName(s.Interface)
	if err != nil {
		return -1, -1, err
	}
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, -1, err
	}
	drain, err = udpSocket(s)
	if err != nil {
		unix.Close(fd)
		return -1, -1, err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
			unix.Close(drain)
		}
	}()
	buffers(fd)
	options := []int{unix.PACKET_IGNORE_OUTGOING, unix.PACKET_QDISC_BYPASS}
	if vnet {
		options = append(options, unix.PACKET_VNET_HDR)
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, o, 1); err != nil {
			return -1, -1, fmt.Errorf("packet socket option %d: %w", o, err)
		}
	}
	// Without UDP_GRO the kernel would split a super-packet before it drops it.
	if err := unix.SetsockoptInt(drain, unix.SOL_UDP, unix.UDP_GRO, 1); err != nil {
		return -1, -1, err
	}
	if err := sockfilter.Attach(drain, []bpf.Instruction{bpf.RetConstant{Val: 0}}); err != nil {
		return -1, -1, err
	}
	if err := sockfilter.Attach(fd, ours); err != nil {
		return -1, -1, err
	}
	return fd, drain, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: swap(unix.ETH_P_IP), Ifindex: ifi.Index})
}

func swap(v uint16) uint16 { return v<<8 | v>>8 }

// ours accepts UDP to our port in IPv4 packets without options.
var ours = []bpf.Instruction{
	bpf.LoadAbsolute{Off: etherLen + 9, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 2},
	bpf.LoadAbsolute{Off: etherLen + ipLen + 2, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: port, SkipTrue: 1},
	bpf.RetConstant{Val: 0},
	bpf.RetConstant{Val: 1 << 18},
}

// putVnet writes the virtio_net_hdr of a super-packet with segments of size bytes, whose
// checksum is still to be computed.
func putVnet(b []byte, size int) {
	const needsCsum, gsoUDP = 1, 5
	b[0], b[1] = needsCsum, gsoUDP
	binary.NativeEndian.PutUint16(b[2:], headers)
	binary.NativeEndian.PutUint16(b[4:], uint16(size))
	binary.NativeEndian.PutUint16(b[6:], etherLen+ipLen)
	binary.NativeEndian.PutUint16(b[8:], 6)
}

// pathOf returns the path to the peer.
func pathOf(s harness.Spec) (*frame.Path, error) {
	return frame.NewPath(frame.PathConfig{Src: bth.GIDFrom(s.Local.IP), Dst: bth.GIDFrom(s.Remote.IP), SrcMAC: s.Local.MAC, DstMAC: s.Remote.MAC, SrcPort: port})
}

// headersOf returns the headers of a packet of n bytes or, if all is larger, of a super-packet of all bytes. The kernel or
// the device completes the checksum of a super-packet.
func headersOf(s harness.Spec, n, all int) ([]byte, error) {
	path, err := pathOf(s)
	if err != nil {
		return nil, err
	}
	b := make([]byte, headers+n)
	path.Put(b, frame.LayoutEthernet, n, 0)
	if all > n {
		path.PutSuper(b, all)
	}
	return b[:headers], nil
}

func (p *packet) send(src *source) error {
	for at := vnetLen + headers; at < len(p.buf); at += p.size {
		src.put(p.buf[at : at+p.size])
	}
	return write(p.fd, p.buf)
}

// write sends b. It tries again while the kernel has no room.
func write(fd int, b []byte) error {
	for {
		switch _, err := unix.Write(fd, b); err {
		case nil:
			return nil
		case unix.EAGAIN, unix.ENOBUFS, unix.EINTR, unix.ECONNREFUSED:
		default:
			return err
		}
	}
}

func (p *packet) receive(dst *sink) error {
	n, err := p.in.receive(p.fd)
	for i := range n {
		b := p.in.message(i)
		if len(b) < headers {
			continue
		}
		size := 0
		if v := p.in.heads[i][:]; v[1] != 0 {
			size = int(binary.NativeEndian.Uint16(v[4:]))
		} else {
			b = b[:etherLen+int(binary.BigEndian.Uint16(b[etherLen+2:]))] // without Ethernet's padding
		}
		split(b[headers:], size, dst)
	}
	return err
}

func (p *packet) mode() string {
	return fmt.Sprintf("PACKET_VNET_HDR, %d segments", (len(p.buf)-vnetLen-headers)/p.size)
}

func (p *packet) close() error {
	unix.Close(p.drain)
	return unix.Close(p.fd)
}
