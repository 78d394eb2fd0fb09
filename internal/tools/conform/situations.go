package conform

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/link/pcap"
	"github.com/goroce/roce/verify"
)

// situation is an event that has to occur before a rule can be judged.
type situation string

// The situations. The value is the text on the card if the event did not occur, so that a rule could not be judged.
const (
	sentPacket     situation = "the peer sent no packet"
	seenHeaders    situation = "the driver udp does not show the IP and UDP headers of packets (--link raw does)"
	sentRequest    situation = "the peer sent no request of a reliable connection"
	sentUC         situation = "the peer sent no request of an unreliable connection"
	sentUD         situation = "the peer sent no datagram"
	sentSend       situation = "the peer sent no SEND"
	sentLong       situation = "the peer sent no message or READ response of several packets"
	sentData       situation = "the peer sent no payload"
	sentWrite      situation = "the peer sent no WRITE"
	sentPlacement  situation = "the peer sent no ATOMIC WRITE"
	sentResponse   situation = "the peer sent no response"
	sentACK        situation = "the peer sent no acknowledgement"
	sentNAK        situation = "the peer sent no NAK for a sequence error"
	sentFatal      situation = "the peer sent no NAK that ends a connection"
	sentRNR        situation = "the peer sent no RNR NAK"
	sentRead       situation = "the peer requested no READ"
	sentReadAgain  situation = "the peer repeated no READ"
	sentReadOnly   situation = "the peer answered no READ"
	answeredAgain  situation = "the peer was asked for no READ a second time"
	sentAtomic     situation = "the peer answered no atomic"
	repliedAtomic  situation = "the peer was sent no atomic a second time"
	repeated       situation = "the peer repeated no request"
	gotNAK         situation = "the peer got no NAK for a sequence error"
	gotFatal       situation = "the peer got no NAK that ends a connection"
	gotRNR         situation = "the peer got no RNR NAK"
	knownTerms     situation = "the terms of the peer's connection are not known"
	sentCM         situation = "the peer used no connection manager"
	sentREQ        situation = "the peer asked for no connection"
	sentREP        situation = "the peer accepted no connection"
	sentREJ        situation = "the peer rejected no connection"
	sentSIDR       situation = "the peer answered no request of a service ID"
	gotMRA         situation = "the peer got no MRA"
	ownCounters    situation = "counters are compared step by step, in a section of their own"
	sentDREP       situation = "the peer answered no disconnect request"
	repeatedCM     situation = "the peer repeated no message of the connection manager"
	sentCNP        situation = "the peer sent no CNP"
	gotCNP         situation = "the peer got no CNP"
	knownPlace     situation = "the network between loses packets by itself, so what arrives at the peer is not known"
	knownAgreement situation = "the connection manager made no connection in which the peer sent requests"
	intervalGiven  situation = "no interval was given (--cnp-interval)"
)

// needs has the situations that each rule of package verify needs. All of them have to occur. A test checks that no rule is missing.
var needs = map[verify.RuleID][]situation{
	"bth-short": {sentPacket}, "bth-opcode": {sentPacket}, "bth-version": {sentPacket}, "bth-pad": {sentPacket}, "bth-pad-bytes": {sentData}, "bth-reserved": {sentPacket},
	"ext-reserved": {sentPacket}, "bth-solicited": {sentPacket}, "bth-ackreq": {sentPacket}, "bth-pkey": {sentPacket}, "bth-dest": {sentPacket}, "bth-migreq": {sentPacket},
	"icrc": {sentPacket}, "ip-header": {sentPacket, seenHeaders}, "ip-fragment": {sentPacket, seenHeaders}, "ip-checksum": {sentPacket, seenHeaders},
	"ip-df": {sentPacket, seenHeaders}, "udp-length": {sentPacket, seenHeaders}, "udp-checksum": {sentPacket, seenHeaders}, "gsi-qkey": {sentCM},

	"length-mtu": {sentLong}, "length-last": {sentData}, "length-write": {sentWrite}, "length-max": {sentData}, "length-none": {sentPacket},
	"length-atomic-write": {sentPlacement}, "order-message": {sentData},

	"psn-gap": {sentRequest}, "psn-start": {sentRequest, knownTerms}, "psn-window": {sentRequest}, "psn-uc": {sentUC}, "goback-place": {gotNAK, repeated},
	"goback-skip": {repeated}, "goback-oldest": {repeated}, "repeat-differs": {repeated}, "repeat-needless": {repeated}, "repeat-early": {repeated, knownTerms},
	"repeat-count": {repeated, knownTerms}, "request-after-fatal": {gotFatal}, "credits-exceeded": {sentSend},

	"ack-unsent": {sentResponse}, "ack-unreceived": {sentACK, knownPlace}, "ack-backwards": {sentACK}, "aeth-syndrome": {sentResponse}, "response-kind": {sentResponse},
	"response-order": {sentResponse}, "response-after-fatal": {sentFatal}, "msn-count": {sentACK}, "msn-backwards": {sentACK}, "nak-acked": {sentNAK},
	"nak-no-gap": {sentNAK}, "nak-place": {sentNAK, knownPlace}, "nak-repeated": {sentNAK},

	"read-range": {sentReadOnly}, "read-gap": {sentReadOnly}, "read-opcode": {sentReadOnly}, "read-length": {sentReadOnly}, "read-redundant": {answeredAgain, knownPlace},
	"read-again": {sentReadAgain}, "read-depth": {sentRead, knownTerms},

	"atomic-replay": {sentAtomic, repliedAtomic}, "atomic-twice": {sentAtomic, repliedAtomic}, "atomic-value": {sentAtomic}, "atomic-align": {sentAtomic},

	"rnr-early": {gotRNR, repeated}, "rnr-held": {gotRNR}, "rnr-silence": {sentRNR}, "rnr-kind": {sentRNR},

	"cm-mad": {sentCM}, "cm-repeat": {repeatedCM}, "cm-retries": {repeatedCM}, "cm-early": {repeatedCM}, "cm-ids": {sentCM}, "cm-tid": {sentREP},
	"cm-depth": {sentREP}, "cm-mtu": {sentREQ}, "cm-addresses": {sentREQ}, "cm-ready": {sentREP, knownAgreement}, "cm-over": {sentDREP},
	"cm-reserved": {sentCM}, "cm-value": {sentCM}, "cm-unasked": {sentCM}, "cm-side": {sentCM}, "cm-late": {sentCM, knownPlace}, "cm-mra": {gotMRA}, "cm-path": {sentREQ},
	"cm-rejected": {sentREJ}, "cm-rej": {sentREJ}, "cm-sidr": {sentSIDR},

	"counter-nak": {ownCounters}, "counter-sequence": {ownCounters}, "counter-timeout": {ownCounters}, "counter-duplicate": {ownCounters}, "counter-rnr": {ownCounters},
	"counter-icrc": {ownCounters}, "counter-cnp": {ownCounters}, "counter-retransmission": {ownCounters},

	"cnp-format": {sentCNP}, "cnp-unmarked": {sentCNP, knownPlace}, "cnp-pacing": {sentCNP, intervalGiven},
}

// situations counts how often each situation has occurred.
type situations map[situation]int

// unmet returns the first situation that a rule needs and that has not occurred, "" if there is none.
func (s situations) unmet(rule verify.RuleID) situation {
	for _, n := range needs[rule] {
		if s[n] == 0 {
			return n
		}
	}
	return ""
}

func (s situations) add(t situations) {
	for k, n := range t {
		s[k] += n
	}
}

// watcher counts the situations in the packets of a step. Some of the counts are compared with the peer's counters.
type watcher struct {
	situations
	bad    int            // packets to the peer with a wrong ICRC
	marked int            // packets to the peer that are marked Congestion Experienced
	cms    map[string]int // messages of the connection manager, by their contents
	viaCM  bool           // the peer accepted a connection
	before map[requestKey]bool
}

// requestKey identifies a request.
type requestKey struct {
	out bool // the tester sent it
	qpn bth.QPN
	psn bth.PSN
}

// maxWatched bounds the requests of a step that are remembered.
const maxWatched = 1 << 16

// note counts one of two situations: sent if the packet is the peer's, and otherwise got.
func (w *watcher) note(peers bool, sent, got situation) {
	if peers {
		w.situations[sent]++
	} else {
		w.situations[got]++
	}
}

// see handles the next packet of a step.
func (w *watcher) see(p *dissect.Packet) {
	if p.Kind == dissect.Other {
		return
	}
	peers := p.Direction == pcap.In
	if peers {
		w.situations[sentPacket]++
	}
	if p.Kind != dissect.RoCE {
		return
	}
	f := &p.Frame
	if !peers && !p.ICRCOK && !p.FlushQuirk {
		w.bad++
		return // the peer drops it
	}
	if !peers && f.CE() && f.Op != bth.CNP {
		w.marked++
	}
	switch {
	case f.Op == bth.CNP:
		w.note(peers, sentCNP, gotCNP)
	case p.CM != nil || f.Op.Transport() == bth.UD:
		w.datagram(p, peers)
	case f.Info.Flags&bth.Response != 0:
		w.response(p, peers)
	default:
		w.request(p, peers)
	}
	if peers && f.PayloadLen() > 0 {
		w.situations[sentData]++
		if f.Info.Flags&(bth.First|bth.Last) == bth.First {
			w.situations[sentLong]++
		}
	}
}

func (w *watcher) datagram(p *dissect.Packet, peers bool) {
	if !peers {
		if p.CM != nil && p.CM.Attribute() == cm.AttrMRA {
			w.situations[gotMRA]++
		}
		return
	}
	if p.CM == nil {
		w.situations[sentUD]++
		return
	}
	w.situations[sentCM]++
	kind := p.CM.Attribute()
	if s, ok := map[cm.Attribute]situation{cm.AttrREQ: sentREQ, cm.AttrREP: sentREP, cm.AttrDREP: sentDREP, cm.AttrREJ: sentREJ, cm.AttrSIDRREP: sentSIDR}[kind]; ok {
		w.situations[s]++
	}
	w.viaCM = w.viaCM || kind == cm.AttrREP
	k := string(p.Frame.Payload())
	if w.cms[k]++; w.cms[k] > 1 && kind != cm.AttrDREP {
		w.situations[repeatedCM]++
	}
}

func (w *watcher) request(p *dissect.Packet, peers bool) {
	f := &p.Frame
	if f.Op.Transport() == bth.UC {
		if peers {
			w.situations[sentUC]++
		}
		return
	}
	fl := f.Info.Flags
	k := requestKey{!peers, f.DestQPN(), f.PSN()}
	again := w.before[k]
	if len(w.before) < maxWatched {
		w.before[k] = true
	}
	if peers {
		w.situations[sentRequest]++
		if w.viaCM {
			w.situations[knownAgreement]++
		}
		if again {
			w.situations[repeated]++
		}
	}
	for _, c := range []struct {
		flag     bth.OpcodeFlags
		of, once situation // the peer sends a request of this kind; the peer repeats one
		to       situation // the tester repeats one
	}{{bth.Send, sentSend, "", ""}, {bth.Write, sentWrite, "", ""}, {bth.Read, sentRead, sentReadAgain, answeredAgain}, {bth.Atomic, "", "", repliedAtomic}, {bth.AtomicWrite, sentPlacement, "", ""}} {
		if fl&c.flag == 0 {
			continue
		}
		for _, s := range []struct {
			situation
			holds bool
		}{{c.of, peers}, {c.once, peers && again}, {c.to, !peers && again}} {
			if s.situation != "" && s.holds {
				w.situations[s.situation]++
			}
		}
	}
}

func (w *watcher) response(p *dissect.Packet, peers bool) {
	if peers {
		w.situations[sentResponse]++
		switch fl := p.Frame.Info.Flags; {
		case fl&bth.Read != 0:
			w.situations[sentReadOnly]++
		case fl&bth.Atomic != 0:
			w.situations[sentAtomic]++
		}
	}
	if p.Frame.Info.Headers&bth.HasAETH == 0 {
		return
	}
	switch s := p.Frame.Syndrome(); {
	case s.Kind() == bth.KindRNR:
		w.note(peers, sentRNR, gotRNR)
	case s == bth.NAKSequence:
		w.note(peers, sentNAK, gotNAK)
	case s.Kind() == bth.KindNAK:
		w.note(peers, sentFatal, gotFatal)
	case peers:
		w.situations[sentACK]++
	}
}
