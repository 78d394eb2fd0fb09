package script

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/tools/dissect"
)

// connection is the state of the script's connection in the connection manager.
type connection struct {
	tr       bth.Transport
	made     bool
	cm       bool
	over     bool // DREQ or REJ has been exchanged
	local    cm.CommID
	remote   cm.CommID
	tid      uint64
	port     uint16
	reads    uint8
	depth    uint8
	retry    uint8
	rnr      uint8
	timeout  uint8
	mtu      bth.MTU
	priv     []byte
	src, dst netip.Addr
	own      bth.GID
	peer     bth.GID
	qpn      bth.QPN // own
	psn      bth.PSN // of the peer's requests, chosen by us
	peerQPN  bth.QPN
}

// defaultPort is the default port of rping.
const defaultPort = 7174

func (c *connectStep) run(s *Session, at *Step) error {
	if s.conn.made {
		return errors.New("there is a connection already")
	}
	s.conn = connection{tr: c.tr, made: true}
	switch c.method {
	case "verbs":
		return s.connectTarget(c)
	case "oob":
		return s.connectTCP(c)
	}
	if err := s.settings(c); err != nil {
		return err
	}
	switch {
	case c.method == "manual":
		return s.beginManual(c.passive)
	case c.passive:
		return s.acceptCM()
	}
	return s.dialCM()
}

// connectSettings are the settings whose values are numbers: the largest value of each, and where it is stored.
var connectSettings = map[string]struct {
	limit uint64
	set   func(s *Session, v uint64)
}{
	"port":    {1<<16 - 1, func(s *Session, v uint64) { s.conn.port = uint16(v) }},
	"psn":     {1<<24 - 1, func(s *Session, v uint64) { s.first = bth.PSN(v) }},
	"qpn":     {1<<24 - 1, func(s *Session, v uint64) { s.own = bth.QPN(v) }},
	"mtu":     {4096, func(s *Session, v uint64) { s.conn.mtu = dissect.MTUOf(int(v)) }},
	"reads":   {255, func(s *Session, v uint64) { s.conn.reads = uint8(v) }},
	"depth":   {255, func(s *Session, v uint64) { s.conn.depth = uint8(v) }},
	"retry":   {7, func(s *Session, v uint64) { s.conn.retry = uint8(v) }},
	"rnr":     {7, func(s *Session, v uint64) { s.conn.rnr = uint8(v) }},
	"timeout": {31, func(s *Session, v uint64) { s.conn.timeout = uint8(v) }},
	"rkey":    {1<<32 - 1, func(s *Session, v uint64) { s.numbers["own.rkey"] = v }},
	"va":      {1<<64 - 1, func(s *Session, v uint64) { s.numbers["own.va"] = v }},
}

// connectFits checks the value of a setting.
func connectFits(a *arg, v uint64) error {
	if limit := connectSettings[a.tok.key].limit; v > limit {
		return errAt(a.tok.at, "%s=%d: at most %d", a.tok.key, v, limit)
	}
	if a.tok.key == "mtu" && dissect.MTUOf(int(v)) == 0 {
		return errAt(a.tok.at, "mtu=%d: want 256, 512, 1024, 2048 or 4096", v)
	}
	return nil
}

// settings applies the settings of a connection that is made by the connection manager or out of band.
func (s *Session) settings(c *connectStep) error {
	s.own, s.first, s.theirs = s.qpnFromTime(), 0x000100, 0x000800
	x := &s.conn
	x.port, x.reads, x.depth, x.retry, x.rnr, x.timeout, x.mtu = defaultPort, 16, 16, 7, 7, 18, bth.MTU1024
	if m, ok := bth.PathMTU(s.wire.Port.Info().MTU); ok {
		x.mtu = min(x.mtu, m)
	}
	x.src, x.dst, x.own, x.peer = s.wire.Own.Addr().Unmap(), s.wire.Peer.Addr().Unmap(), s.wire.Own, s.wire.Peer
	for i := range c.args {
		a := &c.args[i]
		if a.tok.key == "private" {
			b, err := hex.DecodeString(a.tok.text)
			if err != nil {
				b = []byte(a.tok.text)
			}
			room := cm.REQPrivateLen - cm.IPHeaderLen
			if c.passive {
				room = cm.REPPrivateLen
			}
			if len(b) > room {
				return errAt(a.tok.at, "%d bytes of private data: there is room for %d", len(b), room)
			}
			x.priv = b
			continue
		}
		v, err := s.eval(&a.e)
		if err != nil {
			return err
		}
		if err := connectFits(a, v); err != nil {
			return err
		}
		connectSettings[a.tok.key].set(s, v)
	}
	if s.opts.Port != 0 {
		x.port = s.opts.Port
	}
	x.qpn, x.psn = s.own, s.theirs
	s.next = s.first
	s.latest = s.theirs
	s.mtu = x.mtu.Bytes()
	return nil
}

// prepare sets the fields of a message to the values that a correct peer would send now.
func (c *connection) prepare(s *Session, m cm.Message) {
	switch m := m.(type) {
	case *cm.REQ:
		c.cm = true
		m.TID, m.LocalID, m.QPN = c.tid, c.local, c.qpn
		m.ServiceID, m.LocalGUID = cm.Service(cm.PortSpaceTCP, c.port), 0x5C0000000001
		m.StartingPSN, m.ResponderResources, m.InitiatorDepth = c.psn, c.reads, c.depth
		m.RemoteResponseTimeout, m.LocalResponseTimeout, m.MaxCMRetries = 20, 20, 15
		m.RetryCount, m.RNRRetryCount, m.PKey, m.MTU, m.FlowControl = c.retry, c.rnr, bth.DefaultPKey, c.mtu, true
		m.Primary = cm.Path{LocalLID: cm.PermissiveLID, RemoteLID: cm.PermissiveLID, LocalGID: c.own, RemoteGID: c.peer, HopLimit: 64, AckTimeout: c.timeout}
		h := cm.IPHeader{SrcPort: 40000, Src: c.src, Dst: c.dst}
		h.Put(m.Private[:]) // fails only if the addresses are of two families; both addresses of a wire are of one
		copy(m.Private[cm.IPHeaderLen:], c.priv)
	case *cm.REP:
		m.TID, m.LocalID, m.RemoteID, m.QPN, m.StartingPSN = c.tid, c.local, c.remote, c.qpn, c.psn
		m.ResponderResources, m.InitiatorDepth, m.RNRRetryCount, m.LocalGUID, m.FlowControl = c.reads, c.depth, c.rnr, 0x5C0000000001, true
		m.TargetAckDelay = cm.DefaultAckDelay
		copy(m.Private[:], c.priv)
	case *cm.RTU:
		m.TID, m.LocalID, m.RemoteID = c.tid, c.local, c.remote
	case *cm.REJ:
		m.TID, m.LocalID, m.RemoteID, m.Reason = c.tid, c.local, c.remote, cm.RejectConsumer
	case *cm.MRA:
		m.TID, m.LocalID, m.RemoteID, m.ServiceTimeout = c.tid, c.local, c.remote, 20
	case *cm.DREQ:
		m.TID, m.LocalID, m.RemoteID, m.RemoteQPN = c.tid+1, c.local, c.remote, c.peerQPN
	case *cm.DREP:
		m.TID, m.LocalID, m.RemoteID = c.tid, c.local, c.remote
		for _, h := range s.mads {
			if d, ok := h.MAD.(*cm.DREQ); ok {
				m.TID = d.TID
			}
		}
	case *cm.LAP:
		m.TID, m.LocalID, m.RemoteID, m.RemoteQPN = c.tid+2, c.local, c.remote, c.peerQPN
		m.Alternate = cm.Path{LocalLID: cm.PermissiveLID, RemoteLID: cm.PermissiveLID, LocalGID: c.own, RemoteGID: c.peer, HopLimit: 64, AckTimeout: c.timeout}
	case *cm.APR:
		m.TID, m.LocalID, m.RemoteID = c.tid, c.local, c.remote
	case *cm.SIDRREQ:
		m.TID, m.ServiceID, m.PKey = c.tid, cm.Service(cm.PortSpaceUDP, c.port), bth.DefaultPKey
		h := cm.IPHeader{SrcPort: 40000, Src: c.src, Dst: c.dst}
		h.Put(m.Private[:])
	case *cm.SIDRREP:
		m.TID, m.QPN = c.tid, c.qpn
	}
}

// private sets the private data of a message from a hexadecimal value (private=) or from a text (text=). In a REQ and a SIDR_REQ it is
// behind the RDMA-IP header.
func (c *connection) private(m cm.Message, t *token) error {
	b := []byte(t.text)
	if t.key == "private" {
		var err error
		if b, err = parseHex(t); err != nil {
			return err
		}
	}
	at := 0
	switch m.(type) {
	case *cm.REQ, *cm.SIDRREQ:
		at = cm.IPHeaderLen
	}
	return setPrivate(m, b, at)
}

// learn updates the state of the connection from a message of the peer.
func (s *Session) learn(m cm.Message) {
	c := &s.conn
	switch m := m.(type) {
	case *cm.REQ:
		c.tid, c.remote, c.port = m.TID, m.LocalID, m.ServiceID.Port()
		c.peerQPN, s.qpn = m.QPN, m.QPN
		s.first, s.next = m.StartingPSN, m.StartingPSN
		if m.MTU.Valid() {
			c.mtu = m.MTU
			s.mtu = m.MTU.Bytes()
		}
		c.reads, c.depth = min(c.reads, m.InitiatorDepth), min(c.depth, m.ResponderResources)
	case *cm.REP:
		c.remote, c.peerQPN, s.qpn = m.LocalID, m.QPN, m.QPN
		s.first, s.next = m.StartingPSN, m.StartingPSN
	case *cm.REJ, *cm.DREP:
		c.over = true
	}
}

const (
	cmTries = 8           // how often exchange sends a message
	cmPause = time.Second // how long it waits for an answer each time
)

// say sends a message with the fields that a correct peer would send now.
func (s *Session) say(m cm.Message) error {
	s.conn.prepare(s, m)
	return s.inject(madPacket(m), 0, false)
}

// exchange sends a message as say does, again each cmPause, until a message comes for which answered returns true.
func (s *Session) exchange(m cm.Message, answered func(cm.Message) bool) (*Heard, error) {
	s.conn.prepare(s, m)
	for range cmTries {
		if err := s.inject(madPacket(m), 0, false); err != nil {
			return nil, err
		}
		for deadline := time.Now().Add(cmPause); time.Now().Before(deadline); {
			h, err := s.take(true, deadline, every)
			if err != nil {
				return nil, err
			}
			if h == nil {
				break
			}
			if rej, ok := h.MAD.(*cm.REJ); ok && rej.RemoteID == s.conn.local {
				s.conn.over = true
				return nil, fmt.Errorf("the peer rejected the connection: %v", rej.Reason)
			}
			if answered(h.MAD) {
				s.met(h)
				return h, nil
			}
		}
	}
	return nil, fmt.Errorf("the peer does not answer the %v: does a program listen there, and does UDP port 4791 pass?", m.Attribute())
}

// dialCM connects as the active side.
func (s *Session) dialCM() error {
	c := &s.conn
	s.identify()
	h, err := s.exchange(new(cm.REQ), func(m cm.Message) bool { r, ok := m.(*cm.REP); return ok && r.RemoteID == c.local })
	if err != nil {
		return err
	}
	c.reads = min(c.reads, h.MAD.(*cm.REP).InitiatorDepth)
	s.closers = append(s.closers, s.hangUp)
	return s.say(new(cm.RTU))
}

// beginManual prepares a connection whose handshake the script does with its own statements.
func (s *Session) beginManual(passive bool) error {
	s.identify()
	s.closers = append(s.closers, s.hangUp)
	if passive {
		s.opts.Listening(netip.AddrPortFrom(s.conn.src, s.conn.port))
	}
	return nil
}

// qpnFromTime makes a queue pair number from the time at which the session began. Another script on this host, now or just before, may have
// the same peer. It has another number, so this session ignores the packets that the peer sends to it.
func (s *Session) qpnFromTime() bth.QPN { return 0x5C0000 | bth.QPN(s.begun.UnixNano()>>10)&0xFFFF }

// identify makes the IDs of the connection from the time, so that they differ from those of earlier scripts.
func (s *Session) identify() {
	s.conn.local = cm.CommID(s.begun.UnixNano()>>10) | 1
	s.conn.tid = uint64(s.begun.UnixNano())
	s.conn.cm = true
}

// acceptCM waits for a REQ and accepts it.
func (s *Session) acceptCM() error {
	c := &s.conn
	s.identify()
	s.opts.Listening(netip.AddrPortFrom(c.src, c.port))
	h, err := s.takeREQ()
	if err != nil {
		return err
	}
	s.met(h)
	s.closers = append(s.closers, s.hangUp)
	_, err = s.exchange(new(cm.REP), func(m cm.Message) bool { r, ok := m.(*cm.RTU); return ok && r.RemoteID == c.local })
	return err
}

// takeREQ waits for a REQ, and drops other messages.
func (s *Session) takeREQ() (*Heard, error) {
	for deadline := time.Now().Add(3 * s.opts.Timeout); time.Now().Before(deadline); {
		h, err := s.take(true, deadline, every)
		if err != nil {
			return nil, err
		}
		if h == nil {
			break
		}
		if _, ok := h.MAD.(*cm.REQ); ok {
			return h, nil
		}
	}
	return nil, errors.New("no client connects")
}

// hangUpLimit is how long hangUp waits for the answer to its DREQ.
const hangUpLimit = 300 * time.Millisecond

// hangUp ends the connection with a DREQ or DREP, so that the peer releases it. It is called when the session is closed.
func (s *Session) hangUp() error {
	c := &s.conn
	if c.over || c.remote == 0 {
		return nil
	}
	c.over = true
	came := func(kind cm.Attribute) bool {
		return slices.ContainsFunc(s.mads, func(h *Heard) bool { return h.MAD.Attribute() == kind })
	}
	if came(cm.AttrDREQ) {
		return s.say(new(cm.DREP))
	}
	if err := s.say(new(cm.DREQ)); err != nil {
		return err
	}
	if err := s.until(hangUpLimit, func() bool { return came(cm.AttrDREP) || came(cm.AttrDREQ) }); err != nil {
		return err
	}
	if came(cm.AttrDREQ) { // both ends have sent a DREQ at the same time
		return s.say(new(cm.DREP))
	}
	return nil
}

// disconnect sends a DREQ and waits for the DREP.
func (s *Session) disconnect() error {
	c := &s.conn
	if !c.cm {
		return errors.New("only a connection of the connection manager can be ended by disconnect")
	}
	c.over = true
	_, err := s.exchange(new(cm.DREQ), func(m cm.Message) bool { d, ok := m.(*cm.DREP); return ok && d.RemoteID == c.local })
	return err
}
