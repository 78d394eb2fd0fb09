package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	bpflink "github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/claim"
	"github.com/goroce/roce/internal/doze"
	"github.com/goroce/roce/internal/driver"
	"github.com/goroce/roce/internal/ethtool"
	"github.com/goroce/roce/internal/gate"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/internal/xsk"
	"github.com/goroce/roce/link"
)

// Open opens a Port on all receive queues of an interface of the calling thread's
// network namespace; the Port stays in that namespace. Errors are *errs.Error
// with link.ErrPermission, link.ErrNoDevice, link.ErrUnsupported or [ErrProgram].
// Open succeeds on an interface that is down: the Port works when the interface
// comes up.
func Open(c Config) (link.Port, error) {
	ports, err := OpenQueues(c, 1)
	if err != nil {
		return nil, err
	}
	return ports[0], nil
}

// OpenQueues opens n Ports on one interface, over one UMEM. It distributes the
// interface's receive queues among the Ports, and each Port sends by one of its own
// queues; so n is at most the number of queues. The interface chooses the queue of
// a packet, but not by queue pair: each Port must expect packets for queue pairs of
// another Port. The caller closes all Ports together: packets for a closed Port go
// to the kernel.
func OpenQueues(c Config, n int) ([]link.Port, error) {
	if c.RingSize == 0 {
		c.RingSize = 512
	}
	if c.RingSize < 64 || c.RingSize > 4096 || c.RingSize&(c.RingSize-1) != 0 {
		return nil, link.Fail("xdp", "open", c.Interface, nil, fmt.Errorf("rings of %d, want a power of two from 64 to 4096", c.RingSize), "")
	}
	if c.Memory < 0 || c.InPlace < 0 {
		return nil, link.Fail("xdp", "open", c.Interface, nil, fmt.Errorf("negative size of memory, %d, or of payload in place, %d: %w", c.Memory, c.InPlace, unix.EINVAL), "")
	}
	if c.ZeroCopy > ZeroCopyOn {
		return nil, link.Fail("xdp", "open", c.Interface, nil, fmt.Errorf("zero copy %v: %w", c.ZeroCopy, unix.EINVAL), "want ZeroCopyAuto, ZeroCopyOff or ZeroCopyOn")
	}
	// All sockets must be in the namespace of this thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var past attempts
	k, ports, err := openCard(c, n, &past)
	for past.learn(err) {
		k, ports, err = openCard(c, n, &past)
	}
	if err != nil {
		return nil, err
	}
	out := make([]link.Port, n)
	for i, p := range ports {
		p.info = k.info
		out[i] = p
	}
	return out, nil
}

// errPieces says that the kernel is older than Linux 6.6, which introduced frames
// in several pieces.
var errPieces = errors.New("frames in pieces need Linux 6.6")

// lacks is what attempts to open an interface have shown to be missing.
type lacks struct {
	pieces   bool // frames in pieces
	zeroCopy bool // a driver whose zero copy is safe
}

// attempts are the attempts to open an interface so far.
type attempts struct {
	lack lacks
	did  []string // notes of what they have changed for good
}

// learn adds what an attempt failed for. It reports whether another attempt without it may succeed.
func (a *attempts) learn(err error) bool {
	before := a.lack
	a.lack.pieces = before.pieces || errors.Is(err, errPieces)
	a.lack.zeroCopy = before.zeroCopy || errors.Is(err, errLostFrames)
	return a.lack != before
}

// did notes a change that remains if this attempt fails.
func (c *card) did(note string) {
	c.past.did = append(c.past.did, note)
	c.info.Notes = append(c.info.Notes, note)
}

// openCard opens an interface with n Ports.
func openCard(c Config, n int, past *attempts) (*card, []*Port, error) {
	k := &card{cfg: c, past: past, lack: past.lack, ctl: -1, channels: ethtool.Queues}
	ports, err := k.open(n)
	if err != nil {
		for _, p := range ports {
			p.free()
		}
		k.free()
		return nil, nil, err
	}
	k.users = n
	return k, ports, nil
}

// card is the state that the Ports of one interface share.
type card struct {
	cfg    Config
	past   *attempts // before this one
	lack   lacks     // not tried
	driver string    // of the interface; empty: not known
	info   link.Info // without Mode
	queues int       // receive queues, including those that the driver has added for the program
	added  bool      // the driver has added queues
	fill   int       // frames that the kernel gets for each queue
	ctl    int       // a socket for ioctls
	way    way

	channels func(fd int, name string) ethtool.Channels // ethtool.Queues; tests replace it

	zero   bool         // zero copy
	claim  *claim.Claim // of the UDP port
	owner  *share.Owner // lets the errors of other processes name this one; nil: they do not
	filter *filter
	hook   bpflink.Link
	mem    *xsk.Memory
	arena  *xsk.Arena // behind all frames; of Config.Memory

	mu    sync.Mutex
	users int // Ports that are open
}

// open does the work of OpenQueues. c and the ports have everything that it has opened,
// also after an error.
func (c *card) open(n int) (ports []*Port, err error) {
	if c.ctl, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		c.ctl = -1
		return nil, c.failedStep("socket", err)
	}
	if err := c.inspect(); err != nil {
		return nil, err
	}
	has := c.channels(c.ctl, c.info.Interface)
	c.queues = max(1, has.RX)
	if most := min(c.queues, max(1, has.TX)); n < 1 || n > most {
		return nil, link.Fail("xdp", "open", c.cfg.Interface, nil, fmt.Errorf("%d ports on an interface with %d queues: %w", n, most, unix.EINVAL), "`ethtool -L` sets the number of queues")
	}
	if err := c.takePort(); err != nil {
		return nil, err
	}
	mostRX := max(c.queues, has.MostRX)
	if err := c.attach(mostRX); err != nil {
		return nil, err
	}
	c.countAdded(mostRX)
	if c.lack.zeroCopy {
		c.info.Notes = append(c.info.Notes, noteLostFrames)
	}
	if err := c.filter.setAddrs(c.info.MAC, c.cfg.Addrs); err != nil {
		return nil, c.failedStep("set addresses", err)
	}
	c.limitMTU()
	g := c.geometry()
	c.fill = c.fillFor()
	slots := make([]int, n) // of each Port
	total := 0
	for i := range slots {
		slots[i] = c.slots(c.share(i, n))
		total += slots[i]
	}
	frames := (total*g.Slot + xsk.MaxChunk - 1) &^ (xsk.MaxChunk - 1)
	own := xsk.ArenaSize(c.cfg.Memory)
	if c.mem, err = xsk.NewMemory(frames+own, g.Chunk); err != nil {
		return nil, c.failedStep("memory", err)
	}
	c.arena = xsk.NewArena(c.mem, uint64(frames), own)
	base := 0
	var first *xsk.Socket
	for i := range n {
		p := &Port{card: c, gate: gate.New(), queues: c.share(i, n)}
		ports = append(ports, p)
		p.tx.pool = xsk.NewPool(g, uint64(base), slots[i])
		base += slots[i] * g.Slot
		if n > 1 {
			p.name = fmt.Sprintf("queue %d of %d", i, n)
		}
		if first, err = p.setUp(first); err != nil {
			return ports, err
		}
	}
	c.zero = first.ZeroCopy()
	if c.cfg.ZeroCopy == ZeroCopyOn && !c.zero {
		c.info.Notes = append(c.info.Notes, "no zero copy: the driver does not grant it in "+c.way.name+" mode")
	}
	least := c.inPlace()
	for _, p := range ports {
		p.tx.inPlace = least
	}
	// From here on the program redirects packets to the sockets.
	for _, p := range ports {
		for i, s := range p.rx.socks {
			if err := c.filter.xsks.Update(uint32(p.queues[i]), uint32(s.FD), ebpf.UpdateAny); err != nil {
				return ports, c.failedStep("take queue", err)
			}
		}
	}
	return ports, nil
}

// takePort claims the UDP port of the interface.
func (c *card) takePort() (err error) {
	var notes []string
	if c.claim, notes, err = claim.Take(claim.Config{Interface: c.info.Interface, Share: c.cfg.SharePort}); err != nil {
		e := c.failedStep("UDP port", err)
		share.NameRival(e, "xdp", c.info.Index)
		return e
	}
	c.info.Notes = append(c.info.Notes, notes...)
	c.owner, _ = share.Occupy(share.InterfaceKey("xdp", c.info.Index)) // after an error the EADDRINUSE of other processes does not name this one
	return nil
}

// share returns the receive queues of Port i of n. The Port sends by the first one.
func (c *card) share(i, n int) (queues []int) {
	for q := i; q < c.queues; q += n {
		queues = append(queues, q)
	}
	return queues
}

// slots returns how many frames a Port with those queues needs so that no ring
// ever lacks one: the frames in the Fill and RX rings, those in the TX ring and
// in transmission, and those in the queue before the TX ring.
func (c *card) slots(queues []int) int {
	return c.fill*len(queues) + 2*c.cfg.RingSize + queueLen(c.cfg.RingSize) + 1
}

// fillFor returns how many frames the kernel gets for each queue.
func (c *card) fillFor() int {
	if c.copies() {
		return c.cfg.RingSize
	}
	name := c.info.Interface
	return xsk.FillFor(c.cfg.RingSize, ethtool.RXRing(c.ctl, name), c.driver)
}

// queueLen is the largest number of frames that send passes to the kernel at
// once.
func queueLen(ring int) int { return min(256, ring/2) }

func (c *card) geometry() xsk.Geometry {
	return xsk.GeometryFor(c.info.MTU+ethernetLen+vlanLen, c.driver)
}

// inspect finds the interface and its properties.
func (c *card) inspect() error {
	ifi, err := driver.Ethernet("xdp", c.cfg.Interface, c.ctl)
	if err != nil {
		return err
	}
	c.info = link.Info{
		Driver: "xdp", Interface: ifi.Name, Index: ifi.Index, MAC: frame.MAC(ifi.HardwareAddr), MTU: ifi.MTU,
		Layout: frame.LayoutEthernet, Speed: ethtool.Speed(c.ctl, ifi.Name), Notes: slices.Clone(c.past.did),
	}
	ethtool.Ask(c.ctl, ifi.Index, func(name string) unix.Errno {
		c.driver = ethtool.Driver(c.ctl, name)
		return 0
	})
	return nil
}

// limitMTU limits the MTU to the size of one chunk if a frame cannot have
// several pieces.
func (c *card) limitMTU() {
	const most = xsk.MaxChunk - xsk.Headroom - ethernetLen - vlanLen
	if !c.way.frags && c.info.MTU > most {
		c.info.Notes = append(c.info.Notes, fmt.Sprintf("packets of up to %d bytes instead of %d: frames in several pieces need native mode", most, c.info.MTU))
		c.info.MTU = most
	}
}

// SetAddrs sets the addresses of all Ports of the interface. They receive
// packets to one of these IP addresses that also have the interface's present
// Ethernet address.
func (p *Port) SetAddrs(addrs []netip.Addr) error {
	if !p.gate.Enter() {
		return link.ErrClosed
	}
	defer p.gate.Leave()
	c := p.card
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.filter.setAddrs(c.mac(), addrs); err != nil {
		e := failure("set addresses", c.info.Interface, driver.Errno(err))
		e.Err = errs.Kind(e.Err, err)
		return e
	}
	return nil
}

// mac asks the kernel for the present Ethernet address of the interface. It works in the namespace
// of the interface, also if the caller is in another one.
func (c *card) mac() frame.MAC {
	ifr := struct { // struct ifreq with a struct sockaddr
		name   [unix.IFNAMSIZ]byte
		family uint16
		addr   [14]byte
		_      [8]byte
	}{}
	errno := ethtool.Ask(c.ctl, c.info.Index, func(name string) unix.Errno {
		clear(ifr.name[:])
		copy(ifr.name[:], name)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(c.ctl), unix.SIOCGIFHWADDR, uintptr(unsafe.Pointer(&ifr)))
		return errno
	})
	if errno != 0 {
		return c.info.MAC
	}
	return frame.MAC(ifr.addr[:6])
}

// setUp makes the Port's sockets, one for each of its queues, and binds them.
// first is the socket that has registered the memory; if it is nil, the first of
// the new sockets registers it.
func (p *Port) setUp(first *xsk.Socket) (*xsk.Socket, error) {
	c := p.card
	p.tx.init(c.info.MTU, c.cfg.RingSize, c.arena)
	flags := uint16(unix.XDP_USE_NEED_WAKEUP)
	if c.way.frags {
		flags |= unix.XDP_USE_SG
	}
	if c.copies() {
		flags |= unix.XDP_COPY
	}
	for i, q := range p.queues {
		n := c.cfg.RingSize
		z := xsk.Sizes{Fill: xsk.RingFor(c.fill), RX: n, Completion: n}
		if i == 0 {
			z.TX = n
		}
		s, err := xsk.New(c.mem, first, z)
		if err != nil {
			return first, c.failedStep(fmt.Sprintf("socket of queue %d", q), err)
		}
		p.rx.socks = append(p.rx.socks, s)
		if first == nil {
			first = s
		}
		for range c.fill {
			addr, _ := p.tx.pool.Get(xsk.Filling)
			s.Fill.Put(addr)
		}
		s.Fill.Submit()
		p.options(s, i == 0)
		if err := s.Bind(c.info.Index, q, flags); err != nil {
			if c.way.frags && errors.Is(err, unix.EINVAL) {
				err = fmt.Errorf("%w: %w", errPieces, err)
			}
			return first, c.failedStep(fmt.Sprintf("queue %d", q), err)
		}
		if s.ZeroCopy() && c.losesFrames() {
			return first, c.failedStep("zero copy", errLostFrames)
		}
	}
	p.setUpTX()
	p.rx.init(p)
	fds := []int{p.tx.sock.FD} // the first is the socket at which Wait waits for room
	for _, s := range p.rx.socks {
		if s != p.tx.sock {
			fds = append(fds, s.FD)
		}
	}
	var err error
	if p.sleeper, err = doze.New(fds...); err != nil {
		return first, c.failedStep("sleeper", err)
	}
	return first, nil
}

// setUpTX chooses the socket by which the Port sends. With zero copy it is the first
// receiving socket. In copy mode the kernel sends on this process's processor and
// receives on the peer's; the two directions read and write fields in one cache line of
// a socket. So a second socket on the same queue sends, which makes short READs faster.
// The first socket keeps an unused TX ring, because only the bind shows whether the card
// copies.
func (p *Port) setUpTX() {
	c, s := p.card, p.rx.socks[0]
	p.tx.sock, p.tx.completion = s, &s.Completion
	if s.ZeroCopy() {
		return
	}
	t, err := xsk.New(c.mem, s, xsk.Sizes{TX: c.cfg.RingSize})
	if err == nil {
		p.options(t, true)
		if err = t.Bind(c.info.Index, p.queues[0], 0); err == nil {
			p.tx.sock = t
			return
		}
		t.Close()
	}
	c.note("sends and receives by one socket", err)
}

// options sets the socket options that make the Port faster. The kernel may
// lack them.
func (p *Port) options(s *xsk.Socket, first bool) {
	c := p.card
	if first {
		// Copies in transmission count against the send buffer. By default
		// the kernel sends 32 frames a call; Linux 6.17 can send more.
		const buffer = 8 << 20
		err := unix.SetsockoptInt(s.FD, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, buffer)
		if err != nil {
			err = unix.SetsockoptInt(s.FD, unix.SOL_SOCKET, unix.SO_SNDBUF, buffer)
		}
		c.note("send buffer", err)
		unix.SetsockoptInt(s.FD, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, queueLen(c.cfg.RingSize))
	}
	if d := c.cfg.BusyPoll; d > 0 {
		us := int((d + time.Microsecond - 1) / time.Microsecond)
		c.note("busy polling is not preferred", unix.SetsockoptInt(s.FD, unix.SOL_SOCKET, unix.SO_PREFER_BUSY_POLL, 1))
		c.note("no busy polling", unix.SetsockoptInt(s.FD, unix.SOL_SOCKET, unix.SO_BUSY_POLL, us))
		c.note("default busy polling budget", unix.SetsockoptInt(s.FD, unix.SOL_SOCKET, unix.SO_BUSY_POLL_BUDGET, busyPollBudget))
	}
}

// busyPollBudget is how many packets one round of busy polling handles, equal to the kernel's
// default for a NAPI poll (NAPI_POLL_WEIGHT).
const busyPollBudget = 64

// note adds a feature that is not available, and the reason, to Info().Notes.
// It ignores a nil error.
func (c *card) note(what string, err error) {
	n := fmt.Sprintf("%s: %v", what, err)
	if err != nil && !slices.Contains(c.info.Notes, n) {
		c.info.Notes = append(c.info.Notes, n)
	}
}

// A closed Port calls leave; the last one releases what the Ports share.
func (c *card) leave() {
	c.mu.Lock()
	c.users--
	last := c.users == 0
	c.mu.Unlock()
	if last {
		c.free()
	}
}

// free undoes open, except for the Ports.
func (c *card) free() {
	if c.hook != nil {
		c.hook.Close()
	}
	if c.filter != nil {
		c.filter.Close()
	}
	c.owner.Close()
	c.claim.Release()
	if c.mem != nil {
		c.mem.Discard()
	}
	if c.ctl >= 0 {
		unix.Close(c.ctl)
	}
}

// linkState asks the kernel for the state of the interface. It returns an error
// if the interface is gone, down or without carrier. Called with a Port's gate
// held.
func (c *card) linkState(op string) error {
	if errno := ethtool.State(c.ctl, c.info.Index); errno != 0 {
		return failure(op, c.info.Interface, errno)
	}
	return nil
}

// failedStep returns the error of a failed step of open.
func (c *card) failedStep(name string, err error) *errs.Error {
	e := failure("open", c.cfg.Interface, driver.Errno(err))
	e.Err = errs.Kind(e.Err, fmt.Errorf("%s: %w", name, err))
	return e
}

// hints say how to remedy an error.
var hints = map[unix.Errno]string{
	unix.EPERM:        needs,
	unix.EACCES:       needs,
	unix.EADDRINUSE:   claim.HintShare,
	unix.EBUSY:        "another AF_XDP socket has the queue",
	unix.ENOBUFS:      locked,
	unix.ENOMEM:       locked,
	unix.EAFNOSUPPORT: unsupported,
	unix.EOPNOTSUPP:   unsupported,
}

const (
	needs       = "needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF: run as root, or setcap cap_net_admin,cap_net_raw,cap_bpf+ep on the program"
	locked      = "memory that is locked is limited: ulimit -l, or CAP_IPC_LOCK"
	unsupported = "the kernel or the interface has no AF_XDP; link/raw works everywhere"
)

func failure(op, ifname string, errno unix.Errno) *errs.Error {
	return driver.Fail("xdp", op, ifname, errno, hints)
}
