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

// DefaultSpin is the time that the background goroutine polls before it sleeps, if
// [Options].Spin is 0: about the duration of a wake-up. If both ends sleep before the other can
// wake up and answer, each message costs two wake-ups.
const DefaultSpin = 50 * time.Microsecond

// Options are the common options of [Config] and [InterfaceConfig]. The zero value is a
// good choice.
type Options struct {
	// Resolver finds the Ethernet addresses of peers. Nil: the host's with [OpenInterface],
	// [DerivedMACs] with [Open]. If it has a Close method, Device.Close calls it.
	Resolver Resolver

	// Membership joins multicast groups in the network. Nil: the host joins them with
	// [OpenInterface]; with [Open] no join is necessary.
	Membership Membership

	// VLAN is the 802.1Q VLAN of the device, 1 to 4094: packets leave with that tag, and
	// packets with another tag or none are dropped. 0: none; a priority tag is accepted.
	// The ports must pass tagged frames. The device still uses the addresses and routes
	// of the untagged interface: if the host has an interface for the VLAN (`ip link add
	// link eth0 type vlan`), open that, without VLAN. Not for driver "udp".
	VLAN uint16

	// GUID is the node GUID, unique among all peers. 0: made from the MAC address, as rxe
	// does, or random if there is none, because hosts with the same private IP address are
	// different nodes.
	GUID uint64

	// Limits bounds the state and the answers that peers can cause in the
	// connection manager.
	Limits ConnLimits

	// Polled runs no background goroutine: [CQ.Poll], [CQ.Wait], [Device.Progress] and
	// the connection calls do the work on the caller's goroutine. This has the lowest
	// latency, but the device answers no packet while no call runs.
	Polled bool

	// Lazy defers posts, so that several leave with one system call: when [CQ.Poll] or
	// [CQ.Wait] finds no completion, when the background goroutine runs, or when the
	// deferred posts fill a batch. While that goroutine sleeps, the first two posts leave at once
	// and the third wakes the goroutine. If a program has repeatedly posted exactly once
	// between two polls without success, such a post leaves at once, too. On a polled device Lazy also defers the
	// acknowledgements of messages that a Poll has delivered: if the program does not
	// poll again, its peers wait until they give up.
	Lazy bool

	// Collect allows a front end, such as a library for another language, to collect the work requests of a program
	// that polls, and to post them together with [QP.PostCollected]; see [CQ.Collecting]. It is called when the program polls no
	// more: the front end then posts what it still has for the queue pairs of these completion queues. Nil: none collects. The work
	// requests of programs in Go need no collecting.
	Collect func(*Collecting)

	// Spin is the time that the background goroutine polls before it sleeps. Between
	// polls it yields to other goroutines and, on a machine with one processor, to other
	// programs. Polling uses a core for that time and saves a wake-up. Instead of it, a goroutine
	// that waits for completions polls for that time, if it usually waits again soon. 0: [DefaultSpin].
	Spin time.Duration

	// SleepAtOnce makes the background goroutine sleep as soon as it has no work. Spin
	// must then be 0.
	SleepAtOnce bool

	// Congestion turns congestion control (DCQCN) on for all RC, XRC and UC queue pairs:
	// they answer packets that a switch has marked, and reduce their rate when the peer
	// answers so. Nil: off. See docs/congestion-control.md.
	Congestion *DCQCN

	// Recovery selects the reaction of RC and XRC queue pairs to losses: to go
	// back, or to repair losses one packet at a time. See docs/recovery.md.
	Recovery Recovery

	// Rand is the source of keys, PSNs and IDs. Nil: seeded by the system.
	Rand func() uint64
}

// spin returns the polling time of the background goroutine for [nic.Config]. It returns
// EINVAL for contradictory options.
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

// Config configures a [Device] of [Open].
type Config struct {
	Options

	// Ports carry the packets, one port for every shard. The device owns them and closes
	// them. There must be at least one; all must have the same MAC address and MTU.
	Ports []link.Port

	// Addrs are the device's IP addresses in the order of its GID table. There must be
	// at least one.
	Addrs []netip.Addr

	presence share.Presence                 // zero: that of the first port. OpenInterface sets it, because a wrapper of the port may hide it
	hasRoute func(src, dst netip.Addr) bool // nil: not needed; see route.Config
}

// Device is a software RDMA NIC (struct ibv_context). Its methods may be
// called from any goroutine.
type Device struct {
	nic      *nic.NIC   // the NIC core: shards, ports, waiting
	cm       *gsi.Agent // QP 1 and the connection manager
	info     link.Info
	resolver Resolver
	guid     uint64
	rand     func() uint64

	congestion   *DCQCN // default of queue pairs; nil: off
	closeTimeout time.Duration
	vector       atomic.Uint32 // counts queue pairs of connections, to distribute them over the shards
	cqs          atomic.Uint32 // counts completion queues, to number them
	events       eventQueue

	// The NIC is stopped while these fields change.
	mem  *mr.Table
	srqs *ids.Table[SRQ]
}

// Open makes a device. The caller closes it. If Open fails, it closes the
// ports.
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
	d := &Device{info: c.Ports[0].Info(), resolver: cmp.Or[Resolver](c.Resolver, DerivedMACs{}), guid: c.GUID, rand: c.Rand, closeTimeout: cmp.Or(c.Limits.CloseTimeout, defaultCloseTimeout)}
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
	routes := route.New(route.Config{MAC: d.info.MAC, VLAN: c.VLAN, SrcPort: d.info.SrcPort, Resolver: asRoute{d.resolver}, GIDs: gids,
		HasRoute: c.hasRoute})
	at := cmp.Or(c.presence, share.Of(c.Ports[0]))
	if at.Shared != nil {
		d.mem.Divide(at.Shared.Keys())
	}
	d.nic, err = nic.New(nic.Config{Ports: c.Ports, Shared: at.Shared, Routes: routes, Membership: c.Membership, VLAN: c.VLAN, Polled: c.Polled, Lazy: c.Lazy, Collect: c.Collect,
		Spin: spin, Recovery: c.Recovery, Rand: d.rand, Notify: d.notify})
	if err != nil {
		return nil, err
	}
	l := &c.Limits
	d.cm, err = gsi.New(gsi.Config{NIC: d.nic, Memory: d.mem, Rand: d.rand, MADRate: l.MADRate, Presence: at,
		Manager: cm.Config{GUID: cm.GUID(d.guid), MaxConns: l.MaxConns, MaxHalfOpen: l.MaxHalfOpen, HalfOpenTimeout: l.HalfOpenTimeout,
			RequestTimeout: l.RequestTimeout, ReplyRate: l.ReplyRate, TotalReplyRate: l.TotalReplyRate}})
	return d, err
}

// defaultGUID makes a GUID from the Ethernet address. If only the kernel knows the
// address, defaultGUID returns a random GUID and marks it as not globally unique.
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

// Progress does the pending work of the device and reports whether there was any. It drives a polled
// device; other devices do not need it. Like [CQ.Poll] it may sleep for 150 µs if other programs compete
// for the processor.
func (d *Device) Progress() bool { return d.nic.Progress() }

// Close ends all connections, stops the device and closes its ports. It tells all
// peers at once, and repeats this until they confirm or [ConnLimits].CloseTimeout
// has passed. Completion queues can still be polled.
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

// closeOnce closes an object of the device, with the device locked: it calls end, and sets the mark of the object unless end
// fails. It returns ErrClosed if the mark is set already.
func (d *Device) closeOnce(closed *bool, end func() error) error {
	d.nic.Lock()
	defer d.nic.Unlock()
	if *closed {
		return ErrClosed
	}
	err := end()
	*closed = err == nil
	return err
}

// RandomPSN returns a first PSN that a stranger cannot guess.
func (d *Device) RandomPSN() PSN { return PSN(d.rand()) & bth.PSNMask }

// inside gives other packages of the module, for instance rdmacm, access to the
// connection manager of a device and to the NIC core of a queue pair.
func init() {
	inside.Agent = func(device any) *gsi.Agent { return device.(*Device).cm }
	inside.CompleteParam = func(param any, o *cm.Offer) error { return param.(*ConnParam).complete(o) }
	inside.ReleasePD = func(pd any) { autoPD{pd.(*PD)}.Close() }
	inside.QP = func(q any) *nic.QP { return q.(*QP).core() }
	inside.NIC = func(device any) *nic.NIC { return device.(*Device).nic }
	inside.Keys = func(device any) *mr.Table { return device.(*Device).mem }
	inside.SRQs = func(device any) inside.Table { return device.(*Device).srqs }
}

// ConnLimits bounds the state and the answers that peers can cause in the
// connection manager of a device. In each field 0 means the default.
//
// A peer is a stranger until it has answered: before, the device knows only a source
// address, which an attacker can forge. A source is an IPv4 address, or the /64 of an
// IPv6 address.
type ConnLimits struct {
	// MaxConns bounds the total of connections, including those in timewait and
	// lookups. Beyond it Dial fails with ENOMEM. 0: 65536.
	MaxConns int

	// MaxHalfOpen bounds unconfirmed connections and unanswered requests of peers. At
	// this limit, and also when the backlog of a listener is full, a new request
	// replaces the oldest request of the source with the most requests. If the new request
	// comes from that source, it is dropped, and its sender repeats it. 0: 4096.
	MaxHalfOpen int
	// HalfOpenTimeout bounds the time that an accepted connection, and thus
	// [ConnRequest.Accept], waits for the peer's confirmation. A peer that asks for more
	// time gets up to 66 s, once. While there are too many half-open connections, the time
	// is an eighth for sources without another connection. 0: 10 s.
	HalfOpenTimeout time.Duration
	// RequestTimeout bounds the time until the program accepts or rejects a request,
	// whether Accept has returned the request or not; [ListenConfig] can override it. 0:
	// a minute.
	RequestTimeout time.Duration

	// ReplyRate and TotalReplyRate bound the answers per second to packets that belong to no
	// connection: for one source, and for all. An answer without a packet as cause, for
	// instance a repetition, counts 16 times. A source that has confirmed another connection
	// has a separate budget of TotalReplyRate, and each answer counts once. The device does not
	// send further answers, and counts them. 0: 256 and 2048.
	ReplyRate, TotalReplyRate int

	// MADRate bounds the management datagrams per second that the device handles. Each costs
	// as much as dozens of packets; to connect and disconnect takes three. A burst is
	// possible; when half of the burst is used, the sources share the rest. While
	// connections on the shard of QP 1 transfer data, the rate is a 32nd. The device drops
	// and counts further datagrams. 0: 200 000.
	MADRate int

	// CloseTimeout bounds the time that [Device.Close] repeats its message to the peers
	// and waits for their confirmation. With a nanosecond it sends the message once. 0:
	// 300 ms.
	CloseTimeout time.Duration
}

// defaultCloseTimeout is long enough for six copies of a message, see Manager.Close in
// package cm.
const defaultCloseTimeout = 300 * time.Millisecond

// lineRate returns c with the speed of the port as line rate, if c has none
// and the port knows its speed.
func (d *Device) lineRate(c *DCQCN) *DCQCN {
	p := *c
	p.LineRate = cmp.Or(p.LineRate, qp.Rate(d.info.Speed)*qp.Mbps)
	return &p
}
