package mr

import "github.com/goroce/roce/bth"

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
)

// permutation is a Feistel network over two halves of 12 bits. Three rounds
// with random functions make a random permutation (Luby and Rackoff, 1988),
// and at this size the functions can be truly random: they are tables. A
// lookup reads one entry of each, which costs no more than a multiplication.
type permutation [3][1 << half]uint16

func newPermutation(rnd func() uint64) *permutation {
	p := new(permutation)
	for i := range p {
		for x := 0; x < len(p[i]); x += 4 {
			r := rnd()
			for k := range 4 {
				p[i][x+k] = uint16(r>>(16*k)) & halfMask
			}
		}
	}
	return p
}

// forward permutes a slot into the upper 24 bits of a key.
func (p *permutation) forward(slot uint32) uint32 {
	l, r := slot>>half&halfMask, slot&halfMask
	l ^= uint32(p[0][r])
	r ^= uint32(p[1][l&halfMask])
	l ^= uint32(p[2][r&halfMask])
	return l<<half | r
}

// inverse undoes forward.
func (p *permutation) inverse(index uint32) uint32 {
	l, r := index>>half&halfMask, index&halfMask
	l ^= uint32(p[2][r])
	r ^= uint32(p[1][l&halfMask])
	l ^= uint32(p[0][r&halfMask])
	return l<<half | r
}

// IncRKey returns the key with its low byte, the consumer's part, counted up
// (ibv_inc_rkey, ib_inc_rkey). The new key names the same object; it is how a
// fast registration or a bind gets a key that the last user does not know.
func IncRKey(k bth.RKey) bth.RKey { return bth.RKey(incKey(uint32(k))) }

func incKey(k uint32) uint32 { return k&^variantMask | (k+1)&variantMask }
