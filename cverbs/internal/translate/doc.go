// Package translate turns the structures of engine.h into those of package roce and back.
//
// Both sides have the values of the verbs' enumerations, so most of it is about what may not
// pass: values beyond those that the verbs have, and numbers of more bits than the field
// of the other side has.
package translate

import (
	"encoding/binary"
	"math/bits"
)

// FlowLabelMask is the bits of an IPv6 flow label. Programs may set others, as UCX does: the
// kernel ignores them.
const FlowLabelMask = 1<<20 - 1

// psnMask is the bits of a packet sequence number.
const psnMask = 1<<24 - 1

// bigEndian says whether the bytes of numbers lie as the network has them.
var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// Network turns a number of the host into one in network order, and back.
func Network(x uint32) uint32 {
	if bigEndian {
		return x
	}
	return bits.ReverseBytes32(x)
}

// narrow returns a number as one of 8 bits, or 0xFF, which no enumeration has, if it is more.
func narrow[T ~uint8](x uint32) T { return T(min(x, 0xFF)) }
