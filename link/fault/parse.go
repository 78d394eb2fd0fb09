package fault

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/roce/bth"
)

// ParseRule reads a rule from its flag form: an action (drop, dup, reorder, delay, corrupt, ecn, pass,
// rewrite), then, in any order and separated by commas, tx or rx and name=value with the names in
// [RuleNames]. Numbers may be hexadecimal with 0x. An op is a number, a name or a pattern with "*", or
// several of them separated by "|".
func ParseRule(text string) (Rule, error) {
	var r Rule
	bad := func(format string, a ...any) (Rule, error) {
		return Rule{}, fmt.Errorf("fault rule %q: %s", text, fmt.Sprintf(format, a...))
	}
	for i, part := range strings.Split(text, ",") {
		name, value, hasValue := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case i == 0:
			var ok bool
			if r.Action, ok = ParseAction(name); !ok || hasValue {
				return bad("%q is not one of %s", part, strings.Join(ActionNames(), ", "))
			}
		case !hasValue && name == "tx":
			r.Dir |= Tx
		case !hasValue && name == "rx":
			r.Dir |= Rx
		case !hasValue:
			return bad("%q is not tx, rx or name=value", part)
		default:
			if err := r.Set(name, value); err != nil {
				return bad("%v", err)
			}
		}
	}
	if r.Dir == Both {
		r.Dir = 0 // means the same, and String prints no direction
	}
	if err := r.Check(); err != nil {
		return bad("%v", err)
	}
	return r, nil
}

// setters set a property of a rule from text, by name.
var setters = map[string]func(r *Rule, value string) error{
	"op":     (*Rule).setOpcodes,
	"qpn":    func(r *Rule, s string) error { v, err := number(s); r.QPN = Is(bth.QPN(v)); return err },
	"psn":    func(r *Rule, s string) error { v, err := number(s); r.PSN = Is(bth.PSN(v)); return err },
	"rel":    func(r *Rule, s string) error { v, err := numberOf(s, 31); r.RelPSN = Is(v); return err },
	"addr":   func(r *Rule, s string) (err error) { r.Addr, err = addr(s); return err },
	"src":    func(r *Rule, s string) (err error) { r.Src, err = addr(s); return err },
	"dst":    func(r *Rule, s string) (err error) { r.Dst, err = addr(s); return err },
	"conn":   func(r *Rule, s string) (err error) { r.Conn, err = positive(s); return err },
	"iter":   func(r *Rule, s string) (err error) { r.Iter, err = positive(s); return err },
	"nth":    func(r *Rule, s string) (err error) { r.Nth, err = positive(s); return err },
	"every":  func(r *Rule, s string) (err error) { r.Every, err = positive(s); return err },
	"count":  func(r *Rule, s string) (err error) { r.Count, err = positive(s); return err },
	"after":  func(r *Rule, s string) (err error) { r.After, err = duration(s); return err },
	"until":  func(r *Rule, s string) (err error) { r.Until, err = lasting(s); return err },
	"p":      func(r *Rule, s string) (err error) { r.Probability, err = chance(s); return err },
	"time":   func(r *Rule, s string) (err error) { r.Time, err = lasting(s); return err },
	"jitter": func(r *Rule, s string) (err error) { r.Jitter, err = duration(s); return err },
	"by":     func(r *Rule, s string) (err error) { r.By, err = positive(s); return err },
	"copies": func(r *Rule, s string) (err error) { r.Copies, err = positive(s); return err },
	"bits":   func(r *Rule, s string) (err error) { r.Bits, err = positive(s); return err },
	"icrc":   func(r *Rule, s string) (err error) { r.ICRC, err = ParseICRC(s); return err },
}

// RuleNames returns the names of the properties of rules in their flag form. Besides them there is
// "set." in front of the name of each of the [Fields].
func RuleNames() []string {
	return slices.Sorted(maps.Keys(setters))
}

// Set sets a property of a rule from its flag form, name=value.
func (r *Rule) Set(name, value string) error {
	if field, ok := strings.CutPrefix(name, "set."); ok {
		v, err := strconv.ParseUint(value, 0, 64)
		if err != nil {
			return fmt.Errorf("%s=%q is not a number", name, value)
		}
		e, err := ParseEdit(field, v)
		r.Edits = append(r.Edits, e)
		return err
	}
	set, ok := setters[name]
	if !ok {
		return fmt.Errorf("%q is not %s or set.FIELD", name, strings.Join(RuleNames(), ", "))
	}
	if err := set(r, value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// setOpcodes reads names, numbers and patterns separated by "|".
func (r *Rule) setOpcodes(text string) error {
	var set OpcodeSet
	for part := range strings.SplitSeq(text, "|") {
		if err := set.ParseOpcodes(part); err != nil {
			return err
		}
	}
	r.Op, r.Ops = Opt[bth.Opcode]{}, set
	if ops := set.list(); len(ops) == 1 {
		r.Op, r.Ops = Is(ops[0]), OpcodeSet{}
	}
	return nil
}

func number(s string) (int, error) { return numberOf(s, 24) }

func numberOf(s string, bits int) (int, error) {
	v, err := strconv.ParseUint(s, 0, bits)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of at most %d bits", s, bits)
	}
	return int(v), nil
}

// positive reads a number above 0; 0 would mean that the property is not set.
func positive(s string) (int, error) {
	v, err := number(s)
	if err == nil && v == 0 {
		return 0, fmt.Errorf("%q: want 1 or more", s)
	}
	return v, err
}

// chance is a probability of a rule. Zero would mean always, as in a Rule.
func chance(s string) (float64, error) {
	p, err := parseRate(s)
	if err == nil && p == 0 {
		return 0, fmt.Errorf("%q: the rule would never act; want more than 0", s)
	}
	return p, err
}

func addr(s string) (Opt[netip.Addr], error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return Opt[netip.Addr]{}, fmt.Errorf("%q is not an IP address", s)
	}
	return Is(a.Unmap().WithZone("")), nil
}

func duration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a time such as 500us, 10ms or 2s", s)
	}
	return d, nil
}

// lasting reads a time whose zero would mean that it is not set.
func lasting(s string) (time.Duration, error) {
	d, err := duration(s)
	if err == nil && d == 0 {
		return 0, fmt.Errorf("%q: want more than 0", s)
	}
	return d, err
}
