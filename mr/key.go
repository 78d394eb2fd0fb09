package mr

// A memory key is perm(slot)<<8 | variant. slot is the index into the table;
// perm is a permutation of the 24-bit numbers under a secret key, so that a
// peer that knows some keys cannot guess others: predictable keys are what the
// published attacks on RDMA start from (ReDMArk, USENIX Security 2021). variant
// is random and changes each time the slot is used again, so that a stale key
// does not open its successor. The low byte is also the part that the standard
// gives to the consumer of a fast registration or type 2 window.

const (
	slotBits = 24
	half     = slotBits / 2
	halfMask = 1<<half - 1
	rounds   = 4
)

// permutation is a Feistel network over two halves of 12 bits. Four rounds
// make any keyed round function that behaves randomly a permutation that does;
// this one, the upper bits of a keyed multiplication, is chosen for speed: the
// aim is that keys cannot be guessed within a connection's life, not
// cryptography.
type permutation struct {
	add [rounds]uint32
	mul [rounds]uint32 // odd
}

func newPermutation(rnd func() uint64) (p permutation) {
	for i := range rounds {
		r := rnd()
		p.add[i], p.mul[i] = uint32(r), uint32(r>>32)|1
	}
	return p
}

// round is the round function: 12 bits from 12 bits.
func (p *permutation) round(i int, x uint32) uint32 {
	y := (x + p.add[i]) * p.mul[i]
	return (y ^ y<<7) >> (32 - half)
}

// forward permutes a slot into the upper 24 bits of a key.
func (p *permutation) forward(slot uint32) uint32 {
	l, r := slot>>half, slot&halfMask
	l ^= p.round(0, r)
	r ^= p.round(1, l)
	l ^= p.round(2, r)
	r ^= p.round(3, l)
	return l<<half | r
}

// inverse undoes forward.
func (p *permutation) inverse(index uint32) uint32 {
	l, r := index>>half, index&halfMask
	r ^= p.round(3, l)
	l ^= p.round(2, r)
	r ^= p.round(1, l)
	l ^= p.round(0, r)
	return l<<half | r
}
