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
	"github.com/goroce/roce/internal/claim"
	"github.com/goroce/roce/internal/doze"
	"github.com/goroce/roce/internal/driver"
	"github.com/goroce/roce/internal/ethtool"
	"github.com/goroce/roce/internal/madqueue"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/internal/sockfilter"
	"github.com/goroce/roce/link"
)

// Open opens a Port on an interface of the calling thread's network namespace,
// in which the Port stays. Errors are *errs.Error with link.ErrPermission,
// link.ErrNoDevice or link.ErrUnsupported. The interface may be down: the Port
// works when it comes up.
func Open(c Config) (link.Port, error) {
	// Sockets belong to the thread's namespace: all must be in the same one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c.queues = 1
	p, err := open(c, nil, func(*Port) error { return nil })
	if err != nil {
		return nil, err // not a nil *Port in an interface
	}
	return p, nil
}

// open opens a Port and calls join when its socket is bound, before it receives
// packets. first is another queue of the same device, or nil for the first.
func open(c Config, first *Port, join func(*Port) error) (*Port, error) {
	c.RxBuffer, c.TxBuffer = cmp.Or(c.RxBuffer, 32<<20), cmp.Or(c.TxBuffer, 8<<20)
	p, err := newPort(c, new(link.Counters))
	if err != nil {
		return nil, err
	}
	p.Queues = []*base{&p.base}
	err = p.setUp(first)
	if err == nil {
		err = join(p)
	}
	if err == nil && first == nil {
		p.split()
	}
	if err == nil {
		p.take = cmp.Or(first, p).take
		err = p.listen(p.take, nil)
	}
	if err != nil {
		p.free()
		return nil, err
	}
	return p, nil
}

// setUp does the work of Open after the socket was made, including the bind. p has all opened
// files, also after an error.
func (p *Port) setUp(first *Port) error {
	ifi, err := driver.Ethernet("raw", p.cfg.Interface, p.FD)
	if err != nil {
		return err
	}
	p.Desc = link.Info{
		Driver: "raw", Interface: ifi.Name, Index: ifi.Index, MAC: frame.MAC(ifi.HardwareAddr), MTU: ifi.MTU,
		Layout: frame.LayoutEthernet, SrcPort: p.cfg.SrcPort,
	}
	p.Desc.Speed = ethtool.Speed(p.FD, p.Desc.Interface)
	p.Count.SetDown(ifi.Flags&net.FlagUp == 0)

	if p.Sleeper, err = doze.New(p.FD); err != nil {
		return p.FailStep("sleeper", err)
	}
	if err := p.takePort(first); err != nil {
		return err
	}
	if err := p.prepare(); err != nil {
		return err
	}
	if err := p.bind(allPackets); err != nil {
		return err
	}
	p.tx.init(ifi.MTU)
	p.rx.init(link.Batch)
	return nil
}

// prepare sets the options of the socket, and a filter: a socket receives from the bind on.
func (p *Port) prepare() error {
	if err := sockfilter.Attach(p.FD, sockfilter.RejectAll); err != nil {
		return p.FailStep("attach filter", err)
	}
	return p.setOptions()
}

// bind binds the socket to the packets of a protocol on the interface.
func (p *Port) bind(protocol uint16) error {
	at := &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16([]byte{byte(protocol >> 8), byte(protocol)}), Ifindex: p.Desc.Index}
	if err := unix.Bind(p.FD, at); err != nil {
		return p.FailStep("bind", err)
	}
	return nil
}

// Protocols for bind.
const (
	allPackets = unix.ETH_P_ALL
	noPackets  = 0xFFFF // reserved (RFC 1701); 0 would leave the socket as it is
)

// split opens a separate socket for management datagrams. If the Port is the only queue, the socket receives nothing
// before SplitMADs.
func (p *Port) split() {
	m, err := openMADs(p)
	if err == nil {
		p.Split(&m.base)
		p.Divide = func() error { return p.divide(m) }
		if p.cfg.queues > 1 || p.slots != nil {
			err, p.Divide = p.divide(m), nil
		}
	}
	if err != nil {
		p.Notef(driver.Undivided, err)
	}
}

// openMADs opens the socket of a Port's management datagrams. It belongs to the Port: it
// never sends, and its packets count as those of the Port.
func openMADs(of *Port) (*Port, error) {
	c := of.cfg
	c.RxBuffer = min(c.RxBuffer, driver.MADBuffer)
	p, err := newPort(c, of.Count)
	if err != nil {
		return nil, err
	}
	p.Desc = of.Desc
	p.Desc.Notes = nil
	p.slots = of.slots
	if err = p.prepare(); err == nil {
		err = p.listen(onlyMADs, nil)
	}
	if err != nil {
		unix.Close(p.FD)
		return nil, err
	}
	p.rx.init(madqueue.Most)
	return p, nil
}

// divide makes m the socket of management datagrams. Until the Port's own filter has changed, both sockets receive
// them.
func (p *Port) divide(m *Port) error {
	if err := m.bind(allPackets); err != nil {
		return err
	}
	p.mads = m
	err := p.Screen.Change(func(s *driver.Screened) error {
		err := p.listen(noMADs, s)
		if err == nil {
			p.take = noMADs
		}
		return err
	})
	if err != nil {
		m.bind(noPackets) // otherwise each would come twice
	}
	return err
}

// takePort claims the UDP port of the interface for the device. first is its first
// queue, or nil if p is that queue.
func (p *Port) takePort(first *Port) (err error) {
	switch {
	case first != nil && first.slots != nil:
		p.slots = first.slots
		return nil
	case first != nil:
		p.claim = first.claim.Share()
		return nil
	case p.cfg.Shared && !p.cfg.SharePort:
		if err = p.enter(); !errors.Is(err, link.ErrUnsupported) {
			return err
		}
		p.Notef("no other process can use %s: %v", p.Desc.Interface, err)
	}
	var notes []string
	if p.claim, notes, err = claim.Take(p.cfg.claim()); err != nil {
		e := p.FailStep(claiming, err)
		share.NameRival(e, "raw", p.Desc.Index)
		return e
	}
	p.Desc.Notes = append(p.Desc.Notes, notes...)
	p.owner, _ = share.Occupy(share.InterfaceKey("raw", p.Desc.Index)) // after an error the EADDRINUSE of other processes does not name this one
	return nil
}

// listen starts reception: it attaches the filter.
func (p *Port) listen(take kind, screen *driver.Screened) error {
	if err := sockfilter.Attach(p.FD, slices.Concat(notForUs(), inVLAN(p.cfg.VLAN), roceFilter(take, p.slots, screen))); err != nil {
		return p.FailStep("attach filter", err)
	}
	return nil
}

// setOptions sets the socket's options, and adds notes for missing ones.
func (p *Port) setOptions() error {
	set := func(opt int) error { return unix.SetsockoptInt(p.FD, unix.SOL_PACKET, opt, 1) }

	if err := set(unix.PACKET_IGNORE_OUTGOING); err != nil {
		return p.FailStep("PACKET_IGNORE_OUTGOING (Linux 4.20)", err)
	}
	if err := set(unix.PACKET_VNET_HDR); err == nil {
		p.tx.vnet, p.rx.vnet = true, true
		p.tx.gso = !p.cfg.NoGSO
	} else {
		p.Notef("super-packets can be neither sent nor received: PACKET_VNET_HDR: %v", err)
	}
	// Control messages tell the VLAN tag, and what the virtio_net_hdr tells about the checksum, too. Without a VLAN the
	// tag has a priority at most, which nobody needs.
	if p.rx.aux = p.cfg.VLAN != 0 || !p.rx.vnet; p.rx.aux {
		if err := set(unix.PACKET_AUXDATA); err != nil {
			return p.FailStep("PACKET_AUXDATA", err)
		}
	}
	if !p.cfg.Qdisc {
		if err := set(unix.PACKET_QDISC_BYPASS); err == nil {
			p.tx.bypass.Store(true)
		} else {
			p.Notef("sending through the qdisc: PACKET_QDISC_BYPASS: %v", err)
		}
	}
	return p.SetBuffers(p.cfg.RxBuffer, p.cfg.TxBuffer)
}

// superRelease is the first Linux whose packet sockets support UDP
// super-packets. Earlier ones lose super-packets for a socket with
// PACKET_VNET_HDR, so the Port must not make them join packets.
const superRelease = 6<<8 | 2

// release returns the version of the running kernel, with a byte for each of
// the first two numbers; 0: unknown.
func release() int {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return 0
	}
	return parseRelease(unix.ByteSliceToString(u.Release[:]))
}

// parseRelease parses the first two numbers of "6.12.0-rc1".
func parseRelease(s string) int {
	var major, minor uint8
	if n, _ := fmt.Sscanf(s, "%d.%d", &major, &minor); n != 2 {
		return 0
	}
	return int(major)<<8 | int(minor)
}
