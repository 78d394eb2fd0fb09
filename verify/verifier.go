package verify

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/fifo"
	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/link/pcap"
)

// Config changes how captures are judged. The zero value is a good one.
type Config struct {
	Rules  []RuleID // judge by these only; nil: by all
	Ignore []RuleID // but not by these

	// Strict counts known departures and extensions like other findings.
	Strict bool

	// At are addresses of the host that the capture was made on: what has one of them as its source
	// was captured as it was sent, and what has one of them as its destination as it arrived. Nothing may get lost between the
	// host and the place of the capture. It implies Complete, unless Dropped is set.
	At []netip.Addr

	// Directions says the same of all packets whose direction is in the files: that of pcapng, and of
	// captures of "any" on Linux.
	Directions bool

	// Complete says that the capture has every packet that passed its place. Rules that need this are applied then; without it,
	// what they would find is a [Limit]. If the files show that a packet is missing, they are not complete, whatever is said here.
	Complete bool

	// Dropped says that the capture has lost packets, as tcpdump does that prints "packets dropped by kernel".
	Dropped bool

	// CNPInterval is the least time between two CNPs of one CNPScope; 0: there is none.
	CNPInterval time.Duration
	CNPScope    Scope

	// Counters are compared with what the capture shows: exactly where it was made on the host that counted and is complete. Elsewhere a
	// host has sent at least what was seen.
	Counters []HostCounters

	// Found is called with each finding at once. The finding is valid until it returns. If the capture turns out to be incomplete,
	// a finding of a rule that needs a complete one may be missing in the report.
	Found func(*Finding)

	// Slack is how much longer than usual a host takes to act on what arrives, or to be reached from the place of the capture: a requester
	// that has sent on meanwhile does so by no fault of its own.
	Slack time.Duration

	// Timed is called with each time that is measured, and the address of the requester of the
	// connection, for those who want more than the distributions of a report.
	Timed func(requester netip.Addr, kind LatencyKind, d time.Duration)

	// Live says that the packets come from a link.Port, as they pass it: none can be missing.
	Live bool
}

// Verifier judges packets. Its methods are called by one goroutine at a time, and time does not go back.
type Verifier struct {
	cfg    Config
	skip   map[RuleID]bool
	report Report
	count  map[RuleID]int // findings without and
	known  map[string]int // with a departure

	flows     map[flowKey]*flow
	byQPN     map[bth.QPN][]*flow
	order     []*half
	kept      fifo.Queue[*half]    // a half for each request that it got
	unpaired  map[psnBlock][]*half // those without responses
	announced int                  // entries of unpaired
	limits    map[limitKey]int     // index in report.Limits
	limited   map[LimitKind]int
	doubles   doubles
	cm        managers
	words     words
	cnps      cnps
	times     latencies

	tallies map[bth.GID]*hostTally // of hosts whose counters are known
	hosts   []*hostTally

	complete bool // nothing is missing in the capture, as far as is known
	doubted  bool // it was taken to be complete at first, or the file says that it is not

	parsed dissect.Packet
	now    *packet // being judged
}

// ErrContradiction says that a configuration has both Complete and Dropped.
var ErrContradiction = errors.New("verify: a capture cannot be complete and have dropped packets")

// New returns a Verifier. The error is an [UnknownRuleError] or [ErrContradiction].
func New(cfg Config) (*Verifier, error) {
	v := &Verifier{cfg: cfg, skip: map[RuleID]bool{}, count: map[RuleID]int{}, known: map[string]int{},
		flows: map[flowKey]*flow{}, byQPN: map[bth.QPN][]*flow{}, limits: map[limitKey]int{}, limited: map[LimitKind]int{}, unpaired: map[psnBlock][]*half{}}
	for _, id := range slices.Concat(cfg.Rules, cfg.Ignore) {
		if byID[id] == nil {
			return nil, &UnknownRuleError{id}
		}
	}
	if cfg.Complete && cfg.Dropped {
		return nil, ErrContradiction
	}
	v.complete = cfg.Complete || (len(cfg.At) > 0 || cfg.Directions) && !cfg.Dropped
	if cfg.Rules != nil {
		for _, r := range rules {
			v.skip[r.ID] = !slices.Contains(cfg.Rules, r.ID)
		}
	}
	for _, id := range cfg.Ignore {
		v.skip[id] = true
	}
	v.report.Findings, v.report.Halves = []Finding{}, []*Half{} // lists in JSON, too
	v.report.strict, v.report.skipped = cfg.Strict, v.skip
	v.cm.init()
	v.words.init()
	v.cnps.init()
	v.initCounters()
	return v, nil
}

// packet is a packet with what the judges need to know of it.
type packet struct {
	*dissect.Packet
	frame Frame
	// out: captured as it was sent, so that what is missing before it was not sent. in: captured
	// where it arrived. Both are false if the capture does not say.
	out, in bool
}

// Add judges the next packet of a file.
func (v *Verifier) Add(file int, rec *pcap.Record) {
	v.parsed.ParseRecord(rec)
	v.add(file, &v.parsed)
}

func (v *Verifier) add(file int, d *dissect.Packet) {
	p := &packet{Packet: d, frame: Frame{file, d.Num}}
	if d.Kind == dissect.Other {
		v.report.Other++
		return
	}
	v.report.Packets++
	v.now = p
	if d.Kind != dissect.Truncated && d.Kind != dissect.Malformed && v.doubles.seen(p) {
		v.report.Doubles++
		v.mark(p) // on the way to this place, perhaps
		return
	}
	p.out = v.cfg.Directions && d.Direction == pcap.Out || slices.Contains(v.cfg.At, d.Frame.Src.Addr())
	if p.in = !p.out && (v.cfg.Directions && d.Direction == pcap.In || slices.Contains(v.cfg.At, d.Frame.Dst.Addr())); !p.out && !p.in {
		v.limit(LimitWhere, "", p)
	} else {
		v.report.placed = true
	}
	if d.Kind == dissect.RoCE {
		v.locate(p)
	}
	switch {
	case d.Kind == dissect.Truncated:
		v.limit(LimitCut, "", p)
	case d.Kind == dissect.Malformed:
		v.malformed(p)
	default:
		if d.Cut {
			v.limit(LimitCut, "", p)
		}
		if v.headers(p) {
			v.follow(p)
		}
	}
}

// Done ends the captures and returns the report.
func (v *Verifier) Done() *Report {
	v.finish()
	v.withdraw()
	v.compare()
	v.report.nowhere, v.report.partial = !v.report.placed, !v.complete
	return &v.report
}

// way describes where a packet goes.
func way(p *packet) string {
	f := &p.Frame
	if f.Info == nil || len(f.Data) == 0 {
		return "a packet"
	}
	return fmt.Sprintf("%s > %s qp %v", f.Src.Addr(), f.Dst.Addr(), f.DestQPN())
}

// find records that the packet being judged breaks a rule. Frames before it that show this come as others.
func (v *Verifier) find(id RuleID, others []Frame, format string, args ...any) {
	v.explain(id, nil, others, format, args...)
}

// explain is find for what a known departure explains; it is nil if none does.
func (v *Verifier) explain(id RuleID, d *Departure, others []Frame, format string, args ...any) {
	v.record(id, d, false, others, format, args...)
}

// suspect is explain for what a packet that the capture has lost would explain, too: it is a finding if the capture is
// complete. A known departure explains it in any case.
func (v *Verifier) suspect(id RuleID, d *Departure, others []Frame, format string, args ...any) {
	if v.complete || d != nil && !v.cfg.Strict {
		v.record(id, d, true, others, format, args...)
		return
	}
	v.cannotTell(id)
}

// cannotTell records that a packet breaks a rule, or the capture has lost another one.
func (v *Verifier) cannotTell(id RuleID) {
	if !v.skip[id] {
		v.limitOf(LimitUnseen, id, "", v.now)
	}
}

// incomplete notes that the packet being judged shows that another is missing in the capture. What was found because
// nothing is missing is withdrawn in the end.
func (v *Verifier) incomplete() {
	if v.complete && !v.cfg.Live {
		v.complete, v.doubted = false, true
		v.limit(LimitDropped, "", v.now)
	}
}

// dropped notes that a file says that the capture has lost packets.
func (v *Verifier) dropped(file int, n uint64) {
	if v.cfg.Live {
		return
	}
	v.complete, v.doubted = false, true
	v.limit(LimitDropped, "", &packet{frame: Frame{file, 0}})
	v.report.Limits[v.limits[limitKey{kind: LimitDropped}]].Count += int(min(n, math.MaxInt32)) - 1
}

// withdraw removes what was found because nothing was missing in the capture, if something is.
func (v *Verifier) withdraw() {
	if !v.doubted {
		return
	}
	v.report.Findings = slices.DeleteFunc(v.report.Findings, func(f Finding) bool {
		if !f.doubtful || f.Departure != nil && !v.cfg.Strict {
			return false
		}
		v.limitOf(LimitUnseen, f.Rule, "", &packet{frame: f.Frames[len(f.Frames)-1]})
		return true
	})
}

// record makes a finding. It is doubtful if a packet that the capture has lost would explain it.
func (v *Verifier) record(id RuleID, d *Departure, doubtful bool, others []Frame, format string, args ...any) {
	if v.skip[id] {
		return
	}
	if byID[id].Needs&Clock != 0 && v.now.Time.IsZero() {
		v.limit(LimitTime, "", v.now)
		return
	}
	others = slices.DeleteFunc(slices.Clone(others), func(o Frame) bool { return o == v.now.frame || o.Number == 0 })
	f := Finding{Rule: id, Section: byID[id].Section, Severity: byID[id].Severity, At: v.now.Time, Flow: way(v.now),
		Sentence: fmt.Sprintf(format, args...), Departure: d, Frames: append(others, v.now.frame), doubtful: doubtful}
	if v.cfg.Found != nil {
		v.cfg.Found(&f)
	}
	n := v.count[id] + 1
	if d != nil {
		n = v.known[d.ID] + 1
		v.known[d.ID] = n
	} else {
		v.count[id] = n
	}
	if n > maxFindings {
		v.report.More++
		return
	}
	v.report.Findings = append(v.report.Findings, f)
}

// maxLimits is how many flows with a limit of a kind are named.
const maxLimits = 100

type limitKey struct {
	kind LimitKind
	rule RuleID
	flow string
}

// limit records that the capture cannot tell something.
func (v *Verifier) limit(kind LimitKind, flow string, p *packet) { v.limitOf(kind, "", flow, p) }

// limitOf is limit for what concerns one rule.
func (v *Verifier) limitOf(kind LimitKind, rule RuleID, flow string, p *packet) {
	k := limitKey{kind, rule, flow}
	if _, ok := v.limits[k]; !ok && v.limited[kind] >= maxLimits {
		k.flow = "" // of all others
	}
	if i, ok := v.limits[k]; ok {
		v.report.Limits[i].Count++
		return
	}
	v.limited[kind]++
	v.limits[k] = len(v.report.Limits)
	v.report.Limits = append(v.report.Limits, Limit{Kind: kind, Rule: rule, Flow: k.flow, First: p.frame, Count: 1, Sentence: limitSentences[kind]})
}

// follow hands a well-formed packet to what judges it among others.
func (v *Verifier) follow(p *packet) {
	f := &p.Frame
	if f.CE() {
		v.happened(f.Dst, marked)
	}
	switch {
	case f.Op == bth.CNP:
		v.notification(p)
	case f.Op.Transport() == bth.UD:
		v.managementPacket(p)
		v.mark(p)
	case f.Op.Transport() == bth.DC:
		v.limit(LimitOwn, "", p)
	default:
		v.mark(p)
		v.connected(p)
	}
}

// ipID returns the IPv4 identification of a packet, 0 if it has none.
func ipID(p *packet) uint16 {
	if ip := p.Frame.IP; len(ip) == 20 {
		return uint16(ip[4])<<8 | uint16(ip[5])
	}
	return 0
}
