//go:build linux

package verbs

import (
	"github.com/goroce/roce"
	"github.com/goroce/roce/bench/internal/trial"
)

// shape is how a stream of messages is laid out: how many are under way, how many are
// posted at a time, and where in memory they go round.
type shape struct {
	size   int
	burst  int // messages of one list
	depth  int // messages under way
	stride int
	places int // messages that have a place of their own; a multiple of burst
}

const (
	inFlight  = 4 << 20  // bytes under way, at least two messages
	maxDepth  = 2048     // messages under way
	listBytes = 64 << 10 // of the messages of one list
	maxBurst  = 64
	area      = 64 << 10 // memory that small messages go round in: it stays in the cache
)

func shapeOf(s trial.Spec) shape {
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

// perQP is how many messages of a queue pair can be under way: all, if it is the
// only one.
func (sh shape) perQP(qps int) int {
	return max((sh.depth/max(qps, 1)/sh.burst)*sh.burst, 2*sh.burst)
}

// sends makes the work requests of all places, by lists, between our memory from here on
// and the peer's from there on.
func (sh shape) sends(op roce.Opcode, mr *roce.MR, here int, peer offer, there int) (lists [][]roce.SendWR) {
	for first := 0; first < sh.places; first += sh.burst {
		list := make([]roce.SendWR, sh.burst)
		for i := range list {
			at := (first + i) * sh.stride
			list[i] = roce.SendWR{Opcode: op, SG: []roce.SGE{mr.SGE(here+at, sh.size)}, RemoteAddr: peer.Addr + uint64(there+at), RKey: roce.RKey(peer.RKey)}
		}
		list[len(list)-1].Flags = roce.Signaled
		lists = append(lists, list)
	}
	return lists
}

func (sh shape) recvs(mr *roce.MR) (lists [][]roce.RecvWR) {
	for first := 0; first < sh.places; first += sh.burst {
		list := make([]roce.RecvWR, sh.burst)
		for i := range list {
			list[i] = roce.RecvWR{SG: []roce.SGE{mr.SGE((first+i)*sh.stride, sh.size)}}
		}
		lists = append(lists, list)
	}
	return lists
}

// fill writes what is sent, verify compares: every byte of the memory says where it
// is, or every one of a message, if messages of several queue pairs may overtake each other.
func (sh shape) fill(b []byte, qps int) {
	for i := range b {
		b[i] = sh.pattern(i, qps)
	}
}

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
