package hostnet

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/ethtool"
)

// Interface is a network interface of the host, in the network namespace of the thread that opened it. Any goroutine
// may call its methods.
type Interface struct {
	Name     string // when it was opened: it may be renamed
	index    int
	loopback bool

	news     *os.File       // notifications of the kernel
	room     []byte         // the watcher's buffer for one datagram of news
	running  sync.WaitGroup // the watcher and runDeep
	done     chan struct{}  // closed with the interface
	calls    chan func()    // requests for runDeep
	returned chan struct{}  // a value for each
	waiting  atomic.Int32   // number of calls that wait for a neighbour
	checks   *routeChecks

	mu           sync.Mutex // guards all below: one request at a time
	nl           *netlink.Handle
	sock         *nl.SocketHandle // for requests that nl does not support
	closed       bool
	watched      bool
	old          bool   // the kernel cannot look up one neighbour
	dumps        int    // how often the whole neighbour table was read
	unprivileged bool   // the process may not make the kernel look for a neighbour
	probe        [2]int // UDP sockets of the interface: IPv4, IPv6; -1: none
	packet       int    // packet socket for announcements; -1: none
	home         namespace
	more         [2][]int                   // further sockets for memberships: each socket has a limit
	groups       map[netip.Addr]*membership // the joined groups
	settling     netip.Addr                 // address of the default GID, while the kernel looks for duplicates
	lookedAt     time.Time                  // when that was found out
}

// Open finds an interface by name.
func Open(name string) (*Interface, error) {
	// All sockets must be in one namespace.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fail := func(err error) (*Interface, error) {
		return nil, errs.On("open", errs.Interface(name), err, "look it up by netlink")
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fail(err)
	}
	link, err := handle.LinkByName(name)
	if err != nil {
		handle.Close()
		return fail(missing(err))
	}
	news, err := subscribe()
	if err != nil {
		handle.Close()
		return fail(err)
	}
	sock, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		handle.Close()
		news.Close()
		return fail(err)
	}
	i := &Interface{Name: name, index: link.Attrs().Index, loopback: link.Attrs().Flags&net.FlagLoopback != 0, nl: handle,
		sock: &nl.SocketHandle{Socket: sock}, news: news, done: make(chan struct{}), calls: make(chan func()), returned: make(chan struct{}), checks: newRouteChecks(),
		probe: [2]int{-1, -1}, packet: packetSocket(), home: here(),
		groups: map[netip.Addr]*membership{}}
	for k := range i.probe {
		switch fd, err := i.open(k); {
		case errors.Is(err, syscall.EAFNOSUPPORT): // no IPv6 here, for instance
		case err != nil:
			i.Close()
			return fail(err)
		default:
			i.probe[k] = fd
		}
	}
	i.running.Go(i.runDeep)
	return i, nil
}

// families are the IP versions, in the order of sockets in an Interface.
var families = [...]int{unix.AF_INET, unix.AF_INET6}

// version returns the index of an address's IP version in families.
func version(a netip.Addr) int {
	if a.Is6() {
		return 1
	}
	return 0
}

// open opens a UDP socket of the interface. The calling thread must be in its
// namespace.
func (i *Interface) open(version int) (int, error) {
	fd, err := unix.Socket(families[version], unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if err := i.bindTo(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// bindTo binds a socket to the interface, even if it was renamed.
func (i *Interface) bindTo(fd int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, i.index)
	if !errors.Is(err, syscall.ENOPROTOOPT) { // before Linux 5.0
		return err
	}
	errno := ethtool.Ask(fd, i.index, func(name string) unix.Errno {
		errno, _ := unix.BindToDevice(fd, name).(unix.Errno)
		return errno
	})
	if errno != 0 {
		return errno
	}
	return nil
}

// namespace identifies a network namespace; the zero value is unknown.
type namespace struct{ dev, ino uint64 }

// here returns the namespace of the calling thread.
func here() (n namespace) {
	var st unix.Stat_t
	if unix.Stat("/proc/thread-self/ns/net", &st) == nil {
		n = namespace{uint64(st.Dev), uint64(st.Ino)}
	}
	return n
}

// Close leaves all groups, releases the sockets and waits for the watcher. The watcher's function must not call
// Close.
func (i *Interface) Close() error {
	defer i.running.Wait()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return net.ErrClosed
	}
	i.closed = true
	close(i.done)
	for k, fd := range i.probe {
		for _, fd := range append(i.more[k], fd) {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}
	if i.packet >= 0 {
		unix.Close(i.packet)
	}
	i.nl.Close()
	i.sock.Close()
	i.news.Close()
	i.checks.close()
	return nil
}

// fail makes an error from an error of the kernel.
func (i *Interface) fail(op, detail string, err error) error {
	return errs.On(op, errs.Interface(i.Name), missing(err), "%s", detail)
}

// missing turns the netlink package's own error for ENODEV into the errno.
func missing(err error) error {
	var e netlink.LinkNotFoundError
	if errors.As(err, &e) {
		return syscall.ENODEV
	}
	return err
}

// lock begins a request; it fails after Close.
func (i *Interface) lock(op string) error {
	i.mu.Lock()
	if i.closed {
		i.mu.Unlock()
		return i.fail(op, "ask the kernel", net.ErrClosed)
	}
	return nil
}

// socket returns the UDP socket of an address's IP version.
func (i *Interface) socket(a netip.Addr) (int, error) {
	if fd := i.probe[version(a)]; fd >= 0 {
		return fd, nil
	}
	return 0, syscall.EAFNOSUPPORT
}

// Addrs returns the addresses of the interface in the order of a GID table: first the link-local one made from the
// MAC address. It leaves out those that have failed duplicate address detection, and others than the first that wait for it. The first
// is the default GID: if programs on two hosts that have just started had different tables, one with it and one without, UCX would take a
// GID of another IP version at each end. [Interface.Settle] waits until it can be used.
func (i *Interface) Addrs() (addrs []netip.Addr, err error) {
	if err := i.lock("addresses of"); err != nil {
		return nil, err
	}
	defer i.mu.Unlock()
	return i.look()
}

// State returns the interface's present state; ENODEV when it was removed.
func (i *Interface) State() (State, error) {
	if err := i.lock("state of"); err != nil {
		return State{}, err
	}
	defer i.mu.Unlock()
	link, err := i.nl.LinkByIndex(i.index)
	if err != nil {
		return State{}, i.fail("look up state", "look it up by netlink", err)
	}
	a := link.Attrs()
	return State{Name: a.Name, MAC: macOf(link), MTU: a.MTU, Up: a.RawFlags&unix.IFF_UP != 0 && a.RawFlags&unix.IFF_LOWER_UP != 0}, nil
}

// macOf returns the Ethernet address of an interface; zero if it has none.
func macOf(link netlink.Link) (m frame.MAC) {
	if a := link.Attrs().HardwareAddr; len(a) == len(m) {
		m = frame.MAC(a)
	}
	return m
}

// again repeats a listing if the kernel reports that a change has interrupted it.
func again(list func() error) (err error) {
	for range 5 {
		if err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return err
}
