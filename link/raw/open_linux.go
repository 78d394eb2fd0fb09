package raw

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/claim"
	"github.com/goroce/roce/internal/doze"
	"github.com/goroce/roce/internal/ethtool"
	"github.com/goroce/roce/internal/gate"
	"github.com/goroce/roce/internal/madqueue"
	"github.com/goroce/roce/internal/sockfilter"
	"github.com/goroce/roce/link"
)

// Open opens a Port on an interface of the calling thread's network namespace;
// it stays there. Errors are *errs.Error with link.ErrPermission,
// link.ErrNoDevice or link.ErrUnsupported. An interface that is down is no
// error: the Port works when it comes up.
func Open(c Config) (link.Port, error) {
	// Sockets belong to the thread's namespace: all must be of the same.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, err := open(c, nil, func(*Port) error { return nil })
	if err != nil {
		return nil, err // not a nil *Port in an interface
	}
	return p, nil
}

// open opens a Port and calls join when its socket is bound, before it takes
// packets. first is another queue of the same device, nil if this is its first.
func open(c Config, first *Port, join func(*Port) error) (*Port, error) {
	if c.RxBuffer == 0 {
		c.RxBuffer = 32 << 20
	}
	if c.TxBuffer == 0 {
		c.TxBuffer = 8 << 20
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, failure("open", c.Interface, errnoOf(err))
	}
	p := &Port{cfg: c, fd: fd, gate: gate.New(), count: new(link.Counters)}
	err = p.setUp(first)
	if err == nil {
		err = join(p)
	}
	if err == nil && first == nil {
		p.split()
	}
	if err == nil {
		take := everything
		if first = cmp.Or(first, p); first.mads != nil {
			take = noMADs
		}
		err = p.listen(take)
	}
	if err != nil {
		p.free()
		return nil, err
	}
	return p, nil
}

// setUp does all of Open behind the socket, up to binding it. What it opened is
// in p also when it fails.
func (p *Port) setUp(first *Port) error {
	ifi, err := p.inspect()
	if err != nil {
		return err
	}
	p.info = link.Info{
		Driver: "raw", Interface: ifi.Name, Index: ifi.Index, MAC: frame.MAC(ifi.HardwareAddr), MTU: ifi.MTU,
		Layout: frame.LayoutEthernet, SrcPort: p.cfg.SrcPort,
	}
	p.info.Speed = ethtool.Speed(p.fd, p.info.Interface)
	p.count.SetDown(ifi.Flags&net.FlagUp == 0)

	if p.sleeper, err = doze.New(p.fd); err != nil {
		return p.failedStep("sleeper", err)
	}
	if err := p.takePort(first); err != nil {
		return err
	}
	if err := p.bind(); err != nil {
		return err
	}
	p.tx.init(ifi.MTU)
	p.rx.init(link.Batch)
	return nil
}

// bind sets the socket's options and binds it; it takes nothing yet.
func (p *Port) bind() error {
	// The filter first: a socket takes what comes from when it is bound.
	if err := sockfilter.Attach(p.fd, takeNothing); err != nil {
		return p.failedStep("attach filter", err)
	}
	if err := p.setOptions(); err != nil {
		return err
	}
	all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
	if err := unix.Bind(p.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: p.info.Index}); err != nil {
		return p.failedStep("bind", err)
	}
	return nil
}

// madBuffer is the receive buffer of the management queue in bytes, if Config.RxBuffer is
// not smaller. It holds the requests of thousands of peers that connect at once. In a larger
// one a request would wait so long behind a flood that its sender repeats it.
const madBuffer = 4 << 20

// split opens a socket of their own for the management datagrams. Without one they arrive
// with the data.
func (p *Port) split() {
	m, err := openMADs(p)
	if err != nil {
		p.info.Notes = append(p.info.Notes, fmt.Sprintf("management datagrams share the queue of the data: %v", err))
		return
	}
	p.mads = m
	p.sleeper.Add(m.fd)
}

// openMADs opens the socket of the management datagrams of a Port, which it belongs to: it
// is never sent from, and its packets count as those of the Port.
func openMADs(of *Port) (*Port, error) {
	p := &Port{cfg: of.cfg, info: of.info, gate: gate.New(), count: of.count}
	p.cfg.RxBuffer = min(p.cfg.RxBuffer, madBuffer)
	var err error
	if p.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return nil, p.failedStep("socket", err)
	}
	p.info.Notes = nil
	if err = p.bind(); err == nil {
		err = p.listen(onlyMADs)
	}
	if err != nil {
		unix.Close(p.fd)
		return nil, err
	}
	p.rx.init(madqueue.Most)
	return p, nil
}

// takePort claims the UDP port of the interface for the device, whose first queue is
// first.
func (p *Port) takePort(first *Port) (err error) {
	if first != nil {
		p.claim = first.claim.Share()
		return nil
	}
	c := claim.Config{Interface: p.info.Interface, Share: p.cfg.SharePort, Super: release() >= superRelease}
	var notes []string
	if p.claim, notes, err = claim.Take(c); err != nil {
		return p.failedStep("UDP port", err)
	}
	p.info.Notes = append(p.info.Notes, notes...)
	return nil
}

// listen lets packets in.
func (p *Port) listen(take kind) error {
	if err := sockfilter.Attach(p.fd, slices.Concat(notForUs(), inVLAN(p.cfg.VLAN), roceFilter(take))); err != nil {
		return p.failedStep("attach filter", err)
	}
	return nil
}

// failedStep makes an error of a step of opening.
func (p *Port) failedStep(step string, err error) error {
	e := failure("open", p.cfg.Interface, errnoOf(err))
	e.Err = errs.Kind(e.Err, fmt.Errorf("%s: %w", step, err))
	return e
}

// notEthernet is what to do about a loopback interface, or a tunnel.
const notEthernet = "link/udp (driver \"udp\") works on every interface; within one process link/mem does"

// inspect finds the interface and checks that it is Ethernet.
func (p *Port) inspect() (*net.Interface, error) {
	name := p.cfg.Interface
	ifr, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(p.fd, unix.SIOCGIFINDEX, ifr)
	}
	if err != nil || name == "" {
		e := failure("open", name, unix.ENODEV)
		e.Detail = "`ip link` lists the interfaces of this network namespace"
		return nil, e
	}
	ifi, err := net.InterfaceByIndex(int(ifr.Uint32()))
	if err != nil {
		return nil, link.Fail("raw", "open", name, link.ErrNoDevice, err, "")
	}
	if ifi.Flags&net.FlagLoopback != 0 || len(ifi.HardwareAddr) != len(frame.MAC{}) {
		return nil, link.Fail("raw", "open", name, link.ErrUnsupported, fmt.Errorf("not an Ethernet interface"), notEthernet)
	}
	return ifi, nil
}

// setOptions sets the socket's options, and notes which could not be had.
func (p *Port) setOptions() error {
	note := func(format string, a ...any) {
		p.info.Notes = append(p.info.Notes, fmt.Sprintf(format, a...))
	}
	set := func(opt, v int) error { return unix.SetsockoptInt(p.fd, unix.SOL_PACKET, opt, v) }

	if err := set(unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return p.failedStep("PACKET_IGNORE_OUTGOING (Linux 4.20)", err)
	}
	if err := set(unix.PACKET_AUXDATA, 1); err != nil {
		return p.failedStep("PACKET_AUXDATA", err)
	}
	if err := set(unix.PACKET_VNET_HDR, 1); err == nil {
		p.tx.vnet, p.rx.vnet = true, true
		p.tx.gso = !p.cfg.NoGSO
	} else {
		note("super-packets can be neither sent nor received: PACKET_VNET_HDR: %v", err)
	}
	if !p.cfg.Qdisc {
		if err := set(unix.PACKET_QDISC_BYPASS, 1); err == nil {
			p.tx.bypass.Store(true)
		} else {
			note("sending through the qdisc: PACKET_QDISC_BYPASS: %v", err)
		}
	}

	for _, b := range []struct {
		name               string
		force, opt, wanted int
	}{
		{"receive", unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, p.cfg.RxBuffer},
		{"send", unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, p.cfg.TxBuffer},
	} {
		if unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, b.force, b.wanted) == nil {
			continue
		}
		if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, b.opt, b.wanted); err != nil {
			return p.failedStep(b.name+" buffer", err)
		}
		// The kernel doubles what was asked for, to account for overhead.
		if got, err := unix.GetsockoptInt(p.fd, unix.SOL_SOCKET, b.opt); err == nil && got < 2*b.wanted {
			note("%s buffer is %d KiB instead of %d KiB: needs CAP_NET_ADMIN or a larger net.core.%cmem_max",
				b.name, got/2>>10, b.wanted>>10, map[string]rune{"receive": 'r', "send": 'w'}[b.name])
		}
	}
	return nil
}

// superRelease is the first Linux whose packet sockets know UDP super-packets.
// Earlier ones lose those that are for one with PACKET_VNET_HDR, so nothing must
// make them join packets.
const superRelease = 6<<8 | 2

// release is the version of the running kernel, a byte each for the first two
// numbers; 0: unknown.
func release() int {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return 0
	}
	return parseRelease(unix.ByteSliceToString(u.Release[:]))
}

// parseRelease takes the first two numbers of "6.12.0-rc1".
func parseRelease(s string) int {
	var major, minor uint8
	if n, _ := fmt.Sscanf(s, "%d.%d", &major, &minor); n != 2 {
		return 0
	}
	return int(major)<<8 | int(minor)
}

// linkState asks the kernel about the interface: gone, down or without carrier,
// or nil if it is up. Called with the gate held.
func (p *Port) linkState(op string) error {
	if errno := ethtool.State(p.fd, p.info.Index); errno != 0 {
		return p.failed(op, errno)
	}
	return nil
}

// errnoOf digs the errno out of an error.
func errnoOf(err error) unix.Errno {
	var e unix.Errno
	if errors.As(err, &e) {
		return e
	}
	return unix.EINVAL
}
