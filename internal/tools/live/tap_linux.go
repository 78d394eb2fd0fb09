package live

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/sockfilter"
	"github.com/goroce/roce/link/pcap"
)

// tap is a packet socket that gets the packets that pass an interface.
type tap struct {
	file     *os.File
	loopback bool // it sees each packet twice: when it leaves, and when it arrives
	drops    atomic.Uint64
}

// room is the size of the receive buffer.
const room = 16 << 20

func openTap(iface string) (t *tap, err error) {
	fail := func(err error, format string, args ...any) (*tap, error) {
		return nil, errs.New("capture", err, format, args...)
	}
	ifi, err := net.InterfaceByName(iface)
	if err != nil {
		return fail(syscall.ENODEV, "there is no interface %s", iface)
	}
	loopback := ifi.Flags&net.FlagLoopback != 0
	if !loopback && len(ifi.HardwareAddr) != 6 {
		return fail(syscall.EINVAL, "%s has no Ethernet frames", iface)
	}
	// With protocol 0 it receives nothing before it is bound.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fail(err, "packet socket on %s (it needs CAP_NET_RAW)", iface)
	}
	s := &tap{file: os.NewFile(uintptr(fd), "capture of "+iface), loopback: loopback}
	defer func() {
		if err != nil {
			s.file.Close()
		}
	}()
	if err := sockfilter.Attach(fd, program); err != nil {
		return fail(err, "filter of %s", iface)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fail(err, "times of the packets on %s", iface)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room) != nil { // needs CAP_NET_ADMIN
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, room) // the kernel limits this to net.core.rmem_max
	}
	all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifi.Index}); err != nil {
		return fail(err, "packet socket on %s", iface)
	}
	return s, nil
}

// program accepts unfragmented UDP datagrams to port 4791, of IPv4 and IPv6. The kernel has already removed a VLAN tag from
// the frame.
var program = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 12, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IPV6, SkipTrue: 8},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 11},
	bpf.LoadAbsolute{Off: 23, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 9},
	bpf.LoadAbsolute{Off: 20, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x1FFF, SkipTrue: 7},
	bpf.LoadMemShift{Off: 14},
	bpf.LoadIndirect{Off: 16, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: bth.UDPPort, SkipTrue: 5, SkipFalse: 4},
	bpf.LoadAbsolute{Off: 20, Size: 1}, // IPv6 without extension headers
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 2},
	bpf.LoadAbsolute{Off: 56, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: bth.UDPPort, SkipTrue: 1},
	bpf.RetConstant{Val: 0},
	bpf.RetConstant{Val: 1 << 18},
}

// copyTo writes the packets as a capture file, until close. It continues if the interface goes down and up again.
func (s *tap) copyTo(out io.Writer) error {
	w := pcap.NewWriter(out, pcap.Classic, 0)
	if _, err := w.AddInterface(pcap.Interface{LinkType: pcap.Ethernet}); err != nil {
		return err
	}
	conn, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	buf, oob := make([]byte, 1<<18), make([]byte, 256)
	for {
		n, k, err := 0, 0, error(nil)
		var from unix.Sockaddr
		closed := conn.Read(func(fd uintptr) bool {
			n, k, _, from, err = unix.Recvmsg(int(fd), buf, oob, unix.MSG_TRUNC)
			return !errors.Is(err, unix.EAGAIN)
		})
		switch {
		case closed != nil:
			return nil
		case errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return errs.New("capture", err, "%s", s.file.Name())
		}
		if at, ok := from.(*unix.SockaddrLinklayer); ok && s.loopback && at.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		rec := pcap.Record{Time: stamp(oob[:k]), Data: buf[:min(n, len(buf))], OrigLen: n, LinkType: pcap.Ethernet}
		if err := errors.Join(w.Write(&rec), w.Flush()); err != nil {
			return err
		}
	}
}

// stamp returns the time at which the kernel saw a packet.
func stamp(oob []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(oob)
	for _, m := range messages {
		if err == nil && m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			return time.Unix((*unix.Timespec)(unsafe.Pointer(&m.Data[0])).Unix())
		}
	}
	return time.Now()
}

// Lost returns how many packets the kernel has dropped because Run was too slow. Reading the kernel's count resets it.
func (s *tap) Lost() uint64 {
	conn, err := s.file.SyscallConn()
	if err != nil {
		return s.drops.Load()
	}
	conn.Control(func(fd uintptr) {
		if stats, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			s.drops.Add(uint64(stats.Drops))
		}
	})
	return s.drops.Load()
}

// Close ends the capture.
func (s *tap) Close() error { return s.file.Close() }
