package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/doze"
	"github.com/goroce/roce/internal/driver"
	"github.com/goroce/roce/internal/ethtool"
	"github.com/goroce/roce/internal/madqueue"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/internal/sockfilter"
	"github.com/goroce/roce/link"
)

// Open opens a Port in the calling thread's network namespace, in which the
// Port stays. Errors are *errs.Error: EADDRINUSE if another socket has the
// port, EADDRNOTAVAIL if the host does not have the address, link.ErrNoDevice
// if it does not have the interface. An interface may be down.
func Open(c Config) (link.Port, error) {
	ports, err := OpenQueues(c, 1)
	if err != nil {
		return nil, err
	}
	return ports[0], nil
}

// OpenQueues opens n Ports that share the received packets (SO_REUSEPORT):
// packets for queue pair q arrive at Port q modulo n, those for the management
// queue pairs and multicast at Port 0. A super-packet arrives whole at the
// Port of its first segment, so a Port may receive packets of another Port.
// Close all Ports together, because the kernel redistributes the packets when
// one is closed.
func OpenQueues(c Config, n int) ([]link.Port, error) {
	if err := c.check(n); err != nil {
		return nil, err
	}
	// Sockets belong to the thread's namespace: all must be in the same one.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var notes []string
	if c.Shared {
		ports, err := openShared(c.withDefaults(), n)
		if !errors.Is(err, link.ErrUnsupported) {
			return ports, err
		}
		c.Shared, notes = false, []string{fmt.Sprintf("no other process can use %s: %v", c.name(), err)}
	}
	var ports []link.Port
	var first *Port
	for k := range n {
		p, err := open(c.withDefaults(), n, k)
		if err != nil {
			for _, p := range ports {
				p.Close()
			}
			return nil, err
		}
		if k == 0 {
			first, c.tied = p, p.cfg.tied
		}
		first.Queues = append(first.Queues, &p.base)
		ports = append(ports, p)
	}
	first.split(n)
	first.Desc.Notes = append(first.Desc.Notes, notes...)
	if key, err := c.shareKey(); err == nil {
		first.owner, _ = share.Occupy(key) // after an error the EADDRINUSE of other processes does not name this one
	}
	return ports, nil
}

// split opens a separate socket for management datagrams, the last of the group of n queues, and attaches the program that
// chooses the socket of a packet. The Port is queue 0. If it is the only one, the socket is bound, and the group used, only
// from SplitMADs on.
func (p *Port) split(n int) {
	m, at, err := p.formGroup(n)
	if n == 1 {
		if err == nil {
			unix.Close(m.FD)
			m, at, err = openMADs(p)
		}
		p.reuse(0)
	}
	if err == nil {
		m.rx.init(madqueue.Most)
		p.Split(&m.base)
		if n > 1 {
			p.mads = m
		} else {
			p.Divide = func() error { return p.divide(m, at) }
		}
		return
	}
	p.Notef(driver.Undivided, err)
	if n > 1 {
		// Without the program the kernel distributes packets by their addresses. That works, too, but a
		// packet often arrives at another Port than that of its queue pair.
		if err := p.steer(n, 0); err != nil {
			p.Notef("the kernel distributes packets by address, not by queue pair: %v", err)
		}
	}
}

// formGroup makes the group of n queues and a socket for management datagrams, m, bound to the address at. The kernel makes the
// group of a queue when another socket joins, and only then takes the program; the group and its program stay when that
// socket is closed. So later such a socket joins a group that has the program, and receives no data. What the first one
// receives before it is closed is lost, as if the device had been opened a little later.
func (p *Port) formGroup(n int) (m *Port, at unix.Sockaddr, err error) {
	if m, at, err = openMADs(p); err != nil {
		return nil, nil, err
	}
	if err = m.join(at); err == nil {
		err = p.steer(n, n)
	}
	if err != nil {
		unix.Close(m.FD)
		return nil, nil, err
	}
	return m, at, nil
}

// join binds the socket to an address and makes it the last one of the group there. The socket only receives, so it may be
// bound while the host does not have the address.
func (p *Port) join(at unix.Sockaddr) error {
	if err := p.reuse(1); err != nil {
		return err
	}
	if p.v6 {
		unix.SetsockoptInt(p.FD, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1)
	} else {
		unix.SetsockoptInt(p.FD, unix.IPPROTO_IP, unix.IP_FREEBIND, 1)
	}
	if err := unix.Bind(p.FD, at); err != nil {
		return p.FailStep("bind", err)
	}
	return nil
}

// divide makes m the socket of management datagrams of the only queue.
func (p *Port) divide(m *Port, at unix.Sockaddr) error {
	err := p.reuse(1)
	if err == nil {
		err = m.join(at)
	}
	if err != nil {
		p.reuse(0) // no socket of another process may join
		return err
	}
	p.mads = m
	return nil
}

// steer attaches the program that chooses the socket of a packet: one of n for data, and socket mads of the group for
// management datagrams.
func (p *Port) steer(n, mads int) error {
	if err := sockfilter.Set(p.FD, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, steering(uint32(n), uint32(mads))); err != nil {
		return p.FailStep("SO_ATTACH_REUSEPORT_CBPF", err)
	}
	return nil
}

// reuse sets whether other sockets may join the group of the socket, or the socket that of others.
func (p *Port) reuse(on int) error {
	if err := unix.SetsockoptInt(p.FD, unix.SOL_SOCKET, unix.SO_REUSEPORT, on); err != nil {
		return p.FailStep("SO_REUSEPORT", err)
	}
	return nil
}

// openMADs opens the socket of the management datagrams of first. It returns the address for its bind, too. The socket
// belongs to first: it never sends, and its packets count as those of first.
func openMADs(first *Port) (p *Port, at unix.Sockaddr, err error) {
	c := first.cfg
	c.RxBuffer = min(c.RxBuffer, driver.MADBuffer)
	p = newPort(c, first.Count)
	if at, err = p.setUpMADs(first); err != nil {
		if p.FD >= 0 {
			unix.Close(p.FD)
		}
		return nil, nil, err
	}
	return p, at, nil
}

// setUpMADs does the work of openMADs. p has the socket, also after an error.
func (p *Port) setUpMADs(first *Port) (at unix.Sockaddr, err error) {
	ifi, err := p.inspect()
	if err != nil {
		return nil, err
	}
	if err := p.socket(); err != nil {
		return nil, err
	}
	if p.v6 != first.v6 {
		return nil, p.FailStep("socket", unix.EAFNOSUPPORT)
	}
	if err := p.configure(ifi, false); err != nil {
		return nil, err
	}
	p.Desc.Index = first.Desc.Index
	return p.address(p.cfg.Addr, bth.UDPPort, ifi), nil
}

// noGroups rejects packets to groups at a socket other than that of the first queue, because
// the kernel delivers a copy to every socket that accepts them.
func (p *Port) noGroups() error {
	list := []option{{"IP_MULTICAST_ALL", unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0, ""}}
	if p.v6 {
		list = append(list, option{"IPV6_MULTICAST_ALL", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL, 0, ""})
	}
	return p.set(list)
}

// open opens queue k of n.
func open(c Config, n, k int) (*Port, error) {
	p := newPort(c, new(link.Counters))
	if n > 1 {
		p.queue = fmt.Sprintf("queue %d of %d", k, n)
	}
	if err := p.setUp(k); err != nil {
		p.Free()
		return nil, err
	}
	return p, nil
}

// setUp does the work of open. p has the opened files, also after an error.
func (p *Port) setUp(k int) error {
	ifi, err := p.inspect()
	if err != nil {
		return err
	}
	if err := p.socket(); err != nil {
		return err
	}
	if err := p.configure(ifi, k == 0); err != nil {
		return err
	}
	if err := p.bind(ifi, k); err != nil {
		return err
	}
	return p.start(ifi)
}

// start makes a Port from a bound socket.
func (p *Port) start(ifi *net.Interface) (err error) {
	if p.Sleeper, err = doze.New(p.FD); err != nil {
		return p.FailStep("sleeper", err)
	}
	p.rx.init(link.Batch)
	if ifi == nil {
		p.Desc.MTU = 1500
		p.Notef("no interface has the address: an MTU of %d is assumed", p.Desc.MTU)
	} else {
		p.Desc.Interface, p.Desc.Index, p.Desc.MTU = ifi.Name, ifi.Index, min(ifi.MTU, maxMTU)
		p.Desc.Speed = ethtool.Speed(p.FD, ifi.Name)
		p.Count.SetDown(ifi.Flags&net.FlagUp == 0)
	}
	p.tx.init(p.Desc.MTU)
	return nil
}

// configure ties the socket to the interface and sets its options. groups: it receives packets to groups.
func (p *Port) configure(ifi *net.Interface, groups bool) error {
	p.tie(ifi)
	if err := p.setOptions(ifi); err != nil || groups {
		return err
	}
	return p.noGroups()
}

// tie binds the socket to the interface, if packets must not use others.
func (p *Port) tie(ifi *net.Interface) {
	switch {
	case p.cfg.Interface != "":
		if err := unix.BindToDevice(p.FD, p.cfg.Interface); err != nil {
			p.Notef("packets may use other interfaces, too: SO_BINDTODEVICE: %v", err)
		}
	case ifi != nil && (ifi.Flags&net.FlagLoopback != 0 || p.cfg.tied):
		// Packets of the loopback use no other interface. A socket that is bound to it
		// leaves the port of other interfaces to other devices.
		unix.BindToDevice(p.FD, ifi.Name)
	}
}

// bind binds the socket of queue k. The first of several allows others to join
// (SO_REUSEPORT) only after it is bound. So the kernel refuses to bind it if another socket
// has the port, even one that allows others to join.
func (p *Port) bind(ifi *net.Interface, k int) error {
	if k > 0 {
		if err := p.reuse(1); err != nil {
			return err
		}
	}
	at := p.address(p.cfg.Addr, bth.UDPPort, ifi)
	err := unix.Bind(p.FD, at)
	if err == unix.EADDRINUSE && p.cfg.Interface == "" && ifi != nil && unix.BindToDevice(p.FD, ifi.Name) == nil {
		// Perhaps another socket has the port of all addresses, but on another interface.
		if err = unix.Bind(p.FD, at); err == nil {
			p.cfg.tied = true
			p.Notef("the device uses %s only, and cannot reach other devices of this host: another socket has UDP port %d of another interface", ifi.Name, bth.UDPPort)
		}
	}
	if err != nil {
		e := p.FailStep("bind", err)
		if ifi != nil && !p.cfg.Shared {
			share.NameRival(e, "udp", ifi.Index)
		}
		return e
	}
	if k == 0 {
		return p.reuse(1)
	}
	return nil
}

// inspect finds the interface, or returns nil if none has the address.
func (p *Port) inspect() (*net.Interface, error) {
	if p.cfg.Interface != "" {
		ifi, err := net.InterfaceByName(p.cfg.Interface)
		if err != nil {
			return nil, driver.NoInterface("udp", p.cfg.Interface)
		}
		return ifi, nil
	}
	p.bound = bth.GIDFrom(p.cfg.Addr.WithZone(""))
	return owner(p.cfg.Addr), nil
}

// socket opens the socket, for both IP versions if it will not be bound to an
// address.
func (p *Port) socket() (err error) {
	const kind = unix.SOCK_DGRAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	family := unix.AF_INET6
	if p.cfg.Addr.Is4() {
		family = unix.AF_INET
	}
	p.FD, err = -1, unix.EAFNOSUPPORT
	if family == unix.AF_INET || !p.cfg.noIPv6 {
		p.FD, err = unix.Socket(family, kind, unix.IPPROTO_UDP)
	}
	if err == unix.EAFNOSUPPORT && !p.cfg.Addr.IsValid() {
		p.Notef("IPv4 only: the kernel has no IPv6")
		family = unix.AF_INET
		p.FD, err = unix.Socket(family, kind, unix.IPPROTO_UDP)
	}
	if err != nil {
		p.FD = -1
		return p.FailStep("socket", err)
	}
	p.v6 = family == unix.AF_INET6
	return nil
}

// address makes a socket address from an IP address, or the wildcard if that is
// not valid.
func (p *Port) address(a netip.Addr, port int, ifi *net.Interface) unix.Sockaddr {
	if !p.v6 {
		to := &unix.SockaddrInet4{Port: port}
		if a.IsValid() {
			to.Addr = a.As4()
		}
		return to
	}
	to := &unix.SockaddrInet6{Port: port}
	if a.IsValid() {
		to.Addr = a.As16()
	}
	if a.IsLinkLocalUnicast() && ifi != nil {
		to.ZoneId = uint32(ifi.Index)
	}
	return to
}

// option is a socket option. If the kernel refuses a necessary option, Open fails. If it refuses
// another one, a feature is missing, which a note names.
type option struct {
	name              string
	level, opt, value int
	without           string // what is missing without the option; empty: the option is necessary
}

// The options of IPv4 and IPv6 sockets. Those of IPv4 are also set on an IPv6 socket that serves
// IPv4.
var (
	options4 = []option{
		// PROBE sends without fragments, and so with Identification 0. It ignores path MTUs
		// in ICMP messages, which strangers can forge.
		{"IP_MTU_DISCOVER", unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE, ""},
		{"IP_RECVTOS", unix.IPPROTO_IP, unix.IP_RECVTOS, 1, "congestion marks are not seen"},
		{"IP_RECVTTL", unix.IPPROTO_IP, unix.IP_RECVTTL, 1, "hop limits are not seen"},
		{"IP_TTL", unix.IPPROTO_IP, unix.IP_TTL, hopLimit, ""},
		{"IP_MULTICAST_TTL", unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, hopLimit, ""},
		// All groups of the host. Otherwise IPv6 sockets would not receive those
		// of IPv4.
		{"IP_MULTICAST_ALL", unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 1, "IPv4 groups are not received"},
		// The device delivers to its own queue pairs itself.
		{"IP_MULTICAST_LOOP", unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 0, ""},
	}
	options6 = []option{
		{"IPV6_MTU_DISCOVER", unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE, ""},
		{"IPV6_RECVPKTINFO", unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1, ""},
		{"IPV6_RECVHOPLIMIT", unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1, "hop limits are not seen"},
		// Traffic class and flow label of received packets.
		{"IPV6_FLOWINFO", unix.IPPROTO_IPV6, ipv6FlowInfo, 1, "congestion marks are not seen"},
		{"IPV6_UNICAST_HOPS", unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, hopLimit, ""},
		{"IPV6_MULTICAST_HOPS", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, hopLimit, ""},
		{"IPV6_MULTICAST_LOOP", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 0, ""},
		// RoCEv2 packets may have no checksum over IPv6, either.
		{"UDP_NO_CHECK6_RX", unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1, "IPv6 packets without UDP checksum, rxe's for instance, are lost"},
	}
)

// set sets options of the socket.
func (p *Port) set(list []option) error {
	for _, o := range list {
		if err := unix.SetsockoptInt(p.FD, o.level, o.opt, o.value); err != nil {
			if o.without == "" {
				return p.FailStep(o.name, err)
			}
			p.Notef("%s: %s: %v", o.without, o.name, err)
		}
	}
	return nil
}

// setOptions sets the socket's options, and adds notes for missing ones.
func (p *Port) setOptions(ifi *net.Interface) error {
	var list []option
	if p.v6 {
		only := 0
		if p.cfg.Addr.IsValid() {
			only = 1
		}
		if !p.adopted { // the option cannot change after the bind
			list = append(list, option{"IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only, ""})
		}
		list = append(list, options6...)
	} else if p.bound.IsZero() { // otherwise all packets are for that address
		list = append(list, option{"IP_PKTINFO", unix.IPPROTO_IP, unix.IP_PKTINFO, 1, ""})
	}
	if !p.v6 || !p.cfg.Addr.IsValid() {
		list = append(list, options4...)
	}
	if err := p.set(list); err != nil {
		return err
	}
	if ifi != nil { // datagrams to groups leave by the interface
		if p.v6 {
			unix.SetsockoptInt(p.FD, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, ifi.Index)
		}
		unix.SetsockoptIPMreqn(p.FD, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(ifi.Index)})
	}
	if !p.cfg.NoGRO {
		err := unix.SetsockoptInt(p.FD, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
		p.rx.gro = err == nil
		if err != nil {
			p.Notef("super-packets are not received: UDP_GRO (Linux 5.0): %v", err)
		}
	}
	if !p.cfg.NoGSO {
		_, err := unix.GetsockoptInt(p.FD, unix.IPPROTO_UDP, unix.UDP_SEGMENT)
		p.tx.gso = err == nil
		if err != nil {
			p.Notef("super-packets are not sent: UDP_SEGMENT (Linux 4.18): %v", err)
		}
	}
	return p.SetBuffers(p.cfg.RxBuffer, p.cfg.TxBuffer)
}

// steering chooses one of n sockets for a packet, which begins with the BTH: the
// destination queue pair modulo n, socket mads for the management queue pair, and 0 for
// multicast. A packet that is too short for a BTH goes to 0, because the kernel chooses 0 if
// a program reads after the end. The program sees the first segment of a super-packet.
func steering(n, mads uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 4}, // with a byte in front
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(bth.QPNMulticast)},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(bth.QPNGSI), SkipTrue: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(bth.QPNMulticast), SkipTrue: 2},
		bpf.ALUOpConstant{Op: bpf.ALUOpMod, Val: n},
		bpf.RetA{},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: mads},
	}
}
