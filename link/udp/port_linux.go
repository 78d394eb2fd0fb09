package udp

import (
	"fmt"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/claim"
	"github.com/goroce/roce/internal/driver"
	"github.com/goroce/roce/internal/gate"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/internal/sockfilter"
	"github.com/goroce/roce/link"
)

type base = driver.Socket

// Port is a UDP socket. It implements link.Port.
type Port struct {
	base
	cfg     Config
	queue   string       // number of the queue, if there are several
	bound   bth.GID      // the only address; zero: all addresses of the interface
	v6      bool         // the socket's family is IPv6, which also serves IPv4 if the socket has no address
	mads    *Port        // receives the management datagrams; nil: they arrive with the data
	adopted bool         // the socket belongs to a slot, and was already bound
	place   *share.Place // of the first queue, on an address that processes share
	tenants *tenants     // of all queues of such a device
	owner   *share.Owner // of the first queue, on an address that the device has for itself

	tx tx
	rx rx
}

// newPort returns a Port whose socket is still to be opened.
func newPort(c Config, count *link.Counters) *Port {
	p := &Port{cfg: c, base: base{FD: -1, Gate: gate.New(), Count: count}}
	p.Desc = link.Info{Driver: "udp", Layout: frame.LayoutUDP, SrcPort: srcPort}
	p.Fail = func(op string, errno unix.Errno) *errs.Error { return driver.Fail("udp", op, c.name(), errno, hints) }
	p.Attach = p.attach
	return p
}

// Info implements link.Port.
func (p *Port) Info() link.Info {
	i := p.Desc
	i.Mode = "sendmmsg/recvmmsg"
	if p.tx.gso {
		i.Mode += ", GSO"
		if n := p.tx.plainPeers.Load(); n > 0 {
			i.Mode += fmt.Sprintf(" except to %d peers", n)
		}
	}
	if p.rx.gro {
		i.Mode += ", GRO"
	}
	if p.queue != "" {
		i.Mode += ", " + p.queue
	}
	i.Mode += p.MADMode()
	return i
}

// Stats implements link.Port.
func (p *Port) Stats() link.Stats { return p.base.Stats(countDrops) }

// attach attaches the early drop as the filter of the socket. nil removes the filter.
func (p *Port) attach(s *driver.Screened) error {
	if s == nil {
		return unix.SetsockoptInt(p.FD, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
	}
	const udpLen, qpn = 8, 4 // the program sees packets from the UDP header on; the QPN with a byte in front
	return sockfilter.Attach(p.FD, s.Program(bpf.LoadAbsolute{Off: udpLen + qpn, Size: 4}, true))
}

// Close implements link.Port. It waits for calls in progress.
func (p *Port) Close() error {
	p.Screen.Close()
	if p.cfg.Shared {
		p.silence()
	}
	err := p.base.Close()
	if p.tenants != nil && err == nil && p.tenants.left.Add(-1) == 0 {
		err = p.tenants.place.Close()
	}
	if err == nil {
		err = p.owner.Close()
	}
	return err
}

// Owner implements [share.Owned].
func (p *Port) Owner() share.Teller { return p.owner.Teller() }

// Shared implements [share.Sharer].
func (p *Port) Shared() share.Shared { return p.place.Shared() }

// countDrops adds the socket's count of datagrams for which the receive buffer
// was full (or with a wrong UDP checksum, which is rare).
func countDrops(s *base) {
	const drops = 8 // SK_MEMINFO_DROPS
	var info [drops + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	old := s.Dropped.Load() // first: of two simultaneous calls the later count must win
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.FD), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 || size < uint32(unsafe.Sizeof(info)) {
		return
	}
	// The kernel's counter has 32 bits and is never reset. If the swap fails, another caller has
	// just counted.
	if s.Dropped.CompareAndSwap(old, info[drops]) {
		s.Count.RxDrops.Add(uint64(info[drops] - old))
	}
}

// hints are the remedies for errors.
var hints = map[unix.Errno]string{
	unix.EPERM:         refusedBy,
	unix.EACCES:        refusedBy,
	unix.EADDRINUSE:    claim.Hint,
	unix.EADDRNOTAVAIL: "the host has no such address: `ip address` lists those of this network namespace",
}

const refusedBy = "a firewall rule or a security module refuses it"
