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
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
)

// DefaultSpin is how long a device in background mode looks for packets before
// it sleeps, if [Config].Spin does not say: about as long as it takes to be
// waked. If both ends sleep sooner than the other one can be waked and answer,
// each message costs two wake-ups.
const DefaultSpin = 50 * time.Microsecond

// Config says what a [Device] is made of.
type Config struct {
	// Ports carry the packets, one for every shard. The device takes them over
	// and closes them. At least one; all with the same MAC address and MTU.
	Ports []link.Port

	// Addrs are the device's IP addresses in the order of its GID table. At
	// least one.
	Addrs []netip.Addr

	// Resolver finds the Ethernet addresses of peers. Nil: [DerivedMACs]. If it
	// has a Close method the device calls it when it is closed.
	Resolver Resolver

	// Membership tells the network which multicast groups are wanted. Nil: nobody
	// has to be told, as in networks inside the process.
	Membership Membership

	// VLAN is the 802.1Q VLAN that the device is in, 1 to 4094: what it sends has that
	// tag, what has another or none is dropped. 0: none; a tag that names no VLAN but a
	// priority is let pass. The ports must let tagged frames through.
	VLAN uint16

	// GUID is the node GUID, unique among all peers. 0: made from the MAC
	// address, as rxe does, or drawn at random if there is none: hosts behind the same
	// private address are different nodes.
	GUID uint64

	// Limits bounds what peers can have the connection manager keep and say.
	Limits ConnLimits

	// Polled leaves out the background goroutine: [CQ.Poll], [CQ.Wait],
	// [Device.Progress] and the connection calls then do the work on the
	// caller's goroutine. Lowest latency; but nothing is answered while nobody
	// calls.
	Polled bool

	// Lazy lets posted work requests wait for each other: unless they are a batch of
	// packets, they leave with the next [CQ.Poll] or [CQ.Wait] that finds nothing, or
	// with the background goroutine's next turn. If that sleeps, two posts leave at once,
	// and a third wakes it. Whoever posts one at a time then needs a system call for
	// many of them, not for each. In a polled device so do the acknowledgements of what
	// a Poll has delivered, and a caller that does not poll again lets its peers wait,
	// who may give up.
	Lazy bool

	// Spin is how long the background goroutine looks for packets without
	// sleeping after the last one, others' turns between; those of other programs,
	// too, on a machine with one processor. It costs a core for that long and saves
	// a wake-up. 0 means [DefaultSpin]; less, sleep at once.
	Spin time.Duration

	// Congestion turns congestion control (DCQCN) on for all RC, XRC and UC queue
	// pairs: they answer packets that a switch marked, and slow down when the
	// peer does. Nil: off. See docs/congestion-control.md.
	Congestion *DCQCN

	// Rand is the source of keys, PSNs and IDs. Nil: seeded by the system.
	Rand func() uint64
}

// Device is a software RDMA NIC (struct ibv_context). Its methods may be
// called from any goroutine.
type Device struct {
	shards   []*shard
	info     link.Info
	gids     gids
	resolver Resolver
	paths    *paths
	hops     *hops
	vlan     uint16
	state    atomic.Pointer[interfaceState]
	guid     uint64
	polled   bool
	lazy     bool
	spin     time.Duration
	epoch    time.Time
	rnd      func() uint64

	congestion *DCQCN // of queue pairs that have none of their own; nil: off

	port     portState
	events   eventQueue
	watchers watchers

	// The tables below change only while every shard is locked; a shard reads
	// them under its own lock.
	mem     *mr.Table
	demux   demux
	groups  groups
	srqs    *ids.Table[SRQ]
	closed  bool // nothing new is begun, while peers are told
	stopped bool // nothing is done any more

	gsi     *gsi
	done    chan struct{} // closed with the device
	closing atomic.Bool

	closeTimeout time.Duration
	gone         atomic.Bool // its network interface is
	running      sync.WaitGroup
	following    sync.WaitGroup
	vector       atomic.Uint32 // counts queue pairs that connections made, to spread them

	// A polled device is driven by one of those who wait at a time; see wait.
	driver  chan struct{}
	napping atomic.Bool
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
	if !d.polled {
		for _, s := range d.shards {
			d.running.Go(s.run)
		}
	}
	return d, nil
}

func newDevice(c Config) (*Device, error) {
	if len(c.Ports) == 0 || len(c.Addrs) == 0 {
		return nil, fail("open", syscall.EINVAL, "%d ports and %d addresses, need at least one of each", len(c.Ports), len(c.Addrs))
	}
	d := &Device{info: c.Ports[0].Info(), resolver: c.Resolver, vlan: c.VLAN, guid: c.GUID, polled: c.Polled, lazy: c.Lazy, spin: cmp.Or(c.Spin, DefaultSpin),
		epoch: time.Now(), rnd: c.Rand, paths: newPaths(), done: make(chan struct{}), driver: make(chan struct{}, 1)}
	d.state.Store(&interfaceState{d.info.Interface, d.info.MAC, d.info.MTU})
	d.hops = newHops(d.info.MAC)
	if d.resolver == nil {
		d.resolver = DerivedMACs{}
	}
	if d.rnd == nil {
		d.rnd = systemRand()
	}
	if most := uint16(4094); c.VLAN > most || c.VLAN != 0 && d.info.Layout != frame.LayoutEthernet {
		return nil, fail("open", syscall.EINVAL, "VLAN %d on a port of %v frames: need 1 to %d and %v frames, or 0 for none",
			c.VLAN, d.info.Layout, most, frame.LayoutEthernet)
	}
	addrs, err := gidsOf("open", c.Addrs)
	if err != nil {
		return nil, err
	}
	if d.guid == 0 {
		d.guid = defaultGUID(d.info.MAC, d.rnd)
	}
	table, _ := new(gidTable).update(addrs)
	d.gids.set(table)
	if c.Congestion != nil {
		d.congestion = d.lineRate(c.Congestion)
		if err := d.congestion.Validate(); err != nil {
			return nil, fail("open", err, "Config.Congestion")
		}
	}
	d.mem = mr.NewTable(d.rnd)
	d.groups.membership, d.groups.byGID = c.Membership, map[bth.GID]*group{}
	d.demux.init(d.rnd, len(c.Ports))
	d.srqs = newSRQNumbers(d.rnd)
	for n, p := range c.Ports {
		if i := p.Info(); i.MAC != d.info.MAC || i.MTU != d.info.MTU {
			return nil, fail("open", syscall.EINVAL, "port %s has MAC %v and MTU %d, port %s %v and %d; they must be queues of one card",
				i.Interface, i.MAC, i.MTU, d.info.Interface, d.info.MAC, d.info.MTU)
		}
		d.shards = append(d.shards, newShard(d, n, p))
	}
	d.closeTimeout = cmp.Or(c.Limits.CloseTimeout, defaultCloseTimeout)
	d.gsi, err = newGSI(d, cm.GUID(d.guid), &c.Limits)
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

// dozes reports whether the device sleeps as soon as there is nothing to do. To it an
// acknowledgement is worth its price: it comes before the answer does, which then finds
// the device awake.
func (d *Device) dozes() bool { return !d.polled && d.spin < 0 }

// now is the protocol's time.
func (d *Device) now() mono.Time { return mono.Time(time.Since(d.epoch)) }

// lockAll locks every shard: the device stands still.
func (d *Device) lockAll() {
	for _, s := range d.shards {
		s.mu.Lock()
	}
}

func (d *Device) unlockAll() {
	for _, s := range d.shards {
		s.mu.Unlock()
	}
}

// Progress does the work that is waiting and returns whether there was any. It
// is what drives a polled device; on others it is not needed.
func (d *Device) Progress() bool {
	busy := false
	for _, s := range d.shards {
		n, _ := s.progress()
		busy = n > 0 || busy
	}
	return busy
}

// hurry sends what waits for a turn.
func (d *Device) hurry() {
	for _, s := range d.shards {
		s.hurry()
	}
}

// Close disconnects what is connected, stops the device and closes its ports. It
// tells all peers at once, and again until they confirm or [ConnLimits].CloseTimeout
// is over. Completion queues can still be polled.
func (d *Device) Close() error {
	if d.closing.Swap(true) {
		return ErrClosed
	}
	d.lockAll()
	now := d.now()
	for _, q := range d.demux.all() {
		q.flush()
	}
	told := d.gsi.shutdown(now)
	d.closed = true
	for _, s := range d.shards {
		s.send(now)
		s.goRound(now)
		s.wake() // for the rest, and for what is to be repeated
	}
	d.unlockAll()
	for _, s := range d.shards {
		s.dispatchAll()
	}
	for _, tell := range told {
		tell(ErrClosed)
	}
	d.watchers.tell(ErrClosed)
	close(d.done)
	d.gsi.linger(d.closeTimeout)
	d.lockAll()
	d.stopped = true
	d.unlockAll()
	errs := []error{d.leaveGroups()}
	for _, s := range d.shards {
		errs = append(errs, s.port.Close())
	}
	d.running.Wait()
	d.following.Wait()
	if c, ok := d.resolver.(io.Closer); ok {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// isLocal reports whether a GID is one of the device's.
func (d *Device) isLocal(g *bth.GID) bool { return d.gids.get().has(g) }
