package raw

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/gate"
	"github.com/goroce/roce/link"
)

// Port is a packet socket on one interface. It implements link.Port.
type Port struct {
	cfg   Config
	info  link.Info // without Mode
	queue string    // which of how many, if there are several
	fd    int       // the packet socket
	event int       // eventfd that Wake writes
	mutes []int     // UDP sockets that occupy the port
	gate  gate.Gate // fds are in use
	count link.Counters

	tx tx
	rx rx

	// Of Wait.
	woken   atomic.Bool // event was written and not read
	backlog atomic.Bool // Recv has packets left that the kernel does not know of
	starved atomic.Bool // packets are left for want of room: wait for that too
	polls   [2]unix.PollFd
	timeout unix.Timespec
	drain   [8]byte
}

// Info implements link.Port.
func (p *Port) Info() link.Info {
	i := p.info
	i.Mode = "sendmmsg/recvmmsg"
	if p.tx.gso.Load() {
		i.Mode += ", GSO"
	}
	if p.tx.bypass.Load() {
		i.Mode += ", qdisc bypass"
	}
	if p.queue != "" {
		i.Mode += ", " + p.queue
	}
	return i
}

// Stats implements link.Port. Whether the link is up is asked now.
func (p *Port) Stats() link.Stats {
	if p.gate.Enter() {
		p.count.SetDown(p.linkState("state") != nil)
		// The kernel's counters start again from zero when they are read.
		if s, err := unix.GetsockoptTpacketStats(p.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
			p.count.RxDrops.Add(uint64(s.Drops))
		}
		p.gate.Leave()
	}
	return p.count.Stats()
}

// OnLink implements link.Port.
func (p *Port) OnLink(f func(up bool)) { p.count.OnLink(f) }

// Wait implements link.Port: ppoll(2) on the socket and the eventfd.
func (p *Port) Wait(d time.Duration) error {
	if !p.gate.Enter() {
		return link.ErrClosed
	}
	defer p.gate.Leave()
	if p.backlog.Load() {
		d = 0 // but a Wake must be taken note of
	}
	events := int16(unix.POLLIN)
	if p.starved.Load() {
		events |= unix.POLLOUT
	}
	p.polls = [2]unix.PollFd{{Fd: int32(p.fd), Events: events}, {Fd: int32(p.event), Events: unix.POLLIN}}
	var limit *unix.Timespec
	if d >= 0 {
		p.timeout = unix.NsecToTimespec(int64(d))
		limit = &p.timeout
	}
	_, _, errno := unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p.polls)), 2, uintptr(unsafe.Pointer(limit)), 0, 0, 0)
	if errno != 0 && errno != unix.EINTR {
		return p.failed("wait", errno)
	}
	if p.woken.Load() {
		// In this order: a Wake that comes between does not write, and is
		// answered by this very return.
		unix.Read(p.event, p.drain[:])
		p.woken.Swap(false)
	}
	if p.gate.Closed() {
		return link.ErrClosed
	}
	return nil
}

// Wake implements link.Port.
func (p *Port) Wake() {
	if p.woken.Swap(true) || !p.gate.Enter() {
		return
	}
	p.wakeUp()
	p.gate.Leave()
}

func (p *Port) wakeUp() {
	one := [8]byte{7: 1} // any byte order: it is only not zero
	unix.Write(p.event, one[:])
}

// Close implements link.Port. It returns when nobody is inside any more.
func (p *Port) Close() error {
	if !p.gate.Close() {
		return link.ErrClosed
	}
	p.wakeUp()
	p.gate.Drain()
	for _, fd := range append(p.mutes, p.fd, p.event) {
		unix.Close(fd)
	}
	return nil
}

// failed makes an error of an errno, with what to do about it.
func (p *Port) failed(op string, errno unix.Errno) error {
	return failure(op, p.cfg.Interface, errno)
}

func failure(op, ifname string, errno unix.Errno) *link.Error {
	e := &link.Error{Driver: "raw", Op: op, Interface: ifname, Err: errno}
	switch errno {
	case unix.EPERM, unix.EACCES:
		e.Kind = link.ErrPermission
		e.Hint = "needs CAP_NET_RAW: run as root, or setcap cap_net_raw+ep on the program"
	case unix.ENODEV, unix.ENXIO:
		e.Kind = link.ErrNoDevice
	case unix.ENETDOWN:
		e.Kind = link.ErrDown
	}
	return e
}
