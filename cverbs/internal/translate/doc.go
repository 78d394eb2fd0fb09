// Package translate turns the structures of engine.h into those of package roce and back.
//
// Both sides have the values of the verbs' enumerations. So most of the code refuses values that the verbs
// do not have, and numbers that do not fit into the field of the other side.
package translate

import (
	"encoding/binary"
	"math/bits"
)

// FlowLabelMask is the bits of an IPv6 flow label. Programs such as UCX set other bits, too; as in the kernel
// they are ignored.
const FlowLabelMask = 1<<20 - 1

// psnMask is the bits of a packet sequence number.
const psnMask = 1<<24 - 1

// bigEndian says whether the host has network byte order.
var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// Network converts a number from host to network order, and back.
func Network(x uint32) uint32 {
	if bigEndian {
		return x
	}
	return bits.ReverseBytes32(x)
}

// narrow converts a number to 8 bits. Larger ones become 0xFF, which no enumeration has.
func narrow[T ~uint8](x uint32) T { return T(min(x, 0xFF)) }
