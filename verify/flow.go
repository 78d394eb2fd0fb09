package verify

import (
	"fmt"
	"slices"
	"time"

	"github.com/goroce/roce/bth"
)

// flowKey identifies the packets from a host to a queue pair.
type flowKey struct {
	src, dst bth.GID
	qpn      bth.QPN
}

// flow is the packets from a host to a queue pair: the requests of one end of a connection, and its
// responses to the requests of the other.
type flow struct {
	key   flowKey
	peer  *flow // the other direction of the connection; nil while it is not known
	half  *half // of the requests in this flow; nil before the first
	mtu   int   // path MTU of the connection, 0 while it is not known
	pkey  bth.PKey
	port  uint16 // UDP source port
	tries int    // to find peer
	name  string // what String returns, once it was asked for

	migrated bool // a packet had M = 1
	noted    bool // the first packet with M = 0 was judged

	agreed *agreement // from the connection manager or Connected; nil: not known
	begun  bool       // the state was dropped once, so the next request need not have the agreed first PSN
	over   bool       // the sender has answered a DREQ
	overAt time.Time
	ready  bool // the sender may send requests; see agreement

	outdated bool // a newer connection has these numbers, but there was no room to follow it
}

// agreement holds the parameters that the two ends of a connection agreed on for the requests of one end.
type agreement struct {
	start      bth.PSN // of the first request
	startKnown bool
	timeout    uint8 // local ACK timeout code
	retries    int   // retry count
	depth      int   // READs and atomics outstanding; -1: not known
	passive    bool  // the end that got the REQ: it waits for the RTU
	frame      Frame // of the message
}

// eagerTries is how many responses of a flow are each tried to find the peer flow. Afterwards one of eagerTries responses is tried.
const eagerTries = 64

// maxFlows bounds the memory that a hostile capture can take.
const maxFlows = 1 << 14

// maxHalves bounds the halves of the whole capture. There may be more of them than flows, because successive connections may have
// the same addresses and queue pair numbers.
const maxHalves = 1 << 17

// flow returns the flow of a packet, nil if there are too many.
func (v *Verifier) flow(p *packet) *flow {
	k := flowKey{p.Frame.Src, p.Frame.Dst, p.Frame.DestQPN()}
	f := v.flows[k]
	if f == nil {
		if f = v.migrated(p); f != nil {
			v.flows[k] = f
			return f
		}
		if len(v.flows) >= maxFlows {
			v.limit(LimitMany, "", p)
			return nil
		}
		f = &flow{key: k, pkey: p.Frame.PKey(), port: p.Frame.SrcPort}
		v.flows[k] = f
		v.list(f)
	}
	return f
}

// maxAlike is how many flows with the same queue pair number, which go to different hosts, are tried when a connection may have migrated.
const maxAlike = 256

// list adds a flow to byQPN. If there are too many flows with its queue pair number, list removes the oldest from there.
func (v *Verifier) list(f *flow) {
	all := v.byQPN[f.key.qpn]
	if len(all) >= maxAlike {
		all = slices.Delete(all, 0, 1)
	}
	v.byQPN[f.key.qpn] = append(all, f)
}

// migrated returns the flow of a connection that has migrated to other addresses with this packet, nil if there is none. The connection
// is one with the same queue pair number that expects the PSN of this request next, or that has requests which this response answers.
func (v *Verifier) migrated(p *packet) *flow {
	psn := p.Frame.PSN()
	for _, f := range v.byQPN[p.Frame.DestQPN()] {
		h := f.half
		if p.Frame.Info.Flags&bth.Response != 0 {
			if f.peer == nil || f.peer.half == nil || !f.peer.half.covers(psn) {
				continue
			}
			if v.answersOthers(p) {
				return nil
			}
			return f
		}
		if h != nil && h.started && h.next == psn && h.report.Responses > 0 {
			return f
		}
	}
	return nil
}

// answersOthers reports whether there are requests between the hosts that the response may answer.
func (v *Verifier) answersOthers(p *packet) bool {
	return slices.ContainsFunc(v.mayBeAnswered(p), func(h *half) bool { return h.covers(p.Frame.PSN()) })
}

// psnBlock is a block of PSNs of the requests from a host to another.
type psnBlock struct {
	src, dst bth.GID
	block    bth.PSN
}

const (
	blockShift = 12
	maxBlocks  = 1 << (24 - blockShift) // of one half

	maxAnnounced = 1 << 20 // of all halves: a READ of 2 GiB spans very many PSNs
)

// announce adds a half without responses to unpaired, in every block of the PSNs [from, to], so that mayBeAnswered finds it.
func (v *Verifier) announce(h *half, from, to bth.PSN) {
	if h.flow.peer != nil {
		h.blocks = nil
		return
	}
	first, last := from>>blockShift, to>>blockShift
	if h.blocks.has(last) && first == last {
		return
	}
	if h.blocks == nil {
		h.blocks = new(blockSet)
	}
	for b, n := first, 0; n < maxBlocks; b, n = (b+1)&(maxBlocks-1), n+1 {
		if !h.blocks.has(b) {
			if v.announced >= maxAnnounced {
				v.limit(LimitMany, "", v.now)
				return
			}
			h.blocks.add(b)
			k := psnBlock{h.flow.key.src, h.flow.key.dst, b}
			v.unpaired[k] = append(v.unpaired[k], h)
			v.announced++
		}
		if b == last {
			break
		}
	}
}

// blockSet is the set of blocks under which unpaired has a half. A nil set is empty.
type blockSet [maxBlocks / 64]uint64

func (s *blockSet) has(b bth.PSN) bool { return s != nil && s[b/64]&(1<<(b%64)) != 0 }

func (s *blockSet) add(b bth.PSN) { s[b/64] |= 1 << (b % 64) }

// mayBeAnswered returns the halves without responses that have requests near the PSN of a response, from the host it goes to.
func (v *Verifier) mayBeAnswered(p *packet) []*half {
	k := psnBlock{p.Frame.Dst, p.Frame.Src, p.Frame.PSN() >> blockShift}
	all := v.unpaired[k]
	if len(all) == 0 {
		return nil
	}
	left := slices.DeleteFunc(all, func(h *half) bool { return h.flow.peer != nil || h.flow.half != h })
	v.announced -= len(all) - len(left)
	if len(left) == 0 {
		delete(v.unpaired, k)
	} else {
		v.unpaired[k] = left
	}
	return left
}

// String returns the source address, the destination address and the queue pair.
func (f *flow) String() string {
	if f.name == "" {
		f.name = fmt.Sprintf("%s > %s qp %v", f.key.src.Addr(), f.key.dst.Addr(), f.key.qpn)
	}
	return f.name
}

// likeRxe reports whether the sender has never set M, as rxe does not.
func (f *flow) likeRxe() bool { return f != nil && !f.migrated }

// setMTU sets the path MTU of the connection, and computes the last PSNs of READs for which it was needed. It drops the state of a
// half that does not fit this path MTU.
func (f *flow) setMTU(n int) {
	for _, g := range []*flow{f, f.peer} {
		if g == nil || g.mtu == n {
			continue
		}
		g.mtu = n
		if g.half != nil && !g.half.measure() {
			g.half.forget()
		}
	}
}

// join makes f and g the two directions of a connection.
func (f *flow) join(g *flow) {
	f.peer, g.peer = g, f
	f.setMTU(max(f.mtu, g.mtu))
}

// connected judges a packet of a connected transport service.
func (v *Verifier) connected(p *packet) {
	f := v.flow(p)
	if f == nil {
		return
	}
	if f.outdated {
		v.limit(LimitMany, "", p)
		return
	}
	fr := &p.Frame
	if !f.noted && !fr.MigReq() {
		f.noted = true
		if f.migrated {
			v.find(headerMigReq, nil, "The sender, which had M = 1 before, has M = 0: it is ready to migrate.")
		} else {
			v.explain(headerMigReq, &rxeMigReq, nil, "The sender has M = 0.")
		}
	}
	f.migrated = f.migrated || fr.MigReq()
	if f.pkey&0x7FFF != fr.PKey()&0x7FFF {
		v.find(headerPKey, nil, "The P_Key is %#04x; that of the connection is %#04x.", uint16(fr.PKey()), uint16(f.pkey))
		return
	}
	switch fl := fr.Info.Flags; {
	case fl&bth.Request != 0:
		if f.half == nil {
			f.half = v.newHalf(f)
		}
		f.half.handleRequest(p)
	case fl&bth.Response != 0:
		if f.peer == nil && (f.tries < eagerTries || f.tries%eagerTries == 0) {
			v.pair(f, p)
		}
		f.tries++
		if f.peer == nil || f.peer.half == nil || !f.peer.half.started {
			v.limit(LimitOneWay, f.String(), p)
			return
		}
		f.peer.half.handleResponse(p)
	}
}

// pair finds the requests that a response answers, and joins the two flows. The requests are from the host that the response goes to,
// and the PSN of the response is among theirs. If that is true of several connections of the two hosts, pair prefers the one with the
// same UDP source port, then the one with the latest request. If packets may be missing in the capture, the right requests may be
// missing, too. Then pair also checks with mayAnswer, so that it does not choose an earlier connection with the same PSNs.
func (v *Verifier) pair(f *flow, p *packet) {
	var best *flow
	for _, h := range v.mayBeAnswered(p) {
		g := h.flow
		if !h.covers(p.Frame.PSN()) || !v.complete && !h.mayAnswer(p) {
			continue
		}
		switch {
		case best == nil,
			(g.port == f.port) != (best.port == f.port) && g.port == f.port,
			(g.port == f.port) == (best.port == f.port) && h.latest.After(best.half.latest):
			best = g
		}
	}
	if best != nil {
		f.join(best)
	}
}

// answerTime is the longest time between a request and a packet that mayAnswer accepts as its response.
const answerTime = 10 * time.Second

// mayAnswer reports whether a response fits the request with its PSN.
func (h *half) mayAnswer(p *packet) bool {
	r := h.find(p.Frame.PSN())
	if r == nil || p.Time.Sub(r.resent) > answerTime {
		return false
	}
	const data = bth.Read | bth.Atomic
	switch fl := p.Frame.Info.Flags; {
	case fl&data != 0:
		return r.flags&fl&data != 0 || fl&bth.Read != 0 && r.flags&(bth.Flush|bth.AtomicWrite) != 0
	case p.Frame.Syndrome().Kind() == bth.KindRNR:
		return r.flags&takesRNR != 0
	}
	return true
}

// connect creates the two flows of a connection whose parameters are known. They replace older flows with the same addresses and
// queue pair numbers.
func (v *Verifier) connect(a, b bth.GID, qa, qb bth.QPN, mtu int, ofA, ofB *agreement, p *packet) {
	var ends [2]*flow
	made := []struct {
		key flowKey
		of  *agreement
	}{{flowKey{a, b, qb}, ofA}, {flowKey{b, a, qa}, ofB}}
	room := maxFlows - len(v.flows)
	for _, e := range made {
		if v.flows[e.key] == nil {
			room--
		}
	}
	if room < 0 || len(v.order) >= maxHalves {
		v.limit(LimitMany, "", p)
		for _, e := range made {
			if f := v.flows[e.key]; f != nil {
				f.outdated = true
			}
		}
		return
	}
	for i, e := range made {
		v.byQPN[e.key.qpn] = slices.DeleteFunc(v.byQPN[e.key.qpn], func(f *flow) bool { return f.key == e.key })
		ends[i] = &flow{key: e.key, pkey: bth.DefaultPKey, agreed: e.of, ready: !e.of.passive}
		v.flows[e.key] = ends[i]
		v.list(ends[i])
	}
	ends[0].join(ends[1])
	ends[0].setMTU(mtu)
}
