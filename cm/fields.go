package cm

import "encoding/binary"

// fields visits the fields of a message at their offsets in a MAD. It copies them either from the
// MAD to the message or from the message to the MAD, so the layout of each message is in the code
// only once. Before a MAD is written, it is all zero.
type fields struct {
	b   []byte // the MAD, beginning with the message
	put bool   // write; false: read
}

// num visits a big-endian number of n bytes.
func num[T ~uint8 | ~uint16 | ~uint32 | ~uint64](f fields, at, n int, v *T) {
	b := f.b[at : at+n]
	if f.put {
		for i, x := n-1, uint64(*v); i >= 0; i, x = i-1, x>>8 {
			b[i] = byte(x)
		}
		return
	}
	var x uint64
	for _, c := range b {
		x = x<<8 | uint64(c)
	}
	*v = T(x)
}

// bits visits a number of n bits in a byte, beginning at bit low.
func bits[T ~uint8](f fields, at, low, n int, v *T) {
	mask := byte(1)<<n - 1
	if f.put {
		f.b[at] |= byte(*v) & mask << low
	} else {
		*v = T(f.b[at] >> low & mask)
	}
}

// flag visits a bit of a byte.
func (f fields) flag(at, bit int, v *bool) {
	if !f.put {
		*v = f.b[at]>>bit&1 != 0
	} else if *v {
		f.b[at] |= 1 << bit
	}
}

// bytes visits a field that is copied as it is.
func (f fields) bytes(at int, v []byte) {
	if f.put {
		copy(f.b[at:], v)
	} else {
		copy(v, f.b[at:])
	}
}

// ids visits the two IDs that begin every message of an existing exchange: those of its sender
// and of its receiver.
func (f fields) ids(local, remote *CommID) {
	num(f, 0, 4, local)
	num(f, 4, 4, remote)
}

// scattered visits a number of three bytes, the highest first, that are not next to each
// other.
func (f fields) scattered(v *uint32, at ...int) {
	for i, at := range at {
		x := byte(*v >> (8 * (2 - i)))
		num(f, at, 1, &x)
		if !f.put {
			*v = (*v<<8 | uint32(x)) & 0xFFFFFF
		}
	}
}

// flowLabel visits the 20 bits of a flow label, which begin a byte.
func (f fields) flowLabel(at int, v *uint32) {
	x := *v << 4
	if num(f, at, 3, &x); !f.put {
		*v = x >> 4
	}
}

func be16(b []byte) uint16     { return binary.BigEndian.Uint16(b) }
func be64(b []byte) uint64     { return binary.BigEndian.Uint64(b) }
func put16(b []byte, v uint16) { binary.BigEndian.PutUint16(b, v) }
