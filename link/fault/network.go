package fault

import (
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// Engine is an unreliable network without a Port, for a program that forwards packets between two
// other hosts. It does no I/O and reads no clock: Handle takes a frame and a time, Next returns the
// frames that are due, and NextTimeout returns when the caller should call Next again. The caller's
// times must never go back.
//
// Only one goroutine at a time may use it.
type Engine struct {
	engine
	frame link.Frame // the argument of Handle
	given *held      // returned by the last Next
}

// Released is a frame that was held back, or a copy of one.
type Released struct {
	Data []byte // valid until the next call of Handle or Next
	Tag  uint64 // the tag that Handle got with the original frame
}

// RuleCounter says how often a rule matched and fired.
type RuleCounter struct {
	Matched uint64 // packets with all properties that the rule names
	Fired   uint64 // of these, chosen by Nth, Every, Count and Probability
}

// NewEngine makes a network of whole Ethernet frames. The After and Until of rules count from now.
func NewEngine(c Config, now mono.Time) (*Engine, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	e := new(Engine)
	e.init(c, frame.LayoutEthernet, now)
	return e, nil
}

// Handle chooses the faults of a frame in a direction, and changes the frame in place. The frame
// has a complete UDP checksum. If the verdict has Pass, the caller sends the frame now. Handle
// copies a frame that it holds back: the caller may reuse the buffer at once. After each Handle the
// caller calls Next.
func (e *Engine) Handle(now mono.Time, dir Direction, data []byte, tag uint64) Verdict {
	s := e.side(dir)
	e.frame = link.Frame{Data: data}
	e.at = locate(e.layout, &e.frame)
	v := e.decide(s, now, &e.frame)
	for _, h := range v.copied {
		h.tag = tag
	}
	if v.Pass {
		s.hold.passed++
	}
	return v
}

// Next returns a frame of a direction whose time has come; ok is false if there is none.
func (e *Engine) Next(now mono.Time, dir Direction) (r Released, ok bool) {
	s := e.side(dir)
	if e.given != nil {
		s.hold.recycle(e.given)
	}
	if e.given = s.hold.next(now); e.given == nil {
		return Released{}, false
	}
	s.hold.passed++
	return Released{e.given.data, e.given.tag}, true
}

// NextTimeout returns when Next will return a frame, if none passes before.
func (e *Engine) NextTimeout() mono.Time { return min(e.tx.hold.due(), e.rx.hold.due()) }

// Counters returns the counters of each direction.
func (e *Engine) Counters() (tx, rx Counters) { return e.tx.snapshot(), e.rx.snapshot() }

// RuleCounters returns the counters of all rules, in the order of
// Config.Rules.
func (e *Engine) RuleCounters() []RuleCounter {
	c := make([]RuleCounter, len(e.rules))
	for i, r := range e.rules {
		c[i] = RuleCounter{uint64(r.matched), uint64(r.fired)}
	}
	return c
}

// Connections returns how many connections the engine has seen; 0 unless a rule or Config.Track
// needs them.
func (e *Engine) Connections() int {
	if e.conns == nil {
		return 0
	}
	return e.conns.Len()
}

// Forgotten counts connections and flows that were in use when the engine removed them to limit its
// memory. If there are any, rules with Conn, RelPSN or Iter may have missed packets.
type Forgotten struct {
	Connections uint64 // the next packet of each counts as a new connection
	Iterations  uint64 // flows to a queue pair whose transmissions are counted from 1 again
}

// Forgotten returns the counts since the engine was made.
func (e *Engine) Forgotten() (f Forgotten) {
	if e.conns != nil {
		f.Connections = e.conns.Forgotten()
	}
	if e.iters != nil {
		f.Iterations = e.iters.forgotten
	}
	return f
}

func (e *Engine) side(dir Direction) *side {
	if dir == Tx {
		return &e.tx
	}
	return &e.rx
}
