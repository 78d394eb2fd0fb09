package fault

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/roce/bth"
)

// Action is the fault that a rule applies to a packet.
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
	Rewrite
)

var actionNames = [...]string{Drop: "drop", Dup: "dup", Reorder: "reorder", Delay: "delay", Corrupt: "corrupt", ECN: "ecn", Pass: "pass", Rewrite: "rewrite"}

// ActionNames returns the names of all actions.
func ActionNames() []string { return actionNames[Drop:] }

// ParseAction finds an action by its name.
func ParseAction(name string) (Action, bool) {
	i := slices.Index(actionNames[:], name)
	return Action(max(i, 0)), i > 0
}

// String returns the name used in flags.
func (a Action) String() string { return nameOf("Action", actionNames[:], a) }

// Opt is a value that may be absent; [Is] makes one that is present.
type Opt[T comparable] struct {
	v   T
	set bool
}

// Is returns a value to match.
func Is[T comparable](v T) Opt[T] { return Opt[T]{v, true} }

// admits reports whether v is the value, or the value is absent.
func (o Opt[T]) admits(v T) bool { return !o.set || o.v == v }

// Rule is one exact fault: an action for the packets with certain properties. A
// zero field matches every packet; a packet that is not valid RoCE matches no
// rule.
//
//	fault.Rule{Action: fault.Drop, Dir: fault.Tx, PSN: fault.Is(bth.PSN(5)), Iter: 1}
type Rule struct {
	Action Action
	Dir    Direction // 0 means Both

	Op  Opt[bth.Opcode]
	Ops OpcodeSet    // several opcodes; empty means any
	QPN Opt[bth.QPN] // destination QPN in the BTH
	PSN Opt[bth.PSN]

	// Conn is the number of a connection: connections are numbered from 1, in the order in which
	// they begin. RelPSN is a PSN relative to the first PSN of the requester, from 0; a response
	// has the PSN of its request. The network learns both from the handshake of the connection
	// manager or, if the connection was made out of band, from its first packets.
	Conn   int
	RelPSN Opt[int]

	// Addr is the source or destination IP address, Src the source, Dst the destination.
	Addr, Src, Dst Opt[netip.Addr]

	// Iter k matches only the k-th transmission of a PSN: packets of one
	// direction, destination QPN, PSN and kind (request or response) are
	// counted from 1. 0 means any.
	Iter int

	// After and Until bound the time since the network was made. Until 0 means for ever.
	After, Until time.Duration

	// Func, if not nil, must agree too. It must not keep the packet.
	Func func(dir Direction, p *bth.Packet) bool

	// The rule acts on some of the packets that match: first on the Nth, counted from 1, then on
	// every Every-th after it, on Count packets in all. Nth 0 means the Every-th packet if Every is
	// set, else the first. Every 0 means each packet. Count 0 means one packet if Nth is set and
	// Every is not, else no limit.
	Nth, Every, Count int

	// Probability is the probability that the rule acts on a packet that passes all
	// other conditions; 0 means always.
	Probability float64

	// Parameters of the action. Zero means the value of Config if it has one, else 1.
	Time   time.Duration // Delay: how long; Reorder: at most so long
	Jitter time.Duration // Delay: upper limit of the random addition to Time
	By     int           // Reorder: how many packets overtake
	Copies int           // Dup: how many additional copies
	Bits   int           // Corrupt: how many bits in a row, at most 32
	ICRC   ICRC          // Corrupt, Rewrite: whether the ICRC is right afterwards
	Edits  []Edit        // Rewrite: the new values
}

// Check returns an error for a rule that can never fire or has no effect.
func (r *Rule) Check() error {
	switch {
	case r.Action < Drop || r.Action > Rewrite:
		return errors.New("there is no action")
	case r.Dir > Both:
		return fmt.Errorf("direction %d is unknown", r.Dir)
	case r.Iter < 0 || r.Iter > maxIter:
		return fmt.Errorf("iter is not between 0 and %d", maxIter)
	case r.Nth < 0 || r.Count < 0 || r.Every < 0 || r.Conn < 0:
		return errors.New("negative nth, every, count or conn")
	case !(r.Probability >= 0 && r.Probability <= 1):
		return errors.New("the probability is not between 0 and 1")
	case r.After < 0 || r.Until < 0 || r.Until != 0 && r.Until <= r.After:
		return errors.New("it ends before it begins")
	case r.Bits > maxBits:
		return fmt.Errorf("more than %d bits to be inverted", maxBits)
	case r.Action == Rewrite && len(r.Edits) == 0:
		return errors.New("rewrite sets no field")
	}
	for _, p := range r.parameters() {
		switch {
		case p.negative:
			return fmt.Errorf("%s is negative", p.name)
		case p.value != "" && !p.of.Has(r.Action):
			return fmt.Errorf("%s has no %s", r.Action, p.name)
		}
	}
	return nil
}

// parameter is a parameter of some actions, with its value as text; an empty value means that it is
// not set.
type parameter struct {
	name, value string
	of          Faults
	negative    bool
}

// parameterOf makes a parameter of some actions from its value; 0 means that it is not set.
func parameterOf[T int | time.Duration](name string, v T, of Faults) parameter {
	p := parameter{name: name, of: of, negative: v < 0}
	if v != 0 {
		p.value = fmt.Sprint(v)
	}
	return p
}

// parameters lists the parameters of all actions, with the values of the rule.
func (r *Rule) parameters() []parameter {
	list := []parameter{
		parameterOf("time", r.Time, Of(Delay)|Of(Reorder)), parameterOf("jitter", r.Jitter, Of(Delay)),
		parameterOf("by", r.By, Of(Reorder)), parameterOf("copies", r.Copies, Of(Dup)), parameterOf("bits", r.Bits, Of(Corrupt)),
	}
	if r.ICRC != ICRCDefault {
		list = append(list, parameter{name: "icrc", value: r.ICRC.String(), of: Of(Corrupt) | Of(Rewrite)})
	}
	for _, e := range r.Edits {
		name, value, _ := strings.Cut(e.String(), "=")
		list = append(list, parameter{name: "set." + name, value: value, of: Of(Rewrite)})
	}
	return list
}

// String prints the rule as [ParseRule] reads it; Func shows as "func".
func (r *Rule) String() string {
	s := []string{r.Action.String()}
	if r.Dir == Tx || r.Dir == Rx {
		s = append(s, r.Dir.String())
	}
	add := func(set bool, name string, value any) {
		if set {
			s = append(s, fmt.Sprintf("%s=%v", name, value))
		}
	}
	add(r.Op.set, "op", opcodeName(r.Op.v))
	add(!r.Ops.empty(), "op", &r.Ops)
	add(r.QPN.set, "qpn", fmt.Sprintf("%#x", uint32(r.QPN.v)))
	add(r.PSN.set, "psn", fmt.Sprintf("%#x", uint32(r.PSN.v)))
	add(r.RelPSN.set, "rel", r.RelPSN.v)
	add(r.Addr.set, "addr", r.Addr.v)
	add(r.Src.set, "src", r.Src.v)
	add(r.Dst.set, "dst", r.Dst.v)
	add(r.Conn != 0, "conn", r.Conn)
	add(r.Iter != 0, "iter", r.Iter)
	add(r.Nth != 0, "nth", r.Nth)
	add(r.Every != 0, "every", r.Every)
	add(r.Count != 0, "count", r.Count)
	add(r.After != 0, "after", r.After)
	add(r.Until != 0, "until", r.Until)
	add(r.Probability != 0, "p", strconv.FormatFloat(r.Probability, 'g', -1, 64))
	for _, p := range r.parameters() {
		add(p.value != "", p.name, p.value)
	}
	if r.Func != nil {
		s = append(s, "func")
	}
	return strings.Join(s, ",")
}
