//go:build linux

package blast

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bench/internal/result"
	"github.com/goroce/roce/bench/internal/trial"
)

// pinger sends one packet and looks whether one has come, without waiting.
type pinger interface {
	ping(b []byte) error
	pong() (bool, error)
	mode() string
	close() error
}

var pingers = map[string]func(trial.Spec) (pinger, error){
	"udp": newUDPPing,
	"raw": newPacketPing,
	"xdp": func(s trial.Spec) (pinger, error) { return openXDP(s) },
}

// NewPing makes the roles of a ping-pong of bare packets by busy ends.
func NewPing(s trial.Spec) (trial.Role, error) {
	open := pingers[s.Link]
	if s.Port {
		open = func(s trial.Spec) (pinger, error) { return openPorted(s) }
	}
	if open == nil {
		return nil, fmt.Errorf("there is no bare ping-pong for %q", s.Link)
	}
	return &pings{spec: s, open: open}, nil
}

type pings struct {
	spec trial.Spec
	open func(trial.Spec) (pinger, error)
	p    pinger
}

func (p *pings) Prepare() (_ any, err error) {
	p.p, err = p.open(p.spec)
	return "", err
}

func (p *pings) Connect(json.RawMessage) error { return nil }

func (p *pings) Close() error {
	if p.p == nil {
		return nil
	}
	return p.p.close()
}

// lost is after how long a packet is sent once more: nothing else repeats it.
const lost = 50 * time.Millisecond

func (p *pings) Run(ctx context.Context) (trial.Measure, error) {
	b := make([]byte, p.spec.Size+overhead)
	if !p.spec.Active {
		for turn := 0; turn%256 != 0 || ctx.Err() == nil; turn++ {
			got, err := p.p.pong()
			if err == nil && got {
				err = p.p.ping(b)
			}
			if err != nil {
				return trial.Measure{}, err
			}
		}
		return trial.Measure{}, nil
	}
	began := time.Now()
	for s := trial.NewSampler(p.spec); ; {
		s.Begin()
		if err := p.p.ping(b); err != nil {
			return trial.Measure{}, err
		}
		sent := time.Now()
		for turn := 1; ; turn++ {
			got, err := p.p.pong()
			if err != nil {
				return trial.Measure{}, err
			}
			if got {
				break
			}
			if turn%1024 == 0 && time.Since(sent) > lost {
				if ctx.Err() != nil {
					return trial.Measure{}, ctx.Err()
				}
				if err := p.p.ping(b); err != nil {
					return trial.Measure{}, err
				}
				sent = time.Now()
			}
		}
		if s.End() {
			m := s.Measure(time.Since(began))
			m.Mode = p.p.mode()
			return m, nil
		}
	}
}

// socketPing is a ping-pong by write and read of a socket.
type socketPing struct {
	fd, mute int // mute: -1, or a socket that only occupies the port
	head     []byte
	out, in  []byte
	how      string
}

func newUDPPing(s trial.Spec) (pinger, error) {
	fd, err := udpSocket(s)
	if s.Op == result.Unconnected {
		p := &unconnectedPing{fd: fd, in: make([]byte, 2048)}
		p.peer = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: s.Remote.IP.As4()}
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&p.peer.Port))[:], port)
		return p, err
	}
	return &socketPing{fd: fd, mute: -1, in: make([]byte, 2048), how: "write, read"}, err
}

func newPacketPing(s trial.Spec) (pinger, error) {
	fd, mute, err := packetSocket(s, false)
	p := &socketPing{fd: fd, mute: mute, head: make([]byte, headers), in: make([]byte, 2048), how: "write, read"}
	putHeaders(p.head, s, s.Size+overhead, false)
	return p, err
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
	switch err {
	case nil:
		return n > 0, nil
	case unix.EAGAIN, unix.EINTR, unix.ECONNREFUSED:
		return false, nil
	}
	return false, err
}

func (p *socketPing) mode() string { return p.how }

func (p *socketPing) close() error {
	if p.mute >= 0 {
		unix.Close(p.mute)
	}
	return unix.Close(p.fd)
}

// unconnectedPing is a ping-pong by sendto and recvfrom.
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
	switch errno {
	case 0:
		return n > 0, nil
	case unix.EAGAIN, unix.EINTR, unix.ECONNREFUSED:
		return false, nil
	}
	return false, errno
}

func (p *unconnectedPing) mode() string { return "sendto, recvfrom" }

func (p *unconnectedPing) close() error { return unix.Close(p.fd) }
