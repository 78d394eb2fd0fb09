package script

import (
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/goroce/roce/bth"
)

// connectStep sets up the connection.
type connectStep struct {
	method  string // one of methods
	passive bool
	tr      bth.Transport
	args    []arg
}

// arg is a field that a statement sets.
type arg struct {
	tok token
	e   expr // unless the value is a word
}

// connectKeys are the settings of a connection by method.
var connectKeys = map[string][]string{
	"manual": {"port", "psn", "qpn", "mtu", "reads", "depth", "retry", "rnr", "timeout", "private"},
	"cm":     {"port", "psn", "qpn", "mtu", "reads", "depth", "retry", "rnr", "timeout", "private"},
	"oob":    {"port", "psn", "qpn", "mtu", "reads", "rkey", "va"},
	"verbs":  {"psn", "peerpsn", "recv", "access", "rights", "reads", "depth", "timeout", "retry", "rnr", "rnrtimer"},
}

// methods are the ways to connect.
var methods = []string{"cm", "manual", "oob", "verbs"}

func (p *parser) connect(l *line, t []token) (action, error) {
	c := &connectStep{passive: t[0].text == "accept", tr: bth.RC}
	if p.connected {
		return nil, errAt(t[0].pos, "the script has a connection already")
	}
	if p.depth > 1 {
		return nil, errAt(t[0].pos, "%s cannot be in a loop: a script has one connection", t[0].text)
	}
	if len(t) < 2 || !slices.Contains(methods, t[1].text) || c.passive && t[1].text == "verbs" {
		return nil, errAt(t[0].pos, "want connect cm, manual, oob or verbs, or accept cm, manual or oob")
	}
	c.method = t[1].text
	seen := map[string]bool{}
	for i := 2; i < len(t); i++ {
		w := &t[i]
		if !w.assign {
			tr, ok := map[string]bth.Transport{"rc": bth.RC, "uc": bth.UC, "ud": bth.UD}[w.text]
			if !ok || c.method != "oob" && c.method != "verbs" && tr != bth.RC {
				return nil, errAt(w.pos, "%q is no transport of %s", w.text, c.method)
			}
			c.tr = tr
			continue
		}
		if !slices.Contains(connectKeys[c.method], w.key) {
			return nil, errAt(w.pos, "%s has no setting %q: want one of %s", c.method, w.key, strings.Join(connectKeys[c.method], ", "))
		}
		if err := once(seen, w, w.key); err != nil {
			return nil, err
		}
		a := arg{tok: *w}
		if !slices.Contains([]string{"private", "access", "rights"}, w.key) {
			var err error
			if a.e, err = p.number(w.text, w.at); err != nil {
				return nil, err
			}
			if a.e.relative {
				return nil, errAt(w.at, "%s is not relative to anything", w.key)
			}
			if err := c.fits(&a); err != nil {
				return nil, err
			}
		} else if w.key != "private" {
			if _, err := parseAccess(w); err != nil {
				return nil, err
			}
		}
		c.args = append(c.args, a)
	}
	p.connected, p.tr = true, c.tr
	return c, nil
}

// template describes a packet, or a message of the connection manager, that the script sends.
type template struct {
	kind kind
	args []arg
}

// sendStep sends a packet.
type sendStep struct {
	template
	origin Origin
	copies int  // how many are sent in one super-packet; 0: it is sent alone
	times  int  // how often the statement sends
	behind bool // the next packet leaves together with this one
}

func (p *parser) send(l *line, t []token) (action, error) {
	s := &sendStep{times: 1}
	if len(t) < 2 || t[1].assign {
		return nil, errAt(t[0].pos, "want send PACKET [FIELD=VALUE]…")
	}
	var ok bool
	if s.kind, ok = kindOf(t[1].text, p.tr); !ok || s.kind.any {
		return nil, errAt(t[1].pos, "there is no packet %q to send: want an opcode like SEND_ONLY, ACK, NAK_…, RNR, op:0xff, or a message like REQ", t[1].text)
	}
	words := map[string]bool{}
	for i := 2; i < len(t); i++ {
		w := &t[i]
		if w.assign || s.kind.mad == "" && fieldOf(w.text) != nil && fieldOf(w.text).flag {
			a, err := p.argument(&s.template, w)
			if err == nil && !slices.Contains(payloadKeys, a.tok.key) {
				err = once(words, w, a.tok.key)
			}
			if err != nil {
				return nil, err
			}
			s.args = append(s.args, a)
			continue
		}
		if err := once(words, w, w.text); err != nil {
			return nil, err
		}
		next := func(n int) []token { return t[min(i+1, len(t)):min(i+1+n, len(t))] }
		switch w.text {
		case "from":
			a := next(1)
			if len(a) < 1 || !slices.Contains(Origins[:], a[0].text) {
				return nil, errAt(w.pos, "want from %s", strings.Join(Origins[:], ", "))
			}
			s.origin = Origin(slices.Index(Origins[:], a[0].text))
			i++
		case "as":
			a := next(3)
			if len(a) < 3 || a[0].text != "run" || a[1].text != "of" {
				return nil, errAt(w.pos, "want as run of NUMBER")
			}
			n, err := count(&a[2], 64)
			if err != nil {
				return nil, err
			}
			s.copies = n
			i += 3
		case "times":
			a := next(1)
			if len(a) < 1 {
				return nil, errAt(w.pos, "want times NUMBER")
			}
			n, err := count(&a[0], maxLoop)
			if err != nil {
				return nil, err
			}
			s.times = n
			i++
		case "together":
			s.behind = true
		default:
			return nil, errAt(w.pos, "unknown word %q: want FIELD=VALUE, a flag, from, as run of, times or together", w.text)
		}
	}
	return s, nil
}

// argument parses a field that a template sets.
func (p *parser) argument(s *template, w *token) (arg, error) {
	a := arg{tok: *w}
	if s.kind.mad != "" {
		if w.key == "private" || w.key == "text" {
			return a, nil
		}
		if _, ok := madField(mads[s.kind.mad](), w.key); !ok {
			return a, errAt(w.pos, "%s has no field %q: want one of %s", s.kind.mad, w.key, strings.Join(MADFields(s.kind.mad), ", "))
		}
		var err error
		if a.e, err = p.number(w.text, w.at); err == nil {
			err = a.e.fitKind(&s.kind, w.key)
		}
		return a, err
	}
	if !w.assign { // a flag
		a.tok.key, a.tok.text = w.text, "1"
		a.e = expr{pos: w.pos, terms: []term{{value: 1}}}
		return a, nil
	}
	if _, ok := wordKeys[w.key]; ok {
		_, err := new(draft).word(w)
		return a, err
	}
	f := fieldOf(w.key)
	if f == nil || f.put == nil {
		return a, errAt(w.pos, "packets have no field %q: want one of %s", w.key, strings.Join(Fields(), ", "))
	}
	if !f.of(&s.kind) {
		return a, errAt(w.pos, "%s has no header with %s: give headers by ext, or payload by u8 to u64", s.kind.name(), w.key)
	}
	var err error
	if a.e, err = p.number(w.text, w.at); err == nil && a.e.relative && w.key != "psn" {
		err = errAt(w.at, "%s is not relative to anything: leave the sign out", w.key)
	}
	if err == nil {
		err = a.e.fitKind(&s.kind, w.key)
	}
	if v, ok := a.e.constant(); err == nil && ok {
		err = f.holds(v, w.at)
	}
	return a, err
}

// Fields lists the fields of packets by the names that scripts give them.
func Fields() (names []string) {
	for _, f := range fields {
		names = append(names, f.name)
	}
	for k := range wordKeys {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// rawStep sends bytes.
type rawStep struct {
	b      []byte
	noICRC bool
	origin Origin
}

func (p *parser) raw(l *line, t []token) (action, error) {
	s := &rawStep{}
	for i := 1; i < len(t); i++ {
		if t[i].text == "noicrc" {
			s.noICRC = true
			continue
		}
		b, err := hex.DecodeString(t[i].text)
		if err != nil || t[i].assign {
			return nil, errAt(t[i].pos, "%q is not hexadecimal: want the bytes of a packet from the BTH on, and noicrc if the ICRC is among them", t[i].String())
		}
		s.b = append(s.b, b...)
	}
	if len(s.b) == 0 || len(s.b) > maxPayload {
		return nil, errAt(t[0].pos, "%d bytes: want 1 to %d", len(s.b), maxPayload)
	}
	return s, nil
}

// pattern describes an expected packet.
type pattern struct {
	pos     Pos
	text    string
	kinds   []kind
	matches []match
}

// expectStep waits for packets.
type expectStep struct {
	patterns   []pattern     // one, or all of an "any order" block
	nothing    time.Duration // no packet may come for this time
	noMessage  bool          // with nothing: only messages of the connection manager are forbidden
	within     time.Duration // how long to wait; 0: Options.Timeout
	after      time.Duration // the packet must not come sooner than this after the last packet of the script
	as         string        // the variable that gets the packet
	eventually bool          // packets before it that do not match are dropped
}

func (s *expectStep) mad() bool { return s.patterns[0].kinds[0].mad != "" }

func (p *parser) expect(l *line, t []token) (action, error) {
	s := &expectStep{}
	var err error
	switch {
	case len(t) < 2:
		return nil, errAt(t[0].pos, "want expect PACKET [FIELD=VALUE]…, expect nothing for TIME, expect no message for TIME, or expect any order {")
	case t[1].text == "nothing" && !t[1].assign:
		if len(t) != 4 || t[2].text != "for" {
			return nil, errAt(t[1].pos, "want expect nothing for TIME")
		}
		s.nothing, err = duration(&t[3])
		return s, err
	case t[1].text == "no" && !t[1].assign:
		if len(t) != 5 || t[2].text != "message" || t[3].text != "for" {
			return nil, errAt(t[1].pos, "want expect no message for TIME")
		}
		s.noMessage = true
		s.nothing, err = duration(&t[4])
		return s, err
	case t[1].text == "any" && len(t) > 2 && t[2].text == "order":
		return p.anyOrder(l, t, s)
	}
	pt, rest, err := p.pattern(l, t[1:])
	if err != nil {
		return nil, err
	}
	s.patterns = []pattern{pt}
	if err := p.modifiers(s, rest); err != nil {
		return nil, err
	}
	if s.as != "" {
		p.vars.packet(s.as, pt.kinds)
	}
	return s, nil
}

// modifiers parses the words behind a pattern.
func (p *parser) modifiers(s *expectStep, t []token) (err error) {
	seen := map[string]bool{}
	for i := 0; i < len(t); i++ {
		w := &t[i]
		if err := once(seen, w, w.text); err != nil {
			return err
		}
		if w.text == "eventually" {
			s.eventually = true
			continue
		}
		if i++; i == len(t) || !slices.Contains([]string{"within", "after", "as"}, w.text) {
			return errAt(w.pos, "unknown word %q: want FIELD=VALUE, a flag, within TIME, after TIME, as NAME or eventually", w.text)
		}
		switch w.text {
		case "within":
			s.within, err = duration(&t[i])
		case "after":
			s.after, err = duration(&t[i])
		case "as":
			s.as, err = t[i].text, definable(t[i].text, t[i].pos)
		}
		if err != nil {
			return err
		}
	}
	if s.within > 0 && s.after >= s.within {
		return errAt(t[0].pos, "within %v ends before after %v begins", s.within, s.after)
	}
	return nil
}

// anyOrder parses an "any order" block.
func (p *parser) anyOrder(open *line, t []token, s *expectStep) (action, error) {
	rest := t[3:]
	if len(rest) == 0 || rest[len(rest)-1].text != "{" {
		return nil, errAt(t[1].pos, "want expect any order {")
	}
	if err := p.modifiers(s, rest[:len(rest)-1]); err != nil {
		return nil, err
	}
	if s.as != "" {
		return nil, errAt(t[1].pos, "several packets cannot have one name")
	}
	for p.at++; p.at < len(p.lines); p.at++ {
		l := &p.lines[p.at]
		if len(l.tokens) == 0 {
			continue
		}
		if l.tokens[0].text == "}" && len(l.tokens) == 1 {
			if len(s.patterns) == 0 {
				return nil, errAt(open.pos, "the block has no packets")
			}
			return s, nil
		}
		pt, more, err := p.pattern(l, l.tokens)
		if err != nil {
			return nil, err
		}
		if len(more) > 0 {
			return nil, errAt(more[0].pos, "unknown word %q: want FIELD=VALUE or a flag", more[0].text)
		}
		if len(s.patterns) > 0 && (pt.kinds[0].mad != "") != s.mad() {
			return nil, errAt(pt.pos, "packets of the connection and of the connection manager cannot be in one block")
		}
		s.patterns = append(s.patterns, pt)
	}
	return nil, errAt(open.pos, "the block is not closed")
}

// pattern parses PACKET|PACKET FIELD=VALUE…, and returns the words behind it as rest.
func (p *parser) pattern(l *line, t []token) (pt pattern, rest []token, err error) {
	pt.pos, pt.text = t[0].pos, strings.TrimSpace(l.text[t[0].pos.Col-l.pos.Col:])
	for name := range strings.SplitSeq(t[0].text, "|") {
		k, ok := kindOf(name, p.tr)
		if !ok || t[0].assign {
			return pt, nil, errAt(t[0].pos, "there is no packet %q: want an opcode like READ_RESPONSE_ONLY, ACK, NAK, NAK_…, RNR, CNP, ANY, op:0xff, or a message like REP", name)
		}
		if len(pt.kinds) > 0 && (k.mad != "") != (pt.kinds[0].mad != "") {
			return pt, nil, errAt(t[0].pos, "a packet of the connection and a message of the connection manager cannot be alternatives")
		}
		pt.kinds = append(pt.kinds, k)
	}
	i := 1
	for ; i < len(t); i++ {
		w := &t[i]
		mad := pt.kinds[0].mad
		f := fieldOf(w.text)
		switch negated := strings.TrimPrefix(w.text, "!"); {
		case !w.assign && mad == "" && f != nil && f.flag:
			pt.matches = append(pt.matches, match{key: w.text, present: true})
			continue
		case !w.assign && mad == "" && negated != w.text && fieldOf(negated) != nil && fieldOf(negated).flag:
			pt.matches = append(pt.matches, match{key: negated, absent: true})
			continue
		case !w.assign:
			return pt, t[i:], nil
		}
		if mad != "" {
			if _, ok := madField(mads[mad](), w.key); !ok {
				return pt, nil, errAt(w.pos, "%s has no field %q: want one of %s", mad, w.key, strings.Join(MADFields(mad), ", "))
			}
		} else if f := fieldOf(w.key); w.key != "hex" && w.key != "text" && (f == nil || f.get == nil) && !isAccessor(w.key) {
			return pt, nil, errAt(w.pos, "packets have no field %q: want one of %s", w.key, strings.Join(Fields(), ", "))
		} else if f != nil && !slices.ContainsFunc(pt.kinds, func(k kind) bool { return f.of(&k) }) {
			return pt, nil, errAt(w.pos, "%s has no header with %s", t[0].text, w.key)
		}
		if anything := w.text == "*" && !w.quoted; !anything && (w.key == "hex" || w.key == "text") {
			text := w.text
			if w.key == "hex" {
				b, err := parseHex(w)
				if err != nil {
					return pt, nil, err
				}
				text = hex.EncodeToString(b) // digits in either case
			}
			pt.matches = append(pt.matches, match{key: w.key, low: expr{pos: w.at, terms: []term{{name: text}}}})
			continue
		}
		m, err := parseMatch(w)
		if err == nil {
			err = p.known(&m.low)
		}
		if err == nil && m.high != nil {
			err = p.known(m.high)
		}
		for _, e := range []*expr{&m.low, m.high} {
			if err == nil && e != nil {
				err = e.fitKind(&pt.kinds[0], w.key)
			}
		}
		if err == nil && m.low.relative && w.key != "psn" {
			err = errAt(w.at, "%s is not relative to anything: leave the sign out", w.key)
		}
		if err == nil {
			var of *field
			if mad == "" {
				of = fieldOf(w.key)
			}
			err = m.possible(of)
		}
		if err != nil {
			return pt, nil, err
		}
		pt.matches = append(pt.matches, m)
	}
	return pt, nil, nil
}

// isAccessor reports whether a name is that of a number in the payload, like u32@8.
func isAccessor(name string) bool {
	width, at, ok := strings.Cut(name, "@")
	return ok && slices.Contains([]string{"u8", "u16", "u32", "u64"}, width) && at != "" && strings.Trim(at, "0123456789") == ""
}

// waitStep waits for d. Packets are received meanwhile.
type waitStep struct{ d time.Duration }

func (p *parser) wait(l *line, t []token) (action, error) {
	if len(t) != 2 {
		return nil, errAt(t[0].pos, "want wait TIME, like wait 50ms")
	}
	d, err := duration(&t[1])
	return &waitStep{d}, err
}

// setStep gives variables values.
type setStep struct{ args []arg }

func (p *parser) set(l *line, t []token) (action, error) {
	s := &setStep{}
	for i := 1; i < len(t); i++ {
		if !t[i].assign {
			return nil, errAt(t[i].pos, "want set NAME=VALUE")
		}
		e, err := p.number(t[i].text, t[i].at)
		if err != nil {
			return nil, err
		}
		if memory := []string{"mem.va", "mem.rkey", "mem.len"}; !slices.Contains(memory, t[i].key) {
			if err := definable(t[i].key, t[i].pos); err != nil {
				return nil, err
			}
			p.vars.number(t[i].key)
		}
		s.args = append(s.args, arg{t[i], e})
	}
	if len(s.args) == 0 {
		return nil, errAt(t[0].pos, "want set NAME=VALUE")
	}
	return s, nil
}

// loopStep repeats a block. $i counts from 0.
type loopStep struct {
	n     int
	steps []Step
}

func (s *loopStep) body() []Step { return s.steps }

func (p *parser) loop(l *line, t []token) (action, error) {
	if len(t) != 3 || t[2].text != "{" || t[2].quoted {
		return nil, errAt(t[0].pos, "want loop NUMBER {")
	}
	n, err := count(&t[1], maxLoop)
	if err != nil {
		return nil, err
	}
	p.vars.number("i")
	p.at++
	steps, err := p.block(l)
	return &loopStep{n, steps}, err
}
