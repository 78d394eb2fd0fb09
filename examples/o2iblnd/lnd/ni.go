package lnd

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// NI is a network interface with one NID. It decides on the requests of peers, makes the requests of this side, and keeps
// the state of each peer.
type NI struct {
	cfg   Config
	nid   wire.NID
	stamp wire.Stamp
	// Privileged refuses requests from ports of 1024 and above (require_privileged_port).
	Privileged bool
	peers      map[wire.NID]*Peer
}

// NewNI returns an interface. The stamp must differ between restarts of the node.
func NewNI(cfg Config, nid wire.NID, stamp wire.Stamp) *NI {
	return &NI{cfg: cfg.WithDefaults(), nid: nid, stamp: stamp, peers: map[wire.NID]*Peer{}}
}

// NID returns the address of the interface.
func (n *NI) NID() wire.NID { return n.nid }

// Config returns the configuration with its defaults.
func (n *NI) Config() Config { return n.cfg }

// Peer is the state of a peer.
type Peer struct {
	NID wire.NID

	stamp      wire.Stamp // last known incarnation; 0: not known
	connected  bool       // stamp and version come from a connection, or from the answer to an attempt
	connecting bool       // an attempt of this side is under way
	accepting  int        // requests of the peer that are accepted but not established
	races      int        // how many requests of the peer have lost in a row
	attempts   int        // how many attempts of this side in a row
	retryAt    time.Time  // earliest time of the next attempt

	version      wire.Version // version of the connection, or of the next request
	depth, frags uint16       // parameters of the next request
}

// Peer returns the state of a peer.
func (n *NI) Peer(nid wire.NID) *Peer {
	p := n.peers[nid]
	if p == nil {
		c := n.cfg.Params()
		p = &Peer{NID: nid, version: wire.Version2, depth: c.QueueDepth, frags: c.MaxFrags}
		n.peers[nid] = p
	}
	return p
}

// Answer says what to do with a connection request.
type Answer struct {
	Reject   bool
	Private  []byte // private data of the REJ or of the REP
	CloseOld bool   // close all connections to the peer first: it has restarted
	Peer     *Peer  // nil if the request was refused before the NI looked at its peer
	Identity Identity
	Params   wire.ConnParams
}

// Request decides on a connection request by its private data and source port. With full, the driver has
// no room for another connection, and Request refuses every request. After it has accepted a request,
// call [NI.Settled] when the connection is established or has failed.
func (n *NI) Request(private []byte, port uint16, full bool) Answer {
	m, err := wire.Decode(private)
	reject := wire.Reject{Version: wire.Version2, Why: wire.Fatal, Params: wire.ConnParams{MaxMessage: wire.MaxMessage}}
	if n.Privileged && port >= 1024 || err != nil {
		return refusal(reject, nil)
	}
	if reject.Version = m.Version; m.Dst != n.nid {
		return refusal(reject, nil)
	}
	reject.Stamp, reject.Params = n.stamp, n.params(m.Version)
	if reject.Why = n.check(m, full); reject.Why != 0 { // before the NI keeps state for the peer
		return refusal(reject, nil)
	}
	p := n.Peer(m.Src)
	if p.connected && (p.stamp != m.SrcStamp || p.version != m.Version) {
		p.stamp, p.version, reject.Why = m.SrcStamp, m.Version, wire.ConnStale
		a := refusal(reject, p)
		a.CloseOld = true
		return a
	}
	if p.connecting && p.races < maxRaces && n.cfg.Race.wins(n.nid, p.NID) {
		p.races++
		reject.Why = wire.ConnRace
		return refusal(reject, p)
	}
	p.stamp, p.version, p.connected, p.races = m.SrcStamp, m.Version, true, 0
	p.accepting++
	ack := n.hello(wire.ConnAck, p, m.Conn)
	return Answer{Private: ack, Peer: p, Identity: n.identity(p), Params: m.Conn}
}

// check compares a request with the limits of this side, which full says it has reached. It returns 0 if the request is
// acceptable.
func (n *NI) check(m *wire.Message, full bool) wire.Why {
	own := n.params(m.Version)
	switch c := m.Conn; {
	case m.DstStamp != 0 && m.DstStamp != n.stamp:
		return wire.ConnStale
	case m.Type != wire.ConnReq:
		return wire.Fatal
	case c.QueueDepth < minDepth(m.Version) || c.MaxFrags == 0:
		return wire.Fatal
	case m.Version == wire.Version1 && (c.QueueDepth > own.QueueDepth || c.MaxFrags > wire.MaxFragments):
		return wire.Fatal // version 1 has no other reason for this
	case c.QueueDepth > own.QueueDepth:
		return wire.MsgQueueSize
	case c.MaxFrags > wire.MaxFragments:
		return wire.RDMAFrags
	case c.MaxMessage > wire.MaxMessage:
		return wire.Fatal
	case full:
		return wire.NoResources
	}
	return 0
}

func refusal(r wire.Reject, p *Peer) Answer {
	return Answer{Reject: true, Private: r.Append(nil), Peer: p}
}

// params returns the limits of this side in a version. Version 1 has a queue depth of at most depthV1.
func (n *NI) params(v wire.Version) wire.ConnParams {
	c := n.cfg.Params()
	if v == wire.Version1 {
		c.QueueDepth = min(c.QueueDepth, depthV1)
	}
	return c
}

// minDepth is the least queue depth of a version. In version 1, one credit is reserved for NOOPs, and with a
// depth of 2 each NOOP would cause another one in return.
func minDepth(v wire.Version) uint16 {
	if v == wire.Version1 {
		return 3
	}
	return 1
}

// hello encodes a CONNREQ or CONNACK.
func (n *NI) hello(t wire.Type, p *Peer, c wire.ConnParams) []byte {
	c.MaxMessage = wire.MaxMessage
	m := wire.Message{Version: p.version, Type: t, Src: n.nid, SrcStamp: n.stamp, Dst: p.NID, DstStamp: p.stamp, Conn: c}
	b := m.Append(nil)
	wire.SetChecksum(b, n.cfg.Checksum)
	return b
}

func (n *NI) identity(p *Peer) Identity {
	return Identity{Local: n.nid, LocalStamp: n.stamp, Peer: p.NID, PeerStamp: p.stamp, Version: p.version}
}

// Alone informs the interface that the last connection to a peer is over. The peer may restart before the next one.
func (n *NI) Alone(p *Peer) { p.stamp, p.version, p.connected = 0, wire.Version2, false }

// Forget deletes the state of a peer that has no connection. It returns false if an attempt of either side is under
// way. The next attempt begins with the default parameters, so the peer may refuse it again.
func (n *NI) Forget(p *Peer) bool {
	if p.connecting || p.accepting > 0 {
		return false
	}
	delete(n.peers, p.NID)
	return true
}

// Settled informs the interface that an accepted request is established or has failed.
func (n *NI) Settled(p *Peer) { p.accepting-- }

// MayDial reports whether an attempt to connect may begin now. If not, at is the time to call MayDial again. The
// zero time means: call it when the attempt that is under way has ended.
func (p *Peer) MayDial(now time.Time) (ok bool, at time.Time) {
	switch {
	case p.connecting || p.accepting > 0:
		return false, time.Time{}
	case now.Before(p.retryAt):
		return false, p.retryAt
	}
	return true, time.Time{}
}

// Dial begins an attempt.
func (n *NI) Dial(p *Peer) {
	p.connecting = true
	p.attempts++
}

// Hello returns the private data for the request to a peer.
func (n *NI) Hello(p *Peer) []byte {
	return n.hello(wire.ConnReq, p, wire.ConnParams{QueueDepth: min(p.depth, n.params(p.version).QueueDepth), MaxFrags: p.frags})
}

// Accepted checks the private data of the peer's acceptance. If it returns an error, close the connection.
func (n *NI) Accepted(p *Peer, private []byte) (Identity, wire.ConnParams, error) {
	p.connecting = false
	m, err := wire.Decode(private)
	if err != nil {
		return Identity{}, wire.ConnParams{}, err
	}
	c := m.Conn
	switch {
	case m.Type != wire.ConnAck || m.Version != p.version:
		err = violation(m.Type, "version %#x where a CONNACK of version %#x was due", uint16(m.Version), uint16(p.version))
	case m.Src != p.NID || m.Dst != n.nid || m.DstStamp != n.stamp:
		err = violation(m.Type, "is of another connection: %v > %v stamp %x", m.Src, m.Dst, uint64(m.DstStamp))
	case c.QueueDepth < minDepth(m.Version) || c.QueueDepth > p.depth || c.MaxFrags == 0 || c.MaxFrags > p.frags || c.MaxMessage > wire.MaxMessage:
		err = violation(m.Type, "%v, asked for were depth=%d frags=%d", c, p.depth, p.frags)
	}
	if err != nil {
		return Identity{}, wire.ConnParams{}, err
	}
	p.stamp, p.connected, p.attempts, p.retryAt = m.SrcStamp, true, 0, time.Time{}
	return n.identity(p), c, nil
}

// Refusal errors.
var (
	ErrRefused     = fmt.Errorf("lnd: the peer refuses connections: %w", syscall.ECONNREFUSED)
	ErrUnreachable = fmt.Errorf("lnd: the peer cannot be reached: %w", syscall.EHOSTUNREACH)
)

// Reasons of the connection manager that Refused distinguishes.
const (
	cmTimeout          = 4
	cmInvalidServiceID = 8
	cmStale            = 10
	cmConsumer         = 28
)

// quickAttempts is how many attempts may follow one another without a pause. Further attempts wait one second each.
const quickAttempts = 10

// Refused informs the interface that an attempt was refused, with the reason of the connection manager and the
// private data. Reason 4 means that the peer did not answer in time, reason 0 that the attempt failed on this side. If
// another attempt can succeed, Refused returns nil, and [Peer.MayDial] returns its time. Otherwise the messages that wait
// for the connection fail with the error. random is a number in [0, 1): the pause after a lost race is this part of the
// longest pause.
func (n *NI) Refused(now time.Time, p *Peer, reason int, private []byte, random float64) error {
	p.connecting = false
	p.retryAt = now
	if p.attempts > quickAttempts {
		p.retryAt = now.Add(time.Second)
	}
	var err error
	switch reason {
	case cmConsumer:
		err = n.refusedBy(now, p, private, random)
	case cmStale:
		p.connected = false
	case cmTimeout:
		err = fmt.Errorf("%w: no answer", ErrUnreachable)
	case cmInvalidServiceID:
		err = fmt.Errorf("%w: it does not listen on port %d", ErrUnreachable, wire.Port)
	default:
		err = fmt.Errorf("%w: reason %d of the connection manager", ErrUnreachable, reason)
	}
	if p.attempts > maxAttempts && err == nil {
		err = fmt.Errorf("%w: %d attempts", ErrRefused, p.attempts)
	}
	if err != nil {
		p.attempts, p.retryAt = 0, time.Time{}
		if !p.connected {
			p.version = wire.Version2
		}
	}
	return err
}

// anyStamp is the destination stamp of a request of version 1 to a node whose stamp is not known.
const anyStamp = ^wire.Stamp(0)

const (
	// maxAttempts is how many attempts may fail before the waiting messages fail.
	maxAttempts = 30
	// racePause is the longest pause after a lost race.
	racePause = 100 * time.Millisecond
)

// refusedBy acts on a refusal with the private data of the peer's driver.
func (n *NI) refusedBy(now time.Time, p *Peer, private []byte, random float64) error {
	r, err := wire.DecodeReject(private)
	if err != nil {
		return errors.Join(ErrRefused, err)
	}
	switch {
	case r.Why == wire.Fatal && r.Version == wire.Version1 && p.version == wire.Version2 && !p.connected:
		p.version, p.stamp = wire.Version1, anyStamp
		return nil
	case r.Why == wire.ConnRace:
		p.retryAt = now.Add(time.Duration(random * float64(racePause)))
	case r.Why == wire.ConnStale, r.Why == wire.Uncompatible && r.Version == wire.Version2:
	case r.Why == wire.MsgQueueSize && r.Params.QueueDepth > 0 && r.Params.QueueDepth < p.depth:
		p.depth = r.Params.QueueDepth
	case r.Why == wire.RDMAFrags && r.Params.MaxFrags > 0 && r.Params.MaxFrags < p.frags:
		p.frags = r.Params.MaxFrags
	default:
		return fmt.Errorf("%w: %v", ErrRefused, r.Why)
	}
	if r.Stamp != 0 {
		p.stamp = r.Stamp
	}
	return nil
}
