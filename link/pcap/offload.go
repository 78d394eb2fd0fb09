package pcap

import (
	"strings"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// A capture made on the host that sends shows frames as the kernel hands them to the
// card, and one made on the host that receives shows them as the kernel has joined them.
// What the card does last, offload, is missing: checksums, and the division of a
// super-packet into packets. A Reader does that, so that its records are what was on the
// wire. The ICRC tells whether they are, since the sender made it for the packets on the
// wire. A frame whose ICRC does not get right remains as it was captured, but for a UDP
// checksum that is partial beyond doubt.

// Mark says what was not as on the wire in the frame that a record was made from.
type Mark uint8

// The marks. The record has all that is missing filled in.
const (
	// PartialUDPChecksum: only the pseudo header was summed up, the card does the rest.
	PartialUDPChecksum Mark = 1 << iota

	// NoIPChecksum: the checksum of the IPv4 header was zero.
	NoIPChecksum

	// NoLength: the length in the IP header was zero.
	NoLength

	// WrongUDPChecksum: the ICRC is right, but the UDP checksum is neither right nor
	// partial, and left so: a receiver that looks at it drops the packet.
	WrongUDPChecksum
)

var markNames = [...]string{"UDP checksum partial", "no IPv4 checksum", "no IP length", "UDP checksum WRONG"}

// String names all that are set, separated by commas.
func (m Mark) String() string { return strings.Join(m.Names(), ", ") }

// Names returns the names of all that are set.
func (m Mark) Names() (s []string) {
	for i, name := range markNames {
		if m&(1<<i) != 0 {
			s = append(s, name)
		}
	}
	return s
}

const (
	// minPacket and maxPacket are the least and most bytes a RoCE packet may have from
	// BTH to ICRC. All have a multiple of four.
	minPacket = bth.BTHLen + bth.ICRCLen
	maxPacket = bth.MaxHeaderLen + 4096 + bth.ICRCLen
)

// offload undoes the offload of the frames of one Reader.
type offload struct {
	packet frame.Packet

	// The super-packet that is being handed out.
	rec    Record
	at     headers
	env    frame.Envelope
	body   []byte
	size   int // of a segment, from BTH to ICRC
	next   int // segment to be handed out
	frame  []byte
	marks  Mark // of all its segments
	common int  // size of the last one's segments: mostly that of the next one's
}

// undo makes of a record what was on the wire, or the first packet of that.
func (o *offload) undo(rec *Record) {
	data, layout, ok := rec.Frame()
	if !ok {
		return
	}
	o.packet.IgnoreUDPChecksum = false
	if err := o.packet.Parse(data, layout); err == frame.ErrNotRoCE || err == nil && o.icrcRight() {
		return
	}
	at, ok := locate(rec.Data, len(rec.Data)-len(data), layout)
	if !ok || at.end > len(rec.Data) {
		return
	}
	o.frame = append(o.frame[:0], rec.Data[:at.body]...) // as captured
	marks := at.complete(rec.Data)
	o.packet.IgnoreUDPChecksum = true
	if o.packet.Parse(data, layout) == nil && o.icrcRight() {
		rec.Marks = marks
		return
	}
	copy(rec.Data, o.frame)
	if !o.split(rec, at, marks) && marks == PartialUDPChecksum {
		rec.Marks = at.complete(rec.Data)
	}
}

// icrcRight reports whether the ICRC of o.packet is right, or wrong as rxe has it for a FLUSH.
func (o *offload) icrcRight() bool {
	return o.packet.CheckICRC() || o.packet.Info.Flags&bth.Flush != 0 && o.packet.CheckICRCFlushQuirk()
}

// split looks for the segments of a super-packet and makes the record the first.
func (o *offload) split(rec *Record, at headers, marks Mark) bool {
	o.body, o.at, o.next = rec.Data[at.body:at.end], at, 0
	o.env = at.envelope(rec.Data)
	if o.size = o.find(); o.size == 0 {
		return false
	}
	o.common = o.size
	if marks&WrongUDPChecksum != 0 { // of a super-packet it means nothing: its packets get their own
		marks = marks&^WrongUDPChecksum | PartialUDPChecksum
	}
	o.rec, o.marks = *rec, marks
	o.segment(rec)
	return true
}

// more reports whether segments are left.
func (o *offload) more() bool { return o.size != 0 && o.next*o.size < len(o.body) }

// segment makes rec the next segment.
func (o *offload) segment(rec *Record) {
	b := o.part(o.size, o.next)
	id := o.env.ID + uint16(o.next)
	if o.right(b, o.next) {
		if solved, ok := o.packet.RecoverIPv4ID(); ok {
			id = solved
		}
	}
	o.frame = append(append(o.frame[:0], o.rec.Data[:o.at.body]...), b...)
	at := o.at
	at.end = len(o.frame)
	at.setLengths(o.frame)
	if !at.v6 {
		be.PutUint16(o.frame[at.ip+4:], id)
		at.setIPChecksum(o.frame)
	}
	if be.Uint16(o.frame[at.udp+6:]) != 0 {
		at.setUDPChecksum(o.frame)
	}
	o.next++
	*rec = o.rec
	rec.Data, rec.OrigLen, rec.Marks = o.frame, len(o.frame), o.marks
	rec.Segment, rec.Segments = o.next, (len(o.body)+o.size-1)/o.size
}

// part returns segment i of those of a size.
func (o *offload) part(size, i int) []byte {
	b := o.body[i*size:]
	return b[:min(size, len(b))]
}

// right reports whether b could be segment i. It leaves b in o.packet.
func (o *offload) right(b []byte, i int) bool {
	return o.packet.ParseBody(b, &o.env, uint16(i)) == nil && o.icrcRight()
}

// find looks for the size of the segments, 0 if there are none.
//
// All are of one size; the last one may be shorter. The usual sizes are tried first, and
// do if any segment is right: damage to some does not hide the others. Then any
// size will do that makes the first segment right, and something like a packet of
// what follows.
func (o *offload) find() int {
	if len(o.body) < 2*minPacket || len(o.body)%4 != 0 {
		return 0
	}
	if o.anyRight(o.common) {
		return o.common
	}
	var first bth.Packet
	if first.Parse(o.body[:min(len(o.body), maxPacket)&^3]) != nil {
		return 0
	}
	for m := bth.MTU256; m <= bth.MTU4096; m++ {
		if size := int(first.Info.HeaderLen) + m.Bytes() + bth.ICRCLen; o.anyRight(size) {
			return size
		}
	}
	last := min(len(o.body)-minPacket, maxPacket)
	if first.Info.Flags&bth.Payload == 0 {
		last = min(last, int(first.Info.HeaderLen)+bth.ICRCLen)
	}
	var second bth.Packet
	for size := int(first.Info.HeaderLen) + bth.ICRCLen; size <= last; size += 4 {
		if second.Parse(o.part(size, 1)) == nil && second.PKey() != 0 && o.right(o.body[:size], 0) {
			return size
		}
	}
	return 0
}

// anyRight reports whether one of several segments of a size is right, and all could be
// packets by their lengths. A shorter last one does not tell: it may be the last of many.
func (o *offload) anyRight(size int) bool {
	if size < minPacket || size >= len(o.body) || len(o.body)%size != 0 && len(o.body)%size < minPacket {
		return false
	}
	for i := 0; (i+1)*size <= len(o.body); i++ {
		if o.right(o.part(size, i), i) {
			return true
		}
	}
	return false
}
