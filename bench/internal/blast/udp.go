//go:build linux

package blast

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
)

// rxBuffer is the size of receive buffers.
const rxBuffer = 16 << 20

// udp is a connected UDP socket that sends with segmentation offload (GSO) and receives with
// its counterpart (GRO).
type udp struct {
	fd    int
	size  int // of a packet
	super []byte
	in    *inbox
}

func newUDP(s harness.Spec) (carrier, error) {
	u := &udp{size: s.Size + overhead, in: newInbox(false)}
	u.super = make([]byte, segments(u.size, 28)*u.size)
	var err error
	if u.fd, err = udpSocket(s); err != nil {
		return nil, err
	}
	for _, o := range []struct{ opt, v int }{{unix.UDP_SEGMENT, u.size}, {unix.UDP_GRO, 1}} {
		if err := unix.SetsockoptInt(u.fd, unix.SOL_UDP, o.opt, o.v); err != nil {
			unix.Close(u.fd)
			return nil, fmt.Errorf("UDP socket option %d: %w", o.opt, err)
		}
	}
	return u, nil
}

// udpSocket makes a UDP socket. It connects the socket to the peer's unless the Op is Unconnected.
func udpSocket(s harness.Spec) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	buffers(fd)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO); err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: s.Local.IP.As4()}); err != nil {
		return -1, err
	}
	if s.Op == result.Unconnected {
		return fd, nil
	}
	return fd, unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: s.Remote.IP.As4()})
}

// buffers makes the buffers of a socket large.
func buffers(fd int) {
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, rxBuffer)
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, rxBuffer)
}

func (u *udp) send(src *source) error {
	for at := 0; at < len(u.super); at += u.size {
		src.put(u.super[at : at+u.size])
	}
	return write(u.fd, u.super)
}

func (u *udp) receive(dst *sink) error {
	n, err := u.in.receive(u.fd)
	for i := range n {
		split(u.in.message(i), u.in.gro(i), dst)
	}
	return err
}

func (u *udp) mode() string { return fmt.Sprintf("GSO %d segments, GRO", len(u.super)/u.size) }

func (u *udp) close() error { return unix.Close(u.fd) }
