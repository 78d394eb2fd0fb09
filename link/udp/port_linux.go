package udp

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/claim"
	"github.com/goroce/roce/internal/doze"
	"github.com/goroce/roce/internal/ethtool"
	"github.com/goroce/roce/internal/gate"
	"github.com/goroce/roce/internal/madqueue"
	"github.com/goroce/roce/link"
)

// Port is a UDP socket. It implements link.Port.
type Port struct {
	cfg   Config
	info  link.Info // without Mode
	queue string    // which of how many, if there are several
	bound bth.GID   // the only address; zero: those of the interface
	fd    int
	v6    bool // the socket's family: IPv6, which serves IPv4 too if it is not bound
	gate  gate.Gate
	count *link.Counters

	tx tx
	rx rx

	mads     *Port // receives the management datagrams, nothing else; nil: they arrive with the data
	schedule madqueue.Schedule
	dropped  atomic.Uint32 // the kernel's count of what it has dropped, as of the last look

	// Of Wait.
	sleeper *doze.Sleeper
	backlog atomic.Bool // Recv has packets left that the kernel does not know of
	starved atomic.Bool // packets are left for want of room in the socket: wait for that too
	crowded atomic.Bool // packets are left for want of room behind it: nothing tells when there is some
}

// roomTick is how long a sender without room behind the socket waits at most before it
// tries again.
const roomTick = time.Millisecond

// Info implements link.Port.
func (p *Port) Info() link.Info {
	i := p.info
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
	return i
}

// Stats implements link.Port. Whether the link is up and what the kernel has
// dropped is asked now.
func (p *Port) Stats() link.Stats {
	if p.gate.Enter() {
		p.look()
		p.countDrops()
		if p.mads != nil {
			p.mads.countDrops()
		}
		p.gate.Leave()
	}
	return p.count.Stats()
}

// countDrops takes over the socket's count of datagrams that found the receive
// buffer full (or failed the UDP checksum, which is rare).
func (p *Port) countDrops() {
	const drops = 8 // SK_MEMINFO_DROPS
	var info [drops + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	old := p.dropped.Load() // first: of two that ask at once the later count must win
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(p.fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 || size < uint32(unsafe.Sizeof(info)) {
		return
	}
	// The kernel's counter has 32 bits and is never reset. If the swap fails, somebody else
	// has just counted.
	if p.dropped.CompareAndSwap(old, info[drops]) {
		p.count.RxDrops.Add(uint64(info[drops] - old))
	}
}

// look asks the kernel whether the link is up. Called with the gate held.
func (p *Port) look() { p.count.Look(func() bool { return p.linkState("state") != nil }) }

// alive is told that a packet came or went: if the link was down it may be up again. The
// packet may also have been waiting since before, so the kernel is asked.
func (p *Port) alive() {
	if p.count.Down() {
		p.look()
	}
}

// OnLink implements link.Port.
func (p *Port) OnLink(f func(up bool)) { p.count.OnLink(f) }

// Wait implements link.Port.
func (p *Port) Wait(d time.Duration) error {
	if !p.gate.Enter() {
		return link.ErrClosed
	}
	defer p.gate.Leave()
	switch {
	case p.backlog.Load() || p.mads != nil && p.mads.backlog.Load():
		d = 0 // but a Wake must be taken note of
	case p.crowded.Load() && (d < 0 || d > roomTick):
		d = roomTick
	}
	pause := p.schedule.Pause()
	if pause > 0 && (d < 0 || d > pause) {
		d = pause
	}
	p.sleeper.Sole(pause > 0)
	if _, errno := p.sleeper.Sleep(d, p.starved.Load()); errno != 0 {
		return p.failed("wait", errno)
	}
	if p.gate.Closed() {
		return link.ErrClosed
	}
	return nil
}

// Wake implements link.Port.
func (p *Port) Wake() {
	if p.gate.Enter() {
		p.sleeper.Wake()
		p.gate.Leave()
	}
}

// Close implements link.Port. It returns when no call is in progress any more.
func (p *Port) Close() error {
	if !p.gate.Close() {
		return link.ErrClosed
	}
	p.sleeper.Wake()
	p.gate.Drain()
	p.mads.shut()
	p.sleeper.Close()
	unix.Close(p.fd)
	return nil
}

// shut releases a management queue. A nil Port has nothing. The owner of the Port it
// belongs to may still be in a receive.
func (p *Port) shut() {
	if p == nil {
		return
	}
	p.gate.Close()
	p.gate.Drain()
	unix.Close(p.fd)
}

// linkState asks the kernel about the interface: gone, down or without carrier,
// or nil if it is up or not known. Called with the gate held.
func (p *Port) linkState(op string) error {
	if p.info.Index == 0 {
		return nil
	}
	if errno := ethtool.State(p.fd, p.info.Index); errno != 0 {
		return p.failed(op, errno)
	}
	return nil
}

// failed makes an error of an errno, with what to do about it.
func (p *Port) failed(op string, errno unix.Errno) *errs.Error {
	e := p.cfg.fail(op, errno)
	switch errno {
	case unix.EPERM, unix.EACCES:
		e.Err = errs.Kind(link.ErrPermission, e.Err)
		e.Detail = "a firewall rule or a security module refuses it"
	case unix.ENODEV, unix.ENXIO:
		e.Err = errs.Kind(link.ErrNoDevice, e.Err)
	case unix.ENETDOWN:
		e.Err = errs.Kind(link.ErrDown, e.Err)
	case unix.EADDRINUSE:
		e.Detail = claim.Hint
	case unix.EADDRNOTAVAIL:
		e.Detail = "the host has no such address: `ip address` lists those of this network namespace"
	}
	return e
}
