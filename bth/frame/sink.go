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

// InPlaceSink is a Sink that can send payload without a copy.
type InPlaceSink interface {
	Sink

	// BeginInPlace is Begin for a packet whose payload is not copied: head has room for
	// the n bytes from the BTH to the payload, trailer for tail bytes behind it. The
	// caller computes the ICRC over the payload, too, and the payload must not change
	// until the packet has left. ok is false when there is no room, and for payload that
	// the sink cannot send in place: the caller then uses Begin.
	BeginInPlace(p *Path, n int, payload []byte, tail int) (head, trailer []byte, crc bth.CRC, ok bool)
}
