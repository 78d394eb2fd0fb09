package wire

import (
	"fmt"
	"strings"
)

// String returns the message on one line, for traces.
func (m *Message) String() string {
	var b strings.Builder
	if m.Order == BigEndian {
		b.WriteString("BE ")
	}
	b.WriteString(m.Type.String())
	if m.Version != Version2 {
		fmt.Fprintf(&b, " v%#x", uint16(m.Version))
	}
	if m.Credits > 0 {
		fmt.Fprintf(&b, " credits=%d", m.Credits)
	}
	if m.Checksum != 0 {
		fmt.Fprintf(&b, " checksum=%08x", m.Checksum)
	}
	has := layouts[m.Type].has
	if has&hasConn != 0 {
		fmt.Fprintf(&b, " %v stamp=%x > %v stamp=%x %v", m.Src, uint64(m.SrcStamp), m.Dst, uint64(m.DstStamp), m.Conn)
	}
	if has&hasCookie != 0 {
		fmt.Fprintf(&b, " cookie=%x", uint64(m.Cookie))
	}
	if has&hasSinkCookie != 0 {
		fmt.Fprintf(&b, " sink_cookie=%x", uint64(m.SinkCookie))
	}
	if has&hasStatus != 0 {
		fmt.Fprintf(&b, " status=%d", m.Status)
	}
	if has&hasDesc != 0 {
		fmt.Fprintf(&b, " %v", m.Desc)
	}
	if has&hasLNet != 0 {
		fmt.Fprintf(&b, " LNet %v", &m.LNet)
	}
	return b.String()
}

func (p ConnParams) String() string {
	return fmt.Sprintf("depth=%d frags=%d size=%d", p.QueueDepth, p.MaxFrags, p.MaxMessage)
}

func (d Descriptor) String() string {
	const shown = 4
	var b strings.Builder
	fmt.Fprintf(&b, "rkey=%#x", d.RKey)
	for _, f := range d.Frags[:min(shown, len(d.Frags))] {
		fmt.Fprintf(&b, " %d@%#x", f.Len, f.Addr)
	}
	if n := len(d.Frags) - shown; n > 0 {
		fmt.Fprintf(&b, " and %d more", n)
	}
	return b.String()
}

func (r *Reject) String() string {
	return fmt.Sprintf("REJ %v stamp=%x %v", r.Why, uint64(r.Stamp), r.Params)
}

func (h *LNetHeader) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %v/%d > %v/%d", h.Type, h.Src, h.SrcPID, h.Dst, h.DstPID)
	if h.MD == NoMD {
		b.WriteString(" md=none")
	} else {
		fmt.Fprintf(&b, " md=%x.%x", h.MD.Interface, h.MD.Object)
	}
	switch h.Type {
	case Put, Get:
		fmt.Fprintf(&b, " portal=%d match=%x offset=%d", h.Portal, h.MatchBits, h.Offset)
	case Ack:
		fmt.Fprintf(&b, " match=%x", h.MatchBits)
	}
	switch h.Type {
	case Put, Reply:
		fmt.Fprintf(&b, " len=%d", h.PayloadLen)
	case Get:
		fmt.Fprintf(&b, " sink=%d", h.SinkLen)
	case Ack:
		fmt.Fprintf(&b, " took=%d", h.MLength)
	}
	return b.String()
}
