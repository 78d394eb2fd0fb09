package ids

import (
	"crypto/aes"
	"crypto/cipher"
)

// Shuffle is a secret permutation of the numbers. Without its key the class of a number before the
// permutation cannot be found out.
//
// It is a Feistel network of four rounds, each with AES as its function (Luby and Rackoff, 1988).
type Shuffle struct{ block cipher.Block }

// NewShuffle returns the permutation of a key. Equal keys give equal permutations.
func NewShuffle(key [16]byte) *Shuffle {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // cannot happen: the length of the key is right
	}
	return &Shuffle{block}
}

const (
	rounds   = 4
	halfBits = Bits / 2
	halfMask = 1<<halfBits - 1
)

// of returns the image of a number.
func (s *Shuffle) of(n uint32) uint32 {
	left, right := n>>halfBits, n&halfMask
	for round := range uint32(rounds) {
		left, right = right, left^s.mix(round, right)
	}
	return left<<halfBits | right
}

// mix is the round function of the Feistel network: it returns a half that depends on the key, the
// round, and the other half.
func (s *Shuffle) mix(round, half uint32) uint32 {
	b := [aes.BlockSize]byte{byte(round), byte(half >> 8), byte(half)}
	s.block.Encrypt(b[:], b[:])
	return (uint32(b[0])<<8 | uint32(b[1])) & halfMask
}

// Part is a share of all numbers. Tables that hand out numbers of different parts never hand out
// the same one. The zero value is all of them.
type Part struct {
	// Residue and Class select the numbers that are Residue modulo Class. Class 0 means
	// 1.
	Residue, Class uint32

	// Shuffle, if not nil, permutes the selected numbers. All parts have the same Shuffle. A table
	// may find no free number after it has handed out half of a shuffled part.
	Shuffle *Shuffle
}

// Size is how many numbers the part has, at least.
func (p Part) Size() int { return Space / int(p.class()) }

func (p Part) class() uint32 { return max(p.Class, 1) }

// number returns the number of the part that follows from a random number. ok is false if there is
// none.
func (p Part) number(random uint32) (n uint32, ok bool) {
	n = random % Space
	n += p.Residue - n%p.class()
	if n >= Space {
		return 0, false
	}
	if p.Shuffle != nil {
		n = p.Shuffle.of(n)
	}
	return n, true
}
