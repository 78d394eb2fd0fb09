package udp

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/driver"
	"github.com/goroce/roce/internal/madqueue"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/internal/sockfilter"
	"github.com/goroce/roce/link"
)

// On an address that processes share there are two sockets for each slot, one for data and one
// for management datagrams, in one group. The first process opens all of them; each process
// uses those of its slots.
const (
	slotData = iota
	slotMADs
	slotSockets
)

// medium implements [share.Medium].
type medium struct {
	cfg   Config
	index int         // of the interface, 0: unknown
	taken *errs.Error // why the address could not be opened
}

// Sockets implements [share.Medium].
func (m *medium) Sockets() int { return slotSockets }

// Hear implements [share.Medium]: a request reaches one process.
func (m *medium) Hear() bool { return false }

// Open implements [share.Medium].
func (m *medium) Open() (files []int, notes []string, err error) {
	p := newPort(m.cfg, new(link.Counters)) // used for each socket in turn
	ifi, err := p.inspect()
	if err != nil {
		return nil, nil, err
	}
	for k := range slotSockets * share.Slots {
		p.cfg.RxBuffer = m.cfg.RxBuffer
		if k%slotSockets == slotMADs {
			p.cfg.RxBuffer = min(m.cfg.RxBuffer, driver.MADBuffer)
		}
		err := p.openSilent(ifi, k)
		if errors.As(err, &m.taken) && ifi != nil {
			m.index = ifi.Index
		}
		if p.FD >= 0 {
			files = append(files, p.FD)
		}
		if err != nil {
			for _, fd := range files {
				unix.Close(fd)
			}
			return nil, nil, err
		}
		if k == 0 && p.cfg.tied {
			notes = p.Desc.Notes[len(p.Desc.Notes)-1:]
		}
		p.Desc.Notes = nil
	}
	return files, notes, nil
}

// openSilent opens and binds socket k of the group, without receiving.
func (p *Port) openSilent(ifi *net.Interface, k int) error {
	if err := p.socket(); err != nil {
		return err
	}
	if err := sockfilter.Attach(p.FD, sockfilter.RejectAll); err != nil {
		return p.FailStep("attach filter", err)
	}
	if err := p.configure(ifi, false); err != nil {
		return err
	}
	return p.bind(ifi, k)
}

// Steer implements [share.Medium]. The kernel refuses a program that is larger than
// net.core.optmem_max (20 kB before Linux 6.7): requests for some services then go to the keeper,
// like those beyond share.MaxRules.
func (m *medium) Steer(own []int, services []share.Service, keeper share.Slot) error {
	services = services[:min(len(services), share.MaxRules)]
	for {
		err := sockfilter.Set(own[slotData], unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, share.Program(services, keeper))
		if !errors.Is(err, unix.ENOMEM) || len(services) == 0 {
			return err
		}
		services = services[:len(services)/8*7]
	}
}

// Silence implements [share.Medium].
func (m *medium) Silence(sockets []int) {
	var room [1]byte
	for _, fd := range sockets {
		p := &Port{base: base{FD: fd}}
		domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		p.v6 = err == nil && domain == unix.AF_INET6
		p.silence()
		for {
			if _, _, err := unix.Recvfrom(fd, room[:], unix.MSG_DONTWAIT|unix.MSG_TRUNC); err != nil && err != unix.ECONNREFUSED && err != unix.EINTR {
				break
			}
		}
	}
}

// silence stops reception at the socket, which stays open when the Port is closed.
func (p *Port) silence() {
	sockfilter.Attach(p.FD, sockfilter.RejectAll)
	unix.SetsockoptInt(p.FD, unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0)
	if p.v6 {
		unix.SetsockoptInt(p.FD, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL, 0)
	}
}

// shareKey returns the key of an address or interface for package share. It identifies an
// interface, also that of a link-local address, by its index, because the zone is optional and
// names can change.
func (c *Config) shareKey() (string, error) {
	if c.Interface == "" {
		a := c.Addr
		if ifi := owner(a); ifi != nil {
			a = share.InZone(a, ifi.Index)
		}
		return share.AddrKey("udp", a.String()), nil
	}
	ifi, err := net.InterfaceByName(c.Interface)
	if err != nil {
		return "", err
	}
	return share.InterfaceKey("udp", ifi.Index), nil
}

// tenants are the Ports of a device on an address that processes share. Closing the last one
// gives the slots back, and not earlier: another process may get them at once, and silencing
// a socket would then affect that process.
type tenants struct {
	place *share.Place
	left  atomic.Int32
}

// openShared opens n Ports on an address that processes share.
func openShared(c Config, n int) (ports []link.Port, err error) {
	key, err := c.shareKey()
	if err != nil {
		return nil, c.fail("open", link.ErrNoDevice)
	}
	m := &medium{cfg: c}
	place, err := share.Join(share.Config{Key: key, Slots: n, Medium: m})
	if m.taken != nil && m.index != 0 {
		share.NameRival(m.taken, "udp", m.index)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, p := range ports {
				p.(*Port).Free()
			}
			place.Close()
			ports = nil
		}
	}()
	var queues []*Port
	for k := range n {
		p := newPort(c, new(link.Counters))
		p.queue = fmt.Sprintf("place %d of %d", place.Slots()[k], share.Slots)
		if err := p.adopt(k, place.Sockets(k)[slotData]); err != nil {
			p.Free()
			return ports, err
		}
		ports, queues = append(ports, p), append(queues, p)
		queues[0].Queues = append(queues[0].Queues, &p.base)
	}
	first := queues[0]
	first.Desc.Notes = append(first.Desc.Notes, place.Notes()...)
	mads := newPort(c, first.Count)
	if err := mads.adoptMADs(first, place.Sockets(0)[slotMADs]); err != nil {
		if mads.FD >= 0 {
			unix.Close(mads.FD)
		}
		return ports, err
	}
	first.mads = mads
	first.Split(&mads.base)
	first.place = place
	all := &tenants{place: place}
	all.left.Store(int32(n))
	for _, p := range queues {
		p.tenants = all
	}
	for _, p := range append(queues, mads) { // not earlier, because nothing would have read the sockets
		if err := p.attach(nil); err != nil {
			return ports, p.FailStep("detach filter", err)
		}
	}
	return ports, nil
}

// take makes fd, the socket of a slot, the socket of the Port.
func (p *Port) take(fd int) (ifi *net.Interface, err error) {
	if ifi, err = p.inspect(); err != nil {
		return nil, err
	}
	if p.FD, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		p.FD = -1
		return nil, p.FailStep("socket", err)
	}
	domain, err := unix.GetsockoptInt(p.FD, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return nil, p.FailStep("SO_DOMAIN", err)
	}
	p.v6, p.adopted = domain == unix.AF_INET6, true
	return ifi, p.setOptions(ifi)
}

// adopt makes queue k from the socket of a slot.
func (p *Port) adopt(k, fd int) error {
	ifi, err := p.take(fd)
	if err != nil {
		return err
	}
	if k > 0 {
		if err := p.noGroups(); err != nil {
			return err
		}
	} else if p.v6 { // openSilent and silence have set it to 0
		p.set([]option{{"IPV6_MULTICAST_ALL", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL, 1, "IPv6 groups are not received"}})
	}
	countDrops(&p.base) // so that the drops of the previous owner are not counted
	p.Count.RxDrops.Store(0)
	return p.start(ifi)
}

// adoptMADs makes the management queue of first from the socket of a slot.
func (p *Port) adoptMADs(first *Port, fd int) error {
	p.cfg.RxBuffer = min(p.cfg.RxBuffer, driver.MADBuffer)
	if _, err := p.take(fd); err != nil {
		return err
	}
	if err := p.noGroups(); err != nil {
		return err
	}
	drops := first.Count.RxDrops.Load()
	countDrops(&p.base)
	first.Count.RxDrops.Store(drops)
	p.rx.init(madqueue.Most)
	p.Desc.Index = first.Desc.Index
	return nil
}
