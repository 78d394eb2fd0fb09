package script

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// nakNames are the names of NAKs in outcomes.
var nakNames = map[bth.Syndrome]string{bth.NAKSequence: "NAK sequence", bth.NAKInvalidRequest: "NAK invalid", bth.NAKRemoteAccess: "NAK access",
	bth.NAKRemoteOp: "NAK operation"}

// describe describes a response as outcomes do. Its PSN is relative to the first packet of the script.
func (s *Session) describe(p *frame.Packet) string {
	at := fmt.Sprintf("%+d", p.PSN().Sub(s.first))
	f := p.Info.Flags
	switch {
	case f&bth.Atomic != 0:
		value := fmt.Sprintf("=%#x", p.AtomicValue())
		if p.AtomicValue() == s.ctl.va {
			value = "= the address of the memory"
		}
		return fmt.Sprintf("ATOMIC_ACK %s %s msn %d", at, value, p.MSN())
	case f&bth.Read != 0 || p.PayloadLen() > 0 || p.Op == bth.RCReadResponseOnly:
		t := fmt.Sprintf("%s %s %d B", strings.TrimPrefix(p.Info.Name, "RC READ_RESPONSE_"), at, p.PayloadLen())
		if p.Info.Headers&bth.HasAETH != 0 {
			t += fmt.Sprintf(" msn %d", p.MSN())
		}
		return "READ " + t
	}
	name := cmp.Or(ackName(p.Syndrome()), fmt.Sprintf("syndrome %#x", uint8(p.Syndrome())))
	return fmt.Sprintf("%s %s msn %d", name, at, p.MSN())
}

// ackName returns the name of an acknowledgement, "" if its syndrome has none.
func ackName(s bth.Syndrome) string {
	switch s.Kind() {
	case bth.KindRNR:
		return "RNR"
	case bth.KindACK:
		return "ACK"
	}
	return nakNames[s]
}

// text describes a packet of the peer in the words of an expect statement.
func (s *Session) text(h *Heard) string { return s.textOf(h, false) }

// textOf is like text. own says that the script has sent the packet.
func (s *Session) textOf(h *Heard, own bool) string {
	if h.MAD != nil {
		return h.MAD.String()
	}
	p := &h.Packet
	base := s.theirs
	if own == (p.Info.Flags&bth.Response == 0) {
		base = s.first
	}
	var b strings.Builder
	name := strings.ReplaceAll(strings.TrimPrefix(p.Info.Name, s.conn.tr.String()+" "), " ", "_")
	if p.Op == bth.RCAck {
		name = strings.ReplaceAll(strings.ToUpper(ackName(p.Syndrome())), " ", "_")
		name = cmp.Or(name, fmt.Sprintf("ACKNOWLEDGE syndrome=%#x", uint8(p.Syndrome())))
	}
	if p.Op == 0 && p.Info.Name == "" {
		name = fmt.Sprintf("op:%#x", uint8(p.Op))
	}
	fmt.Fprintf(&b, "%s psn=%+d", name, p.PSN().Sub(base))
	if p.Info.Headers&bth.HasAETH != 0 {
		fmt.Fprintf(&b, " msn=%d", p.MSN())
	}
	for _, n := range []string{"va", "rkey", "dmalen", "swap", "compare", "value", "imm", "inv"} {
		if f := fieldOf(n); f.has(p) {
			fmt.Fprintf(&b, " %s=%s", n, number(f.get(p)))
		}
	}
	if p.AckReq() {
		b.WriteString(" ackreq")
	}
	if n := p.PayloadLen(); n > 0 {
		fmt.Fprintf(&b, " len=%d", n)
	}
	if !h.ICRC {
		b.WriteString(" icrc=bad")
	}
	return b.String()
}
