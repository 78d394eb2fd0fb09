package frame

import "github.com/goroce/roce/bth"

// Sink is where an engine writes packets.
//
// Begin lends room for one packet of n bytes, BTH to ICRC, on path p. The
// envelope is already written; body is exactly the n bytes, with undefined
// content, and crc is the ICRC register after the headers before it. ok is
// false when there is no room now; the engine asks again later.
//
// Commit takes what the last Begin lent. A Begin without Commit is abandoned:
// the next Begin may lend the same room.
type Sink interface {
	Begin(p *Path, n int) (body []byte, crc bth.CRC, ok bool)
	Commit()
}

// InPlaceSink is a Sink that can send payload from where it lies.
type InPlaceSink interface {
	Sink

	// BeginInPlace is Begin for a packet whose payload is not copied: head is room for
	// the n bytes from the BTH to the payload, tail for as many bytes behind it. The
	// payload, which the ICRC must be made of too, must not change until the packet has
	// left. ok is false when there is no room, and for payload the sink cannot send in
	// place, now or ever: Begin is there for that.
	BeginInPlace(p *Path, n int, payload []byte, tail int) (head, trailer []byte, crc bth.CRC, ok bool)
}
