package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/junit"
	"github.com/goroce/roce/internal/tools/ladder"
)

// Event is an element of the ladder: a packet, or a note.
type Event struct {
	At   time.Duration // since the beginning of the session
	Sent bool          // the script sent the packet
	Text string        // description of the packet, "" for a note
	Note string        // why the packet is not the expected one, or the text of a note

	line  string // number and text of the statement
	heard *Heard
}

// Result is the result of a script.
type Result struct {
	Name    string
	Took    time.Duration
	Err     error  // nil: the script passed
	Outcome string // of the last outcome statement
	Events  []Event
	Skipped string // why it was not run; "": it was run
}

// Run plays a script against the peer on a wire.
func Run(ctx context.Context, sc *Script, w *Wire, o Options) *Result {
	s := NewSession(ctx, w, o)
	s.peerProgram = sc.Peer
	r := &Result{Name: sc.Name}
	r.Err = s.play(sc.Steps)
	if r.Err == nil && s.ctl != nil && o.Way.Mode != Each {
		if r.Err = s.checkCount(); r.Err == nil {
			r.Err = s.checkStream()
		}
	}
	if o.Silence {
		s.silence()
	}
	if err := s.Close(); r.Err == nil && err != nil && !errors.Is(err, context.Canceled) {
		r.Err = fmt.Errorf("ending the connection: %w", err)
	}
	r.Events, r.Took, r.Outcome = s.events, time.Since(s.begun), s.outcome
	return r
}

// silence moves the target's queue pairs to ERR, so that they do not disturb later scripts on the device.
func (s *Session) silence() {
	if s.ctl == nil {
		return
	}
	for _, q := range []TargetQP{s.ctl.q, s.ctl.canary} {
		if q != nil {
			q.Fail()
		}
	}
	if s.ctl.stream != nil {
		s.ctl.stream.q.Fail()
	}
}

// Ladder draws a ladder diagram of the packets, with the statement beside each, and then lists the notes.
func (r *Result) Ladder(w io.Writer) error {
	var steps []ladder.Step
	for _, e := range r.Events {
		if e.Text == "" {
			continue
		}
		st := ladder.Step{At: e.At, From: "peer", To: "script", Label: e.Text, Note: e.line}
		if e.Sent {
			st.From, st.To = "script", "peer"
		}
		if e.Note != "" {
			st.Note = strings.TrimLeft(st.Note+"  <-- "+e.Note, " ")
		}
		if len(steps) == 0 && !e.Sent { // the first step must be the script's, so that the script is at the left
			steps = append(steps, ladder.Step{At: e.At, From: "script", To: "script", Label: "…"})
		}
		steps = append(steps, st)
	}
	if err := ladder.Draw(w, steps); err != nil {
		return err
	}
	for _, e := range r.Events {
		if e.Text == "" && e.Note != "" {
			if _, err := fmt.Fprintf(w, "%s  %s\n", e.line, e.Note); err != nil {
				return err
			}
		}
	}
	return nil
}

// line returns number and text of the statement that is being executed, for the ladder.
func (s *Session) line() string {
	if s.step == nil {
		return ""
	}
	return fmt.Sprintf("%d: %s", s.step.Pos.Line, s.step.Text)
}

// maxEvents bounds the ladder: only the latest events are kept.
const maxEvents = 2000

func (s *Session) event(e Event) {
	e.At = time.Since(s.begun)
	if len(s.events) >= maxEvents {
		s.events = append(s.events[:0], s.events[maxEvents/2:]...)
	}
	s.events = append(s.events, e)
}

// sent records a packet that the script has sent as an event.
func (s *Session) sent(p *packet) {
	h := &Heard{ICRC: !p.badICRC}
	body := append(append([]byte(nil), p.body...), make([]byte, p.trailer())...)
	e := Event{Sent: true, line: s.line()}
	var q frame.Packet
	switch err := q.Packet.Parse(body); {
	case err != nil:
		e.Text = fmt.Sprintf("%d bytes", len(p.body))
		if len(p.body) > 0 {
			e.Text += fmt.Sprintf(", op %#x", p.body[0])
		}
	default:
		h.Packet = q
		if p.mad {
			h.MAD, _ = cm.DecodeMAD(q.Payload()) // this package has encoded it
		}
		e.Text = s.textOf(h, !p.mad)
	}
	if p.from != FromPeer {
		e.Text += " from a stranger"
	}
	s.event(e)
}

// log records a packet of the peer as an event.
func (s *Session) log(h *Heard, note string) {
	s.event(Event{Text: s.text(h), Note: note, heard: h})
}

// met writes the current statement, which expected the packet, beside it in the ladder. From a message of the connection manager it
// also updates the connection.
func (s *Session) met(h *Heard) {
	for i := range s.events {
		if s.events[i].heard == h {
			s.events[i].line = s.line()
		}
	}
	if h.MAD != nil {
		s.learn(h.MAD)
	}
}

// blame writes beside a packet in the ladder why it does not match the current statement.
func (s *Session) blame(h *Heard, why string) {
	for i := range s.events {
		if s.events[i].heard == h {
			s.events[i].line, s.events[i].Note = s.line(), why
		}
	}
}

// WriteText writes a line for the result, and after a failure the ladder.
func (r *Result) WriteText(w io.Writer) error {
	switch {
	case r.Skipped != "":
		_, err := fmt.Fprintf(w, "skip  %-44s %s\n", r.Name, r.Skipped)
		return err
	case r.Err == nil:
		_, err := fmt.Fprintf(w, "pass  %-44s %6.2fs\n", r.Name, r.Took.Seconds())
		return err
	}
	if _, err := fmt.Fprintf(w, "FAIL  %-44s %6.2fs\n      %v\n", r.Name, r.Took.Seconds(), r.Err); err != nil {
		return err
	}
	return r.Ladder(w)
}

// MarshalJSON writes the result as an object.
func (r *Result) MarshalJSON() ([]byte, error) {
	type event struct {
		At   float64 `json:"at"`
		From string  `json:"from,omitempty"`
		Text string  `json:"packet,omitempty"`
		Line string  `json:"line,omitempty"`
		Note string  `json:"note,omitempty"`
	}
	out := struct {
		Name    string  `json:"name"`
		Verdict string  `json:"verdict"`
		Seconds float64 `json:"seconds"`
		Error   string  `json:"error,omitempty"`
		Outcome string  `json:"outcome,omitempty"`
		Skipped string  `json:"skipped,omitempty"`
		Events  []event `json:"events,omitempty"`
	}{Name: r.Name, Verdict: r.Verdict(), Seconds: r.Took.Seconds(), Outcome: r.Outcome, Skipped: r.Skipped}
	if r.Err != nil {
		out.Error = r.Err.Error()
	}
	for _, e := range r.Events {
		from := ""
		if e.Text != "" {
			from = map[bool]string{true: "script", false: "peer"}[e.Sent]
		}
		out.Events = append(out.Events, event{e.At.Seconds(), from, e.Text, e.line, e.Note})
	}
	return json.Marshal(out)
}

// Verdict is "pass", "fail" or "skip".
func (r *Result) Verdict() string {
	switch {
	case r.Skipped != "":
		return "skip"
	case r.Err != nil:
		return "fail"
	}
	return "pass"
}

// WriteJUnit writes results as JUnit XML.
func WriteJUnit(w io.Writer, suite string, results []*Result) error {
	out := junit.Suite{Name: suite}
	for _, r := range results {
		c := junit.Case{Class: suite, Name: r.Name, Seconds: r.Took.Seconds()}
		switch {
		case r.Skipped != "":
			c.Skipped = &junit.Message{Message: r.Skipped}
		case r.Err != nil:
			var b strings.Builder
			if err := r.Ladder(&b); err != nil {
				return err
			}
			c.Failure = &junit.Message{Message: r.Err.Error(), Text: b.String()}
		}
		out.Cases = append(out.Cases, c)
	}
	return out.Write(w)
}
