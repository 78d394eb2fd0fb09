package pcap

import (
	"strings"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// A capture on the sending host shows frames as the kernel gives them to the card: checksums
// may be incomplete, and a super-packet is not divided yet. A capture on the receiving host
// shows frames after the kernel has joined packets. A Reader completes the checksums and
// divides super-packets, so that its records are the packets of the wire. The ICRC verifies
// this, because the sender computed it for the packets on the wire. If no division makes
// the ICRC right, the Reader leaves the frame as it was captured, but still completes a
// partial UDP checksum.

// Mark names the differences between the captured frame of a record and the wire.
type Mark uint8

// The marks. The record has the restored values.
const (
	// PartialUDPChecksum: the checksum had only the sum of the pseudo header; the card
	// completes it.
	PartialUDPChecksum Mark = 1 << iota

	// NoIPChecksum: the checksum of the IPv4 header was zero.
	NoIPChecksum

	// NoLength: the length in the IP header was zero.
	NoLength

	// WrongUDPChecksum: the ICRC is right, but the UDP checksum is neither right nor
	// partial, and remains so: a receiver that checks it drops the packet.
	WrongUDPChecksum
)

var markNames = [...]string{"UDP checksum partial", "no IPv4 checksum", "no IP length", "UDP checksum WRONG"}

// String returns the names of all set marks, separated by commas.
func (m Mark) String() string { return strings.Join(m.Names(), ", ") }

// Names returns the names of all set marks.
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

	// The super-packet that is being returned.
	rec    Record
	at     headers
	env    frame.Envelope
	body   []byte
	size   int // of a segment, from BTH to ICRC
	next   int // next segment to return
	frame  []byte
	marks  Mark // of all its segments
	common int  // size of the segments of the last super-packet, usually also of the next
}

// undo turns a record into the packet of the wire, or the first of several
// packets.
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

// icrcRight reports whether the ICRC of o.packet is right, or is rxe's ICRC of a FLUSH.
func (o *offload) icrcRight() bool {
	return o.packet.CheckICRC() || o.packet.Info.Flags&bth.Flush != 0 && o.packet.CheckICRCFlushQuirk()
}

// split finds the segments of a super-packet and makes the record the first one.
func (o *offload) split(rec *Record, at headers, marks Mark) bool {
	o.body, o.at, o.next = rec.Data[at.body:at.end], at, 0
	o.env = at.envelope(rec.Data)
	if o.size = o.find(); o.size == 0 {
		return false
	}
	o.common = o.size
	if marks&WrongUDPChecksum != 0 { // the checksum of a super-packet has no meaning: each packet gets its own
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

// part returns segment i for a segment size.
func (o *offload) part(size, i int) []byte {
	b := o.body[i*size:]
	return b[:min(size, len(b))]
}

// right reports whether b as segment i is a packet with a right ICRC. It parses b into o.packet.
func (o *offload) right(b []byte, i int) bool {
	return o.packet.ParseBody(b, &o.env, uint16(i)) == nil && o.icrcRight()
}

// find returns the size of the segments, or 0 if the frame is not a super-packet.
//
// All segments have one size; the last one may be shorter. find tries the usual sizes first, and
// accepts one if any segment has a right ICRC, so that damaged segments do not hide the others.
// Then it tries every size. It accepts one if the first segment has a right ICRC and the bytes
// after it can be the start of a packet.
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

// anyRight reports whether any segment of a size has a right ICRC, and all are long enough for a
// packet. It ignores a shorter last segment, which can be the last one for many
// sizes.
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
