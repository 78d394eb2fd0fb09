//go:build linux

package blast

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
)

// nothingYet reports whether an error of a receive means that no packet has arrived.
func nothingYet(err error) bool {
	return err == unix.EAGAIN || err == unix.EINTR || err == unix.ECONNREFUSED
}

// socketPing is a ping-pong by write and read of a socket.
type socketPing struct {
	fd, drain int    // drain: as packetSocket returns it, or -1
	head      []byte // in front of each packet
	out, in   []byte
}

func newUDPPing(s harness.Spec) (pinger, error) {
	fd, err := udpSocket(s)
	if s.Op == result.Unconnected {
		p := &unconnectedPing{fd: fd, in: make([]byte, 2048)}
		p.peer = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: s.Remote.IP.As4()}
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&p.peer.Port))[:], port)
		return p, err
	}
	return &socketPing{fd: fd, drain: -1, in: make([]byte, 2048)}, err
}

func newPacketPing(s harness.Spec) (pinger, error) {
	head, err := headersOf(s, s.Size+overhead, 0)
	if err != nil {
		return nil, err
	}
	fd, drain, err := packetSocket(s, false)
	return &socketPing{fd: fd, drain: drain, head: head, in: make([]byte, 2048)}, err
}

func (p *socketPing) ping(b []byte) error {
	if len(p.head) > 0 {
		p.out = append(append(p.out[:0], p.head...), b...)
		b = p.out
	}
	_, err := unix.Write(p.fd, b)
	if errors.Is(err, unix.ECONNREFUSED) {
		err = nil
	}
	return err
}

func (p *socketPing) pong() (bool, error) {
	n, err := unix.Read(p.fd, p.in)
	if nothingYet(err) {
		return false, nil
	}
	return n > 0, err
}

func (p *socketPing) mode() string { return "write, read" }

func (p *socketPing) close() error {
	if p.drain >= 0 {
		unix.Close(p.drain)
	}
	return unix.Close(p.fd)
}

// unconnectedPing is a ping-pong by sendto and recvfrom. The functions of package unix would
// allocate memory for each packet.
type unconnectedPing struct {
	fd         int
	peer, from unix.RawSockaddrInet4
	in         []byte
}

func (p *unconnectedPing) ping(b []byte) error {
	_, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(p.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0,
		uintptr(unsafe.Pointer(&p.peer)), unix.SizeofSockaddrInet4)
	if errno != 0 && errno != unix.ECONNREFUSED {
		return errno
	}
	return nil
}

func (p *unconnectedPing) pong() (bool, error) {
	size := uint32(unix.SizeofSockaddrInet4)
	n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(p.fd), uintptr(unsafe.Pointer(&p.in[0])), uintptr(len(p.in)), 0,
		uintptr(unsafe.Pointer(&p.from)), uintptr(unsafe.Pointer(&size)))
	switch {
	case errno == 0:
		return n > 0, nil
	case nothingYet(errno):
		return false, nil
	}
	return false, errno
}

func (p *unconnectedPing) mode() string { return "sendto, recvfrom" }

func (p *unconnectedPing) close() error { return unix.Close(p.fd) }
