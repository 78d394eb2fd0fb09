package script

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
)

// errSurvived says that the peer had to die, and did not.
var errSurvived = errors.New("the peer was expected to die of this")

// play executes steps until one fails.
func (s *Session) play(steps []Step) error {
	for i := range steps {
		st := steps[i].For(s.opts.Peer)
		if err := context.Cause(s.ctx); err != nil { // the steps of a loop may not check ctx themselves
			return &Error{Pos: st.Pos, Err: err}
		}
		before := s.step
		s.step = st
		err := st.do.run(s, st)
		s.step = before
		if err == nil {
			continue
		}
		if e := (*Error)(nil); errors.As(err, &e) {
			return err
		}
		return &Error{Pos: st.Pos, Err: err}
	}
	return nil
}

// passStep does nothing. As a variant it leaves a step out for some peers.
type passStep struct{}

func (*passStep) run(*Session, *Step) error { return nil }

// diesStep expects that the peer has died. It checks that only for a controlled peer. For others the caller of Run has to check it.
type diesStep struct{}

func (*diesStep) run(s *Session, _ *Step) error {
	if s.ctl != nil && s.settle() == nil {
		return errSurvived
	}
	return nil
}

// settleStep waits until a controlled peer has sent all its responses.
type settleStep struct{}

func (*settleStep) run(s *Session, _ *Step) error { return s.settle() }

// forgetStep drops the packets that have come and were not expected yet, and the responses that the outcome would list.
type forgetStep struct{}

func (*forgetStep) run(s *Session, _ *Step) error {
	s.data = nil
	if s.ctl != nil {
		s.ctl.answers = nil
	}
	return nil
}

func (w *waitStep) run(s *Session, _ *Step) error {
	return s.until(w.d, func() bool { return false })
}

func (a *setStep) run(s *Session, _ *Step) error {
	for i := range a.args {
		x := &a.args[i]
		v, err := s.eval(&x.e)
		if err != nil {
			return err
		}
		s.numbers[x.tok.key] = v
	}
	return nil
}

func (l *loopStep) run(s *Session, _ *Step) error {
	for i := range l.n {
		s.numbers["i"] = uint64(i)
		if err := s.play(l.steps); err != nil {
			return err
		}
	}
	return nil
}

func (r *recvStep) run(s *Session, _ *Step) error {
	if s.ctl == nil {
		return errors.New("recv needs a peer that the script controls (connect verbs)")
	}
	return s.ctl.q.Recv(r.n)
}

func (p *postStep) run(s *Session, _ *Step) error {
	c := s.ctl
	if c == nil {
		return errors.New("post needs a peer that the script controls (connect verbs)")
	}
	before := s.requested
	if err := c.q.Post(p.op, p.n); err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	if err := s.until(answerLimit, func() bool { return s.requested > before }); err != nil {
		return err
	}
	if s.requested == before {
		return fmt.Errorf("the target does not send its %v", p.op)
	}
	return s.settle()
}

func (o *outcomeStep) run(s *Session, _ *Step) error {
	got, err := s.Outcome()
	if err != nil {
		return err
	}
	s.event(Event{Note: "outcome: " + got, line: s.line()})
	if s.opts.Free {
		got = Once(got)
	}
	s.outcome = got
	if !s.opts.Free && !slices.Contains(o.want, got) {
		return &Mismatch{Want: o.String(), Got: got, Outcome: true}
	}
	return nil
}

// Mismatch says that a packet or an outcome is not the expected one.
type Mismatch struct {
	Want, Got string
	Outcome   bool // it is an outcome, not a packet
}

func (m *Mismatch) Error() string { return fmt.Sprintf("came: %s; expected: %s", m.Got, m.Want) }

// fill builds the packet that a template describes.
func (s *Session) fill(t *template) (*packet, error) {
	if t.kind.mad != "" {
		m, err := s.message(t)
		if err != nil {
			return nil, err
		}
		return madPacket(m), nil
	}
	d := &draft{packet: packet{op: t.kind.op}, deth: bth.DETHFields{QKey: s.qkey, SrcQPN: s.own},
		va: s.numbers["mem.va"], rkey: bth.RKey(s.numbers["mem.rkey"]),
		aeth: bth.AETHFields{Syndrome: t.kind.syndrome, MSN: s.msn}}
	d.f.BTH = bth.BTHFields{PKey: bth.DefaultPKey, DestQPN: s.qpn, Flags: 0}
	info := t.kind.op.Info()
	answer := info.Flags&bth.Response != 0
	base := s.first
	if answer {
		base = s.theirs
	}
	explicit := false
	for i := range t.args {
		a := &t.args[i]
		if known, err := d.word(&a.tok); err != nil {
			return nil, err
		} else if known {
			continue
		}
		v, err := s.eval(&a.e)
		if err != nil {
			return nil, err
		}
		f := fieldOf(a.tok.key)
		if f.name == "psn" {
			explicit = true
			if a.e.relative {
				v += uint64(base)
			}
			v &= 1<<24 - 1
		} else if err := f.holds(v, a.tok.at); err != nil {
			return nil, err
		}
		f.put(d, v)
	}
	switch {
	case explicit:
	case answer:
		d.f.BTH.PSN = s.latest
	default:
		d.f.BTH.PSN = s.next
		s.next = s.next.Add(s.span(t.kind.op, d))
	}
	return d.build()
}

// span returns how many PSNs a request takes.
func (s *Session) span(op bth.Opcode, d *draft) int {
	if op.Info().Flags&bth.Read == 0 || s.mtu == 0 {
		return 1
	}
	return max(1, int((uint64(d.dmalen)+uint64(s.mtu)-1)/uint64(s.mtu)))
}

func (p *sendStep) run(s *Session, at *Step) error {
	for range p.times {
		if err := context.Cause(s.ctx); err != nil {
			return err
		}
		b, err := s.fill(&p.template)
		if err != nil {
			return err
		}
		b.from = p.origin
		if err := s.inject(b, p.copies, p.behind); err != nil {
			return err
		}
	}
	return nil
}

func (r *rawStep) run(s *Session, at *Step) error {
	return s.inject(&packet{body: r.b, noICRC: r.noICRC, from: r.origin}, 0, false)
}

// put queues one copy of a packet on the wire, and records it for the ladder.
func (s *Session) put(p *packet) error {
	if p.from == FromPeer {
		p.from = s.opts.Way.Origin
	}
	s.sentAt = time.Now()
	if err := s.wire.queue(p); err != nil {
		return err
	}
	if s.ctl != nil && !p.badSum && p.dst == nil && p.from != FromPeer { // the target's kernel may drop the others before the target counts them
		s.ctl.sent++
	}
	s.sent(p)
	return nil
}

// inject sends a packet in the [Way] of the session, and then waits until a controlled peer has handled it. run is the number of copies in
// one super-packet, if it is more than one. together says that the next packet follows in the same flush.
func (s *Session) inject(p *packet, run int, together bool) error {
	put := func() error { return s.put(p) }
	stream := func() error { return s.flow(runLength/2, len(p.body)+bth.ICRCLen) }
	way := s.opts.Way.Mode
	switch {
	case p.mad:
		return inOrder(put, s.wire.flush)
	case run > 1:
		return inOrder(append(slices.Repeat([]func() error{put}, run), s.wire.flush, s.settle)...)
	case together && way == Alone:
		return put()
	case way == InRun:
		return inOrder(append(slices.Repeat([]func() error{put}, runLength), s.wire.flush, s.settle)...)
	case way == Mixed:
		return inOrder(stream, put, stream, s.wire.flush, s.settle)
	case way == Each:
		return inOrder(slices.Repeat([]func() error{put, s.wire.flush, s.settle}, runLength)...)
	}
	return inOrder(put, s.wire.flush, s.settle)
}

// inOrder calls functions up to the first error, and returns it.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Expecting.

func (e *expectStep) run(s *Session, at *Step) error {
	if e.nothing > 0 {
		list, what := &s.data, "nothing"
		if e.noMessage {
			list, what = &s.mads, "no message"
		}
		if err := s.until(e.nothing, func() bool { return len(*list) > 0 }); err != nil {
			return err
		}
		if len(*list) > 0 {
			h := (*list)[0]
			s.blame(h, "not expected")
			return &Mismatch{Want: fmt.Sprintf("%s for %v", what, e.nothing), Got: s.text(h)}
		}
		return nil
	}
	within := e.within
	if within == 0 {
		within = s.opts.Timeout
	}
	left := make([]bool, len(e.patterns))
	deadline := time.Now().Add(within)
	for n := 0; n < len(e.patterns); {
		h, err := s.take(e.mad(), deadline, e.concerns)
		if err != nil {
			return err
		}
		if h == nil {
			return &Mismatch{Want: e.wanted(left), Got: fmt.Sprintf("nothing within %v", within)}
		}
		why := ""
		found := -1
		for i := range e.patterns {
			if left[i] {
				continue
			}
			reason, err := s.fits(&e.patterns[i], h)
			if err != nil {
				return err
			}
			if reason == "" {
				found = i
				break
			}
			if why == "" {
				why = reason
			}
		}
		if found < 0 {
			if e.eventually && time.Now().Before(deadline) {
				continue
			}
			s.blame(h, why)
			return &Mismatch{Want: e.wanted(left), Got: s.text(h) + " (" + why + ")"}
		}
		if soon := h.at.Sub(s.sentAt); e.after > 0 && soon < e.after {
			why := fmt.Sprintf("it comes %v after the script's last packet", soon)
			s.blame(h, why)
			return &Mismatch{Want: e.wanted(left), Got: s.text(h) + " (" + why + ")"}
		}
		left[found] = true
		n++
		s.met(h)
		if e.as != "" {
			s.packets[e.as] = h
		}
	}
	return nil
}

// wanted lists the patterns that no packet has matched yet.
func (e *expectStep) wanted(met []bool) (text string) {
	for i, p := range e.patterns {
		if met[i] {
			continue
		}
		if text != "" {
			text += ", or "
		}
		text += p.text
	}
	return text
}

// concerns reports whether a packet belongs to the sequence of packets that the patterns are about. The requester and the responder of
// a queue pair work independently, so requests and responses are two sequences.
func (e *expectStep) concerns(h *Heard) bool {
	const half = bth.Request | bth.Response
	for i := range e.patterns {
		for _, k := range e.patterns[i].kinds {
			if f := k.op.Info().Flags & half; k.any || k.mad != "" || f == 0 || f == h.Info.Flags&half {
				return true
			}
		}
	}
	return false
}

// take removes and returns the peer's next message of the connection manager (mad), or else its next packet to the queue pair, for which
// concerns returns true. It returns nil if none came before the deadline.
func (s *Session) take(mad bool, deadline time.Time, concerns func(*Heard) bool) (h *Heard, err error) {
	list := &s.data
	if mad {
		list = &s.mads
	}
	err = s.until(time.Until(deadline), func() bool {
		i := slices.IndexFunc(*list, concerns)
		if i >= 0 {
			h = (*list)[i]
			*list = slices.Delete(*list, i, i+1)
		}
		return h != nil
	})
	return h, err
}

// every is an argument of take: any message is taken.
func every(*Heard) bool { return true }

// fits compares a packet with a pattern. It returns why the packet does not match, "" if it does.
func (s *Session) fits(p *pattern, h *Heard) (why string, err error) {
	if !slices.ContainsFunc(p.kinds, func(k kind) bool { return k.is(h) }) {
		return "another packet", nil
	}
	if h.MAD == nil && !h.ICRC {
		return "its ICRC is wrong", nil
	}
	if !s.ofPeer(h) {
		return h.stranger(), nil
	}
	for i := range p.matches {
		m := &p.matches[i]
		if why, err := s.fit(m, h); err != nil || why != "" {
			return why, err
		}
	}
	return "", nil
}

// is reports whether a packet is of a kind.
func (k *kind) is(h *Heard) bool {
	switch {
	case k.mad != "":
		return h.MAD != nil && h.MAD.Attribute().String() == k.mad
	case h.MAD != nil:
		return false
	case k.any:
		return true
	case k.ofAck:
		return h.Op == k.op && h.Syndrome() >= k.low && h.Syndrome() <= k.high
	}
	return h.Op == k.op
}

// fit compares a field of a packet with its expected value. It returns why it does not match, "" if it does.
func (s *Session) fit(m *match, h *Heard) (why string, err error) {
	if m.any {
		return "", nil
	}
	if m.key == "hex" || m.key == "text" {
		want := m.low.terms[0].name
		got := string(h.Payload())
		if m.key == "hex" {
			got = hex.EncodeToString(h.Payload())
		}
		if got != want {
			return fmt.Sprintf("%s is %.60q", m.key, got), nil
		}
		return "", nil
	}
	v, err := h.field(m.key)
	if err != nil {
		return err.Error(), nil
	}
	if m.present || m.absent {
		if (v != 0) != m.present {
			return m.key + map[bool]string{true: " is set", false: " is not set"}[v != 0], nil
		}
		return "", nil
	}
	low, err := s.eval(&m.low)
	if err != nil {
		return "", err
	}
	high := low
	if m.high != nil {
		if high, err = s.eval(m.high); err != nil {
			return "", err
		}
	}
	shown := number(v)
	if m.key == "psn" {
		base := s.theirs
		if h.MAD == nil && h.Info.Flags&bth.Response != 0 {
			base = s.first
		}
		if m.low.relative {
			shown = fmt.Sprintf("%+d", bth.PSN(v).Sub(base))
			v = (v - uint64(base)) & (1<<24 - 1)
		}
		low, high = low&(1<<24-1), high&(1<<24-1)
		if m.low.relative { // compare as signed numbers of 24 bits
			v, low, high = (v+1<<23)&(1<<24-1), (low+1<<23)&(1<<24-1), (high+1<<23)&(1<<24-1)
		}
	}
	if low > high {
		return "", m.reversed()
	}
	if inside := v >= low && v <= high; inside == m.not {
		return fmt.Sprintf("%s is %s", m.key, shown), nil
	}
	return "", nil
}

// disconnectStep ends the connection by a DREQ of the connection manager.
type disconnectStep struct{}

func (*disconnectStep) run(s *Session, _ *Step) error { return s.disconnect() }

// message builds a message of the connection manager.
func (s *Session) message(t *template) (cm.Message, error) {
	m := mads[t.kind.mad]()
	s.conn.prepare(s, m)
	for i := range t.args {
		a := &t.args[i]
		if a.tok.key == "private" || a.tok.key == "text" {
			if err := s.conn.private(m, &a.tok); err != nil {
				return nil, &Error{Pos: a.tok.at, Err: err}
			}
			continue
		}
		v, err := s.eval(&a.e)
		if err != nil {
			return nil, err
		}
		if err := setMAD(m, a.tok.key, v); err != nil {
			return nil, &Error{Pos: a.tok.at, Err: err}
		}
	}
	return m, nil
}
