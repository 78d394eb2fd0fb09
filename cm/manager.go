package cm

import (
	"cmp"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/deadline"
	"github.com/goroce/roce/internal/fifo"
	"github.com/goroce/roce/mono"
)

// Defaults of [Config], and the values of Linux for a connection of rdma_cm.
const (
	DefaultAckDelay        = 15 // local_ca_ack_delay of rxe: 134 ms
	DefaultPacketLifeTime  = 16 // 268 ms
	DefaultResponseTimeout = 20 // CMA_CM_RESPONSE_TIMEOUT: 4.1 s
	DefaultMaxCMRetries    = 15 // CMA_MAX_CM_RETRIES
	DefaultHopLimit        = 64
	DefaultBacklog         = 1024 // of ucma

	// mraTimeout is the time that an MRA asks a peer to wait for the owner:
	// 66 s. CMA_CM_MRA_SETTING.
	mraTimeout = 24

	DefaultMaxConns        = 1 << 16
	DefaultMaxHalfOpen     = 1 << 12
	DefaultHalfOpenTimeout = 10 * time.Second
	DefaultRequestTimeout  = time.Minute
	DefaultReplyRate       = 1 << 8
	DefaultTotalReplyRate  = 1 << 11

	defaultMaxReplies = 1 << 10
)

// Config has the properties of a [Manager]'s device, and its limits.
type Config struct {
	// GUID is the node GUID: stable, and unique among all peers. Required.
	GUID GUID
	// Rand is the source of IDs and PSNs. Required; must be unpredictable where the
	// network is not trusted.
	Rand func() uint32

	// IDs are the communication IDs that the Manager may choose. The zero
	// value: all.
	IDs IDClass

	// AckDelay is the local_ca_ack_delay of the device, a code of 4.096 µs·2^n.
	// 0: DefaultAckDelay.
	AckDelay uint8
	// PKeys are the partitions of the port. Nil: the default partition.
	PKeys []bth.PKey
	// Reachable, if set, reports whether peer is reachable from the local
	// address of a REQ or of an alternate path. If it returns false, the Manager
	// refuses the REQ with RejectInvalidGID, or refuses the path.
	Reachable func(local, peer bth.GID) bool

	// Left, if set, is called when a destroyed connection sends no more DREQs, because
	// the peer has answered or the retries are used up. It must not call the Manager.
	Left func(*Conn)

	// MaxConns limits the sum of connections in any state but idle, queries and
	// inquiries, and also the events that the owner has not taken. At this limit Connect
	// fails, and a REQ evicts a half-open connection, see MaxHalfOpen, or is dropped; its
	// sender repeats it. Requests may use the last eighth of MaxConns only if their source began
	// less than an eighth of MaxConns. 0: 65536.
	MaxConns int
	// MaxHalfOpen bounds the unconfirmed connections and unanswered inquiries that
	// peers began. At this limit a new one evicts the oldest of the source that has
	// most: an IPv4 address, or the /64 of an IPv6 address. If the new one comes from
	// a source with its share, the Manager drops it, and its sender repeats it. 0:
	// DefaultMaxHalfOpen.
	MaxHalfOpen int
	// HalfOpenTimeout bounds the time that an accepted connection waits for the peer's
	// RTU or first data. While there are nearly MaxHalfOpen half-open connections, or
	// the backlog of the listener is nearly full, the time is an eighth of it. A peer
	// that asks for time (MRA) gets up to MaxTimeout, once. 0: DefaultHalfOpenTimeout.
	HalfOpenTimeout time.Duration
	// RequestTimeout bounds the time that a request waits for the owner, whether the
	// owner has taken its event or not; a Listener can override it. 0:
	// DefaultRequestTimeout.
	RequestTimeout time.Duration

	// ReplyRate and TotalReplyRate bound the answers per second to MADs of unconfirmed origin:
	// ReplyRate those to one source (see MaxHalfOpen), TotalReplyRate those to all sources
	// together. A message without a MAD as cause, like a repeated REP, counts 16 times. A
	// source that has confirmed another connection has a separate budget of TotalReplyRate,
	// and each message to it counts once. The Manager drops and counts a message that exceeds
	// a rate. 0: DefaultReplyRate and DefaultTotalReplyRate.
	ReplyRate, TotalReplyRate int
	// MaxReplies bounds the MADs waiting in NextMAD that were caused by received
	// MADs. The Manager drops further ones, as a network may. 0: 1024.
	MaxReplies int
	// MaxTimeout bounds the time that a peer may ask for by an MRA, as a CM timeout
	// code. 0: 24, which is 66 s. Other proposals of a peer are limited to fixed
	// ranges: the ACK timeout of the queue pair, and with it timewait, to 17 ms … 4.3
	// s, the interval of repetitions to 256 ms … 8.2 s.
	MaxTimeout uint8
}

// IDClass are the communication IDs that are Residue modulo Modulus. Managers that share an
// address have different classes, so that a received MAD identifies its Manager. Modulus is
// a power of two.
type IDClass struct{ Residue, Modulus CommID }

// Manager is the communication manager of one device. See the package comment
// for its contract.
type Manager struct {
	cfg Config

	// The tables have the keys that Linux uses: the local ID; the ID and the node of the peer;
	// the QPN and the node of the peer. The last two keys also have the address of the peer,
	// because the peer chooses its IDs, GUIDs and QPNs. A Conn is in byLocal exactly while its
	// state is not StateIdle.
	byLocal   map[CommID]*Conn
	byRemote  map[remoteKey]*Conn
	byQPN     map[qpnKey]*Conn
	queries   map[CommID]*Query
	inquiries map[inquiryKey]*Inquiry
	listeners map[ServiceID][]*Listener

	halfOpen  fairQueue // connections that peers began and have not confirmed, inquiries
	leaving   int       // connections in StateDreqSent
	limiter   replyLimiter
	confirmed map[bth.GID]*confirmedSource // by SourceOf
	passive   map[bth.GID]int              // connections that a source began, by SourceOf
	timers    deadline.Heap[expirer]
	out       fifo.Queue[outMAD]
	replies   int // replies in out
	events    fifo.Queue[Event]
	tidHigh   uint32
	received  map[Attribute]Message // one of each kind, for decoding; handlers do not keep them
	counters  Counters
}

// expirer is a connection, query or inquiry, with a timer in Manager.timers.
type expirer interface{ timeout(now mono.Time) }

// queueKeep is the number of slots that an empty queue keeps after a peak.
const queueKeep = 256

// remoteKey and qpnKey have numbers that a peer chose. from is the source address of its
// handshake, because a peer at another address may choose the same numbers.
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
	if cfg.MaxConns < 0 || cfg.MaxHalfOpen < 0 || cfg.HalfOpenTimeout < 0 || cfg.RequestTimeout < 0 || cfg.ReplyRate < 0 ||
		cfg.TotalReplyRate < 0 || cfg.MaxReplies < 0 {
		return nil, opError("new manager", nil, syscall.EINVAL, "a limit is below zero; 0 is the default of each")
	}
	setDefault(&cfg.AckDelay, DefaultAckDelay)
	setDefault(&cfg.MaxConns, DefaultMaxConns)
	setDefault(&cfg.MaxHalfOpen, DefaultMaxHalfOpen)
	setDefault(&cfg.HalfOpenTimeout, DefaultHalfOpenTimeout)
	setDefault(&cfg.RequestTimeout, DefaultRequestTimeout)
	setDefault(&cfg.ReplyRate, DefaultReplyRate)
	setDefault(&cfg.TotalReplyRate, DefaultTotalReplyRate)
	setDefault(&cfg.MaxReplies, defaultMaxReplies)
	setDefault(&cfg.MaxTimeout, mraTimeout)
	m := &Manager{
		received:  map[Attribute]Message{},
		cfg:       cfg,
		byLocal:   map[CommID]*Conn{},
		byRemote:  map[remoteKey]*Conn{},
		byQPN:     map[qpnKey]*Conn{},
		queries:   map[CommID]*Query{},
		inquiries: map[inquiryKey]*Inquiry{},
		listeners: map[ServiceID][]*Listener{},
		confirmed: map[bth.GID]*confirmedSource{},
		passive:   map[bth.GID]int{},
		tidHigh:   cfg.Rand(),
		limiter:   newReplyLimiter(cfg.ReplyRate, cfg.TotalReplyRate),
	}
	for a, kind := range attributes {
		m.received[a] = kind.new()
	}
	return m, nil
}

func setDefault[T comparable](p *T, v T) { *p = cmp.Or(*p, v) }

// HandleMAD handles the payload of a datagram for QP 1, with the addresses of its IP
// header. It counts and drops a payload that is not a CM MAD, and a MAD whose answer
// would go to several nodes.
func (m *Manager) HandleMAD(now mono.Time, from, to bth.GID, mad []byte) {
	if len(mad) != MADLen || !unicast(from) {
		m.counters.Malformed++
		return
	}
	a := Attribute(be16(mad[16:]))
	msg := m.received[a]
	if msg == nil {
		m.counters.Unsupported++
		return
	}
	if msg.Decode(mad) != nil {
		m.counters.Malformed++
		return
	}
	switch r := (&rx{now, from, to}); msg := msg.(type) {
	case *REQ:
		m.handleREQ(r, msg)
	case *MRA:
		m.handleMRA(r, msg)
	case *REJ:
		m.handleREJ(r, msg)
	case *REP:
		m.handleREP(r, msg)
	case *RTU:
		m.handleRTU(r, msg)
	case *DREQ:
		m.handleDREQ(r, msg)
	case *DREP:
		m.handleDREP(r, msg)
	case *SIDRREQ:
		m.handleSIDRREQ(r, msg)
	case *SIDRREP:
		m.handleSIDRREP(r, msg)
	case *LAP:
		m.handleLAP(r, msg)
	case *APR:
		m.handleAPR(r, msg)
	}
	m.counters.Received[a-AttrREQ]++
}

// unicast reports whether an answer to a MAD from this address reaches one node.
func unicast(from bth.GID) bool {
	a := from.Addr()
	return !a.IsUnspecified() && !a.IsMulticast() && a != broadcast
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// rx has the time of receipt of a MAD, and its addresses.
type rx struct {
	now      mono.Time
	from, to bth.GID
}

// NextMAD returns the next datagram to send, or false if there is none. The
// owner may drop a datagram, because the Manager repeats those that matter.
func (m *Manager) NextMAD() (Out, bool) {
	o, ok := m.out.Pop()
	m.out.Release(queueKeep)
	if ok && o.reply {
		m.replies--
	}
	return o.Out, ok
}

// NextEvent returns the next event, or false if there is none. When the owner has
// taken a ConnectRequest, ConnectResponse or AlternateRequest, the Conn answers
// repetitions of the peer by asking it to wait (MRA).
func (m *Manager) NextEvent() (Event, bool) {
	for {
		e, ok := m.events.Pop()
		m.events.Release(queueKeep)
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
				continue // the connection has ended meanwhile
			}
			e.Conn.alt.lap = lapMRASent
		}
		return e, true
	}
}

// stale reports whether the event is obsolete.
func (e *Event) stale() bool {
	return e.Conn != nil && e.Conn.destroyed ||
		e.Query != nil && e.Query.cancelled ||
		e.Inquiry != nil && e.Inquiry.done && !e.Inquiry.delivered
}

// HandleTimeout handles the timers that have expired at now: retransmissions,
// giving up, the end of timewait. Calling it early or again does nothing.
func (m *Manager) HandleTimeout(now mono.Time) {
	for x, ok := m.timers.Pop(now); ok; x, ok = m.timers.Pop(now) {
		x.timeout(now)
	}
}

// NextTimeout returns the time for the next call of HandleTimeout, or
// mono.Never.
func (m *Manager) NextTimeout() mono.Time { return m.timers.Next() }

// Leaving returns the number of connections that wait for the peer's
// confirmation of their end.
func (m *Manager) Leaving() int { return m.leaving }

// Len returns the number of connections, queries and inquiries of the Manager,
// including those in timewait.
func (m *Manager) Len() int { return len(m.byLocal) + len(m.queries) + len(m.inquiries) }

// Counters returns a copy of the counters.
func (m *Manager) Counters() Counters { return m.counters }

// full reports whether the Manager has reached its limit.
func (m *Manager) full() bool { return m.Len() >= m.cfg.MaxConns || m.eventsFull() }

// eventsFull reports whether the owner must take events before the Manager may queue more.
// Evicting a connection does not help then, because its end is an event, too.
func (m *Manager) eventsFull() bool { return m.events.Len() >= m.cfg.MaxConns }

// hasShare reports whether a source has its share of the connections, so that its requests
// are refused: the last eighth of MaxConns is for sources that hold less than an eighth.
func (m *Manager) hasShare(source bth.GID) bool {
	eighth := m.cfg.MaxConns / 8
	return eighth > 0 && m.Len() >= m.cfg.MaxConns-eighth && m.passive[source] >= eighth
}

// SendDREQ sends a DREQ for a connection of another Manager that has ended. It keeps no
// state: a DREP finds no connection.
func (m *Manager) SendDREQ(local, remote bth.GID, localID, remoteID CommID, remoteQPN bth.QPN) {
	m.send(local, remote, &DREQ{Header: Header{TID: m.newTID(localID)}, LocalID: localID, RemoteID: remoteID, RemoteQPN: remoteQPN})
}

// send queues a message that an operation or a timer caused.
func (m *Manager) send(from, to bth.GID, msg Message) {
	o := m.out.Push()
	o.From, o.To, o.reply = from, to, false
	msg.Put(&o.MAD)
	m.counters.Sent[msg.Attribute()-AttrREQ]++
}

// replyStranger answers a MAD of an unconfirmed sender. The reply limiter bounds these
// answers.
func (m *Manager) replyStranger(r *rx, msg Message) {
	if !m.mayReply(r.now, r.from, costProvoked) {
		return
	}
	m.reply(r.to, r.from, msg)
}

// The costs of a message to an unconfirmed source: costProvoked if a MAD caused it, else
// costUnprovoked. An attacker can forge the source address of a MAD. One answer for each MAD
// does not amplify the flood to that address; several answers would.
const (
	costProvoked   = 1
	costUnprovoked = 16
)

// reply queues a message that a received MAD caused. Config.MaxReplies bounds these messages.
func (m *Manager) reply(from, to bth.GID, msg Message) {
	if m.replies >= m.cfg.MaxReplies {
		m.counters.RepliesDropped++
		return
	}
	m.send(from, to, msg)
	m.out.Last().reply = true
	m.replies++
}

// event queues an event unless its object was destroyed.
func (m *Manager) event(e Event) {
	if e.stale() {
		return
	}
	*m.events.Push() = e
}

// newID returns a random ID that no connection or query has.
func (m *Manager) newID() CommID {
	for try := 0; ; try++ {
		id := CommID(m.cfg.Rand())
		if try >= 8 {
			// A random source may repeat its numbers: the addition of try ends the search.
			id += CommID(try) * max(m.cfg.IDs.Modulus, 1)
		}
		if n := m.cfg.IDs.Modulus; n != 0 {
			id = id/n*n + m.cfg.IDs.Residue
		}
		if id != 0 && m.byLocal[id] == nil && m.queries[id] == nil {
			return id
		}
	}
}

// newTID forms the transaction ID of an exchange that the owner of id begins. Any value would
// work; this one helps readers of a capture.
func (m *Manager) newTID(id CommID) uint64 { return uint64(m.tidHigh)<<32 | uint64(id) }

// newPSN returns a random starting PSN.
func (m *Manager) newPSN() bth.PSN { return bth.PSN(m.cfg.Rand()) & bth.PSNMask }

func (m *Manager) pkeyKnown(k bth.PKey) bool {
	return slices.ContainsFunc(m.cfg.PKeys, k.Match)
}

// mraWait returns the time that this side waits for a peer that asked for
// time.
func (m *Manager) mraWait(mra *MRA, c *Conn) time.Duration {
	return ResponseTimeout(min(mra.ServiceTimeout, m.cfg.MaxTimeout)) + ResponseTimeout(c.ackTimeout)
}

// The limits of the values that a peer chooses for this side. The interval is that between
// repetitions of this side.
const (
	minAckTimeout   = 12 // 17 ms
	maxAckTimeout   = 20 // 4.3 s
	minPeerInterval = 16 // 256 ms
	maxPeerInterval = 21 // 8.2 s
)

// clampAckTimeout limits the ACK timeout that a peer chooses; rxe and adapters choose 14 to 18.
// Code 0 means to wait for ever: the requester would never notice a lost packet, so it uses the
// longest allowed timeout instead. With a short timeout the requester would take a slow peer
// for a dead one.
func clampAckTimeout(code uint8) uint8 {
	if code == 0 {
		return maxAckTimeout
	}
	return min(max(code, minAckTimeout), maxAckTimeout)
}

func peerInterval(code uint8) time.Duration {
	return ResponseTimeout(min(max(code, minPeerInterval), maxPeerInterval))
}
