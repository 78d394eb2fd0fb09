package verify

import (
	"fmt"
	"strconv"
	"time"
)

// Frame names a packet by its number in a file.
type Frame struct {
	File   int `json:"file"`   // index of the file among those of the report
	Number int `json:"number"` // from 1, as Wireshark counts
}

// String returns the number of the frame. If the file is not the first, the number of the file (from 1) and a colon precede it.
func (f Frame) String() string {
	if f.File == 0 {
		return strconv.Itoa(f.Number)
	}
	return fmt.Sprintf("%d:%d", f.File+1, f.Number)
}

// Finding says that a packet breaks a rule.
type Finding struct {
	Rule      RuleID     `json:"rule"`
	Section   string     `json:"section"` // of the InfiniBand Architecture Specification
	Severity  Severity   `json:"severity"`
	Frames    []Frame    `json:"frames"` // the frames that show that the rule is broken; the last one is that of the packet
	At        time.Time  `json:"time"`
	Flow      string     `json:"flow"`     // source, destination and queue pair: "10.0.0.1 > 10.0.0.2 qp 0x12"
	Sentence  string     `json:"sentence"` // why
	Departure *Departure `json:"departure,omitempty"`

	doubtful bool // a packet that is missing in the capture would also explain it
}

// Failure reports whether the finding is a warning or an error that no departure explains.
func (f *Finding) Failure() bool { return f.Severity > Note && f.Departure == nil }

// Limit is a question that a capture cannot answer.
type Limit struct {
	Kind     LimitKind `json:"kind"`
	Rule     RuleID    `json:"rule,omitempty"` // the rule that could not be judged; empty: the limit is not about one rule
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
	LimitGap       LimitKind = "gap"       // PSNs are missing: the network lost the packets before the place of the capture, or the capture did
	LimitCut       LimitKind = "cut"       // packets are cut short: their ICRC and payload are not known
	LimitReuse     LimitKind = "reuse"     // PSNs jump: a connection begins anew
	LimitWhere     LimitKind = "where"     // it is not known on which host the capture was made
	LimitMany      LimitKind = "many"      // there are more connections than the Verifier follows
	LimitOwn       LimitKind = "own"       // opcodes of this stack, for which no standard has rules
	LimitUnseen    LimitKind = "unseen"    // an end breaks a rule, or the capture has lost a packet
	LimitCopy      LimitKind = "copy"      // a packet was sent twice, or the network has duplicated it
	LimitTime      LimitKind = "time"      // packets have no time
	LimitCounter   LimitKind = "counter"   // the events that a counter counts cannot be seen at the place of the capture
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
	NAK      int `json:"nak,omitempty"`      // the requester went back to the PSN of a NAK
	GoBack   int `json:"goback,omitempty"`   // the requester had repeated the request before it
	Timeout  int `json:"timeout,omitempty"`  // the ACK timeout had passed, or is not known
	Early    int `json:"early,omitempty"`    // the requester sent it again before the ACK timeout: a probe
	RNR      int `json:"rnr,omitempty"`      // an RNR NAK asked for it
	Implied  int `json:"implied,omitempty"`  // a response to a later request had come, but not its own
	Needless int `json:"needless,omitempty"` // it was acknowledged already
	Copies   int `json:"copies,omitempty"`   // the network duplicated the packet: the IPv4 identification is the same
}

// total counts all repetitions by the requester.
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
	Doubles int      `json:"doubles,omitempty"` // packets that were captured at another place before

	Findings []Finding    `json:"findings"`       // in the order of the capture; departures among them
	More     int          `json:"more,omitempty"` // findings that are not listed, because their rule has too many
	Limits   []Limit      `json:"limits,omitempty"`
	Halves   []*Half      `json:"connections"`
	Times    []Latency    `json:"times,omitempty"`
	CNPs     []CNPSpacing `json:"cnps,omitempty"`

	strict  bool
	skipped map[RuleID]bool
	placed  bool // at least one packet is known to be captured as it was sent, or as it arrived
	nowhere bool // no packet is
	partial bool // packets are missing in the capture, or may be missing
}

// Worst returns the worst severity of the findings without a departure, with [Config.Strict] of all findings. ok is false if there are none.
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

// maxFindings is how many findings of a rule, and how many of each departure, a report lists.
const maxFindings = 1000
