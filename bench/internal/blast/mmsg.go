//go:build linux

package blast

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/mmsg"
)

// Super-packets: up to 128 segments (Linux 6.9) and 64 KiB.
const (
	maxSegments = 128
	maxSuper    = 65535
	batch       = 8 // super-packets of one recvmmsg
	port        = 4791
)

// segments returns how many packets of n bytes fit a super-packet beside headers of h bytes.
func segments(n, h int) int { return max(min((maxSuper-h)/n, maxSegments), 1) }

// inbox receives super-packets, each with a virtio_net_hdr in front or a control message.
type inbox struct {
	receiver mmsg.Receiver
	msgs     [batch]unix.Mmsghdr
	iov      [2 * batch]unix.Iovec
	heads    [batch][vnetLen]byte
	control  [batch][8]uint64
	room     []byte
	size     int
}

// newInbox makes room. With vnet there is a virtio_net_hdr in front of each super-packet.
func newInbox(vnet bool) *inbox {
	in := &inbox{size: maxSuper + 1 + 64}
	in.room = make([]byte, batch*in.size)
	for i := range in.msgs {
		iov := in.iov[2*i : 2*i+2]
		iov[0].Base, iov[1].Base = &in.heads[i][0], &in.room[i*in.size]
		iov[0].SetLen(vnetLen)
		iov[1].SetLen(in.size)
		h := &in.msgs[i].Hdr
		if vnet {
			h.Iov = &iov[0]
			h.SetIovlen(2)
		} else {
			h.Iov = &iov[1]
			h.SetIovlen(1)
			h.Control = (*byte)(unsafe.Pointer(&in.control[i]))
		}
	}
	return in
}

// receive receives the super-packets that have arrived, without waiting, and returns their number.
func (in *inbox) receive(fd int) (n int, err error) {
	for i := range in.msgs {
		if h := &in.msgs[i].Hdr; h.Control != nil {
			h.SetControllen(len(in.control[i]) * 8)
		}
	}
	n, errno := in.receiver.Receive(fd, in.msgs[:])
	if errno == 0 || nothingYet(errno) {
		return n, nil
	}
	return 0, errno
}

// message returns the i-th super-packet, without the header in front.
func (in *inbox) message(i int) []byte {
	n := int(in.msgs[i].Len)
	if in.msgs[i].Hdr.Iovlen == 2 {
		n -= vnetLen
	}
	return in.room[i*in.size:][:max(n, 0)]
}

// gro returns the size of the segments of the i-th super-packet, from its control message, or 0
// if it is a single packet.
func (in *inbox) gro(i int) int {
	c := unsafe.Slice((*byte)(unsafe.Pointer(&in.control[i])), len(in.control[i])*8)
	const header = 16 // struct cmsghdr
	if in.msgs[i].Hdr.Controllen < header+4 {
		return 0
	}
	if level, kind := binary.NativeEndian.Uint32(c[8:]), binary.NativeEndian.Uint32(c[12:]); level != unix.SOL_UDP || kind != unix.UDP_GRO {
		return 0
	}
	return int(int32(binary.NativeEndian.Uint32(c[header:])))
}

// split passes the packets in b to dst. All but the last have the same size.
func split(b []byte, size int, dst *sink) {
	if size <= 0 {
		size = len(b)
	}
	for len(b) > 0 {
		n := min(size, len(b))
		dst.packet(b[:n])
		b = b[n:]
	}
}
