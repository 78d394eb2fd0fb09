package lnd

import (
	"encoding/binary"

	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// RaceRule says which request wins if two connection requests cross on the wire. The side with the
// higher NID refuses the other's request, but versions of Lustre compare NIDs differently. Two nodes
// of different versions may therefore refuse each other. This side then waits a random time before it asks
// again, and accepts requests meanwhile.
type RaceRule uint8

// The rules.
const (
	RaceByWords  RaceRule = iota // Lustre 2.16 and later: as words of a little-endian machine
	RaceByNumber                 // before Lustre 2.16: as numbers
	RaceAccept                   // never refuse: two connections are legal
)

// maxRaces is how many races in a row a peer may lose.
const maxRaces = 20

// wins reports whether this side's request wins against the peer's.
func (r RaceRule) wins(local, peer wire.NID) bool {
	switch r {
	case RaceByNumber:
		return local > peer
	case RaceByWords:
		return raceWord(local) > raceWord(peer)
	}
	return false
}

// raceWord returns the XOR of network number and address. Both are in network byte order in memory and are read as
// little-endian numbers, so the last octet of the address is the most significant.
func raceWord(n wire.NID) uint32 {
	b := binary.BigEndian.AppendUint64(nil, uint64(n))
	return uint32(binary.LittleEndian.Uint16(b[2:])) ^ binary.LittleEndian.Uint32(b[4:])
}
