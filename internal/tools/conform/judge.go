package conform

import (
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/roce/internal/tools/capcheck"
	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/internal/tools/ladder"
	"github.com/goroce/roce/link/pcap"
	"github.com/goroce/roce/verify"
)

// Finding is a rule that a packet of the peer breaks.
type Finding struct {
	Rule      verify.RuleID   `json:"rule"`
	Section   string          `json:"section"` // of the InfiniBand Architecture Specification
	Severity  verify.Severity `json:"severity"`
	Frames    []int           `json:"frames"` // numbers in the step's capture
	Sentence  string          `json:"sentence"`
	Departure string          `json:"departure,omitempty"` // the known departure that explains it
	Ladder    string          `json:"ladder,omitempty"`    // only of the first finding of its rule in the step
}

// failure reports whether the finding counts against the peer.
func (f *Finding) failure() bool { return f.Severity > verify.Note && f.Departure == "" }

// judged is the result of the packets of a step.
type judged struct {
	packets  int
	findings []Finding // about the peer
	known    []*verify.Departure
	times    []Sample
	watcher
	from    netip.Addr    // source address of the peer's packets
	repeats verify.Causes // why the peer repeated requests
	again   int           // how many requests the peer repeated
}

// Sample is a time of the peer.
type Sample struct {
	Kind verify.LatencyKind
	Time time.Duration
}

// byRequester has the kinds of times that depend on the requester. The others depend on the responder.
var byRequester = map[verify.LatencyKind]bool{verify.NAKReaction: true, verify.Retransmission: true, verify.RNRWait: true}

// view has the conditions under which the packets of a step are judged.
type view struct {
	conns       []verify.Connection // connections that were made out of band
	lossy       bool                // the network loses packets between the tap and the peer
	udp         bool                // the driver hides the headers of packets
	strict      bool
	over        bool // the recorder has not kept all packets
	slack       time.Duration
	cnpInterval time.Duration
	cnpScope    verify.Scope
}

// headerRules are rules about headers that a driver with UDP sockets does not show.
var headerRules = []verify.RuleID{"ip-header", "ip-fragment", "ip-checksum", "ip-df", "udp-length", "udp-checksum"}

// judge judges the packets of a step.
func judge(records []pcap.Record, v view) (*judged, error) {
	j := &judged{watcher: watcher{situations: situations{}, cms: map[string]int{}, before: map[requestKey]bool{}}}
	for p := range fromPeer(records) {
		j.from = p.Frame.Src.Addr()
		break
	}
	cfg := verify.Config{Live: !v.over, Complete: !v.over && !v.lossy, Slack: v.slack, CNPInterval: v.cnpInterval, CNPScope: v.cnpScope}
	if v.udp {
		cfg.Ignore = headerRules
	}
	if j.from.IsValid() && !v.lossy {
		cfg.At = []netip.Addr{j.from}
	}
	var drawn []verify.RuleID
	cfg.Found = func(f *verify.Finding) {
		at := f.Frames[len(f.Frames)-1].Number
		if at < 1 || at > len(records) || records[at-1].Direction != pcap.In {
			return // it is about a packet of the tester
		}
		g := Finding{Rule: f.Rule, Section: f.Section, Severity: f.Severity, Sentence: f.Sentence}
		for _, n := range f.Frames {
			g.Frames = append(g.Frames, n.Number)
		}
		if f.Departure != nil && !v.strict {
			g.Departure = f.Departure.ID
			if !slices.Contains(j.known, f.Departure) {
				j.known = append(j.known, f.Departure)
			}
		}
		if g.failure() && !slices.Contains(drawn, f.Rule) {
			drawn = append(drawn, f.Rule)
			g.Ladder = draw(records, g.Frames, drawBefore)
		}
		if len(j.findings) < maxFindings {
			j.findings = append(j.findings, g)
		}
	}
	cfg.Timed = func(requester netip.Addr, kind verify.LatencyKind, d time.Duration) {
		if (requester == j.from) == byRequester[kind] && len(j.times) < maxSamples {
			j.times = append(j.times, Sample{kind, d})
		}
	}
	verifier, err := verify.New(cfg)
	if err != nil {
		return nil, err
	}
	for _, c := range v.conns {
		verifier.Connected(c)
		j.situations[knownTerms]++
	}
	var p dissect.Packet
	for i := range records {
		verifier.Add(0, &records[i])
		p.ParseRecord(&records[i])
		j.see(&p)
	}
	report := verifier.Done()
	j.packets = report.Packets
	for _, h := range report.Halves {
		if h.Requester == j.from.String() {
			j.repeats.NAK += h.Repeated.NAK
			j.repeats.Timeout += h.Repeated.Timeout
			j.repeats.Early += h.Repeated.Early
			j.repeats.Implied += h.Repeated.Implied
			j.repeats.RNR += h.Repeated.RNR
			j.again += h.Repeated.NAK + h.Repeated.GoBack + h.Repeated.Timeout + h.Repeated.Early + h.Repeated.RNR + h.Repeated.Implied + h.Repeated.Needless
		}
	}
	if j.viaCM {
		j.situations[knownTerms]++
	}
	if !v.udp {
		j.situations[seenHeaders]++
	}
	if !v.lossy {
		j.situations[knownPlace]++
	}
	if v.cnpInterval > 0 {
		j.situations[intervalGiven]++
	}
	return j, nil
}

// Bounds of the findings and times of a step.
const (
	maxFindings = 500
	maxSamples  = 1 << 14
)

// fromPeer returns an iterator over the RoCE packets of the peer. A packet is valid until the next one.
func fromPeer(records []pcap.Record) iter.Seq[*dissect.Packet] {
	return func(yield func(*dissect.Packet) bool) {
		var p dissect.Packet
		for i := range records {
			p.ParseRecord(&records[i])
			if p.Kind == dissect.RoCE && p.Direction == pcap.In && !yield(&p) {
				return
			}
		}
	}
}

// The length of a ladder, in packets.
const (
	drawBefore = 4  // before the first frame of a finding
	drawAfter  = 3  // after the last frame of a finding
	drawEnd    = 16 // before the end of a step that failed
	drawMost   = 40
)

// draw returns the ladder of the packets around some frames: it begins this number of packets before the first of them.
func draw(records []pcap.Record, frames []int, before int) string {
	if len(records) == 0 {
		return ""
	}
	first, last := max(slices.Min(frames)-before, 1), min(slices.Max(frames)+drawAfter, len(records))
	sel := &dissect.Selection{From: max(first, last-drawMost), To: last}
	d := capcheck.NewDrawing(sel)
	var p dissect.Packet
	for i := range records[:last] {
		p.ParseRecord(&records[i])
		p.At = records[i].Time.Sub(records[0].Time)
		n := len(d.Steps)
		d.Add(&p)
		if len(d.Steps) > n && slices.Contains(frames, i+1) {
			s := &d.Steps[n]
			s.Note = strings.TrimSuffix("frame "+strconv.Itoa(i+1)+", "+s.Note, ", ")
		}
	}
	var b strings.Builder
	ladder.Draw(&b, d.Steps)
	return b.String()
}
