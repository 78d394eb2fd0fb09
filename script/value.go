package script

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// expr is a sum of numbers and variables with signs. It is relative if it begins with a sign.
type expr struct {
	pos      Pos
	relative bool
	terms    []term
}

type term struct {
	minus bool
	value uint64
	name  string // of a variable, "" for a number
	pos   Pos
}

// parseExpr parses an expression, like "1", "+1", "0x10", "$mem.va-1" or "+$n".
func parseExpr(text string, at Pos) (e expr, err error) {
	e.pos = at
	if text == "" {
		return e, errAt(at, "a number is missing")
	}
	e.relative = text[0] == '+' || text[0] == '-'
	for i := 0; i < len(text); {
		t := term{pos: Pos{at.File, at.Line, at.Col + i}}
		switch {
		case text[i] == '+' || text[i] == '-':
			t.minus = text[i] == '-'
			i++
		case i > 0:
			return e, errAt(t.pos, "%q: want + or - between numbers", text)
		}
		n := i
		for n < len(text) && text[n] != '+' && text[n] != '-' {
			n++
		}
		word := text[i:n]
		t.pos.Col = at.Col + i
		switch {
		case word == "":
			return e, errAt(t.pos, "%q: a number is missing", text)
		case word[0] == '$':
			if t.name = word[1:]; !validName(t.name) {
				return e, errAt(t.pos, "%q is no name of a variable", word)
			}
		default:
			if t.value, err = strconv.ParseUint(word, 0, 64); err != nil {
				return e, errAt(t.pos, "%q is no number", word)
			}
		}
		e.terms = append(e.terms, t)
		i = n
	}
	return e, nil
}

// validName reports whether a text can name a variable or a part of it: letters, digits, "_", "." before a field, and "@" in accessors.
func validName(s string) bool {
	for i, c := range s {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || i > 0 && (c >= '0' && c <= '9' || c == '.' || c == '@')) {
			return false
		}
	}
	return s != ""
}

// eval computes the sum. It calls look for the value of each variable.
func (e *expr) eval(look func(name string) (uint64, error)) (sum uint64, err error) {
	for _, t := range e.terms {
		v := t.value
		if t.name != "" {
			if v, err = look(t.name); err != nil {
				return 0, &Error{Pos: t.pos, Err: err}
			}
		}
		if t.minus {
			v = -v
		}
		sum += v
	}
	return sum, nil
}

// fixed returns the value of a sum without variables. If the sum is relative, the value is a signed number.
func (e *expr) fixed() (v uint64, ok bool) {
	v, err := e.eval(func(string) (uint64, error) { return 0, errVariable })
	return v, err == nil
}

var errVariable = errors.New("not a constant")

// match is the condition for a field of a packet: any value, a number, a range, or any value but these.
type match struct {
	key     string
	any     bool
	not     bool
	low     expr
	high    *expr // of a range
	present bool  // the flag must be set
	absent  bool  // the flag must not be set
}

// parseMatch parses a condition, like "*", "1", "+1..+4" or "!0".
func parseMatch(t *token) (m match, err error) {
	m.key = t.key
	text, at := t.text, t.at
	if text == "*" {
		m.any = true
		return m, nil
	}
	if strings.HasPrefix(text, "!") {
		m.not = true
		text, at.Col = text[1:], at.Col+1
	}
	low, high, ranged := strings.Cut(text, "..")
	if m.low, err = parseExpr(low, at); err != nil || !ranged {
		return m, err
	}
	at.Col += len(low) + 2
	h, err := parseExpr(high, at)
	if err == nil && h.relative != m.low.relative {
		err = errAt(at, "%q: both ends of a range must be relative, or none", text)
	}
	m.high = &h
	return m, err
}

// maxAhead is the largest distance between two PSNs, in packets.
const maxAhead = 1 << 23

// possible returns an error if no value can match. f is nil for an accessor or a field of a message, whose size is not known here.
func (m *match) possible(f *field) error {
	if m.any {
		return nil
	}
	low, ok := m.low.fixed()
	high := low
	if m.high != nil && ok {
		high, ok = m.high.fixed()
	}
	switch {
	case !ok: // it is known when the packet comes
		return nil
	case m.low.relative && m.high != nil && (int64(low) < -maxAhead || int64(high) >= maxAhead):
		return errAt(m.low.pos, "%s: a PSN is at most %d behind and %d ahead", m.key, maxAhead, maxAhead-1)
	case m.low.relative && int64(low) > int64(high), !m.low.relative && low > high:
		return m.reversed()
	case f != nil && !m.low.relative:
		return f.holds(high, m.low.pos)
	}
	return nil
}

// reversed returns the error for a range whose first value is larger than the second.
func (m *match) reversed() error {
	return errAt(m.low.pos, "%s: the range ends before it begins: want the lower value first", m.key)
}

// number formats a value for errors and the ladder: hexadecimal from 10 on.
func number(v uint64) string {
	if v < 10 {
		return strconv.FormatUint(v, 10)
	}
	return fmt.Sprintf("%#x", v)
}
