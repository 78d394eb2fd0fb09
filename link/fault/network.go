package fault

import (
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// Engine is an unreliable network without a Port, for a program that forwards packets between two
// others. It does no I/O and reads no clock: Handle takes a frame and a time, Next gives the frames
// whose time has come, and NextTimeout says when to ask again. Times never go back.
//
// It belongs to one goroutine at a time.
type Engine struct {
	engine
	frame link.Frame // in Handle
	given *held      // by Next
}

// Released is a frame that was held back, or a copy of one.
type Released struct {
	Data []byte // valid until the next call of Handle or Next
	Tag  uint64 // of the frame that it was, as given to Handle
}

// RuleCounter says how often a rule was needed.
type RuleCounter struct {
	Matched uint64 // packets with all properties that the rule names
	Fired   uint64 // of these, chosen by Nth, Every, Count and Probability
}

// NewEngine makes a network of whole Ethernet frames. now is the time that After and Until of rules
// count from.
func NewEngine(c Config, now mono.Time) (*Engine, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	e := new(Engine)
	e.init(c, frame.LayoutEthernet, now)
	return e, nil
}

// Handle decides about a frame that goes in a direction, and changes it in place if it is to be
// changed. Its UDP checksum is complete. If the verdict has Pass, the caller sends the frame now. A
// frame that is held back is copied: the caller's buffer is free at once. After each Handle the
// caller asks Next.
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

// NextTimeout returns when Next will have a frame, if none passes before.
func (e *Engine) NextTimeout() mono.Time { return min(e.tx.hold.due(), e.rx.hold.due()) }

// Counters says what was done so far in each direction.
func (e *Engine) Counters() (tx, rx Counters) { return e.tx.snapshot(), e.rx.snapshot() }

// RuleCounters returns those of all rules, in the order of Config.Rules.
func (e *Engine) RuleCounters() []RuleCounter {
	c := make([]RuleCounter, len(e.rules))
	for i, r := range e.rules {
		c[i] = RuleCounter{uint64(r.matched), uint64(r.fired)}
	}
	return c
}

// Connections returns how many connections were seen; 0 unless a rule or Config.Track asks for them.
func (e *Engine) Connections() int {
	if e.conns == nil {
		return 0
	}
	return e.conns.Len()
}

func (e *Engine) side(dir Direction) *side {
	if dir == Tx {
		return &e.tx
	}
	return &e.rx
}
