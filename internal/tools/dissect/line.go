package dissect

import (
	"fmt"
	"io"
	"strings"

	"github.com/goroce/roce/bth"
)

// Line returns the packet on one line: number, seconds since the first frame, addresses, opcode,
// destination queue pair, PSN, flags, the fields of extended headers, payload length, ICRC, number in the
// super-packet, marks of offloads, the message if the packet is a MAD, the LNet message that the packet completes, and
// the comment in the capture.
func (p *Packet) Line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%5d %10.6f  ", p.Num, p.At.Seconds())
	switch p.Kind {
	case Other:
		fmt.Fprintf(&b, "other traffic, %d bytes", p.Len)
	case Truncated:
		fmt.Fprintf(&b, "cut short by the capture, %d bytes", p.Len)
	case Malformed:
		fmt.Fprintf(&b, "MALFORMED, %d bytes: %v", p.Len, p.Err)
	default:
		f := &p.Frame
		fmt.Fprintf(&b, "%v > %v  %s", f.Src.Addr(), f.Dst.Addr(), p.fields())
		switch {
		case p.Cut:
			b.WriteString("  cut short by the capture")
		case p.ICRCOK:
			b.WriteString("  ICRC ok")
		case p.FlushQuirk:
			fmt.Fprintf(&b, "  ICRC BAD (%08x, as rxe has it for FLUSH)", f.ICRC())
		default:
			fmt.Fprintf(&b, "  ICRC BAD (%08x)", f.ICRC())
		}
		if p.Segments > 0 {
			fmt.Fprintf(&b, "  [%d of %d]", p.Segment, p.Segments)
		}
		if p.Marks != 0 {
			fmt.Fprintf(&b, "  [%v]", p.Marks)
		}
		switch {
		case p.CM != nil:
			fmt.Fprintf(&b, "  CM %v", p.CM)
		case p.CMErr != nil:
			fmt.Fprintf(&b, "  %v", p.CMErr)
		}
		if p.LNet != nil {
			fmt.Fprintf(&b, "  %v", p.LNet)
		}
	}
	if p.Comment != "" {
		fmt.Fprintf(&b, "  # %s", strings.ReplaceAll(p.Comment, "\n", " "))
	}
	return b.String()
}

// Label returns the text for an arrow of a ladder diagram: the fields without the transport, which is the same for all
// packets of a connection.
func (p *Packet) Label() string {
	if p.CM != nil {
		return "CM " + p.CM.Attribute().String()
	}
	return strings.TrimPrefix(p.fields(), p.Frame.Info.Transport.String()+" ")
}

func (p *Packet) fields() string {
	f := bth.Decode(&p.Frame.Packet)
	return f.String()
}

// LinePrinter returns a function that prints a packet on a line.
func LinePrinter(w io.Writer) func(*Packet) error {
	return func(p *Packet) error {
		_, err := fmt.Fprintln(w, p.Line())
		return err
	}
}
