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
