package roce

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	mrand "math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/bth/ids"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/gsi"
	"github.com/goroce/roce/internal/inside"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// DefaultSpin is how long the background goroutine polls before it sleeps, if [Options].Spin is
// 0: about as long as a wake-up takes. If both ends sleep sooner than the other can wake up and
// answer, each message costs two wake-ups.
const DefaultSpin = 50 * time.Microsecond

// Options are what [Config] and [InterfaceConfig] have in common. The zero value is a good
// choice.
type Options struct {
	// Resolver finds the Ethernet addresses of peers. Nil: that of the host with
	// [OpenInterface], [DerivedMACs] with [Open]. If it has a Close method the device calls
	// it when it is closed.
	Resolver Resolver

	// Membership tells the network which multicast groups are wanted. Nil: the host does
	// with [OpenInterface]; with [Open] the network needs no telling.
	Membership Membership

	// VLAN is the 802.1Q VLAN of the device, 1 to 4094: packets leave with that tag, and
	// packets with another tag or none are dropped. 0: none; a priority tag is accepted.
	// The ports must pass tagged frames. The addresses and routes of an interface are its
	// own all the same: if the host has an interface for the VLAN (`ip link add link eth0
	// type vlan`), open that, without VLAN. Not for driver "udp".
	VLAN uint16

	// GUID is the node GUID, unique among all peers. 0: made from the MAC address, as rxe
	// does, or drawn at random if there is none: hosts behind the same private address are
	// different nodes.
	GUID uint64

	// Limits bounds what peers can have the connection manager keep and send.
	Limits ConnLimits

	// Polled leaves out the background goroutine: [CQ.Poll], [CQ.Wait], [Device.Progress]
	// and the connection calls do the work on the caller's goroutine. It has the lowest
	// latency, but the device answers nothing while no call runs.
	Polled bool

	// Lazy defers posts, so that several leave with one system call: when [CQ.Poll] or
	// [CQ.Wait] finds no completion, when the background goroutine runs, or when there is
	// a batch of packets. While that goroutine sleeps, the first two posts leave at once
	// and the third wakes it. On a polled device the acknowledgements of what a Poll has
	// delivered are deferred, too: a program that does not poll again keeps its peers
	// waiting, until they give up.
	Lazy bool

	// Spin is how long the background goroutine polls before it sleeps. Between polls it
	// yields to other goroutines and, on a machine with one processor, to other programs.
	// It costs a core for that long and saves a wake-up. 0: [DefaultSpin].
	Spin time.Duration

	// SleepAtOnce has the background goroutine sleep as soon as there is nothing to do.
	// Spin must then be 0.
	SleepAtOnce bool

	// Congestion turns congestion control (DCQCN) on for all RC, XRC and UC queue pairs:
	// they answer packets that a switch marked, and slow down when the peer does. Nil: off.
	// See docs/congestion-control.md.
	Congestion *DCQCN

	// Recovery is what RC and XRC queue pairs do when packets are lost: go back, or
	// repair losses one packet at a time. See docs/recovery.md.
	Recovery Recovery

	// Rand is the source of keys, PSNs and IDs. Nil: seeded by the system.
	Rand func() uint64
}

// spin returns how long the background goroutine polls, as [nic.Config] has it. Options that
// contradict one another are EINVAL.
func (o *Options) spin() (time.Duration, error) {
	switch {
	case o.Spin < 0:
		return 0, fail("open", syscall.EINVAL, "Spin %v is negative: use SleepAtOnce", o.Spin)
	case o.SleepAtOnce && o.Spin != 0:
		return 0, fail("open", syscall.EINVAL, "SleepAtOnce and Spin %v exclude one another", o.Spin)
	case o.SleepAtOnce:
		return -1, nil
	}
	return cmp.Or(o.Spin, DefaultSpin), nil
}

// Config says how [Open] makes a [Device].
type Config struct {
	Options

	// Ports carry the packets, one for every shard. The device takes them over and closes
	// them. At least one; all with the same MAC address and MTU.
	Ports []link.Port

	// Addrs are the device's IP addresses in the order of its GID table. At least one.
	Addrs []netip.Addr

	shared share.Shared // of the first port, which a wrapper may hide
}

// Device is a software RDMA NIC (struct ibv_context). Its methods may be
// called from any goroutine.
type Device struct {
	nic      *nic.NIC   // the machine room: shards, ports, waiting
	cm       *gsi.Agent // QP 1 and the connection manager
	info     link.Info
	resolver Resolver
	guid     uint64
	rand     func() uint64

	congestion   *DCQCN // of queue pairs that have none of their own; nil: off
	closeTimeout time.Duration
	vector       atomic.Uint32 // counts queue pairs that connections made, to spread them
	cqs          atomic.Uint32 // counts completion queues, to number them
	events       eventQueue

	// These change only while the NIC is stopped.
	mem  *mr.Table
	srqs *ids.Table[SRQ]
}

// Open makes a device. The caller closes it. On failure the ports are closed.
func Open(c Config) (*Device, error) {
	d, err := newDevice(c)
	if err != nil {
		for _, p := range c.Ports {
			p.Close()
		}
		return nil, err
	}
	d.nic.Start(d.cm)
	return d, nil
}

func newDevice(c Config) (*Device, error) {
	if len(c.Ports) == 0 || len(c.Addrs) == 0 {
		return nil, fail("open", syscall.EINVAL, "%d ports and %d addresses, need at least one of each", len(c.Ports), len(c.Addrs))
	}
	d := &Device{info: c.Ports[0].Info(), resolver: c.Resolver, guid: c.GUID, rand: c.Rand, closeTimeout: cmp.Or(c.Limits.CloseTimeout, defaultCloseTimeout)}
	if d.resolver == nil {
		d.resolver = DerivedMACs{}
	}
	if d.rand == nil {
		d.rand = systemRand()
	}
	if most := uint16(4094); c.VLAN > most || c.VLAN != 0 && d.info.Layout != frame.LayoutEthernet {
		return nil, fail("open", syscall.EINVAL, "VLAN %d on a port of %v frames: need 1 to %d and %v frames, or 0 for none",
			c.VLAN, d.info.Layout, most, frame.LayoutEthernet)
	}
	spin, err := c.spin()
	if err != nil {
		return nil, err
	}
	if c.Limits.CloseTimeout < 0 {
		return nil, fail("open", syscall.EINVAL, "Limits.CloseTimeout %v is negative", c.Limits.CloseTimeout)
	}
	if !c.Recovery.Valid() {
		return nil, fail("open", syscall.EINVAL, "Options.Recovery: %v", c.Recovery)
	}
	gids, err := route.GIDsOf("open", c.Addrs)
	if err != nil {
		return nil, err
	}
	if d.guid == 0 {
		d.guid = defaultGUID(d.info.MAC, d.rand)
	}
	if c.Congestion != nil {
		d.congestion = d.lineRate(c.Congestion)
		if err := d.congestion.Validate(); err != nil {
			return nil, fail("open", err, "Options.Congestion")
		}
	}
	d.mem, d.srqs = mr.NewTable(d.rand), newSRQNumbers(d.rand)
	routes := route.New(route.Config{MAC: d.info.MAC, VLAN: c.VLAN, SrcPort: d.info.SrcPort, Resolver: asRoute{d.resolver}, GIDs: gids})
	shared := c.shared
	if shared == nil {
		shared = share.Of(c.Ports[0])
	}
	if shared != nil {
		d.mem.Divide(shared.Keys())
	}
	d.nic, err = nic.New(nic.Config{Ports: c.Ports, Shared: shared, Routes: routes, Membership: c.Membership, VLAN: c.VLAN, Polled: c.Polled, Lazy: c.Lazy,
		Spin: spin, Recovery: c.Recovery, Rand: d.rand, Notify: d.notify})
	if err != nil {
		return nil, err
	}
	d.cm, err = gsi.New(gsi.Config{NIC: d.nic, Memory: d.mem, GUID: cm.GUID(d.guid), Rand: d.rand, Limits: c.Limits.gsi(), Shared: shared})
	return d, err
}

// defaultGUID makes a GUID of the Ethernet address or, where only the kernel knows
// that, draws one: then it is marked as not globally unique.
func defaultGUID(mac frame.MAC, rnd func() uint64) uint64 {
	if mac.IsZero() {
		const universal = 2 << 56
		return rnd()&^universal | 1 // never 0
	}
	g := frame.DefaultGID(mac)
	return binary.BigEndian.Uint64(g[8:])
}

// systemRand returns a generator of unpredictable numbers that is safe for
// concurrent use.
func systemRand() func() uint64 {
	var seed [32]byte
	rand.Read(seed[:])
	src := mrand.NewChaCha8(seed)
	var mu sync.Mutex
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return src.Uint64()
	}
}

// Progress does the work that is waiting and returns whether there was any. It
// is what drives a polled device; on others it is not needed. As [CQ.Poll] it may sleep for 150 µs where
// other programs want the processor, too.
func (d *Device) Progress() bool { return d.nic.Progress() }

// Close disconnects what is connected, stops the device and closes its ports. It
// tells all peers at once, and again until they confirm or [ConnLimits].CloseTimeout
// is over. Completion queues can still be polled.
func (d *Device) Close() error {
	err := d.nic.Close(d.closeTimeout)
	if errors.Is(err, ErrClosed) {
		return err
	}
	if c, ok := d.resolver.(io.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	return err
}

// RandomPSN returns a first PSN an outsider cannot guess.
func (d *Device) RandomPSN() PSN { return PSN(d.rand()) & bth.PSNMask }

// inside lets other packages of the module, rdmacm for one, reach the connection manager
// behind a device and the machine room behind a queue pair.
func init() {
	inside.Agent = func(device any) *gsi.Agent { return device.(*Device).cm }
	inside.CompleteParam = func(param any, o *cm.Offer) error { return param.(*ConnParam).complete(o) }
	inside.ReleasePD = func(pd any) { autoPD{pd.(*PD)}.Close() }
	inside.QP = func(q any) *nic.QP { return q.(*QP).core() }
	inside.NIC = func(device any) *nic.NIC { return device.(*Device).nic }
	inside.Keys = func(device any) *mr.Table { return device.(*Device).mem }
	inside.SRQs = func(device any) inside.Table { return device.(*Device).srqs }
}

// ConnLimits bounds what peers can make the connection manager of a device keep and
// say. In each field 0 stands for the default.
//
// A peer is a stranger until it has answered: all that is known of it is an address
// that anybody can write on a packet. A source of such packets is an IPv4 address, or
// the /64 of an IPv6 address.
type ConnLimits struct {
	// MaxConns bounds the connections in all, those that have just ended and lookups
	// included. Beyond it Dial fails with ENOMEM. 0: 65536.
	MaxConns int

	// MaxHalfOpen bounds the connections and requests of peers that are not confirmed
	// or answered. When there are so many, and also when the backlog of a listener is
	// full, a new request takes the place of the oldest of the source that has most; if
	// that is its own source, it is dropped, and repeated by its sender. 0: 4096.
	MaxHalfOpen int
	// HalfOpenTimeout bounds how long an accepted connection waits for the peer's
	// confirmation, and with it [ConnRequest.Accept]. A peer that asks for more time
	// gets up to 66 s, once. It is an eighth of that while there are too many, for sources
	// that have no other connection. 0: 10 s.
	HalfOpenTimeout time.Duration
	// RequestTimeout bounds how long a request waits to be accepted or rejected, whether
	// the program has taken it or not; [ListenConfig] may say otherwise. 0: a minute.
	RequestTimeout time.Duration

	// ReplyRate and TotalReplyRate bound the answers per second to one source of packets
	// that belong to no connection, and to all of them. An answer that no packet
	// provoked, as a repeated one, counts 16 times. A source that has confirmed another
	// connection has TotalReplyRate for itself, and each answer counts once. Answers beyond are
	// not sent, and counted. 0: 256 and 2048.
	ReplyRate, TotalReplyRate int

	// MADRate bounds the management datagrams per second that the device looks at, each
	// of which costs as much as dozens of packets; connecting and disconnecting takes
	// three. Some may come at once; when a lot do, the sources share them. While connections
	// of the shard that has QP 1 transfer data the rate is a 32nd. Those beyond are dropped
	// and counted. 0: 200 000.
	MADRate int

	// CloseTimeout bounds how long [Device.Close] waits for the peers of its connections
	// to confirm that they are over, while it repeats itself. A nanosecond: it tells them
	// once. 0: 300 ms.
	CloseTimeout time.Duration
}

// defaultCloseTimeout lets six copies of a message leave, see package cm, Manager.Close.
const defaultCloseTimeout = 300 * time.Millisecond

func (l *ConnLimits) gsi() gsi.Limits {
	return gsi.Limits{MaxConns: l.MaxConns, MaxHalfOpen: l.MaxHalfOpen, HalfOpenTimeout: l.HalfOpenTimeout, RequestTimeout: l.RequestTimeout,
		ReplyRate: l.ReplyRate, TotalReplyRate: l.TotalReplyRate, MADRate: l.MADRate}
}

// lineRate returns the parameters with the speed of the port as line rate, if
// they have none and the port knows it.
func (d *Device) lineRate(c *DCQCN) *DCQCN {
	p := *c
	if p.LineRate == 0 {
		p.LineRate = qp.Rate(d.info.Speed) * qp.Mbps
	}
	return &p
}
