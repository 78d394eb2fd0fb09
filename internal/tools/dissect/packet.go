// Package dissect decodes captured frames for people and programs: it prints one readable line or one
// JSON object per packet, verifies its ICRC, and decodes the messages of the connection manager.
package dissect

import (
	"errors"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/examples/o2iblnd/sniff"
	"github.com/goroce/roce/link/pcap"
)

// Kind is the kind of a captured frame.
type Kind uint8

// The kinds.
const (
	Other     Kind = iota // not for UDP port 4791
	Malformed             // for that port, but not a RoCE packet; see Packet.Err
	Truncated             // cut by the capture before the end of its headers
	RoCE                  // decoded
)

// Packet is one decoded frame. Its Frame refers to the captured bytes.
type Packet struct {
	Num  int           // of the frame in the file, from 1
	Time time.Time     // of capture
	At   time.Duration // since the first frame of the file
	Len  int           // of the whole frame, in bytes
	Kind Kind
	Err  error // why it is Malformed

	// In a super-packet with Segments packets, this is number Segment, from 1. Both are 0 if the frame has one packet.
	Segment, Segments int
	Marks             pcap.Mark

	Comment string // in the capture

	// The interface and the direction of the packet, if the file has them; see [pcap.Record].
	Interface, IfIndex int
	Direction          pcap.Direction

	// The rest is of RoCE packets.
	Frame  frame.Packet
	Cut    bool // the capture has the headers but not the end of the packet: the missing bytes are zeros, and the ICRC is not known
	ICRCOK bool
	// FlushQuirk says that the ICRC is wrong, but equal to the one that rxe of Linux 6.12 computes for a FLUSH.
	FlushQuirk bool
	CM         cm.Message // nil unless it is a MAD of the connection manager
	CMErr      error      // why a packet to QP 1 is no such MAD

	// LNet is the message of Lustre's o2iblnd that the packet completes; nil: none.
	LNet *sniff.Unit

	whole []byte // the frame, with zeros for the bytes that were not captured
}

// Parse decodes a frame that begins as layout says. The caller sets Marks before, and Num, Time, At,
// Len, Segment and Segments before or after.
func (p *Packet) Parse(data []byte, layout frame.Layout) {
	p.Frame = frame.Packet{IgnoreUDPChecksum: p.Marks&pcap.WrongUDPChecksum != 0}
	p.Cut, p.ICRCOK, p.FlushQuirk, p.CM, p.CMErr, p.LNet = false, false, false, nil, nil, nil
	p.Err = p.Frame.Parse(data, layout)
	switch {
	case p.Err == nil:
		p.Kind = RoCE
	case errors.Is(p.Err, frame.ErrNotRoCE):
		p.Kind = Other
		return
	default:
		p.Kind = Malformed
		return
	}
	p.ICRCOK = p.Frame.CheckICRC()
	p.FlushQuirk = !p.ICRCOK && p.Frame.CheckICRCFlushQuirk()
	if p.Frame.Op.Transport() == bth.UD && p.Frame.DestQPN() == bth.QPNGSI {
		p.CM, p.CMErr = cm.DecodeMAD(p.Frame.Payload())
	}
}
