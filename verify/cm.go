package verify

import (
	"net/netip"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/fifo"
	"github.com/goroce/roce/internal/recent"
	"github.com/goroce/roce/mono"
)

// commKey names an end of a connection of the connection manager.
type commKey struct {
	at bth.GID
	id cm.CommID
}

// exchange is a connection as the messages of the connection manager show it, from its REQ on. A REQ that is repeated, or late, after
// the passive end has ended the connection makes another one: an exchange with the same REQ, and with another ID of the passive end.
type exchange struct {
	recent.Entry[*exchange] // of managers.used

	req      *cm.REQ
	rep      *cm.REP
	ends     [2]bth.GID // active, passive
	sent     map[sentKey]*sentMAD
	ended    bool        // there was a REJ, DREQ or DREP after the REP
	again    bool        // the REQ came again after that
	rejected [2]*sentMAD // the first REJ of the active end, and of the passive end
	lap      [2]*sentMAD // the latest LAP of the active end, and of the passive end
}

// sentKey names a message of an exchange: its kind and the transaction it belongs to.
type sentKey struct {
	kind cm.Attribute
	from bth.GID
	tid  uint64
}

// sentMAD is a message that its sender may repeat.
type sentMAD struct {
	tid      uint64
	contents uint64
	frame    Frame
	at       time.Time // of the latest transmission
	seen     time.Time // the same, or that of a later copy that the network made
	times    int
	id       uint16

	in      bool          // the latest transmission was captured where it arrived
	wait    time.Duration // the time that the peer has for its answer; 0: none is expected
	delayed struct {      // by an MRA
		until time.Time
		frame Frame
		in    bool // it arrived at the sender
		out   bool // it was captured as it was sent
		times int
	}
}

// managers follows the connection managers.
type managers struct {
	exchanges map[commKey]*exchange
	used      recent.List[*exchange] // by their last message
	n         int                    // exchanges in used

	sidr  map[sidrKey]*query
	asked fifo.Queue[sidrKey] // keys of sidr, the oldest first
	last  map[sidrKey]uint64  // transaction ID of the latest SIDR_REQ with an ID; the key has none
}

// query is a SIDR_REQ.
type query struct {
	req      *cm.SIDRREQ
	contents uint64
	frame    Frame
}

// sidrKey names a SIDR_REQ.
type sidrKey struct {
	from bth.GID
	id   cm.CommID
	tid  uint64
}

// These constants bound the memory that a hostile capture can take: the number of exchanges and of SIDR_REQs (the latest are kept),
// and the number of different messages of each exchange.
const (
	maxExchanges = 1 << 14
	maxMessages  = 64
)

// begin adds a new exchange under the ID of its active end. It removes an older exchange with the same ID.
func (m *managers) begin(now mono.Time, x *exchange) {
	k := x.key(0)
	if old := m.exchanges[k]; old != nil {
		m.forget(old)
	}
	for m.n >= maxExchanges {
		old, _, _ := m.used.Oldest()
		m.forget(old)
	}
	m.exchanges[k] = x
	m.used.Add(now, &x.Entry, x)
	m.n++
}

// beginAgain adds another exchange with the REQ of x. From now on the ID of the active end is that of the new exchange.
func (m *managers) beginAgain(now mono.Time, x *exchange) *exchange {
	k := sentKey{cm.AttrREQ, x.ends[0], x.req.TID}
	y := &exchange{req: x.req, ends: x.ends, sent: map[sentKey]*sentMAD{}}
	if s := x.sent[k]; s != nil {
		y.sent[k] = s
	}
	delete(m.exchanges, x.key(0))
	m.begin(now, y)
	return y
}

// forget removes an exchange under both of its IDs.
func (m *managers) forget(x *exchange) {
	m.used.Remove(&x.Entry)
	m.n--
	m.unname(x, x.key(0))
	if x.rep != nil {
		m.unname(x, x.key(1))
	}
}

// unname removes a name of an exchange, unless a later exchange has this name now.
func (m *managers) unname(x *exchange, k commKey) {
	if m.exchanges[k] == x {
		delete(m.exchanges, k)
	}
}

// replied stores the REP of an exchange, and adds the exchange under the ID that the REP gives the passive end.
func (m *managers) replied(x *exchange, rep *cm.REP) {
	if x.rep != nil {
		m.unname(x, x.key(1))
	}
	x.rep = rep
	m.exchanges[x.key(1)] = x
}

// key returns the name of the active (0) or passive (1) end of an exchange.
func (x *exchange) key(end int) commKey {
	if end == 0 {
		return commKey{x.ends[0], x.req.LocalID}
	}
	return commKey{x.ends[1], x.rep.LocalID}
}

// classCM is the management class of the connection manager.
const classCM = 7

// managementPacket judges a datagram, if it is for queue pair 1.
func (v *Verifier) managementPacket(p *packet) {
	f := &p.Frame
	if f.DestQPN() != bth.QPNGSI || p.Cut {
		return
	}
	if p.CM == nil {
		if b := f.Payload(); len(b) < 2 || b[1] == classCM {
			v.find(cmMAD, nil, "The datagram is no message of the connection manager: %v.", p.CMErr)
		}
		return
	}
	v.managementMessage(p)
}

func (v *Verifier) managementMessage(p *packet) {
	dst := p.Frame.Dst
	v.fields(p)
	switch m := p.CM.(type) {
	case *cm.REQ:
		v.requestMAD(p, m)
	case *cm.REP:
		v.replyMAD(p, m)
	case *cm.RTU:
		v.ready(p, m)
	case *cm.MRA:
		v.moreTime(p, m)
	case *cm.REJ:
		v.refusedMAD(p, m)
	case *cm.DREQ:
		x := v.ofBoth(p, m.LocalID, m.RemoteID)
		if x == nil {
			v.tooSoon(p, m.LocalID)
			return
		}
		x.ended = true
		if v.once(p, x, m.TID) && m.RemoteQPN != x.number(dst) {
			v.find(cmIDs, nil, "The DREQ names queue pair %v; the end that receives it has %v.", m.RemoteQPN, x.number(dst))
		}
	case *cm.DREP:
		v.disconnected(p, m)
	case *cm.LAP:
		v.alternate(p, m)
	case *cm.APR:
		v.alternateAnswer(p, m)
	case *cm.SIDRREQ:
		v.datagramRequest(p, m)
	case *cm.SIDRREP:
		v.datagramReply(p, m)
	}
}

// exchangeOf returns the exchange to which the end at an address gave this ID, nil if its beginning is not in the capture.
func (v *Verifier) exchangeOf(at bth.GID, id cm.CommID) *exchange {
	x := v.cm.exchanges[commKey{at, id}]
	if x != nil {
		v.cm.used.Renew(v.clock(), &x.Entry)
	}
	return x
}

// ofEither returns the exchange of a message that names both ends or one of them. If the ID of the passive end is known, it
// tells which one of several exchanges with the same REQ it is.
func (v *Verifier) ofEither(p *packet, local, remote cm.CommID) *exchange {
	x, o := v.exchangeOf(p.Frame.Dst, remote), v.exchangeOf(p.Frame.Src, local)
	if x == nil || o != nil && o.req == x.req && p.Frame.Src == x.ends[1] {
		return o
	}
	return x
}

// clock returns the number of packets so far. It serves as the time by which exchanges are ordered.
func (v *Verifier) clock() mono.Time { return mono.Time(v.report.Packets) }

// number returns the queue pair of an end.
func (x *exchange) number(at bth.GID) bth.QPN {
	if at == x.ends[0] {
		return x.req.QPN
	}
	return targetQPN(x.rep)
}

// targetQPN returns the queue pair of the passive end. That of XRC is in another field.
func targetQPN(m *cm.REP) bth.QPN {
	if m.QPN == 0 {
		return bth.QPN(m.LocalEECN)
	}
	return m.QPN
}

// flowOf returns the flow of the packets that the active (0) or passive (1) end sends.
func (v *Verifier) flowOf(x *exchange, from int) *flow {
	if x.rep == nil {
		return nil
	}
	return v.flows[flowKey{x.ends[from], x.ends[1-from], x.number(x.ends[1-from])}]
}

// ofBoth returns the exchange of a message that names both ends, and judges whether both names are of the same exchange. It returns
// nil if they are not, or if the exchange is not known.
func (v *Verifier) ofBoth(p *packet, local, remote cm.CommID) *exchange {
	src, dst := p.Frame.Src, p.Frame.Dst
	a, b := v.exchangeOf(src, local), v.exchangeOf(dst, remote)
	switch {
	case a == nil && b == nil:
		return nil
	case a == nil && b.rep == nil, b == nil && a.rep == nil:
		return nil // the REP is not in the capture
	case a != nil && b != nil && a.req == b.req:
		return v.ofEither(p, local, remote)
	case a != b:
		v.suspect(cmIDs, nil, nil, "The message names IDs %v and %v, which are not those of one connection.", local, remote)
		return nil
	}
	return a
}

// once judges a message that may be a repeated one. It returns true the first time.
func (v *Verifier) once(p *packet, x *exchange, tid uint64) bool {
	k := sentKey{p.CM.Attribute(), p.Frame.Src, tid}
	s := x.sent[k]
	now := hash(p.Frame.Payload())
	id := ipID(p)
	if s == nil {
		if len(x.sent) < maxMessages {
			x.sent[k] = &sentMAD{tid: tid, contents: now, frame: p.frame, at: p.Time, seen: p.Time, times: 1, id: id, in: p.in, wait: x.answerTime(p)}
		}
		return true
	}
	s.seen = p.Time
	if id != 0 && s.id == id {
		return false // a copy by the network
	}
	if s.contents == now && v.copied(cmEarly, p, s.at) {
		return false
	}
	if s.wait > 0 {
		v.again(p, x, s, now)
	}
	s.times++
	s.at, s.id, s.in = p.Time, id, p.in
	return false
}

// answerTime returns how long the peer may take to answer a message, 0 if it has no answer.
func (x *exchange) answerTime(p *packet) time.Duration {
	code := x.req.RemoteResponseTimeout // of the passive end
	if p.Frame.Src == x.ends[1] {
		code = x.req.LocalResponseTimeout
	}
	switch m := p.CM.(type) {
	case *cm.REQ, *cm.REP, *cm.DREQ:
		return cm.ResponseTimeout(code)
	case *cm.LAP:
		return cm.ResponseTimeout(m.RemoteResponseTimeout)
	}
	return 0
}

// again judges the repetition of a message that expects an answer.
func (v *Verifier) again(p *packet, x *exchange, s *sentMAD, contents uint64) {
	kind := p.CM.Attribute()
	if s.contents != contents {
		v.find(cmRepeat, []Frame{s.frame}, "The %v comes again with other contents.", kind)
	}
	if s.times > int(x.req.MaxCMRetries) {
		early := kind == cm.AttrDREQ && p.Frame.MigReq() && s.times <= int(x.req.MaxCMRetries)+earlyDREQs
		v.explain(cmRetries, stackDREQ.when(early), []Frame{s.frame}, "The %v is repeated for the %dth time; the REQ allows %d.", kind, s.times, x.req.MaxCMRetries)
	}
	switch after := p.Time.Sub(s.at); {
	case p.in: // the previous transmission may have arrived late
	case s.delayed.in && p.Time.Before(s.delayed.until):
		v.find(cmMRA, []Frame{s.delayed.frame}, "The %v is repeated %v before the time is over that the MRA asks for.", kind, round(s.delayed.until.Sub(p.Time)))
	case s.delayed.times == 0 && (after < s.wait*95/100-copyTime || p.out && after < s.wait*95/100):
		var d *Departure
		switch {
		case !p.Frame.MigReq():
		case kind == cm.AttrREP:
			d = &stackREP
		case kind == cm.AttrDREQ:
			d = &stackDREQSoon
		}
		v.explain(cmEarly, d, []Frame{s.frame}, "The %v is repeated after %v; its receiver has %v to answer.", kind, round(after), s.wait)
	}
}

// earlyDREQs is how many more times than Max CM Retries this stack repeats a DREQ.
const earlyDREQs = 6

// transaction judges the transaction ID of an answer.
func (v *Verifier) transaction(x *exchange, got, want uint64) {
	if got != want {
		v.suspect(cmTID, nil, x.framesOf(), "The transaction ID is %#x; %#x belongs to it.", got, want)
	}
}

// framesOf returns the frame of the REQ.
func (x *exchange) framesOf() []Frame {
	if s := x.sent[sentKey{cm.AttrREQ, x.ends[0], x.req.TID}]; s != nil {
		return []Frame{s.frame}
	}
	return nil
}

func (v *Verifier) requestMAD(p *packet, m *cm.REQ) {
	src := p.Frame.Src
	x := v.exchangeOf(src, m.LocalID)
	if x == nil || x.req.TID != m.TID {
		x = &exchange{req: m, ends: [2]bth.GID{src, p.Frame.Dst}, sent: map[sentKey]*sentMAD{}}
		v.cm.begin(v.clock(), x)
	}
	x.again = x.ended
	if !v.once(p, x, m.TID) {
		return
	}
	if !m.MTU.Valid() {
		v.find(cmMTU, nil, "The path MTU in the REQ is %d, none of the five codes.", uint8(m.MTU))
	}
	v.addresses(p, m)
}

// addresses judges the RDMA-IP header of a REQ to a service of rdma_cm.
func (v *Verifier) addresses(p *packet, m *cm.REQ) {
	var h cm.IPHeader
	if ps := cm.PortSpace(m.ServiceID >> 16); uint64(m.ServiceID)>>32 != 0 || ps != cm.PortSpaceTCP && ps != cm.PortSpaceUDP {
		return
	}
	if err := h.Decode(m.Private[:]); err != nil {
		v.find(cmAddresses, nil, "The private data of the REQ begins with no RDMA-IP header: %v.", err)
		return
	}
	for _, a := range []struct{ in, of netip.Addr }{{h.Src, p.Frame.Src.Addr()}, {h.Dst, p.Frame.Dst.Addr()}} {
		if a.in != a.of {
			v.find(cmAddresses, nil, "The RDMA-IP header says %v, the packet %v.", a.in, a.of)
			return
		}
	}
}

func (v *Verifier) replyMAD(p *packet, m *cm.REP) {
	x := v.exchangeOf(p.Frame.Dst, m.RemoteID)
	if x == nil {
		return
	}
	if p.Frame.Src == x.ends[0] && p.Frame.Dst == x.ends[1] {
		v.suspect(cmSide, nil, x.framesOf(), "The active end sends a REP.")
		return
	}
	x = v.ofEither(p, m.LocalID, m.RemoteID)
	another := x.rep != nil && x.rep.LocalID != m.LocalID
	if x.ends[0] != p.Frame.Dst || another && !p.in && !(x.ended && (x.again || !p.out)) {
		v.suspect(cmIDs, nil, x.framesOf(), "The REP names ID %v, which has no REQ that waits for it.", m.RemoteID)
		return
	}
	if another {
		if !x.ended {
			v.cannotTell(cmIDs) // the message that ended the connection may be lost, and another REQ on its way
		}
		x = v.cm.beginAgain(v.clock(), x)
	}
	first := v.once(p, x, m.TID)
	if m.TID == x.req.TID {
		v.goesOn(p, x)
	}
	if !first {
		return
	}
	v.answered(p, x, cm.AttrREQ, m.TID)
	v.transaction(x, m.TID, x.req.TID)
	if m.TID != x.req.TID && !v.complete {
		return // it may answer another REQ, which is missing in the capture
	}
	if m.InitiatorDepth > x.req.ResponderResources {
		v.find(cmDepth, x.framesOf(), "The REP says the passive end will have %d READs outstanding; the REQ offers %d.", m.InitiatorDepth, x.req.ResponderResources)
	}
	v.cm.replied(x, m)
	v.connect(x.ends[0], x.ends[1], x.req.QPN, targetQPN(m), x.req.MTU.Bytes(), x.ofActive(p.frame), x.ofPassive(), p)
}

// ofActive returns the agreement about the requests of the active end.
func (x *exchange) ofActive(rep Frame) *agreement {
	a := &agreement{start: x.rep.StartingPSN, startKnown: true, retries: int(x.req.RetryCount), depth: int(x.rep.ResponderResources), frame: rep}
	if life := x.req.Primary.AckTimeout; life > 0 {
		a.timeout = cm.AckTimeout(x.rep.TargetAckDelay, life-1)
	}
	return a
}

// ofPassive returns the agreement about the requests of the passive end.
func (x *exchange) ofPassive() *agreement {
	a := &agreement{start: x.req.StartingPSN, startKnown: true, timeout: x.req.Primary.AckTimeout, retries: int(x.req.RetryCount),
		depth: int(x.req.ResponderResources), passive: true}
	if f := x.framesOf(); f != nil {
		a.frame = f[0]
	}
	return a
}
