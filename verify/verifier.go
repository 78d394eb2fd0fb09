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

// Config changes how captures are judged. The zero value suits most captures.
type Config struct {
	Rules  []RuleID // apply these rules only; nil: all rules
	Ignore []RuleID // do not apply these rules

	// Strict counts known departures and extensions like other findings.
	Strict bool

	// At has the addresses of the host on which the capture was made. A packet from one of them was captured as it was sent, and a
	// packet to one of them was captured as it arrived. No packet may get lost between the host and the place of the capture. At
	// implies Complete, unless Dropped is set.
	At []netip.Addr

	// Directions does the same as At for all packets whose direction is in the files. Files in pcapng and captures of the Linux
	// interface "any" have directions.
	Directions bool

	// Complete says that the capture has every packet that passed its place. Without it, a finding that a missing packet would
	// explain becomes a [Limit]. If the files show that a packet is missing, Complete has no effect.
	Complete bool

	// Dropped says that the capture has lost packets. Set it if tcpdump printed "packets dropped by kernel".
	Dropped bool

	// CNPInterval is the least time between two CNPs of one CNPScope; 0: any time is permitted. An empty CNPScope is ByQueuePair.
	CNPInterval time.Duration
	CNPScope    Scope

	// Counters are compared with the events that the capture shows. They have to agree exactly if the capture is complete and was made
	// on the host that counted. Otherwise a host must have sent at least what the capture shows.
	Counters []HostCounters

	// Found is called with each finding at once. The finding is valid until Found returns. If a later packet shows that the capture is
	// not complete, the report may lack findings with which Found was called.
	Found func(*Finding)

	// Slack is how much longer than usual a host may take until it acts on a packet. It includes the time from the place of the capture
	// to the host. In that time a requester may do what a packet that is already captured forbids.
	Slack time.Duration

	// Timed is called with each time that is measured, and the address of the requester of the connection. The report has only the
	// distributions of these times.
	Timed func(requester netip.Addr, kind LatencyKind, d time.Duration)

	// Live says that the packets are captured as they pass a link.Port, so that no packet can be missing.
	Live bool
}

// Verifier judges packets. Only one goroutine at a time may call its methods, and the times of packets must not decrease.
type Verifier struct {
	cfg    Config
	skip   map[RuleID]bool
	report Report
	count  map[RuleID]int // findings without a departure
	known  map[string]int // findings by the ID of their departure

	flows     map[flowKey]*flow
	byQPN     map[bth.QPN][]*flow
	order     []*half
	kept      fifo.Queue[*half]    // for each request that is kept: its half
	unpaired  map[psnBlock][]*half // those without responses
	announced int                  // entries of unpaired
	limits    map[limitKey]int     // index in report.Limits
	limited   map[LimitKind]int    // how many elements of report.Limits have this kind
	doubles   doubles
	cm        managers
	words     words
	cnps      cnps
	times     latencies

	tallies map[bth.GID]*hostTally // of hosts whose counters are known
	hosts   []*hostTally

	complete bool // no packet is missing in the capture, as far as is known
	doubted  bool // a packet or the file has shown that the capture is not complete

	parsed dissect.Packet
	now    *packet // being judged
}

// ErrContradiction says that a configuration has both Complete and Dropped.
var ErrContradiction = errors.New("verify: a capture cannot be complete and have dropped packets")

// New returns a Verifier. The error is an [UnknownRuleError] or [ErrContradiction].
func New(cfg Config) (*Verifier, error) {
	v := &Verifier{cfg: cfg, skip: map[RuleID]bool{}, count: map[RuleID]int{}, known: map[string]int{},
		flows: map[flowKey]*flow{}, byQPN: map[bth.QPN][]*flow{}, limits: map[limitKey]int{}, limited: map[LimitKind]int{}, unpaired: map[psnBlock][]*half{},
		cm:    managers{exchanges: map[commKey]*exchange{}, sidr: map[sidrKey]*query{}, last: map[sidrKey]uint64{}},
		words: words{map[word]*wordState{}, map[memory]int{}}, times: latencies{}}
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
	v.cnps.init()
	v.initCounters()
	return v, nil
}

// packet is a packet with its frame number and the place where it was captured.
type packet struct {
	*dissect.Packet
	frame Frame
	// out says that it was captured at its sender: a packet that is missing before it was not sent. in says that it was captured at
	// its receiver. Both are false if neither is known.
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
		v.mark(p) // a switch may have marked it between the two places
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

// way describes the source and the destination of a packet.
func way(p *packet) string {
	f := &p.Frame
	if f.Info == nil || len(f.Data) == 0 {
		return "a packet"
	}
	return fmt.Sprintf("%s > %s qp %v", f.Src.Addr(), f.Dst.Addr(), f.DestQPN())
}

// find records that the packet being judged breaks a rule. others are earlier frames that are needed to see this.
func (v *Verifier) find(id RuleID, others []Frame, format string, args ...any) {
	v.explain(id, nil, others, format, args...)
}

// explain is like find, but a known departure d explains the finding. If d is nil, none does.
func (v *Verifier) explain(id RuleID, d *Departure, others []Frame, format string, args ...any) {
	v.record(id, d, false, others, format, args...)
}

// suspect is like explain, but a packet that is missing in the capture would explain the finding, too. If the capture may be
// incomplete, suspect records a limit instead. A finding that a known departure explains is recorded in any case, unless Strict is set.
func (v *Verifier) suspect(id RuleID, d *Departure, others []Frame, format string, args ...any) {
	if v.complete || d != nil && !v.cfg.Strict {
		v.record(id, d, true, others, format, args...)
		return
	}
	v.cannotTell(id)
}

// cannotTell records a limit: either the packet being judged breaks a rule, or another packet is missing in the capture.
func (v *Verifier) cannotTell(id RuleID) {
	if !v.skip[id] {
		v.limitOf(LimitUnseen, id, "", v.now)
	}
}

// incomplete notes that, as the packet being judged shows, another packet is missing in the capture. In the end withdraw removes the
// findings that a missing packet would explain.
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

// withdraw removes the findings that a missing packet would explain, if packets turned out to be missing in the capture.
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

// record adds a finding to the report. doubtful says that a packet that is missing in the capture would explain it.
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

// maxLimits is how many limits of one kind name their flow.
const maxLimits = 100

type limitKey struct {
	kind LimitKind
	rule RuleID
	flow string
}

// limit records a limit of the capture.
func (v *Verifier) limit(kind LimitKind, flow string, p *packet) { v.limitOf(kind, "", flow, p) }

// limitOf is like limit, for a limit that concerns one rule.
func (v *Verifier) limitOf(kind LimitKind, rule RuleID, flow string, p *packet) {
	k := limitKey{kind, rule, flow}
	if _, ok := v.limits[k]; !ok && v.limited[kind] >= maxLimits {
		k.flow = "" // one limit for all other flows
	}
	if i, ok := v.limits[k]; ok {
		v.report.Limits[i].Count++
		return
	}
	v.limited[kind]++
	v.limits[k] = len(v.report.Limits)
	v.report.Limits = append(v.report.Limits, Limit{Kind: kind, Rule: rule, Flow: k.flow, First: p.frame, Count: 1, Sentence: limitSentences[kind]})
}

// follow judges a well-formed packet by the packets before it.
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
