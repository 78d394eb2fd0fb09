package fault

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/goroce/roce/bth"
)

// Action is what happens to a packet.
type Action uint8

// The actions of rules. Pass exempts a packet from the random faults.
const (
	Drop Action = iota + 1
	Dup
	Reorder
	Delay
	Corrupt
	ECN
	Pass
)

var actionNames = [...]string{Drop: "drop", Dup: "dup", Reorder: "reorder", Delay: "delay", Corrupt: "corrupt", ECN: "ecn", Pass: "pass"}

// String returns the name used in flags.
func (a Action) String() string {
	if int(a) < len(actionNames) && actionNames[a] != "" {
		return actionNames[a]
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}

// Opt is a value that may be absent; [Is] makes one that is there.
type Opt[T comparable] struct {
	v   T
	set bool
}

// Is returns a value to match.
func Is[T comparable](v T) Opt[T] { return Opt[T]{v, true} }

// admits reports whether v is the value, or any will do.
func (o Opt[T]) admits(v T) bool { return !o.set || o.v == v }

// Rule is one exact fault: what to do with which packets. Fields left out match
// everything; packets that are no valid RoCE packets match no rule.
//
//	fault.Rule{Action: fault.Drop, Dir: fault.Tx, PSN: fault.Is(bth.PSN(5)), Iter: 1}
type Rule struct {
	Action Action
	Dir    Direction // 0 means Both

	Op  Opt[bth.Opcode]
	QPN Opt[bth.QPN] // destination QPN in the BTH
	PSN Opt[bth.PSN]

	// Addr is the source or destination IP address.
	Addr Opt[netip.Addr]

	// Iter k matches only the k-th transmission of a PSN: packets of one
	// direction, destination QPN, PSN and kind (request or response) are
	// counted from 1. 0 means any.
	Iter int

	// Func, if not nil, must agree too. It must not keep the packet.
	Func func(dir Direction, p *bth.Packet) bool

	Nth   int // the first matching packet to act on, counted from 1; 0 means 1
	Count int // how many from there; 0 means one if Nth is set, else all
}

// validate finds rules that could never fire or do nothing.
func (r *Rule) validate() error {
	switch {
	case r.Action < Drop || r.Action > Pass:
		return fmt.Errorf("fault: rule %v has no action", r)
	case r.Dir > Both:
		return fmt.Errorf("fault: rule %v has direction %d", r, r.Dir)
	case r.Iter < 0 || r.Iter > maxIter:
		return fmt.Errorf("fault: rule %v: iter is not between 0 and %d", r, maxIter)
	case r.Nth < 0 || r.Count < 0:
		return fmt.Errorf("fault: rule %v: negative nth or count", r)
	}
	return nil
}

// String prints the rule as [ParseRule] reads it; Func shows as "func".
func (r *Rule) String() string {
	s := []string{r.Action.String()}
	if r.Dir == Tx || r.Dir == Rx {
		s = append(s, r.Dir.String())
	}
	if r.Op.set {
		s = append(s, "op="+opcodeName(r.Op.v))
	}
	if r.QPN.set {
		s = append(s, fmt.Sprintf("qpn=%#x", uint32(r.QPN.v)))
	}
	if r.PSN.set {
		s = append(s, fmt.Sprintf("psn=%#x", uint32(r.PSN.v)))
	}
	if r.Addr.set {
		s = append(s, "addr="+r.Addr.v.String())
	}
	for _, n := range []struct {
		name string
		v    int
	}{{"iter", r.Iter}, {"nth", r.Nth}, {"count", r.Count}} {
		if n.v != 0 {
			s = append(s, n.name+"="+strconv.Itoa(n.v))
		}
	}
	if r.Func != nil {
		s = append(s, "func")
	}
	return strings.Join(s, ",")
}

// ParseRule reads a rule from its flag form: an action (drop, dup, reorder,
// delay, corrupt, ecn, pass), then, in any order and separated by commas, tx or
// rx, op=NAME or number, qpn=, psn=, addr=, iter=, nth=, count=. Numbers may be
// hexadecimal with 0x.
func ParseRule(text string) (Rule, error) {
	var r Rule
	bad := func(format string, a ...any) (Rule, error) {
		return Rule{}, fmt.Errorf("fault rule %q: %s", text, fmt.Sprintf(format, a...))
	}
	for i, part := range strings.Split(text, ",") {
		name, value, hasValue := strings.Cut(strings.TrimSpace(part), "=")
		if i == 0 {
			for a, n := range actionNames {
				if n != "" && n == name {
					r.Action = Action(a)
				}
			}
			if r.Action == 0 || hasValue {
				return bad("%q is not one of drop, dup, reorder, delay, corrupt, ecn, pass", part)
			}
			continue
		}
		if !hasValue {
			switch name {
			case "tx":
				r.Dir |= Tx
			case "rx":
				r.Dir |= Rx
			default:
				return bad("%q is not tx, rx or name=value", part)
			}
			continue
		}
		if name == "op" {
			op, ok := opcodeByName(value)
			if !ok {
				return bad("unknown opcode %q", value)
			}
			r.Op = Is(op)
			continue
		}
		if name == "addr" {
			a, err := netip.ParseAddr(value)
			if err != nil {
				return bad("addr=%q is not an IP address", value)
			}
			r.Addr = Is(a.Unmap().WithZone(""))
			continue
		}
		v, err := strconv.ParseUint(value, 0, 24)
		if err != nil {
			return bad("%s=%q is not a number of at most 24 bits", name, value)
		}
		switch name {
		case "qpn":
			r.QPN = Is(bth.QPN(v))
		case "psn":
			r.PSN = Is(bth.PSN(v))
		case "iter":
			r.Iter = int(v)
		case "nth":
			r.Nth = int(v)
		case "count":
			r.Count = int(v)
		default:
			return bad("%q is not op, qpn, psn, addr, iter, nth or count", name)
		}
	}
	if r.Dir == Both {
		r.Dir = 0 // the same, and prints as it was meant
	}
	if err := r.validate(); err != nil {
		return bad("%v", err)
	}
	return r, nil
}

// opcodeName is an opcode's name in rules: the table's, with underscores.
func opcodeName(op bth.Opcode) string {
	if n := op.Info().Name; n != "" {
		return strings.ReplaceAll(n, " ", "_")
	}
	return fmt.Sprintf("%#x", uint8(op))
}

// opcodeByName finds an opcode by number or by name. The "RC" in front may be
// left out, case and the kind of separator do not matter.
func opcodeByName(s string) (bth.Opcode, bool) {
	if v, err := strconv.ParseUint(s, 0, 8); err == nil {
		return bth.Opcode(v), true
	}
	plain := strings.NewReplacer("_", "", " ", "", "-", "")
	want := strings.ToUpper(plain.Replace(s))
	for op := range 256 {
		name := strings.ToUpper(plain.Replace(bth.Opcode(op).Info().Name))
		if name != "" && (name == want || name == "RC"+want) {
			return bth.Opcode(op), true
		}
	}
	return 0, false
}

// armed is a rule at work.
type armed struct {
	Rule
	matched int
	fired   int
}

// fires reports whether the rule acts on the packet, the iter-th transmission
// of its PSN, and keeps count.
func (a *armed) fires(dir Direction, at *place, p *bth.Packet, iter int) bool {
	if a.Dir != 0 && a.Dir&dir == 0 ||
		!a.Op.admits(p.Op) || !a.QPN.admits(p.DestQPN()) || !a.PSN.admits(p.PSN()) ||
		a.Iter != 0 && a.Iter != iter ||
		a.Addr.set && !at.names(a.Addr.v) ||
		a.Func != nil && !a.Func(dir, p) {
		return false
	}
	a.matched++
	count := a.Count
	if count == 0 && a.Nth > 0 {
		count = 1
	}
	if a.matched < a.Nth || count > 0 && a.fired >= count {
		return false
	}
	a.fired++
	return true
}

// names reports whether the frame is from or to an address.
func (p *place) names(a netip.Addr) bool {
	if p.env != nil {
		g := bth.GID(netip.AddrFrom16(a.As16()).As16())
		return p.env.Src == g || p.env.Dst == g
	}
	ip := p.ip
	at, n := 12, 4
	if len(ip) >= 40 && ip[0]>>4 == 6 {
		at, n = 8, 16
	}
	if len(ip) < at+2*n {
		return false
	}
	src, _ := netip.AddrFromSlice(ip[at : at+n])
	dst, _ := netip.AddrFromSlice(ip[at+n : at+2*n])
	return src == a || dst == a
}

const (
	maxIter  = 255
	iterSize = 1 << 14 // power of two
)

// iters counts transmissions per PSN. It is direct-mapped and forgets on a
// collision: a QP's window is far smaller than the table, and memory stays
// bounded whatever comes.
type iters [iterSize]struct {
	key   uint64
	count uint8
}

// count notes one more transmission and returns its number, from 1.
func (t *iters) count(dir Direction, p *bth.Packet) int {
	qpn, psn := uint64(p.DestQPN()), uint64(p.PSN())
	key := 1<<63 | uint64(dir)<<49 | qpn<<24 | psn
	if p.Info.Flags&bth.Response != 0 {
		key |= 1 << 48 // acknowledgements reuse the numbers of the other side
	}
	e := &t[(psn+(key>>24)*0x9E3779B1)%iterSize]
	if e.key != key {
		e.key, e.count = key, 0
	}
	if e.count < maxIter {
		e.count++
	}
	return int(e.count)
}
