package cm

import (
	"net/netip"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mono"
)

// Defaults of [Config], and what Linux uses for a connection of rdma_cm.
const (
	DefaultAckDelay        = 15 // local_ca_ack_delay of rxe: 134 ms
	DefaultPacketLifeTime  = 16 // 268 ms
	DefaultResponseTimeout = 20 // CMA_CM_RESPONSE_TIMEOUT: 4.1 s
	DefaultMaxCMRetries    = 15 // CMA_MAX_CM_RETRIES
	DefaultHopLimit        = 64
	DefaultBacklog         = 1024 // of ucma

	// mraTimeout is how long a peer is asked to wait for the owner: 66 s.
	// CMA_CM_MRA_SETTING.
	mraTimeout = 24

	defaultMaxConns    = 1 << 16
	defaultMaxHalfOpen = 1 << 13
	defaultMaxReplies  = 1 << 10
)

// Config is what a [Manager] must know of its device and what it may use.
type Config struct {
	// GUID is the node GUID: stable, and unique among all peers. Required.
	GUID GUID
	// Rand is the source of IDs and PSNs. Required; must be unpredictable where the
	// network is not trusted.
	Rand func() uint32

	// AckDelay is the local_ca_ack_delay of the device, a code of 4.096 µs·2^n.
	// 0: DefaultAckDelay.
	AckDelay uint8
	// PKeys are the partitions of the port. Nil: the default partition.
	PKeys []bth.PKey
	// Reachable, if set, says whether peer can be reached from the local address
	// a REQ came to, or that an alternate path is to. False refuses the REQ with
	// RejectInvalidGID, or the path.
	Reachable func(local, peer bth.GID) bool

	// MaxConns bounds what the Manager remembers: connections in any state but
	// idle, queries, inquiries and events the owner has not taken. Beyond it Connect
	// fails and a REQ is dropped, to be repeated by its sender. 0: 65536.
	MaxConns int
	// MaxHalfOpen bounds the connections that peers began and have not confirmed.
	// 0: 8192.
	MaxHalfOpen int
	// MaxReplies bounds the MADs waiting in NextMAD that were caused by received
	// MADs. Beyond it they are dropped, like on a network. 0: 1024.
	MaxReplies int
	// MaxTimeout bounds every timeout that a peer may choose, as a CM timeout code:
	// response times, MRAs and timewait. 0: 24, which is 66 s.
	MaxTimeout uint8
}

// Manager is the communication manager of one device. See the package comment
// for its contract.
type Manager struct {
	cfg Config

	// The tables, keyed as Linux keys its own: by the local ID, by the peer's ID and
	// node, and by the peer's QPN and node; the latter two also by the peer's address,
	// since IDs, GUIDs and QPNs are what a peer says of itself. A Conn is in byLocal
	// exactly while its state is not StateIdle.
	byLocal   map[CommID]*Conn
	byRemote  map[remoteKey]*Conn
	byQPN     map[qpnKey]*Conn
	queries   map[CommID]*Query
	inquiries map[inquiryKey]*Inquiry
	listeners map[ServiceID][]*Listener

	halfOpen int
	timers   timerHeap
	out      ring[outMAD]
	replies  int // of out
	events   ring[Event]
	tidHigh  uint32
	counters Counters
}

// remoteKey and qpnKey name what a peer calls its own. from is the address that the
// handshake came from: whoever sends from another address may use the same names
// and means something else by them.
type remoteKey struct {
	id   CommID
	guid GUID
	from bth.GID
}

type qpnKey struct {
	qpn  bth.QPN
	guid GUID
	from bth.GID
}

// Out is one datagram to send: from the GID From, QP 1, to QP 1 of To, Q_Key
// bth.QKeyGSI.
type Out struct {
	From, To bth.GID
	MAD      [MADLen]byte
}

type outMAD struct {
	Out
	reply bool // counted in Manager.replies
}

// NewManager returns a Manager without connections or listeners.
func NewManager(cfg Config) (*Manager, error) {
	if cfg.GUID == 0 {
		return nil, opError("new manager", nil, syscall.EINVAL, "Config.GUID is zero: set the node GUID of the device")
	}
	if cfg.Rand == nil {
		return nil, opError("new manager", nil, syscall.EINVAL, "Config.Rand is nil: set a source of random numbers")
	}
	if cfg.PKeys == nil {
		cfg.PKeys = []bth.PKey{bth.DefaultPKey}
	}
	setDefault(&cfg.AckDelay, DefaultAckDelay)
	setDefault(&cfg.MaxConns, defaultMaxConns)
	setDefault(&cfg.MaxHalfOpen, defaultMaxHalfOpen)
	setDefault(&cfg.MaxReplies, defaultMaxReplies)
	setDefault(&cfg.MaxTimeout, mraTimeout)
	return &Manager{
		cfg:       cfg,
		byLocal:   map[CommID]*Conn{},
		byRemote:  map[remoteKey]*Conn{},
		byQPN:     map[qpnKey]*Conn{},
		queries:   map[CommID]*Query{},
		inquiries: map[inquiryKey]*Inquiry{},
		listeners: map[ServiceID][]*Listener{},
		tidHigh:   cfg.Rand(),
	}, nil
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// HandleMAD takes the payload of a datagram that arrived for QP 1, with the
// addresses of its IP header. Anything that is no CM MAD is counted and dropped, and
// so is one whose answer would go to many.
func (m *Manager) HandleMAD(now mono.Time, from, to bth.GID, mad []byte) {
	if len(mad) != MADLen || !unicast(from) {
		m.counters.Malformed++
		return
	}
	a := Attribute(be16(mad[16:]))
	h, ok := handlers[a]
	if !ok {
		m.counters.Unsupported++
		return
	}
	if err := h(m, &rx{now, from, to, mad}); err != nil {
		m.counters.Malformed++
		return
	}
	m.counters.Received[a-AttrREQ]++
}

// unicast reports whether an answer to a MAD from this address reaches one node.
func unicast(from bth.GID) bool {
	a := from.Addr()
	return !a.IsUnspecified() && !a.IsMulticast() && a != broadcast
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// rx is a received MAD and its circumstances.
type rx struct {
	now      mono.Time
	from, to bth.GID
	mad      []byte
}

// handlers is the dispatch table. A handler returns an error only if the MAD does
// not decode.
var handlers = map[Attribute]func(*Manager, *rx) error{
	AttrREQ:     (*Manager).handleREQ,
	AttrMRA:     (*Manager).handleMRA,
	AttrREJ:     (*Manager).handleREJ,
	AttrREP:     (*Manager).handleREP,
	AttrRTU:     (*Manager).handleRTU,
	AttrDREQ:    (*Manager).handleDREQ,
	AttrDREP:    (*Manager).handleDREP,
	AttrSIDRREQ: (*Manager).handleSIDRREQ,
	AttrSIDRREP: (*Manager).handleSIDRREP,
	AttrLAP:     (*Manager).handleLAP,
	AttrAPR:     (*Manager).handleAPR,
}

// NextMAD returns the next datagram to send, false if there is none. The owner
// may drop it: everything that matters is repeated.
func (m *Manager) NextMAD() (Out, bool) {
	o, ok := m.out.pop()
	if ok && o.reply {
		m.replies--
	}
	return o.Out, ok
}

// NextEvent returns the next event, false if there is none. Taking a
// ConnectRequest, ConnectResponse or AlternateRequest puts its Conn into the state
// in which the peer is told to wait (MRA) if it repeats itself.
func (m *Manager) NextEvent() (Event, bool) {
	for {
		e, ok := m.events.pop()
		if !ok {
			return Event{}, false
		}
		if e.stale() {
			continue
		}
		switch e.Kind {
		case ConnectRequest:
			e.Conn.delivered = true
			if e.Conn.state == StateReqRcvd {
				e.Conn.setState(StateMRAReqSent)
			}
		case ConnectResponse:
			if e.Conn.state == StateRepRcvd {
				e.Conn.setState(StateMRARepSent)
			}
		case ServiceRequest:
			e.Inquiry.delivered = true
		case AlternateRequest:
			if e.Conn.alt.lap != lapRcvd {
				continue // the connection is over meanwhile
			}
			e.Conn.alt.lap = lapMRASent
		}
		return e, true
	}
}

// stale reports whether nobody wants the event any more.
func (e *Event) stale() bool {
	return e.Conn != nil && e.Conn.destroyed ||
		e.Query != nil && e.Query.cancelled ||
		e.Inquiry != nil && e.Inquiry.done && !e.Inquiry.delivered
}

// HandleTimeout does what is due at now: retransmissions, giving up, leaving
// timewait. Calling it early or again does nothing.
func (m *Manager) HandleTimeout(now mono.Time) {
	for {
		t := m.timers.due(now)
		if t == nil {
			return
		}
		t.owner.timeout(now)
	}
}

// NextTimeout returns when to call HandleTimeout, mono.Never if nothing waits.
func (m *Manager) NextTimeout() mono.Time { return m.timers.next() }

// Len returns how many connections, queries and inquiries the Manager remembers,
// those in timewait included. It is zero when everything is over.
func (m *Manager) Len() int { return len(m.byLocal) + len(m.queries) + len(m.inquiries) }

// Counters returns a copy of the counters.
func (m *Manager) Counters() Counters { return m.counters }

// full reports whether nothing more may be remembered.
func (m *Manager) full() bool { return m.Len()+m.events.len() >= m.cfg.MaxConns }

// send queues a message that an operation or a timer caused.
func (m *Manager) send(from, to bth.GID, msg Message) {
	o := m.out.push()
	o.From, o.To, o.reply = from, to, false
	msg.Put(&o.MAD)
	m.counters.Sent[msg.Attribute()-AttrREQ]++
}

// reply queues a message that a received MAD caused; there may be only so many.
func (m *Manager) reply(from, to bth.GID, msg Message) {
	if m.replies >= m.cfg.MaxReplies {
		m.counters.RepliesDropped++
		return
	}
	m.send(from, to, msg)
	m.out.last().reply = true
	m.replies++
}

// event queues an event unless its object was destroyed.
func (m *Manager) event(e Event) {
	if e.stale() {
		return
	}
	*m.events.push() = e
}

// newID draws an ID that no connection or query has.
func (m *Manager) newID() CommID {
	for try := 0; ; try++ {
		id := CommID(m.cfg.Rand())
		if try >= 8 {
			// A source this bad does not deserve randomness, but an end.
			id += CommID(try)
		}
		if id != 0 && m.byLocal[id] == nil && m.queries[id] == nil {
			return id
		}
	}
}

// newTID forms the transaction ID of an exchange begun by the owner of id. Any
// value will do; this one lets a capture be read.
func (m *Manager) newTID(id CommID) uint64 { return uint64(m.tidHigh)<<32 | uint64(id) }

// newPSN draws a starting PSN.
func (m *Manager) newPSN() bth.PSN { return bth.PSN(m.cfg.Rand()) & bth.PSNMask }

func (m *Manager) pkeyKnown(k bth.PKey) bool {
	for _, own := range m.cfg.PKeys {
		if k.Match(own) {
			return true
		}
	}
	return false
}

// capTimeout bounds a timeout code that a peer chose.
func (m *Manager) capTimeout(code uint8) uint8 { return min(code, m.cfg.MaxTimeout) }
