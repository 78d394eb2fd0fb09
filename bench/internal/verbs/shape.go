//go:build linux

package verbs

import (
	"slices"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bench/internal/harness"
)

// shape is the layout of a stream of messages: how many are in flight, how many are posted at a
// time, and which places in memory they use in turn.
type shape struct {
	size   int
	burst  int // messages of one list
	depth  int // messages in flight
	stride int
	places int // messages that have a place of their own; a multiple of burst
}

const (
	inFlight  = 4 << 20  // bytes in flight, at least two messages
	maxDepth  = 2048     // messages in flight
	listBytes = 64 << 10 // of the messages of one list
	maxBurst  = 64
	area      = 64 << 10 // memory that small messages use in turn: it stays in the cache
)

func shapeOf(s harness.Spec) shape {
	sh := shape{size: s.Size, stride: max(s.Size, 1)}
	sh.burst = s.Burst
	if sh.burst == 0 {
		sh.burst = min(max(listBytes/sh.stride, 1), maxBurst)
	}
	sh.depth = min(max(inFlight/sh.stride, 2), maxDepth)
	sh.depth = max(sh.depth/sh.burst, 2) * sh.burst
	sh.places = max(area/sh.stride/sh.burst, 1) * sh.burst
	return sh
}

func (sh shape) memory() int { return sh.places * sh.stride }

// perQP returns how many messages of each of qps queue pairs can be in flight.
func (sh shape) perQP(qps int) int {
	return max((sh.depth/max(qps, 1)/sh.burst)*sh.burst, 2*sh.burst)
}

// sends makes the work requests of all places, in lists. They move data between this end's
// memory at offset here and the peer's at offset there.
func (sh shape) sends(op roce.Opcode, mr *roce.MR, here int, peer offer, there int) (lists [][]roce.SendWR) {
	var all []roce.SendWR
	for at := 0; at < sh.memory(); at += sh.stride {
		all = append(all, roce.SendWR{Opcode: op, SG: []roce.SGE{mr.SGE(here+at, sh.size)}, RemoteAddr: peer.Addr + uint64(there+at), RKey: roce.RKey(peer.RKey)})
	}
	lists = slices.Collect(slices.Chunk(all, sh.burst))
	for _, list := range lists {
		list[len(list)-1].Flags = roce.Signaled
	}
	return lists
}

func (sh shape) recvs(mr *roce.MR) [][]roce.RecvWR {
	var all []roce.RecvWR
	for at := 0; at < sh.memory(); at += sh.stride {
		all = append(all, roce.RecvWR{SG: []roce.SGE{mr.SGE(at, sh.size)}})
	}
	return slices.Collect(slices.Chunk(all, sh.burst))
}

// fill writes the data to send. Each byte depends on its offset in the memory or, with several
// queue pairs, in its message, because messages of different queue pairs may overtake each other.
func (sh shape) fill(b []byte, qps int) {
	for i := range b {
		b[i] = sh.pattern(i, qps)
	}
}

// verify compares received data with what fill writes. If a byte differs, ok is false and at is
// its offset.
func (sh shape) verify(b []byte, qps int) (at int, ok bool) {
	for i := range b {
		if b[i] != sh.pattern(i, qps) {
			return i, false
		}
	}
	return 0, true
}

func (sh shape) pattern(i, qps int) byte {
	if qps > 1 {
		i %= sh.stride
	}
	return byte(i) ^ byte(i>>8)*31 ^ byte(i>>16)*17 | 1
}
