package verify

import (
	"fmt"
	"strconv"
	"time"
)

// Frame is the place of a packet: a frame of a file.
type Frame struct {
	File   int `json:"file"`   // index of the file among those of the report
	Number int `json:"number"` // from 1, as Wireshark counts
}

// String returns the number, and before it that of the file, from 1, unless it is the first.
func (f Frame) String() string {
	if f.File == 0 {
		return strconv.Itoa(f.Number)
	}
	return fmt.Sprintf("%d:%d", f.File+1, f.Number)
}

// Finding is a rule that a packet breaks.
type Finding struct {
	Rule      RuleID     `json:"rule"`
	Section   string     `json:"section"` // of the InfiniBand Architecture Specification
	Severity  Severity   `json:"severity"`
	Frames    []Frame    `json:"frames"` // those that show the rule to be broken, the packet's own last
	At        time.Time  `json:"time"`
	Flow      string     `json:"flow"`     // "10.0.0.1 > 10.0.0.2 qp 0x12": the way of the packet
	Sentence  string     `json:"sentence"` // why
	Departure *Departure `json:"departure,omitempty"`

	doubtful bool // a packet that the capture has lost would explain it, too
}

// Failure reports whether the finding is an unexplained one that counts: a warning or an error.
func (f *Finding) Failure() bool { return f.Severity > Note && f.Departure == nil }

// Limit is something a capture cannot tell.
type Limit struct {
	Kind     LimitKind `json:"kind"`
	Rule     RuleID    `json:"rule,omitempty"` // that may be broken, if the kind is [LimitUnseen]
	Flow     string    `json:"flow,omitempty"`
	First    Frame     `json:"first"` // where it begins
	Count    int       `json:"count"`
	Sentence string    `json:"sentence"`
}

// LimitKind names a kind of [Limit].
type LimitKind string

// The kinds of limits.
const (
	LimitBeginning LimitKind = "beginning" // the capture begins in the middle of a connection
	LimitOneWay    LimitKind = "one-way"   // one direction of a connection is missing
	LimitGap       LimitKind = "gap"       // PSNs are missing: lost before the capture, or by it
	LimitCut       LimitKind = "cut"       // packets are cut short: their ICRC and payload are not known
	LimitReuse     LimitKind = "reuse"     // PSNs jump: a connection begins anew
	LimitWhere     LimitKind = "where"     // on which host it was captured
	LimitMany      LimitKind = "many"      // more connections than are followed
	LimitOwn       LimitKind = "own"       // opcodes of this stack, which no standard has rules for
	LimitUnseen    LimitKind = "unseen"    // an end breaks a rule, or the capture has lost a packet
	LimitCopy      LimitKind = "copy"      // a packet was sent twice, or the network has doubled it
	LimitTime      LimitKind = "time"      // packets have no time
	LimitCounter   LimitKind = "counter"   // a counter: where the capture was made, what it counts is not seen
	LimitDropped   LimitKind = "dropped"   // the capture has lost packets
)

var limitSentences = map[LimitKind]string{
	LimitBeginning: "The capture begins in the middle of the connection; counts and values before it are not known.",
	LimitOneWay:    "Only one direction is in the capture; what needs the other was not judged.",
	LimitGap:       "Packets are missing, lost before the place of the capture or by the capture; what they were is not known.",
	LimitCut:       "Packets were cut short by the capture; their ICRC and payload were not judged.",
	LimitReuse:     "The PSNs jump: another connection has the number of the queue pair.",
	LimitWhere:     "It is not said on which host the files were captured; rules that need it were not applied (Config.At and Directions, --at).",
	LimitMany:      "More connections are in the capture than are followed; the packets of the others were judged one by one only.",
	LimitUnseen:    "A packet breaks the rule, or the capture has lost one that explains it (Config.Complete, --complete: it has not).",
	LimitCopy:      "A packet without an identification comes twice; it was sent twice, which breaks the rule, or the network has doubled it.",
	LimitTime:      "Packets have no time, as those of simple packet blocks; what needs it was not judged.",
	LimitCounter:   "What the counter counts cannot be seen at the place of the capture (Config.At and Complete, --at and --complete).",
	LimitDropped:   "The capture has lost packets: the file says so, or both ends know of one that is not in it. Rules that need every packet were not applied.",
	LimitOwn:       "Opcodes of this stack's own transport (docs/dc.md) were judged one by one only.",
}

// notComplete says why rules that need a complete capture were not applied.
const notComplete = "It is not known that the capture has every packet (Config.Complete, --complete)."

// Causes counts why requests were repeated.
type Causes struct {
	NAK      int `json:"nak,omitempty"`      // gone back to the PSN of a NAK
	GoBack   int `json:"goback,omitempty"`   // behind one that was repeated
	Timeout  int `json:"timeout,omitempty"`  // by itself, after the ACK timeout, or where that is not known
	Early    int `json:"early,omitempty"`    // by itself, before the ACK timeout: probes
	RNR      int `json:"rnr,omitempty"`      // after an RNR NAK
	Implied  int `json:"implied,omitempty"`  // a response beyond a missing one had come
	Needless int `json:"needless,omitempty"` // acknowledged already
	Copies   int `json:"copies,omitempty"`   // by the network: the same IPv4 identification
}

// total counts all repetitions.
func (c *Causes) total() int {
	return c.NAK + c.GoBack + c.Timeout + c.Early + c.RNR + c.Implied + c.Needless
}

// Half is one direction of a connection: a requester and the responder at the other end.
type Half struct {
	Requester string `json:"requester"`
	Responder string `json:"responder"` // with its queue pair
	Transport string `json:"transport"`
	MTU       int    `json:"mtu,omitempty"`

	Requests int    `json:"requests"` // packets, repeated ones not counted
	Messages int    `json:"messages"`
	Repeated Causes `json:"repeated"`
	Missing  int    `json:"missing,omitempty"` // PSNs that never came

	Responses int `json:"responses"`
	NAKs      int `json:"naks,omitempty"`
	RNRs      int `json:"rnrs,omitempty"`
	Fatal     int `json:"fatal,omitempty"` // NAKs that end a connection
}

// Report is the result for one or several captures.
type Report struct {
	Files   []string `json:"files"`
	Packets int      `json:"packets"` // of RoCE
	Other   int      `json:"other"`
	Doubles int      `json:"doubles,omitempty"` // packets that were captured at two places

	Findings []Finding    `json:"findings"`       // in the order of the capture; departures among them
	More     int          `json:"more,omitempty"` // findings of a rule beyond the first many, which are not listed
	Limits   []Limit      `json:"limits,omitempty"`
	Halves   []*Half      `json:"connections"`
	Times    []Latency    `json:"times,omitempty"`
	CNPs     []CNPSpacing `json:"cnps,omitempty"`

	strict  bool
	skipped map[RuleID]bool
	placed  bool // of a packet it is known whether it was captured as it was sent or as it arrived
	nowhere bool // of none
	partial bool // packets are missing in the capture, or may be
}

// Worst returns the worst severity of the findings that are not explained. ok is false if there are none.
func (r *Report) Worst() (worst Severity, ok bool) {
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Departure != nil && !r.strict {
			continue
		}
		worst, ok = max(worst, f.Severity), true
	}
	return worst, ok
}

// maxFindings bounds the findings of a rule, and as many again of its departures, that a report lists.
const maxFindings = 1000
