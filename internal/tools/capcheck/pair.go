package capcheck

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/dissect"
)

// A packet has the number of its destination queue pair, but not that of its source. The two flows of a connection are therefore
// matched by PSNs: a response has the PSN of a request in the other flow.

// maxAsks is how many requests without a response are remembered in a flow.
const maxAsks = 32

// pairing is the state of a flow that matches it with the flow in the other direction.
type pairing struct {
	peer   *Flow
	asks   []ask   // the newest requests that require a response
	newest bth.PSN // the last PSN of all requests
	acked  bth.PSN // the PSN after the last one that was acknowledged
	began  bool    // newest and acked are known
	srtt   time.Duration
}

// ask is a request that requires a response.
type ask struct {
	psn   bth.PSN
	at    time.Duration
	timed bool // it was sent once, so the time to its response is known
}

// askKey finds a flow by a request.
type askKey struct {
	src, dst bth.GID
	ifindex  int
	psn      bth.PSN
}

// Peer returns the flow in the other direction of the connection. It returns nil if that is not known: before the first response, and
// on unreliable queue pairs.
func (f *Flow) Peer() *Flow { return f.pair.peer }

// Before reports whether the flow began before another one.
func (f *Flow) Before(other *Flow) bool { return f.firstFrame < other.firstFrame }

// RTT returns the smoothed time from a request to its response at the place of the capture, 0 if there was none.
func (f *Flow) RTT() time.Duration { return f.pair.srtt }

// InFlight returns how many PSNs of requests are not acknowledged, 0 if the responses are not known.
func (f *Flow) InFlight() int {
	if f.pair.peer == nil || !f.pair.began {
		return 0
	}
	return int(max(f.pair.newest.Sub(f.pair.acked)+1, 0))
}

// match handles a packet of a flow for the matching: it stores a request, and finds the request of a response.
func (r *Report) match(f *Flow, p *dissect.Packet) {
	if t := p.Frame.Op.Transport(); t == bth.UC || t == bth.UD || t == bth.CNPTransport {
		return
	}
	switch flags := p.Frame.Info.Flags; {
	case flags&bth.Request != 0:
		r.asked(f, p)
	case p.Frame.Info.Headers&bth.HasAETH != 0:
		r.answered(f, p)
	}
}

// asked stores a request.
func (r *Report) asked(f *Flow, p *dissect.Packet) {
	pkt, pair := &p.Frame, &f.pair
	psn, last := pkt.PSN(), pkt.PSN()
	if pkt.Info.Flags&bth.Read != 0 && f.req.mtu != 0 {
		last = psn.Add(lastPacket(pkt.DMALen(), f.req.mtu))
	}
	switch {
	case !pair.began:
		pair.began, pair.newest, pair.acked = true, last, psn
	case pair.newest.Less(last):
		pair.newest = last
	}
	for i := range pair.asks {
		if pair.asks[i].psn == psn {
			pair.asks[i].timed = false // it is not known which copy is answered
			return
		}
	}
	if !pkt.AckReq() && pkt.Info.Flags&(bth.Read|bth.Atomic|bth.Flush|bth.AtomicWrite) == 0 {
		return
	}
	if len(pair.asks) == maxAsks {
		r.forget(f, pair.asks[0].psn)
		pair.asks = pair.asks[1:]
	}
	pair.asks = append(pair.asks, ask{psn, p.At, true})
	if pair.peer == nil {
		key := f.askKey(psn)
		if other, taken := r.unpaired[key]; taken && other != f {
			r.unpaired[key] = nil // two flows have such a request, so a response cannot tell them apart
		} else {
			r.unpaired[key] = f
		}
	}
}

func (f *Flow) askKey(psn bth.PSN) askKey { return askKey{f.key.src, f.key.dst, f.key.ifindex, psn} }

// forget removes a request from unpaired.
func (r *Report) forget(f *Flow, psn bth.PSN) {
	if key := f.askKey(psn); r.unpaired[key] == f {
		delete(r.unpaired, key)
	}
}

// answered handles a response in flow f: it finds the flow of the request if that is not known, and updates RTT and InFlight.
func (r *Report) answered(f *Flow, p *dissect.Packet) {
	psn := p.Frame.PSN()
	if f.pair.peer == nil {
		to := r.unpaired[askKey{f.key.dst, f.key.src, f.key.ifindex, psn}]
		if to == nil || to.pair.peer != nil {
			return
		}
		f.pair.peer, to.pair.peer = to, f
		for _, of := range []*Flow{f, to} {
			for _, a := range of.pair.asks {
				r.forget(of, a.psn)
			}
		}
	}
	pair := &f.pair.peer.pair
	behind := psn.Add(1)
	if p.Frame.Syndrome().Kind() != bth.KindACK {
		behind = psn // a NAK acknowledges the requests before its PSN
	}
	if pair.acked.Less(behind) {
		pair.acked = behind
	}
	for i, a := range pair.asks {
		if a.psn == psn {
			if took := p.At - a.at; a.timed && behind != psn && pair.srtt == 0 {
				pair.srtt = took
			} else if a.timed && behind != psn {
				pair.srtt += (took - pair.srtt) / 8
			}
			pair.asks = append(pair.asks[:0], pair.asks[i+1:]...)
			return
		}
	}
}
